"""Laws about prompts before anything is generated: the tokenizer, the rendering, the end of each prompt."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import polars as pl

from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.columns import Mask, TokenColumn, where
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.inert_prompts import REFUSED, tells
from eagle3_assets.tokens.laws.base import (
    PartitionJudgement,
    PartitionLaw,
    RowJudgement,
    RowLaw,
    counted,
    find,
    needs_inert_prompts,
    needs_rerendered_prompts,
    needs_source_sample_ids,
    needs_suffixes,
    needs_tokenizer,
    needs_unrendered_messages,
    shown_name,
)
from eagle3_assets.tokens.profile import TargetProfile, Tokenizer
from eagle3_assets.tokens.profile_spec import MODES, Mode
from eagle3_assets.tokens.reasons import reason_kinds
from eagle3_assets.tokens.safe_text import visible
from eagle3_assets.tokens.wording import percent


def judge_tokenizer_canary(facts: pl.DataFrame, context: Context) -> PartitionJudgement:  # noqa: ARG001 - a law's form
    """Asks the tokenizer for every structural token in both directions; needs no row."""
    tokenizer = context.tokenizer
    assert tokenizer is not None  # noqa: S101 - the law's condition
    faults = [*_token_faults(tokenizer, context.profile), *_suffix_faults(tokenizer, context.profile)]
    known = len(context.profile.structural_ids & context.profile.tokens.keys())
    said = faults or [f"{known} structural tokens encode to their id and decode back"]
    said += [f"code that came with the target was trusted: {', '.join(context.remote_code)}"] * bool(
        context.remote_code
    )
    return PartitionJudgement(len(faults), tuple(said), figures={"structural_tokens": known})


def judge_prompt_reproducible(batch: Batch) -> RowJudgement:
    """Compares prompts with those rendered again, row by row; one that is not rendered any more is another one."""
    row_of, again = batch.context.rerendered
    rows = np.fromiter((row_of.get(sample, -1) for sample in batch.sample_ids), np.int64, len(batch))
    judged, rendered = rows >= 0, again.take(rows)
    gone = judged & rendered.null_rows
    departs = np.where(judged & ~gone, batch.prompt.first_difference(rendered), -1)

    def nothing(row: int) -> str:
        return (
            f"rendering it again gives nothing instead of {batch.prompt.lengths[row]} ids: the chat template refuses"
            " it now, or prompts has no such sample any more"
        )

    def other(row: int) -> str:
        return (
            f"rendered again it has {rendered.lengths[row]} ids instead of {batch.prompt.lengths[row]}, the first"
            f" difference at index {departs[row]}"
        )

    return RowJudgement(judged, (find(gone, nothing), find(departs >= 0, other, departs)))


def judge_prompt_injection(batch: Batch) -> RowJudgement:
    """Compares the structural ids with those of the same conversation rendered with inert text."""
    context = batch.context
    inert = context.inert_prompts
    assert inert is not None  # noqa: S101 - the law's condition
    kinds = np.fromiter((inert.kinds.get(sample, -1) for sample in batch.sample_ids), np.int64, len(batch))
    marks = batch.prompt.marks(context.control_ids)
    ours, theirs = TokenColumn.from_marks(marks), inert.control.take(np.maximum(kinds, REFUSED))
    judged = (kinds >= 0) & (kinds != REFUSED)
    unknown = (kinds == REFUSED) & ~batch.prompt.null_rows
    wrong = judged & (ours.first_difference(theirs) >= 0)
    index = np.full(len(batch), -1, np.int64)
    for row in np.flatnonzero(wrong).tolist():
        found = ours.row(row).tolist()
        place = _inserted_at(found, theirs.row(row).tolist())
        index[row] = marks.index[ours.offsets[row] + place] if place < len(found) else -1

    def detail(row: int) -> str:
        found, expected = Counter(ours.row(row).tolist()), Counter(theirs.row(row).tolist())
        added, lost = found - expected, expected - found
        said = [f"text of the conversation became {_labels(added, context)}"] if added else []
        said += [f"text of the conversation took {_labels(lost, context)} away"] if lost else []
        return "; ".join(said) or "text of the conversation put its structural ids into another order"

    def without_twin(row: int) -> str:  # noqa: ARG001 - the form of a detail
        return "cannot be compared: the chat template refuses the conversation with inert text"

    found_rows = (find(wrong, detail, index), find(unknown, without_twin, severity="warning"))
    return RowJudgement(judged, found_rows)


def judge_tools_rendered(batch: Batch) -> RowJudgement:
    """Looks for the declared tools' names in the decoded prompts; in those of inert text too, where there are some.

    There the template alone can have named them, and no message.
    """
    codec = batch.context.codec
    assert codec is not None  # noqa: S101 - the law's condition
    names = [declared or () for declared in batch.declared_tools]
    declaring = np.array([bool(given) for given in names], np.bool_)
    texts = codec.texts(batch.prompt, declaring)
    inert = batch.context.inert_prompts
    untold = {} if inert is None else inert.untold
    absent = [
        [] if text is None else [name for name in given if name in untold.get(sample, ()) or not tells(text, name)]
        for sample, given, text in zip(batch.sample_ids, names, texts, strict=True)
    ]

    def detail(row: int) -> str:
        shown = ", ".join(visible(name) for name in absent[row][:SHOWN_TOOLS])
        more = f" and {len(absent[row]) - SHOWN_TOOLS} more" if len(absent[row]) > SHOWN_TOOLS else ""
        named = len(names[row]) - len(absent[row])
        return f"the prompt names {named} of {len(names[row])} declared tools, not {shown}{more}"

    judged = np.array([text is not None for text in texts], np.bool_)
    return RowJudgement(judged, (find(np.array([bool(lost) for lost in absent], np.bool_), detail),))


def judge_messages_rendered(batch: Batch) -> RowJudgement:
    """Asks the prompts of inert text, where every message can be told from the others, for messages that are gone."""
    inert = batch.context.inert_prompts
    assert inert is not None  # noqa: S101 - the law's condition
    assert inert.unrendered is not None  # noqa: S101 - the law's condition
    lost = [inert.unrendered.get(sample, ()) for sample in batch.sample_ids]
    known = np.array([inert.kinds.get(sample, REFUSED) != REFUSED for sample in batch.sample_ids], np.bool_)

    def detail(row: int) -> str:
        names = lost[row] or ()
        more = f" and of {len(names) - SHOWN_MESSAGES} more" if len(names) > SHOWN_MESSAGES else ""
        return f"nothing is in the prompt of {', '.join(map(visible, names[:SHOWN_MESSAGES]))}{more}"

    return RowJudgement(
        known & np.array([names is not None for names in lost], np.bool_),
        (find(known & np.array([bool(names) for names in lost], np.bool_), detail),),
    )


def judge_prompts_accounted(facts: pl.DataFrame, context: Context) -> PartitionJudgement:
    """Compares the sample ids with those of the prompts that there are now."""
    expected = context.source_sample_ids
    assert expected is not None  # noqa: S101 - the law's condition
    if not len(facts) and not expected:
        return PartitionJudgement(0, reason="there are no prompts", judged=False)
    times = _times(facts["sample_id"].fill_null("").to_list())
    faults = [(i, f"{n} rows with this sample id") for i, n in times.items() if n > 1]
    faults += [(i, "prompts has no such sample") for i in times if i not in expected]
    faults += [(i, "tokenized_prompts has no row for it") for i in sorted(expected - times.keys())]
    if not faults:
        return PartitionJudgement(0, (f"all {len(expected):,} samples of prompts have one row",))
    kinds = Counter(text for _, text in faults)
    first = f"{shown_name(faults[0][0])}: {faults[0][1]}"
    kinds_said = ", ".join(f"{number:,} times {text}" for text, number in kinds.items())
    said = f"{counted(len(faults), 'fault')}, first {first} (in all {kinds_said})"
    return PartitionJudgement(len(faults), (said,), tuple(faults))


def _times(names: list[str]) -> Mapping[str, int]:
    """How often each name stands there, in the order of their first times."""
    once = dict.fromkeys(names, 1)  # many times as fast as counting, and mostly enough
    return once if len(once) == len(names) else Counter(names)


def judge_prompts_refused(facts: pl.DataFrame, context: Context) -> PartitionJudgement:  # noqa: ARG001 - a law's form
    """Counts the prompts that are never sent, by reason."""
    facts = facts.filter(pl.col("status").is_in(["ready", "refused"]))
    if facts.is_empty():
        return PartitionJudgement(0, reason="no row says whether its prompt was refused", judged=False)
    refused = facts.filter(pl.col("status") == "refused")
    share = len(refused) / len(facts)
    said = f"{len(refused):,} of {counted(len(facts), 'prompt')} refused ({percent(share, 2)})"
    if len(refused):
        reasons = reason_kinds(refused["reason"].cast(pl.String))
        said += "; " + "; ".join(f"{number:,} times {visible(kind)}" for kind, number in reasons.head(3).iter_rows())
    return PartitionJudgement(int(share > REFUSED_REMARK), (said,), figures={"refused_share": share})


def judge_prompt_suffix(batch: Batch) -> RowJudgement:
    """Compares each prompt's end with the suffix of its thinking mode and, where it matters, of its last message.

    Where the mode is not recorded the suffix of any mode will do, if all of them are described.
    """
    profile = batch.context.profile
    suffixes, after_tool = profile.suffixes, profile.suffixes_after_tool
    thinking = batch.column("thinking", pl.Boolean)
    given = batch.prompt.lengths > 0  # an empty prompt is no matter of its suffix
    silent: Mask = ~batch.present("thinking") & given
    right_in_any, judged, wrong, needless = np.zeros((4, len(batch)), np.bool_)
    modes: tuple[tuple[bool, Mode], ...] = ((True, "thinking"), (False, "no_thinking"))
    for flag, mode in modes:
        if mode in suffixes:
            rows = where(thinking == flag) & given
            judged |= rows
            right = batch.prompt.ends_with(suffixes[mode])
            if mode in after_tool:
                right |= batch.prompt.ends_with(after_tool[mode])
                needless |= (rows | silent) & batch.prompt.ends_with((*after_tool[mode], *suffixes[mode]))
            wrong |= rows & ~right
            right_in_any |= right
    if suffixes.keys() >= set(MODES):
        judged |= silent
        wrong |= silent & ~right_in_any

    def detail(row: int) -> str:
        prompt = batch.prompt.row(row).tolist()
        if silent[row]:
            return _no_suffix(prompt, profile)
        mode: Mode = "thinking" if thinking[row] else "no_thinking"
        return _suffix_difference(prompt, suffixes[mode], mode, profile)

    def after_result(row: int) -> str:
        of_mode = "a mode" if silent[row] else "mode thinking" if thinking[row] else "mode no_thinking"
        return f"ends with the suffix of {of_mode} after a tool result"

    last = batch.prompt.lengths - 1
    return RowJudgement(
        judged,
        (find(wrong, detail, last), find(needless, after_result, last)),
        missing=silent & ~wrong & ~needless,
        recorded=judged & ~silent,
    )


def _no_suffix(prompt: list[int], profile: TargetProfile) -> str:
    """Why a prompt ends with no suffix at all: it may go on after one."""
    longest = max(map(len, profile.suffixes.values()))
    ending = _shown_ids(prompt[-longest:], profile)
    beyond = next(
        (
            beyond
            for beyond in range(1, SUFFIX_WITHIN)
            for suffix in profile.suffixes.values()
            if tuple(prompt[:-beyond][-len(suffix) :]) == suffix
        ),
        None,
    )
    if beyond is not None:
        return f"goes on for {counted(beyond, 'id')} after a generation suffix: it ends with {ending}"
    known = " or ".join(_shown_ids(s, profile) for s in sorted(set(profile.suffixes.values())))
    return f"ends with {ending}, not with a generation suffix of the profile {profile.name!r}: {known}"


def _shown_ids(ids: Iterable[int], profile: TargetProfile) -> str:
    return " ".join(profile.tokens.get(i, str(i)) for i in ids)


def _suffix_difference(prompt: list[int], suffix: tuple[int, ...], mode: Mode, profile: TargetProfile) -> str:
    ending = prompt[-len(suffix) :]
    other = next((m for m, s in profile.suffixes.items() if s != suffix and tuple(prompt[-len(s) :]) == s), None)
    if other is not None:
        return f"ends with the suffix of mode {other}, not of {mode}"
    found, expected = _shown_ids(ending, profile), _shown_ids(suffix, profile)
    return f"ends with {found}, not with the {mode} suffix {expected}"


def _inserted_at(found: list[int], expected: list[int]) -> int:
    """Where the first id that is too many stands; of equal neighbours the first, as text comes before what ends it."""
    before = _common(found, expected)
    after = _common(found[::-1], expected[::-1])
    return min(before, max(0, len(expected) - after))


def _common(one: list[int], other: list[int]) -> int:
    """How many ids two lists begin with in common."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _labels(ids: Counter[int], context: Context) -> str:
    return ", ".join(f"{context.label(i)}{f' {times} times' if times > 1 else ''}" for i, times in sorted(ids.items()))


