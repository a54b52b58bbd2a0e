"""Laws about what is recorded with an output: log-probabilities, sampling parameters, the hash taken at capture."""

import json
from collections.abc import Iterator

import numpy as np
import polars as pl

from eagle3_assets.identity import stored_ids_sha256
from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.columns import MAX_ID, MIN_ID, Ints, Mask, TokenColumn, nulls
from eagle3_assets.tokens.laws.base import Found, RowJudgement, RowLaw, find
from eagle3_assets.tokens.safe_text import visible

LOGPROB_IDS = "output_logprob_ids"
"""A column that some sources have beside the contract's: the ids that the log-probabilities are of."""


PROBABILITY_NOISE = 0.01
"""How far a log-probability may lie above 0. Engines compute them in 32 bits, where a certain token has 0.0 or less or
some 1e-7; a probability that was kept in bfloat16 may be the next number above 1, whose logarithm is 0.0078."""


def judge_logprobs_agree(batch: Batch) -> RowJudgement:
    """Compares log-probabilities with the output ids: their ids where recorded, their number, their values."""
    values = batch.column("output_logprobs", pl.List(pl.Float32))
    recorded = batch.present("output_logprobs")
    if not recorded.any():
        return RowJudgement(recorded)
    count = values.list.len().fill_null(0).to_numpy().astype(np.int64)
    ids = TokenColumn.from_series(batch.column(LOGPROB_IDS, pl.List(pl.Int32)))
    departs = np.where(recorded & ~ids.null_rows, batch.output.first_difference(ids), -1)
    other_ids = departs >= 0
    other_count = recorded & ~other_ids & (count != batch.output.lengths)
    impossible = np.where(other_ids | other_count, -1, _first_impossible(values, count))

    def wrong_ids(row: int) -> str:
        return f"the log-probabilities are of other ids, from index {departs[row]} on"

    def wrong_count(row: int) -> str:
        return f"{count[row]} log-probabilities for {batch.output.lengths[row]} output ids"

    def no_probability(row: int) -> str:
        value = values[row][int(impossible[row])]
        above = ", above 0" if value is not None and 0 < value < np.inf else ""
        return f"the log-probability at index {impossible[row]} is {value}{above}"

    found = (
        find(other_ids, wrong_ids, departs),
        find(other_count, wrong_count),
        find(impossible >= 0, no_probability, impossible),
    )
    return RowJudgement(recorded, found)


def judge_sampling_recorded(batch: Batch) -> RowJudgement:
    """Looks for sampling parameters left to the engine's defaults, and for rows that another request was made of."""
    faults = batch.samplings["fault"]

    def detail(row: int) -> str:
        return str(faults[row])

    recorded = batch.present("sampling")
    incomplete = recorded & ~nulls(faults)
    found = (find(incomplete, detail), *_of_another_request(batch, recorded & ~incomplete))
    return RowJudgement(recorded, found, missing=~recorded)


def _of_another_request(batch: Batch, complete: Mask) -> Iterator[Found]:
    """Rows whose records are not those of the file that they lie in; nothing where the file has no identity."""
    file = batch.context.file_identity
    if file is None:
        return
    sampling, identity = batch.column("sampling", pl.String), batch.column("identity", pl.String)

    def other_sampling(row: int) -> str:
        return (
            f"its sampling is not that of the file's identity: {', '.join(_departures(sampling[row], file.sampling))}"
        )

    def other_identity(row: int) -> str:
        return f"its identity is {visible(identity[row] or 'not recorded')}, the file's is {file.fingerprint}"

    yield find(complete & (sampling != file.sampling).fill_null(value=True).to_numpy(), other_sampling)
    yield find((identity != file.fingerprint).fill_null(value=True).to_numpy(), other_identity)
    yield find(~batch.present("request_key"), lambda _: "its request key is not recorded")


