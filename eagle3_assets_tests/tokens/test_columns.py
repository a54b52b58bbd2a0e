"""Every columnar helper against the loop that it replaces."""

import hashlib

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.tokens.columns import NO_ID, NULL_ID, TokenColumn

IDS = st.integers(0, 12)
ROWS = st.lists(st.lists(IDS, max_size=8), max_size=8)
WANTED = st.lists(IDS, max_size=4)


def column(rows: list[list[int]]) -> TokenColumn:
    return TokenColumn.from_series(pl.Series(rows, dtype=pl.List(pl.Int32)))


@given(ROWS)
def test_rows_lengths_first_and_last(rows: list[list[int]]) -> None:
    ids = column(rows)
    assert len(ids) == len(rows)
    assert [ids.row(n).tolist() for n in range(len(rows))] == rows
    assert ids.lengths.tolist() == [len(row) for row in rows]
    assert ids.first.tolist() == [row[0] if row else NO_ID for row in rows]
    assert ids.last.tolist() == [row[-1] if row else NO_ID for row in rows]


@given(ROWS, st.integers(-2, 9))
def test_id_at_an_index(rows: list[list[int]], index: int) -> None:
    assert column(rows).at(index).tolist() == [row[index] if 0 <= index < len(row) else NO_ID for row in rows]


@given(ROWS.filter(bool), st.data())
def test_rows_taken(rows: list[list[int]], data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8))
    taken = column(rows).take(np.array(numbers, np.int64))
    assert [taken.row(n).tolist() for n in range(len(taken))] == [rows[number] for number in numbers]


@given(ROWS, WANTED)
def test_marks(rows: list[list[int]], wanted: list[int]) -> None:
    marks = column(rows).marks(wanted)
    naive = [(r, i, token) for r, row in enumerate(rows) for i, token in enumerate(row) if token in wanted]
    assert list(zip(marks.row.tolist(), marks.index.tolist(), marks.id.tolist(), strict=True)) == naive
    per_row = [[i for i, token in enumerate(row) if token in wanted] for row in rows]
    assert marks.count().tolist() == [len(found) for found in per_row]
    assert marks.first().tolist() == [found[0] if found else -1 for found in per_row]
    assert marks.last().tolist() == [found[-1] if found else -1 for found in per_row]
    for n in range(3):
        assert marks.nth(n).tolist() == [found[n] if len(found) > n else -1 for found in per_row]


@given(ROWS, WANTED, WANTED)
def test_marks_of_some_ids(rows: list[list[int]], wanted: list[int], fewer: list[int]) -> None:
    ids = column(rows)
    some, both = ids.marks(wanted).of(fewer), ids.marks(set(wanted) & set(fewer))
    assert some.row.tolist() == both.row.tolist()
    assert some.index.tolist() == both.index.tolist()


@given(ROWS, IDS, IDS)
def test_outside(rows: list[list[int]], low: int, high: int) -> None:
    marks = column(rows).outside(low, high)
    naive = [(r, i) for r, row in enumerate(rows) for i, token in enumerate(row) if not low <= token < high]
    assert list(zip(marks.row.tolist(), marks.index.tolist(), strict=True)) == naive


SHORT_ROWS = st.lists(st.lists(st.integers(0, 2), max_size=5), max_size=6)


@given(SHORT_ROWS, st.lists(st.integers(0, 2), max_size=3))
def test_starts_and_ends(rows: list[list[int]], ids: list[int]) -> None:
    enough = [len(row) >= len(ids) and row[len(row) - len(ids) :] == ids for row in rows]
    assert column(rows).ends_with(ids).tolist() == enough


PAIRS = st.lists(
    st.tuples(st.lists(st.integers(0, 1), max_size=6), st.lists(st.integers(0, 1), max_size=6)), max_size=8
)


@given(PAIRS)
def test_first_difference(pairs: list[tuple[list[int], list[int]]]) -> None:
    def naive(a: list[int], b: list[int]) -> int:
        if a == b:
            return -1
        return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))

    ours, theirs = column([a for a, _ in pairs]), column([b for _, b in pairs])
    assert ours.first_difference(theirs).tolist() == [naive(a, b) for a, b in pairs]