def _token_faults(tokenizer: Tokenizer, profile: TargetProfile) -> Iterator[str]:
    for token_id in sorted(profile.structural_ids & profile.tokens.keys()):
        token = profile.tokens[token_id]
        encoded = list(tokenizer.encode(token, add_special_tokens=False))
        decoded = tokenizer.decode([token_id], skip_special_tokens=False)
        known_as = tokenizer.convert_tokens_to_ids(token)
        if known_as != token_id:
            yield f"{token} has id {known_as} in the tokenizer, {token_id} in the profile"
        elif encoded != [token_id]:
            yield f"{token} encodes to {encoded}, not to [{token_id}]"
        elif decoded != token:
            yield f"id {token_id} decodes to {decoded!r}, not to {token}"


def _suffix_faults(tokenizer: Tokenizer, profile: TargetProfile) -> Iterator[str]:
    for mode, text in profile.suffix_texts.items():
        ids, expected = list(tokenizer.encode(text, add_special_tokens=False)), list(profile.suffixes.get(mode, ()))
        if ids != expected:
            yield f"the {mode} suffix encodes to {ids}, not to {expected}"
        elif (decoded := tokenizer.decode(ids, skip_special_tokens=False)) != text:
            yield f"the {mode} suffix decodes to {decoded!r}, not to {text!r}"


