"""The laws of an export, judged on files as they are read back.

What belongs here: one function for each law, over the rows of one file and their lines in the index. Not here: laws of
outputs (``tokens.laws``), which judge before anything is exported; opening files (``formats``).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict

from eagle3_assets.exports.selection import EVAL, held_out
from eagle3_assets.identity import ids_sha256
from eagle3_assets.tokens.columns import MAX_ID, MIN_ID, Ids, Mask, TokenColumn
from eagle3_assets.tokens.laws.base import Found, RowJudgement, counted, find

NO_ROWS = "there are no rows"


@dataclass(frozen=True, slots=True)
class RowFacts:
    """What the laws need beside the rows: the same for every file of an export."""

    vocab_size: int
    max_length: int | None
    eval_share: float
    named: bool = True
    """Whether the format has a place for the ids of samples."""
    lossy: bool = False
    """Whether the format holds text alone, and neither ids nor mask."""


@dataclass(frozen=True)
class Rows:
    """The rows of one file beside what the index says of them; row i of the one is row i of the other."""

    ids: list[str | None]
    """As the file has them; None where it has none."""
    tokens: TokenColumn
    mask: TokenColumn
    index: pl.DataFrame
    """``contract.TRAINING_EXPORT`` of these rows."""
    facts: RowFacts

    @classmethod
    def of(cls, read: pl.DataFrame, index: pl.DataFrame, facts: RowFacts) -> "Rows":
        """Rows as a format read them (``formats.ReadBack``) and their index, of equal length."""
        return cls(
            read["id"].to_list(),
            TokenColumn.from_series(read["input_ids"]),
            TokenColumn.from_series(read["loss_mask"]),
            index,
            facts,
        )

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def same_length(self) -> Mask:
        """Whether a row has as many mask values as ids, and any."""
        same: Mask = (self.tokens.lengths == self.mask.lengths) & (self.tokens.lengths > 0)
        return same


@dataclass(frozen=True, slots=True)
class ExportLaw:
    """One law of an export."""

    name: str
    definition: str
    """One sentence: what holds."""
    meaning: str
    """One sentence: what breaking it means for a trainer."""
    judge: Callable[[Rows], RowJudgement]
    unjudged: Callable[[Rows], str | None]
    """Why it can be judged of no row of such a file, or None."""


def _without_ids(rows: Rows) -> str | None:
    return "the ids are lost in this format" if rows.facts.lossy else None


def _without_names(rows: Rows) -> str | None:
    return None if rows.facts.named else "the format has no place for ids of samples"


def _without_limit(rows: Rows) -> str | None:
    return _without_ids(rows) or ("no max_length was given" if rows.facts.max_length is None else None)


def _all(rows: Rows) -> Mask:
    return np.ones(len(rows), np.bool_)


def judge_indexed(rows: Rows) -> RowJudgement:
    """Compares the ids of samples with those of the index."""
    expected = rows.index["sample_id"].to_list()
    differs = np.array([a != b for a, b in zip(rows.ids, expected, strict=True)], np.bool_)

    def detail(row: int) -> str:
        return "the file names no sample here" if (name := rows.ids[row]) is None else f"the file has {name!r} here"

    return RowJudgement(_all(rows), (find(differs, detail),))


def judge_equal_lengths(rows: Rows) -> RowJudgement:
    """Compares the lengths of ids and mask."""

    def detail(row: int) -> str:
        return f"{rows.tokens.lengths[row]} ids and {rows.mask.lengths[row]} mask values"

    return RowJudgement(_all(rows), (find(~rows.same_length, detail),))


def judge_ids_in_vocabulary(rows: Rows) -> RowJudgement:
    """Looks for ids that the target does not have."""
    outside = rows.tokens.outside(0, rows.facts.vocab_size)
    index = outside.first()

    def detail(row: int) -> str:
        strange = rows.tokens.row(row)[index[row]]
        return f"id {strange} is none of the {rows.facts.vocab_size} of the target's vocabulary"

    return RowJudgement(_all(rows), (find(outside.count() > 0, detail, index),))


def judge_mask_of_bits(rows: Rows) -> RowJudgement:
    """Looks for mask values other than 0 and 1."""
    outside = rows.mask.outside(0, 2)
    index = outside.first()

    def detail(row: int) -> str:
        return f"the mask has {rows.mask.row(row)[index[row]]} at {index[row]}"

    return RowJudgement(_all(rows), (find(outside.count() > 0, detail, index),))


def judge_something_to_learn(rows: Rows) -> RowJudgement:
    """Looks for masks without a 1."""
    empty = rows.mask.marks([1]).count() == 0
    return RowJudgement(_all(rows), (find(empty, lambda row: "no token has a loss"),))  # noqa: ARG005 - the form


def judge_mask_is_output(rows: Rows) -> RowJudgement:
    """Compares ids before and from the mask's first 1 with the hash taken of prompt and output at capture."""
    ones = rows.mask.marks([1])
    first, last, count = ones.first(), ones.last(), ones.count()
    tail = rows.index["masked_tail"].fill_null(0).to_numpy()
    cut = (rows.index["finish_type"] == "length").fill_null(value=False).to_numpy()
    judged = rows.same_length & (count > 0)
    torn = judged & (last - first + 1 != count)
    short = judged & ~torn & ((last != rows.mask.lengths - 1 - tail) | ((tail > 0) & ~cut))
    recorded = rows.index["ids_sha256"].to_list()
    found = [
        not judged[row] or ids_sha256(ids[: first[row]], ids[first[row] :]) == recorded[row]
        for row in range(len(rows))
        for ids in [_int32(rows.tokens.row(row))]
    ]
    other = ~np.array(found, np.bool_)

    def where_it_ends(row: int) -> str:
        return f"the mask's last 1 is at {last[row]} of {rows.mask.lengths[row]}, with {tail[row]} masked at the end"

    return RowJudgement(
        judged,
        (
            find(
                torn,
                lambda row: f"the mask's ones are not in one piece: {count[row]} between {first[row]} and {last[row]}",
                first,
            ),
            find(short, where_it_ends, last),
            find(
                other,
                lambda row: (
                    f"prompt and output, told apart by the mask's first 1 at {first[row]}, are not those captured"
                ),
                first,
            ),
        ),
    )


