"""The laws of an export, judged on files as they are read back.

What belongs here: one function for each law, over the rows of one file and their lines in the index. Not here: laws of
outputs (``tokens.laws``), which judge before anything is exported; opening files.
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


@dataclass(frozen=True)
class Rows:
    """The rows of one file beside what the index says of them; row i of the one is row i of the other."""

    ids: list[str | None]
    """As the file has them; None where its format has no place for them."""
    tokens: TokenColumn
    mask: TokenColumn
    index: pl.DataFrame
    """``contract.TRAINING_EXPORT`` of these rows."""
    vocab_size: int
    max_length: int | None
    eval_share: float

    @classmethod
    def of(
        cls, read: pl.DataFrame, index: pl.DataFrame, *, vocab_size: int, max_length: int | None, eval_share: float
    ) -> "Rows":
        """Rows as a format read them (``formats.ReadBack``) and their index, of equal length."""
        return cls(
            read["id"].to_list(),
            TokenColumn.from_series(read["input_ids"]),
            TokenColumn.from_series(read["loss_mask"]),
            index,
            vocab_size,
            max_length,
            eval_share,
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
    nothing: str = "there are no rows"
    """Why it is not judged where there is no row that it could be judged of."""


def _all(rows: Rows) -> Mask:
    return np.ones(len(rows), np.bool_)


def judge_indexed(rows: Rows) -> RowJudgement:
    """Compares the ids of samples with those of the index."""
    named = np.array([name is not None for name in rows.ids], np.bool_)
    expected = rows.index["sample_id"].to_list()
    differs = named & np.array([a != b for a, b in zip(rows.ids, expected, strict=True)], np.bool_)
    return RowJudgement(named, (find(differs, lambda row: f"the file has the sample {rows.ids[row]!r} here"),))


def judge_equal_lengths(rows: Rows) -> RowJudgement:
    """Compares the lengths of ids and mask."""

    def detail(row: int) -> str:
        return f"{rows.tokens.lengths[row]} ids and {rows.mask.lengths[row]} mask values"

    return RowJudgement(_all(rows), (find(~rows.same_length, detail),))


def judge_ids_in_vocabulary(rows: Rows) -> RowJudgement:
    """Looks for ids that the target does not have."""
    outside = rows.tokens.outside(0, rows.vocab_size)
    index = outside.first()

    def detail(row: int) -> str:
        return f"id {rows.tokens.row(row)[index[row]]} is none of the {rows.vocab_size} of the target's vocabulary"

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
    if rows.max_length is None:
        return RowJudgement(~_all(rows))
    lengths = rows.tokens.lengths
    return RowJudgement(
        _all(rows),
        (find(lengths > rows.max_length, lambda row: f"{lengths[row]} ids are more than {rows.max_length}"),),
    )


def judge_split_by_conversation(rows: Rows) -> RowJudgement:
    """Compares the side of the split with the one that the conversation's id gives."""
    sides = rows.index.select("fate", "conversation_id").iter_rows()
    wrong = np.array([(fate == EVAL) != held_out(name, rows.eval_share) for fate, name in sides], np.bool_)
    return RowJudgement(_all(rows), (find(wrong, lambda row: f"is in {rows.index['fate'][row]}"),))


LAWS = (
    ExportLaw(
        "rows_as_indexed",
        "Every row is the sample that the index says.",
        "rows were moved, lost or added after the export.",
        judge_indexed,
        "the format has no place for ids of samples",
    ),
    ExportLaw(
        "equal_lengths",
        "A row has as many mask values as ids, and at least one.",
        "a trainer stops at such a row, or pairs ids with others' losses.",
        judge_equal_lengths,
    ),
    ExportLaw(
        "ids_in_vocabulary",
        "Every id is one of the target's vocabulary.",
        "the embedding has no such row; trainers do not check it.",
        judge_ids_in_vocabulary,
    ),
    ExportLaw(
        "mask_of_bits",
        "The loss mask holds nothing but 0 and 1.",
        "the loss would be weighted by something that nobody meant.",
        judge_mask_of_bits,
    ),
    ExportLaw(
        "something_to_learn",
        "Every mask has a 1.",
        "trainers drop such a row in silence, or divide by nothing.",
        judge_something_to_learn,
    ),
    ExportLaw(
        "mask_is_output",
        "The mask's ones are exactly the output ids recorded at capture, the stop token among them, but for the tail"
        " that was masked on purpose.",
        "the drafter would learn tokens that the target did not emit, or miss some that it did.",
        judge_mask_is_output,
        "no row has a mask that could be",
    ),
    ExportLaw(
        "within_max_length",
        "No row is longer than the trainer's max_length.",
        "the trainer would cut it in silence, and its end with it.",
        judge_within_max_length,
        "no max_length was given",
    ),
    ExportLaw(
        "split_by_conversation",
        "All rows of a conversation are on the side that the hash of its id gives.",
        "what is held out would be known from training.",
        judge_split_by_conversation,
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

    @property
    def sentence(self) -> str:
        """What it said, for a person."""
        if self.violations:
            return f"{self.law}: {counted(self.violations, 'row')} of {self.judged:,} break it; first {self.first}"
        if not self.judged:
            return f"{self.law}: not judged: {next(law.nothing for law in LAWS if law.name == self.law)}"
        return f"{self.law}: all {self.judged:,} rows keep it"


def judge_file(name: str, rows: Rows) -> list[LawFigures]:
    """Every law over the rows of one file.

    Args:
        name: of the file, for the first violation.
        rows: of the file and the index.
    """
    figures = []
    for law in LAWS:
        judgement = law.judge(rows)
        broken: dict[int, str] = {}
        for found in judgement.found:
            broken |= dict(zip(found.rows.tolist(), found.details, strict=True)) | broken
        row = min(broken, default=None)
        first = None if row is None else f"{name}, row {row}, sample {rows.index['sample_id'][row]}: {broken[row]}"
        figures.append(
            LawFigures(law=law.name, judged=int(judgement.judged.sum()), violations=len(broken), first=first)
        )
    return figures


def summed(figures: Iterable[Sequence[LawFigures]]) -> tuple[LawFigures, ...]:
    """The figures of several files together, in the order of ``LAWS``."""
    total = {law.name: LawFigures(law=law.name, judged=0, violations=0) for law in LAWS}
    for one in (one for some in figures for one in some):
        before = total[one.law]
        total[one.law] = LawFigures(
            law=one.law,
            judged=before.judged + one.judged,
            violations=before.violations + one.violations,
            first=before.first or one.first,
        )
    return tuple(total.values())


__all__ = ["LAWS", "ExportLaw", "Found", "LawFigures", "Rows", "judge_file", "summed"]
