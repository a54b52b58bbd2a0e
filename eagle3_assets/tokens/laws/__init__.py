"""The laws of token fidelity, each declared once.

What belongs here: the list. To add a law, declare it beside its function in one of the modules and name it below.
"""

from collections.abc import Mapping

from eagle3_assets.tokens.laws import counts, endings, partition, prompts, reasoning, records, replay, tools
from eagle3_assets.tokens.laws.base import Asset, Effect, Law, PartitionLaw, RowLaw

__all__ = ["LAWS", "ON_REQUEST", "Law", "PartitionLaw", "RowLaw", "effective", "laws_of", "lowerable_laws"]

LAWS: tuple[RowLaw | PartitionLaw, ...] = (
    prompts.TOKENIZER_CANARY,
    prompts.PROMPTS_ACCOUNTED,
    prompts.PROMPTS_REFUSED,
    prompts.PROMPT_REPRODUCIBLE,
    prompts.PROMPT_SUFFIX,
    counts.NO_PROMPT_ECHO,  # first of those about outputs: an echo explains what others find
    counts.PROMPT_AS_GENERATED,
    counts.SERVER_SAW_PROMPT,
    counts.COMPLETION_COUNT,
    counts.IDS_IN_VOCABULARY,
    endings.FINISH_KNOWN,
    endings.STOP_TOKEN_LAST,
    endings.NOTHING_AFTER_STOP,
    endings.WITHIN_CAP,
    endings.LENGTH_HONEST,
    endings.NOT_STOP_ONLY,
    reasoning.REASONING_CLOSED,
    reasoning.REASONING_NOT_REOPENED,
    reasoning.REASONING_OFF,
    tools.TOOL_GRAMMAR,
    records.LOGPROBS_AGREE,
    records.SAMPLING_RECORDED,
    partition.CONSERVATION,
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