REFUSED_REMARK = 0.10
"""Share of refused prompts from which the check asks a person to look; below it the figure is only shown."""

SUFFIX_WITHIN = 20
"""Ids before a prompt's end within which a suffix is looked for, to say that the prompt goes on after it."""

SHOWN_TOOLS = 3
"""Tools that a finding names."""

SHOWN_MESSAGES = 3
"""Messages that a finding names."""

TOKENIZER_CANARY = PartitionLaw(
    name="tokenizer_canary",
    definition="Every structural token of the profile encodes to its one id and decodes back to itself.",
    asset="tokenized_prompts",
    effect="block",
    meaning="The tokenizer does not say what the target reads, so every prompt and every shown text is in doubt.",
    remedy="Install another transformers version or give the target's own tokenizer as target.tokenizer, then"
    " tokenize again.",
    causes=("huggingface/transformers#45356",),
    judge=judge_tokenizer_canary,
    unless=needs_tokenizer,
)

PROMPTS_ACCOUNTED = PartitionLaw(
    name="prompts_accounted",
    definition="The samples of tokenized_prompts are those of prompts, each of them once.",
    asset="tokenized_prompts",
    effect="block",
    meaning="The tokenized prompts are of another state of the dataset: what is generated would not be what the config"
    " names.",
    remedy="Materialize tokenized_prompts again.",
    judge=judge_prompts_accounted,
    unless=needs_source_sample_ids,
)

