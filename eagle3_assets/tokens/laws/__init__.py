"""The laws of token fidelity, each declared once.

What belongs here: the list. To add a law, declare it beside its function in one of the modules and name it below.
"""

from collections.abc import Mapping

from eagle3_assets.tokens.laws import (
    counts,
    duplicates,
    endings,
    messages,
    one_target,
    partition,
    prompts,
    reasoning,
    records,
    repetition,
    replay,
    special_ids,
    structure,
    texts,
    tool_texts,
    tools,
)
from eagle3_assets.tokens.laws.base import Asset, Effect, Law, PartitionLaw, RowLaw

__all__ = ["LAWS", "ON_REQUEST", "Law", "PartitionLaw", "RowLaw", "effective", "laws_of", "lowerable_laws"]

LAWS: tuple[RowLaw | PartitionLaw, ...] = (
    prompts.TOKENIZER_CANARY,
    prompts.PROMPTS_ACCOUNTED,
    prompts.PROMPTS_REFUSED,
    prompts.PROMPT_REPRODUCIBLE,
    prompts.PROMPT_SUFFIX,
    prompts.PROMPT_INJECTION,  # before the next: it says where such ids come from
    special_ids.PROMPT_WELL_FORMED,
    prompts.TOOLS_RENDERED,
    prompts.MESSAGES_RENDERED,
    structure.TARGET_STRUCTURE,  # before all about outputs: of another target's ids they say little
    counts.NO_PROMPT_ECHO,  # first of those about outputs: an echo explains what others find
    counts.PROMPT_AS_GENERATED,
    counts.SERVER_SAW_PROMPT,
    counts.COMPLETION_COUNT,
    counts.USAGE_CONSISTENT,
    counts.IDS_IN_VOCABULARY,
    special_ids.NO_RESERVED_IDS,
    special_ids.NO_ROLE_IDS,
    endings.FINISH_KNOWN,
    endings.STOP_TOKEN_LAST,
    endings.NOTHING_AFTER_STOP,
    endings.WITHIN_CAP,
    endings.LENGTH_HONEST,
    endings.NOT_STOP_ONLY,
    reasoning.REASONING_CLOSED,
    reasoning.REASONING_NOT_REOPENED,
    reasoning.REASONING_OFF,
    messages.MESSAGE_GRAMMAR,
    tools.TOOL_GRAMMAR,
    tool_texts.TOOL_CALL_ID,
    tool_texts.TOOL_ARGUMENTS_JSON,
    tool_texts.TOOL_DECLARED,
    tool_texts.TOOL_ORDER,
    repetition.REPETITION,
    texts.TEXT_AGREES,
    texts.NO_REPLACEMENT_CHARACTER,
    texts.RETOKENIZATION_DRIFT,
    records.LOGPROBS_AGREE,
    records.SAMPLING_RECORDED,
    one_target.ONE_TARGET,
    partition.CONSERVATION,
    duplicates.DUPLICATES,
    records.STORED_AS_CAPTURED,
    partition.LENGTH_BAND,
    partition.CUT_OFF_SHARE,
)
"""Every law that each judgement applies, in the order in which people are shown them."""

ON_REQUEST: tuple[RowLaw, ...] = (replay.REPLAYED,)
"""Laws that cost the target's time, judged where a person asks for it."""


def laws_of(asset: Asset) -> tuple[RowLaw | PartitionLaw, ...]:
    """The laws of one asset, in order."""
    return tuple(law for law in LAWS if law.asset == asset)


def lowerable_laws() -> list[str]:
    """Names of the laws that a target's habit may break, in order: a config's ``law_effects`` may lower these."""
    return [law.name for law in LAWS if law.lowerable]


def effective(law_effects: Mapping[str, str] | None = None) -> dict[str, Effect]:
    """Every law's effect after a config's ``law_effects``, by name.

    Raises:
        ValueError: a name is no law, or one that cannot be lowered to warn.
    """
    effects: dict[str, Effect] = {law.name: law.effect for law in (*LAWS, *ON_REQUEST)}
    lowerable = lowerable_laws()
    for name in law_effects or {}:
        if name not in lowerable:
            why = f"is no matter of a target's habit ({effects[name]})" if name in effects else "is not a law"
            raise ValueError(f"law_effects: {name!r} {why}; these can be lowered to warn: {', '.join(lowerable)}")
        effects[name] = "warn"
    return effects
