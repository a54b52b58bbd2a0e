"""Many rows of token ids as one flat array and offsets, and the questions that laws ask of them.

What belongs here: columnar operations on ids which know nothing of any model. Not here: what an id means, any law.
Nothing here loops over tokens in Python.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Ids = NDArray[np.signedinteger]

NO_ID = -1
"""The answer where a row has no such id. Never a valid id."""

MIN_ID, MAX_ID = -(2**31), 2**31 - 1
"""The ids that ``contract.TokenIds`` can store; one beyond is refused, never cast."""

NULL_ID = MIN_ID
"""Stands where an id is null: what nobody writes, so that a -1 which somebody did write is told from it."""

HUGE_ID = 2**63 - 1
"""Stands where an id fits into no int64."""

_SIGNED = (pl.Int8, pl.Int16, pl.Int32, pl.Int64)
_UNSIGNED = (pl.UInt8, pl.UInt16, pl.UInt32)


@dataclass(frozen=True)
class Marks:
    """Sparse occurrences of ids of interest, ordered by row and then by index.

    ``row``, ``index`` (position in the row) and ``id`` are arrays of equal length; ``rows`` is the number of rows of
    the column they come from.
    """

    row: Ints
    index: Ints
    id: Ids
    rows: int

    def __len__(self) -> int:
        return len(self.row)

    def where(self, keep: Mask) -> "Marks":
        """The occurrences for which ``keep`` (bool, one for each occurrence) is true."""
        return Marks(self.row[keep], self.index[keep], self.id[keep], self.rows)

    def of(self, ids: Iterable[int]) -> "Marks":
        """The occurrences of these ids alone."""
        return self.where(np.isin(self.id, np.fromiter(ids, np.int64)))

    def count(self) -> Ints:
        """Number of occurrences in each row, int64 of length ``rows``."""
        return np.bincount(self.row, minlength=self.rows).astype(np.int64, copy=False)

    def first(self) -> Ints:
        """Index of each row's first occurrence, int64 of length ``rows``; -1 where there is none."""
        found = np.full(self.rows, -1, np.int64)
        found[self.row[::-1]] = self.index[::-1]  # of repeated targets the last assignment stays
        return found

    def last(self) -> Ints:
        """Index of each row's last occurrence, int64 of length ``rows``; -1 where there is none."""
        found = np.full(self.rows, -1, np.int64)
        found[self.row] = self.index
        return found

    def nth(self, n: int) -> Ints:
        """Index of each row's occurrence number ``n`` (0-based), int64 of length ``rows``; -1 where there are fewer."""
        starts = np.searchsorted(self.row, np.arange(self.rows))
        found = np.full(self.rows, -1, np.int64)
        enough = self.count() > n
        found[enough] = self.index[starts[enough] + n]
        return found


