"""Laws about how an output ends: finish types, stop ids, caps."""

from typing import Any

import numpy as np
import polars as pl

from eagle3_assets.strict_json import StrictJsonError, parse
from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.columns import filled
from eagle3_assets.tokens.laws.base import RowJudgement, RowLaw, counted, find, needs_stop_ids

SGLANG_CAP = 128
"""SGLang's ``max_new_tokens`` where a request names none."""


def judge_finish_known(batch: Batch) -> RowJudgement:
    """Looks for finish types other than stop and length."""
    recorded = batch.present("finish_type")
    kinds = batch.column("finish_type", pl.String)

    def detail(row: int) -> str:
        return f"finish type {kinds[row]!r} is neither stop nor length"

    return RowJudgement(recorded, (find(recorded & ~batch.stopped & ~batch.cut_off, detail),), missing=~recorded)


def judge_stop_token_last(batch: Batch) -> RowJudgement:
    """Compares the last id of stopped outputs with what the engine says it stopped at, and with the stop set."""
    matched, recorded = batch.column("matched_stop", pl.String), batch.present("matched_stop")
    number = filled(matched.cast(pl.Int64, strict=False), -1)
    last = batch.output.last
    wrong = ~batch.at_recorded_stop | (recorded & (number != last))

    def detail(row: int) -> str:
        return _stop_fault(batch, row, matched[row], int(number[row]), int(last[row]))

    found = find(batch.stopped & wrong, detail, batch.output.lengths - 1)
    return RowJudgement(
        batch.present("finish_type"),
        (found,),
        missing=batch.stopped & ~wrong & ~recorded,
        recorded=batch.stopped & recorded,
    )


def judge_nothing_after_stop(batch: Batch) -> RowJudgement:
    """Looks for stop ids before the last position."""
    stops = batch.output_marks.of(batch.context.all_stop_ids)
    index = stops.where(stops.index < batch.output.lengths[stops.row] - 1).first()
    if batch.own_stop_ids:
        own = batch.output.marks(batch.own_stop_ids)
        own = own.where((own.index < batch.output.lengths[own.row] - 1) & batch.own_stop(own.row, own.id))
        index = np.where((index < 0) | ((own.first() >= 0) & (own.first() < index)), own.first(), index)

    def detail(row: int) -> str:
        token, length = int(batch.output.row(row)[index[row]]), int(batch.output.lengths[row])
        after = length - 1 - int(index[row])
        follow = f"{counted(after, 'id')} {'follows' if after == 1 else 'follow'}"
        return f"{batch.context.profile.label(token)} at index {index[row]} ends the output, yet {follow}"

    return RowJudgement(np.ones(len(batch), np.bool_), (find(index >= 0, detail, index),))


def judge_within_cap(batch: Batch) -> RowJudgement:
    """Compares lengths with the request's cap."""
    cap, lengths = batch.max_new_tokens, batch.output.lengths
    known = cap >= 0

    def detail(row: int) -> str:
        return f"{lengths[row]} output ids, more than the request's max_new_tokens of {cap[row]}"

    return RowJudgement(known, (find(known & (lengths > cap), detail, cap),), missing=~known)


def judge_length_honest(batch: Batch) -> RowJudgement:
    """Checks that an output said to be cut by its cap is as long as the cap, and unfinished."""
    asked, applied = batch.max_new_tokens, batch.numbers("finish_length")
    told = batch.present("finish_length")
    cap = np.where(told, applied, asked)
    cut, lengths = batch.cut_off, batch.output.lengths
    known = ~cut | told | (asked >= 0)
    dishonest = cut & known & (lengths != cap)
    boundary = cut & known & ~dishonest & batch.at_stop
    by_context = cut & known & ~dishonest & ~boundary & told & (applied < asked)
    end = lengths - 1

    def not_at_cap(row: int) -> str:
        return f"finish type length, but there are {lengths[row]} output ids and the cap is {cap[row]}"

    def stop_at_cap(row: int) -> str:
        token = batch.context.profile.label(int(batch.output.last[row]))
        return f"ends with {token} exactly at the cap of {cap[row]}, and the engine calls it length"

    def capped(row: int) -> str:
        if applied[row] == SGLANG_CAP:
            return (
                f"cut at {SGLANG_CAP} tokens, SGLang's default, of the {asked[row]} asked for: was the cap ever sent?"
            )
        return f"capped by context: {applied[row]} of the {asked[row]} tokens asked for"

    found = (
        find(dishonest, not_at_cap, end),
        find(boundary, stop_at_cap, end, severity="warning"),
        find(by_context, capped, end, severity="warning"),
    )
    return RowJudgement(batch.present("finish_type") & known, found, missing=cut & ~known)


def judge_not_stop_only(batch: Batch) -> RowJudgement:
    """Looks for outputs which are one stop id."""
    alone = (batch.output.lengths == 1) & batch.at_stop

    def detail(row: int) -> str:
        return f"the output is {batch.context.profile.label(int(batch.output.first[row]))} and nothing else"

    return RowJudgement(np.ones(len(batch), np.bool_), (find(alone, detail, np.zeros(len(batch), np.int64)),))