def _int32(ids: Ids) -> Ids:
    """Ids as the hash takes them; those that do not fit give another hash."""
    return np.clip(ids, MIN_ID, MAX_ID)


def judge_within_max_length(rows: Rows) -> RowJudgement:
    """Looks for rows that the trainer would cut."""
    lengths, limit = rows.tokens.lengths, rows.facts.max_length
    assert limit is not None  # noqa: S101 - else it is not judged
    return RowJudgement(_all(rows), (find(lengths > limit, lambda row: f"{lengths[row]} ids are more than {limit}"),))


def judge_split_by_conversation(rows: Rows) -> RowJudgement:
    """Compares the side of the split with the one that the conversation's id gives."""
    sides = rows.index.select("fate", "conversation_id").iter_rows()
    wrong = np.array([(fate == EVAL) != held_out(name, rows.facts.eval_share) for fate, name in sides], np.bool_)
    return RowJudgement(_all(rows), (find(wrong, lambda row: f"is in {rows.index['fate'][row]}"),))


LAWS = (
    ExportLaw(
        "rows_as_indexed",
        "Every row is the sample that the index says.",
        "rows were moved, lost or added after the export.",
        judge_indexed,
        _without_names,
    ),
    ExportLaw(
        "equal_lengths",
        "A row has as many mask values as ids, and at least one.",
        "a trainer stops at such a row, or pairs ids with others' losses.",
        judge_equal_lengths,
        _without_ids,
    ),
    ExportLaw(
        "ids_in_vocabulary",
        "Every id is one of the target's vocabulary.",
        "the embedding has no such row; trainers do not check it.",
        judge_ids_in_vocabulary,
        _without_ids,
    ),
    ExportLaw(
        "mask_of_bits",
        "The loss mask holds nothing but 0 and 1.",
        "the loss would be weighted by something that nobody meant.",
        judge_mask_of_bits,
        _without_ids,
    ),
    ExportLaw(
        "something_to_learn",
        "Every mask has a 1.",
        "trainers drop such a row in silence, or divide by nothing.",
        judge_something_to_learn,
        _without_ids,
    ),
    ExportLaw(
        "mask_is_output",
        "The mask's ones are exactly the output ids recorded at capture, the stop token among them, but for the tail"
        " that was masked on purpose.",
        "the drafter would learn tokens that the target did not emit, or miss some that it did.",
        judge_mask_is_output,
        _without_ids,
    ),
    ExportLaw(
        "within_max_length",
        "No row is longer than the trainer's max_length.",
        "the trainer would cut it in silence, and its end with it.",
        judge_within_max_length,
        _without_limit,
    ),
    ExportLaw(
        "split_by_conversation",
        "All rows of a conversation are on the side that the hash of its id gives.",
        "what is held out would be known from training.",
        judge_split_by_conversation,
        lambda _: None,
    ),
)
"""Every law of an export."""