@dataclass(frozen=True)
class TokenColumn:
    """Rows of token ids.

    ``values`` holds all ids in one array (int32 where the source is Int32, else int64), ``offsets`` (int64, one more
    than rows) says where each row starts, ``null_rows`` (bool) which rows were null; those read as empty. A null id
    inside a row reads as ``NULL_ID``.
    """

    values: Ids
    offsets: Ints
    null_rows: Mask

    @classmethod
    def from_series(cls, series: pl.Series) -> "TokenColumn":
        """Reads a polars ``List`` of integers; Int32 in one chunk without null ids is not copied.

        Raises:
            TypeError: the series is no list of integers which fit into int64.
        """
        inner = getattr(series.dtype, "inner", None)
        if inner == pl.Null or series.dtype == pl.Null:
            series, inner = series.cast(pl.List(pl.Int32)), pl.Int32
        if not isinstance(series.dtype, pl.List) or inner not in (*_SIGNED, *_UNSIGNED):
            raise TypeError(f"column {series.name!r} must be a list of integer ids, not {series.dtype}")
        null_rows = nulls(series)
        if null_rows.all():  # of many columns that few sources have
            return cls(np.empty(0, np.int32), np.zeros(len(series) + 1, np.int64), null_rows)
        lengths = series.list.len()
        lengths = lengths.fill_null(0) if null_rows.any() else lengths
        offsets = np.zeros(len(series) + 1, np.int64)
        np.cumsum(lengths.to_numpy(), out=offsets[1:])
        flat = series.explode(empty_as_null=False, keep_nulls=False)
        if flat.dtype != pl.Int32:
            flat = flat.cast(pl.Int64)
        if flat.null_count():
            flat = flat.fill_null(NULL_ID)
        return cls(flat.to_numpy(), offsets, null_rows)

    @classmethod
    def from_marks(cls, marks: Marks) -> "TokenColumn":
        """The ids that were marked, row by row."""
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(marks.count())))
        return cls(marks.id, offsets, np.zeros(marks.rows, np.bool_))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> Ints:
        """Number of ids in each row, int64."""
        return np.diff(self.offsets)

    def row(self, number: int) -> Ids:
        """The ids of one row, a view."""
        return self.values[self.offsets[number] : self.offsets[number + 1]]

    def take(self, rows: Ints) -> "TokenColumn":
        """The rows with these numbers (int64), in their order; one may come more than once."""
        lengths = self.lengths[rows]
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        values = self.values[np.repeat(self.offsets[rows] - offsets[:-1], lengths) + np.arange(offsets[-1])]
        return TokenColumn(values, offsets, self.null_rows[rows])

    def at(self, index: ArrayLike) -> Ints:
        """Each row's id at an index (one for all rows or one for each), int64; -1 where the row has no such index."""
        index = np.broadcast_to(np.asarray(index, np.int64), (len(self),))
        inside = (index >= 0) & (index < self.lengths)
        found = np.full(len(self), NO_ID, np.int64)
        found[inside] = self.values[(self.offsets[:-1] + index)[inside]]
        return found

    @cached_property
    def first(self) -> Ints:
        """Each row's first id, int64; -1 where the row is empty."""
        return self.at(0)

    @cached_property
    def last(self) -> Ints:
        """Each row's last id, int64; -1 where the row is empty."""
        return self.at(self.lengths - 1)

    def marks(self, ids: Iterable[int]) -> Marks:
        """Where any of ``ids`` occurs."""
        wanted = np.unique(np.fromiter(ids, np.int64))
        if not len(wanted) or not len(self.values):
            return self._marks_at(np.empty(0, np.int64))
        # Structural ids mostly lie at the end of a vocabulary, so the least one alone drops almost every token.
        low, high = int(wanted[0]), int(wanted[-1])
        near = np.flatnonzero(self.values >= low)
        near = near[self.values[near] <= high]
        table = np.zeros(high - low + 1, np.bool_)
        table[wanted - low] = True
        return self._marks_at(near[table[self.values[near] - low]])

    def outside(self, low: int, high: int) -> Marks:
        """Where an id is below ``low`` or not below ``high``."""
        fits = low <= np.iinfo(self.values.dtype).min and high > np.iinfo(self.values.dtype).max
        if fits or not len(self.values) or (self.values.min() >= low and self.values.max() < high):
            return self._marks_at(np.empty(0, np.int64))
        return self._marks_at(np.flatnonzero((self.values < low) | (self.values >= high)))

    def not_among(self, known: Mask) -> Marks:
        """Where an id is none for which ``known`` (bool, by id) is true."""
        inside = (self.values >= 0) & (self.values < len(known))
        return self._marks_at(np.flatnonzero(~(inside & known[np.where(inside, self.values, 0)])))

    def ends_with(self, ids: Iterable[int]) -> Mask:
        """Whether each row ends with ``ids``."""
        ids = list(ids)
        start = self.lengths - len(ids)
        same: Mask = start >= 0
        for step, wanted in enumerate(ids):  # one pass for each of a few wanted ids, not for each token
            same &= self.at(start + step) == wanted
        return same

    def first_difference(self, other: "TokenColumn") -> Ints:
        """Index at which each row departs from the same row of ``other``, int64; -1 where they are equal.

        Where one row is the beginning of the other, that is the length of the shorter one.
        """
        common = np.minimum(self.lengths, other.lengths)
        found = np.where(self.lengths == other.lengths, -1, common)
        unequal = self._unequal(self.offsets[:-1], other, other.offsets[:-1], common).first()
        return np.where(unequal >= 0, unequal, found)

    def same_slice(self, start: Ints, other: "TokenColumn", other_start: Ints, length: Ints) -> Mask:
        """Whether ``length`` ids from ``start`` equal those of ``other`` from ``other_start``, row by row.

        All three are int64, one for each row; a slice that leaves its row is not the same.
        """
        inside = (start >= 0) & (other_start >= 0) & (length >= 0)
        inside &= (start + length <= self.lengths) & (other_start + length <= other.lengths)
        length = np.where(inside, length, 0)
        unequal = self._unequal(self.offsets[:-1] + start, other, other.offsets[:-1] + other_start, length)
        same: Mask = inside & (unequal.count() == 0)
        return same

    def digests(self) -> list[bytes]:
        """A sha256 of each row's ids: equal for equal rows, whatever integer type they are stored in."""
        return [hashlib.sha256(row).digest() for row in self.row_bytes()]

    def hashes(self) -> list[int]:
        """A 64-bit keyed hash of each row's ids, for comparing rows within this process; a third of a sha256's cost.

        Equal rows have equal hashes, whatever integer type they are stored in; others once in 2**64 times.
        """
        return [hash(bytes(row)) for row in self.row_bytes()]

    def row_bytes(self) -> Iterator[memoryview]:
        """Each row's ids as little-endian int32 in memory; as int64 where one of the row does not fit."""
        narrow = self._rows_in_memory("<i4")
        wide = frozenset(self.outside(MIN_ID, MAX_ID + 1).row.tolist())
        if not wide:
            return narrow
        both = zip(narrow, self._rows_in_memory("<i8"), strict=True)
        return (whole if row in wide else part for row, (part, whole) in enumerate(both))

    def _rows_in_memory(self, dtype: str) -> Iterator[memoryview]:
        # One at a time: thousands of them at once would each time set off the garbage collector.
        values = np.ascontiguousarray(self.values, dtype)
        memory = values.view(np.uint8).data
        return (memory[start:end] for start, end in pairwise((self.offsets * values.itemsize).tolist()))

    def _unequal(self, start: Ints, other: "TokenColumn", other_start: Ints, length: Ints) -> Marks:
        """Occurrences of differing ids between slices given by absolute starts; their index counts from the slice."""
        shift = np.concatenate(([0], np.cumsum(length)))
        within = np.arange(shift[-1]) - np.repeat(shift[:-1], length)
        ours = self.values[np.repeat(start, length) + within]
        theirs = other.values[np.repeat(other_start, length) + within]
        return TokenColumn(ours, shift, self.null_rows)._marks_at(np.flatnonzero(ours != theirs))

    def _marks_at(self, positions: Ints) -> Marks:
        row = np.searchsorted(self.offsets, positions, side="right") - 1
        return Marks(row, positions - self.offsets[row], self.values[positions], len(self))


def nulls(series: pl.Series) -> Mask:
    """Where a series is null: its count alone says it for most, and asking polars for each row has a price."""
    count = series.null_count()
    if count in (0, len(series)):
        return np.full(len(series), count > 0, np.bool_)
    return series.is_null().to_numpy()


def where(series: pl.Series) -> Mask:
    """Where a series of bool is true; null is not."""
    return filled(series, value=False)


def filled(series: pl.Series, value: int) -> NDArray[Any]:
    """A series of numbers or bool with a value in place of its nulls; asking polars has a price, as above."""
    missing = series.null_count()
    if missing == len(series):
        return np.full(len(series), value)
    return (series.fill_null(value) if missing else series).to_numpy()
