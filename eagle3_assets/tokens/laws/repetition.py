"""The law about outputs that go round in circles."""

import numpy as np

from eagle3_assets.tokens import loops
from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.columns import Ids
from eagle3_assets.tokens.laws.base import Found, RowJudgement, RowLaw, Severity, counted
from eagle3_assets.tokens.profile import TargetProfile
from eagle3_assets.tokens.wording import percent

REMARK_IDS, EXTREME_IDS = 100, 400
"""Ids in a run or a loop from which it is remarked on, or is extreme. ``benchmarks.repetition_rates`` says how often
that is wrong."""
REMARK_TIMES, EXTREME_TIMES = 3, 10
"""How often the end of an output repeats."""
REMARK_SHARE, EXTREME_SHARE = 0.5, 0.9
"""Share of an output's passages that stood in it before."""
PASSAGES_FROM = 200
"""Passages are counted in outputs of so many ids: a few short calls of one tool are much alike."""

ENDED_IDS = 2_000
"""Ids of an output that the target ended itself from which a loop or passages are extreme: a caught target does not
find the end, and a hundred equal lines, a matrix or a table of zeros may have been asked for."""

PIECES, PIECES_IDS = 3, 32
"""Pieces, each the beginning of the next and the next one longer, and ids that all but the last one hold, from which
an output is extreme: a target would have to break off anywhere, twice, and to begin anew with not one id between."""

_Fault = tuple[Severity, int, str]


def judge_repetition(batch: Batch) -> RowJudgement:
    """Looks for runs of one id, endings in a loop, beginnings and passages that come again, each where it may be."""
    output = batch.output
    ends = output.lengths - batch.at_stop
    extreme_from = np.where(batch.at_stop, ENDED_IDS, EXTREME_IDS)
    starts = (output.first == batch.context.profile.reasoning_end).astype(np.int64)
    may_run = np.zeros(len(batch), np.bool_)
    may_run[loops.may_have_run(output, REMARK_IDS)] = True
    may_begin_again, may_loop = loops.edges_again(output, starts, ends)
    may_loop &= output.lengths >= REMARK_IDS
    # The estimate is off by some: what is near the limit is counted exactly.
    may_repeat = (output.lengths >= PASSAGES_FROM) & (loops.repeated_shares(output) >= REMARK_SHARE * 0.6)
    faults: dict[int, _Fault] = {}
    for row in np.flatnonzero(may_run | may_loop | may_begin_again | may_repeat).tolist():
        ids = output.row(row)
        found = [
            _run(ids, batch.context.profile) if may_run[row] else None,
            _loop(ids[: ends[row]], extreme_from[row]) if may_loop[row] else None,
            _passages(ids, extreme_from[row]) if may_repeat[row] else None,
            _pieces(ids, int(starts[row])) if may_begin_again[row] else None,
        ]
        worst_first = sorted(filter(None, found), key=lambda fault: fault[0] != "error")
        if worst_first:
            faults[row] = worst_first[0]
    return RowJudgement(~output.null_rows, tuple(_found(faults, severity) for severity in ("error", "warning")))


def _run(ids: Ids, profile: TargetProfile) -> _Fault | None:
    run = loops.longest_run(ids)
    if run.length < REMARK_IDS:
        return None
    said = f"{profile.label(int(ids[run.start]))} {run.length} times in a row from index {run.start} on"
    return _severity(run.length >= EXTREME_IDS), run.start, said


def _loop(ids: Ids, extreme_from: int) -> _Fault | None:
    faults = [
        (
            _severity(loop.length >= extreme_from and loop.times >= EXTREME_TIMES),
            loop.start,
            f"ends in a loop: the same {counted(loop.period, 'id')} {loop.times:.1f} times from index {loop.start} on",
        )
        for loop in loops.ending_loops(ids, REMARK_IDS, REMARK_TIMES)
    ]
    return next((fault for fault in faults if fault[0] == "error"), faults[0] if faults else None)


def _pieces(ids: Ids, start: int) -> _Fault | None:
    places = loops.growing_beginnings(ids[start:])
    extreme = len(places) + 1 >= PIECES and places[-1] >= PIECES_IDS
    if not extreme and (not places or places[-1] < REMARK_IDS):
        return None
    again = f"begins again at index {start + places[0]} with its own first {counted(places[0], 'id')}"
    more = f", and each time with more, {len(places)} times in all: pieces of a stream were joined as if each were new"
    return _severity(extreme), start + places[0], again + more * extreme


def _passages(ids: Ids, extreme_from: int) -> _Fault | None:
    share, first = loops.repeated_share(ids)
    if share < REMARK_SHARE:
        return None
    said = (
        f"{percent(share)} of its passages of {loops.GRAM} ids stood in it before, the first one again at index {first}"
    )
    return _severity(share >= EXTREME_SHARE and len(ids) >= extreme_from), first, said


def _severity(extreme: bool) -> Severity:
    return "error" if extreme else "warning"


def _found(faults: dict[int, _Fault], severity: Severity) -> Found:
    chosen = [(row, index, text) for row, (how, index, text) in faults.items() if how == severity]
    rows, index = (np.array([item[place] for item in chosen], np.int64) for place in (0, 1))
    return Found(rows, index, [text for *_, text in chosen], severity)


REPETITION = RowLaw(
    name="repetition",
    definition=f"An output has no {REMARK_IDS} times the same id in a row, does not end with the same ids"
    f" {REMARK_TIMES} times or more over {REMARK_IDS} ids, does not begin again with its first {REMARK_IDS} ids right"
    f" after them, and at most {REMARK_SHARE:.0%} of its passages of {loops.GRAM} ids stood in it before, if it has"
    f" {PASSAGES_FROM} ids; with {EXTREME_IDS} times the same id in a row, or with {EXTREME_TIMES} times over"
    f" {EXTREME_IDS} ids or {EXTREME_SHARE:.0%} of {EXTREME_IDS} ids ({ENDED_IDS:,} ids where the target itself ended"
    " the output) it is extreme, and quarantined, as is one of"
    f" {PIECES} pieces or more of which each is the beginning of the next, longer one, if {PIECES_IDS} ids stand there"
    " again.",
    asset="raw_generations",
    effect="quarantine",
    lowerable=True,
    meaning="The target is caught in a loop, or its output was put together from overlapping pieces: a drafter would"
    " learn the loop, which is easy to draft and flatters its acceptance.",
    remedy="Look at the samples: chunks of a stream must not be joined as if each were new; loops of the target itself"
    " come with low temperatures and quantised weights. If it does so in service, lower the law to warn."
    " Measured on genuine English and code, it remarked on 0.02% of the outputs (3% of lists in JSON) and quarantined"
    " none: see docs/benchmarks.md.",
    causes=("vllm-project/vllm#52677",),
    judge=judge_repetition,
    columns=("output_ids",),
    nothing="there is no generated row",
    explained_by_echo=True,
)