class LawFigures(BaseModel):
    """What one law said of a whole export."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    law: str
    judged: int
    """Rows that it could say something about."""
    violations: int
    first: str | None = None
    """The first violation, with file and sample."""
    unjudged: str | None = None
    """Why no row was judged, where none was."""

    @property
    def sentence(self) -> str:
        """What it said, for a person."""
        if self.violations:
            return f"{self.law}: {counted(self.violations, 'row')} of {self.judged:,} break it; first {self.first}"
        if not self.judged:
            return f"{self.law}: not judged: {self.unjudged}"
        return f"{self.law}: all {self.judged:,} rows keep it"


def judge_file(name: str, rows: Rows) -> list[LawFigures]:
    """Every law over the rows of one file.

    Args:
        name: of the file, for the first violation.
        rows: of the file and the index.
    """
    return [_figures(law, name, rows) for law in LAWS]


def _figures(law: ExportLaw, name: str, rows: Rows) -> LawFigures:
    if unjudged := law.unjudged(rows):
        return LawFigures(law=law.name, judged=0, violations=0, unjudged=unjudged)
    judgement = law.judge(rows)
    broken: dict[int, str] = {}
    for found in judgement.found:
        broken |= dict(zip(found.rows.tolist(), found.details, strict=True)) | broken
    row, judged = min(broken, default=None), int(judgement.judged.sum())
    return LawFigures(
        law=law.name,
        judged=judged,
        violations=len(broken),
        first=None if row is None else f"{name}, row {row}, sample {rows.index['sample_id'][row]}: {broken[row]}",
        unjudged=None if judged else "there is no row that it could be judged of",
    )


def summed(figures: Iterable[Sequence[LawFigures]]) -> tuple[LawFigures, ...]:
    """The figures of several files together, in the order of ``LAWS``."""
    by_law: dict[str, list[LawFigures]] = {law.name: [] for law in LAWS}
    for one in (one for some in figures for one in some):
        by_law[one.law].append(one)
    return tuple(_sum(name, some) for name, some in by_law.items())


def _sum(law: str, figures: Sequence[LawFigures]) -> LawFigures:
    judged = sum(one.judged for one in figures)
    return LawFigures(
        law=law,
        judged=judged,
        violations=sum(one.violations for one in figures),
        first=next((one.first for one in figures if one.first), None),
        unjudged=None if judged else next((one.unjudged for one in figures), NO_ROWS),
    )


__all__ = ["LAWS", "ExportLaw", "Found", "LawFigures", "RowFacts", "Rows", "judge_file", "summed"]