PROMPT_REPRODUCIBLE = RowLaw(
    name="prompt_reproducible",
    definition="Rendering and tokenizing the conversation again gives the same prompt ids.",
    asset="tokenized_prompts",
    effect="block",
    meaning="The chat template or the tokenizer changed, or depends on the clock: prompts of one partition are of two"
    " kinds.",
    remedy="Materialize tokenized_prompts again; if it stays, look for a date or a random part in the chat template.",
    judge=judge_prompt_reproducible,
    columns=("prompt_ids",),
    nothing="none of the prompts that were rendered again is in the partition",
    others="they were not rendered again",
    unless=needs_rerendered_prompts,
)

PROMPTS_REFUSED = PartitionLaw(
    name="prompts_refused",
    definition=f"At most {REFUSED_REMARK:.0%} of the prompts are refused before generation.",
    asset="tokenized_prompts",
    effect="warn",
    meaning="The drafter would learn from another mixture of prompts than the dataset's: refused ones are rarely a"
    " random choice.",
    remedy="Each refused row of tokenized_prompts says why; mend the source, the chat template or the dataset's"
    " settings and materialize it again.",
    judge=judge_prompts_refused,
)

PROMPT_SUFFIX = RowLaw(
    name="prompt_suffix",
    definition="The prompt ends with the exact generation suffix of its thinking mode and last message; where the mode"
    " is not recorded, with that of any mode.",
    asset="tokenized_prompts",
    effect="quarantine",
    meaning="The target would not answer in the place where it answers in production, so a drafter would learn other"
    " openings.",
    remedy="Check the chat template, its add_generation_prompt and the dataset's thinking mode; correct the profile's"
    " suffixes"
    " with target.profile_overrides if the template is right.",
    judge=judge_prompt_suffix,
    columns=("prompt_ids",),
    nothing="the profile describes no suffix for the rows' thinking mode, or their mode is not recorded",
    others="the profile describes no suffix for their thinking mode",
    missing="its thinking mode is not recorded",
    unless=needs_suffixes,
)