@given(PAIRS, st.data())
def test_same_slice(pairs: list[tuple[list[int], list[int]]], data: st.DataObject) -> None:
    numbers = st.lists(st.integers(-1, 6), min_size=len(pairs), max_size=len(pairs))
    start, other, length = data.draw(numbers), data.draw(numbers), data.draw(numbers)

    def naive(a: list[int], b: list[int], i: int, j: int, n: int) -> bool:
        if min(i, j, n) < 0 or i + n > len(a) or j + n > len(b):
            return False
        return a[i : i + n] == b[j : j + n]

    same = column([a for a, _ in pairs]).same_slice(
        np.array(start, np.int64), column([b for _, b in pairs]), np.array(other, np.int64), np.array(length, np.int64)
    )
    expected = [naive(a, b, *where) for (a, b), *where in zip(pairs, start, other, length, strict=True)]
    assert same.tolist() == expected


@given(ROWS)
def test_digests_do_not_depend_on_the_integer_type(rows: list[list[int]]) -> None:
    narrow = pl.Series(rows, dtype=pl.List(pl.Int32))
    digests = TokenColumn.from_series(narrow).digests()
    assert digests == [hashlib.sha256(np.array(row, "<i4").tobytes()).digest() for row in rows]
    assert digests == TokenColumn.from_series(narrow.cast(pl.List(pl.Int64))).digests()
    assert digests == TokenColumn.from_series(narrow.cast(pl.List(pl.UInt16))).digests()


@given(ROWS)
def test_hashes_are_equal_for_equal_rows_alone_whatever_their_integer_type(rows: list[list[int]]) -> None:
    narrow = pl.Series(rows, dtype=pl.List(pl.Int32))
    hashes = TokenColumn.from_series(narrow).hashes()
    assert [[a == b for a in hashes] for b in hashes] == [[a == b for a in rows] for b in rows]
    assert hashes == TokenColumn.from_series(narrow.cast(pl.List(pl.Int64))).hashes()


def test_a_wide_id_changes_the_hash_of_its_own_row_alone() -> None:
    wide = TokenColumn.from_series(pl.Series([[1, 2], [2**40]], dtype=pl.List(pl.Int64)))
    assert wide.hashes()[0] == column([[1, 2]]).hashes()[0]


def test_digests_of_wide_ids_differ_from_those_they_would_wrap_to() -> None:
    wide = TokenColumn.from_series(pl.Series([[2**32 + 5]], dtype=pl.List(pl.Int64)))
    assert wide.digests() != column([[5]]).digests()


def test_nulls_read_as_empty_rows_and_as_an_id_that_nobody_writes() -> None:
    ids = TokenColumn.from_series(pl.Series([[1, None, 2], None, [], [3]], dtype=pl.List(pl.Int32)))
    assert ids.null_rows.tolist() == [False, True, False, False]
    assert ids.lengths.tolist() == [3, 0, 0, 1]
    assert ids.values.tolist() == [1, NULL_ID, 2, 3]


def test_all_null_column() -> None:
    ids = TokenColumn.from_series(pl.Series([None, None]))
    assert ids.null_rows.all()
    assert ids.lengths.tolist() == [0, 0]


def test_slices_and_chunks() -> None:
    series = pl.Series([[1, 2], [3], [], [4, 5, 6]], dtype=pl.List(pl.Int32))
    chunked = pl.concat([series, series])[1:7]
    ids = TokenColumn.from_series(chunked)
    assert [ids.row(n).tolist() for n in range(6)] == [[3], [], [4, 5, 6], [1, 2], [3], []]


def test_int32_ids_are_not_copied() -> None:
    flat = pl.Series(np.arange(1_000, dtype=np.int32))
    series = flat.reshape((10, 100)).arr.to_list()
    first, second = TokenColumn.from_series(series), TokenColumn.from_series(series)
    assert np.shares_memory(first.values, second.values)


@pytest.mark.parametrize(
    "series",
    [
        pl.Series("ids", [1, 2]),
        pl.Series("ids", [["a"]]),
        pl.Series("ids", [[1.0]]),
        pl.Series("ids", [[1]], dtype=pl.List(pl.UInt64)),
    ],
)
def test_other_columns_are_refused_by_name(series: pl.Series) -> None:
    with pytest.raises(TypeError, match="'ids' must be a list of integer ids"):
        TokenColumn.from_series(series)