def _stop_fault(batch: Batch, row: int, matched: str | None, number: int, last: int) -> str:
    """What is wrong with the end of a stopped output, the most telling kind first."""
    profile = batch.context.profile
    value = _json(matched) if matched is not None else None
    if isinstance(value, str) and "nan" in value.lower():
        return f"bad logits: the engine says {value!r} and put the stop id there itself"
    if matched is not None and not isinstance(value, int):
        return f"ended on {value!r}, which is no token id: a stop string is cut out of the text, not out of the ids"
    if last < 0:
        return "finish type stop, and there are no output ids"
    if value is not None and number != last:
        return f"the engine stopped at {profile.label(number)}, but the last id is {profile.label(last)}"
    own = batch.own_stops_of(row)
    of_target = frozenset() if batch.ignores_eos[row] else batch.context.recorded_stop_ids
    of_profile = batch.context.stop_token_ids is None and own <= of_target
    stop_set = f"the stop set of the profile {profile.name!r}" if of_profile else "the recorded stop set"
    return f"the last id is {profile.label(last)}, not in {stop_set}: {profile.labels(own | of_target)}"


def _json(text: str) -> Any:  # noqa: ANN401 - any JSON value, or the text itself
    try:
        return parse(text.encode())
    except StrictJsonError:
        return text


FINISH_KNOWN = RowLaw(
    name="finish_known",
    definition="The finish type is stop or length.",
    asset="raw_generations",
    effect="quarantine",
    meaning="The output was broken off for another reason, so a drafter would learn an end which the target did not"
    " choose.",
    remedy="Ask again for these samples (retry_failed); if they come back, read the server's log.",
    judge=judge_finish_known,
    columns=("finish_type",),
    nothing="no row records a finish type",
    missing="finish_type is not recorded",
)

STOP_TOKEN_LAST = RowLaw(
    name="stop_token_last",
    definition="A stopped output ends with the id that the engine says it matched, and that id is in the stop set"
    " recorded with it; where none is recorded, in that of the target's profile.",
    asset="raw_generations",
    effect="quarantine",
    meaning="A drafter that never sees the stop token where the target emits it drafts on past the end, or stops too"
    " soon.",
    remedy="Regenerate these samples from the raw endpoint with skip_special_tokens false and no_stop_trim true;"
    " after bad"
    " logits, check the server's weights and kernels first.",
    causes=("ai-dynamo/dynamo#14302", "huggingface/transformers#47912"),
    judge=judge_stop_token_last,
    columns=("output_ids", "finish_type"),
    nothing="no row records a finish type",
    missing="matched_stop is not recorded",
    unless=needs_stop_ids,
    explained_by_echo=True,
)

NOTHING_AFTER_STOP = RowLaw(
    name="nothing_after_stop",
    definition="No stop id stands before the last position of an output.",
    asset="raw_generations",
    effect="quarantine",
    meaning="What follows a stop id was never sampled by the target in service: a drafter would learn tokens past the"
    " end.",
    remedy="Check that the engine's stop set holds the target's stop ids and that ignore_eos is off; then regenerate.",
    causes=("huggingface/transformers#47912",),
    judge=judge_nothing_after_stop,
    columns=("output_ids",),
    nothing="there is no generated row",
    unless=needs_stop_ids,
    explained_by_echo=True,
)

WITHIN_CAP = RowLaw(
    name="within_cap",
    definition="An output has at most max_new_tokens ids, whatever its finish type.",
    asset="raw_generations",
    effect="quarantine",
    meaning="The engine did not do what was asked, or ids were added afterwards, so the output is not what was"
    " sampled.",
    remedy="Find what adds ids between the engine and the file, then regenerate these samples.",
    judge=judge_within_cap,
    columns=("output_ids", "sampling"),
    nothing="no row records max_new_tokens",
    missing="max_new_tokens is not recorded",
    explained_by_echo=True,
)

LENGTH_HONEST = RowLaw(
    name="length_honest",
    definition="An output with finish type length has exactly as many ids as the cap, and the last one is no stop id.",
    asset="raw_generations",
    effect="quarantine",
    meaning="An output cut somewhere else was broken off or lost ids, and a drafter would learn that text ends there.",
    remedy="Regenerate these samples; where context capped them, raise the server's context length or lower"
    " max_new_tokens.",
    judge=judge_length_honest,
    columns=("output_ids", "finish_type"),
    nothing="no row records a finish type and a cap",
    missing="neither finish_length nor max_new_tokens is recorded",
    explained_by_echo=True,
)

NOT_STOP_ONLY = RowLaw(
    name="not_stop_only",
    definition="An output is more than the stop token.",
    asset="raw_generations",
    effect="quarantine",
    lowerable=True,
    meaning="There is nothing in it for a drafter to learn but to end at once, and it usually points at a wrong"
    " prompt.",
    remedy="Look at the prompts of these samples: an answer may already be in them, or the generation suffix is wrong.",
    judge=judge_not_stop_only,
    columns=("output_ids",),
    nothing="there is no generated row",
    unless=needs_stop_ids,
)