PROMPT_INJECTION = RowLaw(
    name="prompt_injection",
    definition="The prompt's structural ids are exactly those of the same conversation with every text replaced by"
    " inert text.",
    asset="tokenized_prompts",
    effect="quarantine",
    meaning="Text of the conversation spells structural tokens, such as <|im_end|> or [PAD], and became real ones: the"
    " target reads turns or marks that nobody meant.",
    remedy="Reword that text in the source, or remove the row; such a prompt is never sent, and the others are as long"
    " as quarantine_limit allows.",
    causes=("huggingface/transformers#47822", "huggingface/transformers#29279"),
    judge=judge_prompt_injection,
    columns=("prompt_ids",),
    nothing="none of the prompts was rendered with inert text",
    others="they were not rendered with inert text",
    unless=needs_inert_prompts,
)

TOOLS_RENDERED = RowLaw(
    name="tools_rendered",
    definition="The name of every declared tool is in the rendered prompt, put there by the chat template.",
    asset="tokenized_prompts",
    effect="quarantine",
    meaning="The template drops the tools without a word: the target is asked to use tools that it was never shown, and"
    " answers otherwise than in production.",
    remedy="Give a chat template that renders tools as target.chat_template, or take the tools out of the dataset, then"
    " tokenize again.",
    causes=("ai-dynamo/dynamo#13396",),
    judge=judge_tools_rendered,
    columns=("prompt_ids",),
    nothing="no prompt is known to declare tools",
    unless=needs_tokenizer,
)

MESSAGES_RENDERED = RowLaw(
    name="messages_rendered",
    definition="Something of every message with content or tool calls is in the rendered prompt, and of each call the"
    " function's name; reasoning of earlier turns may be left out.",
    asset="tokenized_prompts",
    effect="quarantine",
    meaning="The template drops system prompts, tool results, turns or the names of called functions without a word:"
    " the target answers to another conversation than the dataset's.",
    remedy="Look at it with eagle3-assets prompt; give a chat template that renders every role as target.chat_template,"
    " or, where the target's own template is so in production, lower the law with law_effects.",
    judge=judge_messages_rendered,
    columns=("prompt_ids",),
    nothing="none of the prompts was rendered with inert text",
    unless=needs_unrendered_messages,
    lowerable=True,
)