def _departures(record: str, expected: str) -> list[str]:
    there, wanted = json.loads(record), json.loads(expected)
    differing = sorted(name for name in there.keys() | wanted.keys() if there.get(name) != wanted.get(name))
    shown = [f"{name} is {there.get(name)!r}, not {wanted.get(name)!r}" for name in differing]
    return [visible(text) for text in shown] or ["it is written in another way"]


def judge_stored_as_captured(batch: Batch) -> RowJudgement:
    """Hashes the ids again, a row at a time."""
    captured, recorded = batch.column("ids_sha256", pl.String), batch.present("ids_sha256")
    prompt, output = batch.prompt, batch.output
    wide = (prompt.outside(MIN_ID, MAX_ID + 1).count() + output.outside(MIN_ID, MAX_ID + 1).count()) > 0
    every = zip(captured.to_list(), wide.tolist(), prompt.row_bytes(), output.row_bytes(), strict=True)
    rows = [
        row
        for row, (expected, is_wide, sent, answered) in enumerate(every)
        if expected is not None and (is_wide or stored_ids_sha256(sent, answered) != expected)
    ]
    details = ["the ids are not those whose hash was taken when the reply was captured"] * len(rows)
    found = Found(np.array(rows, np.int64), np.full(len(rows), -1, np.int64), details, "error")
    return RowJudgement(recorded, (found,), missing=~recorded)


def _first_impossible(values: pl.Series, count: Ints) -> Ints:
    """Index of each row's first value that is not finite or above 0, -1 where there is none."""
    flat = values.explode(empty_as_null=False, keep_nulls=False).cast(pl.Float64).fill_null(np.nan).to_numpy()
    ends = np.cumsum(count)
    positions = np.flatnonzero(~(np.isfinite(flat) & (flat <= PROBABILITY_NOISE)))[::-1]
    row = np.searchsorted(ends, positions, side="right")
    first = np.full(len(values), -1, np.int64)
    first[row] = positions - (ends - count)[row]  # positions go down, so each row keeps its first
    return first


LOGPROBS_AGREE = RowLaw(
    name="logprobs_agree",
    definition="Recorded log-probabilities are of the output's own ids, one for each, finite and not above 0.",
    asset="raw_generations",
    effect="quarantine",
    meaning="Ids and log-probabilities are of different outputs: the ids were made again from text, or mixed up on"
    " the way; or the numbers are no log-probabilities, as of logits that were broken.",
    remedy="Take both from the same raw reply and never encode an output's text; then regenerate these samples.",
    causes=("huggingface/trl#5224",),
    judge=judge_logprobs_agree,
    columns=("output_ids", "output_logprobs"),
    nothing="no row records log-probabilities",
    explained_by_echo=True,
)

SAMPLING_RECORDED = RowLaw(
    name="sampling_recorded",
    definition="Every row records every sampling parameter explicitly, with values that an engine can mean, and the"
    " request of the file that it lies in.",
    asset="raw_generations",
    effect="refuse",
    meaning="Nobody can say which distribution the tokens come from, as engines fill gaps with defaults of their own.",
    remedy="Restore the file from a copy, or regenerate with every parameter in the request; add parameters that are"
    " missing to a foreign file only if you know them.",
    judge=judge_sampling_recorded,
    columns=("sampling",),
    nothing="no row records its sampling parameters",
    missing="its sampling parameters are not recorded",
)

STORED_AS_CAPTURED = RowLaw(
    name="stored_as_captured",
    definition="The ids read back have the hash that was taken when the engine's reply was captured.",
    asset="raw_generations",
    effect="refuse",
    meaning="The stored ids were changed after capture: by an edit, a faulty disk or a tool that rewrote the file.",
    remedy="Restore the file from a copy, or ask for these samples again: retry_broken in raw_generations' run"
    " config, or eagle3-assets materialize PARTITION --retry-broken.",
    judge=judge_stored_as_captured,
    columns=("prompt_ids", "output_ids", "ids_sha256"),
    nothing="no row records a hash",
    missing="its hash is not recorded",
)
