"""What is measured in columns against the plain definition, row by row."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.tokens import loops
from eagle3_assets.tokens.columns import TokenColumn

IDS = st.integers(0, 2)
ROWS = st.lists(st.lists(IDS, max_size=60), max_size=6)


def column(rows: list[list[int]]) -> TokenColumn:
    return TokenColumn.from_series(pl.Series(rows, dtype=pl.List(pl.Int32)))


def runs(ids: list[int]) -> int:
    longest = here = 0
    for place, token in enumerate(ids):
        here = here + 1 if place and ids[place - 1] == token else 1
        longest = max(longest, here)
    return longest


@given(rows=ROWS, shortest=st.integers(3, 20))
def test_no_row_with_a_run_is_left_out(rows: list[list[int]], shortest: int) -> None:
    ids = column(rows)
    may = set(loops.may_have_run(ids, shortest).tolist())
    assert may <= set(range(len(rows)))
    assert {number for number, row in enumerate(rows) if runs(row) >= shortest} <= may
    for row in rows:
        if row:
            assert loops.longest_run(np.array(row)).length == runs(row)


@given(rows=ROWS, cut=st.integers(0, 2))
def test_period_of_the_ending(rows: list[list[int]], cut: int) -> None:
    ends = [max(len(row) - cut, 0) for row in rows]

    def expected(ids: list[int]) -> int:
        gram = ids[-loops.GRAM :]
        tries = (
            p for p in range(1, len(ids) - loops.GRAM + 1) if ids[len(ids) - loops.GRAM - p : len(ids) - p] == gram
        )
        return next(tries, 0) if len(gram) == loops.GRAM else 0

    found = loops.ending_periods(column(rows), np.array(ends, np.int64)).tolist()
    assert found == [expected(row[:end]) for row, end in zip(rows, ends, strict=True)]


@given(ids=st.lists(IDS, min_size=1, max_size=60))
def test_share_of_passages_that_come_again(ids: list[int]) -> None:
    grams = [tuple(ids[at : at + loops.GRAM]) for at in range(len(ids) - loops.GRAM + 1)]
    share, first = loops.repeated_share(np.array(ids))
    assert share == pytest.approx(1 - len(set(grams)) / len(grams) if grams else 0.0)
    again = [at for at, gram in enumerate(grams) if gram in grams[:at]]
    assert first == (again[0] if again else -1)


@pytest.mark.parametrize("period", [1, 3, 8, 31, 100, 400])
def test_estimate_finds_what_repeats_and_leaves_what_does_not(period: int) -> None:
    random = np.random.default_rng(period)
    rows = [random.integers(0, 150_000, 1_000).tolist() for _ in range(30)]
    looped = random.integers(0, 150_000, period).tolist()
    rows[11] = (looped * 4_000)[:4_000]
    shares = loops.repeated_shares(column(rows))
    assert shares[11] > 0.8
    assert max(np.delete(shares, 11)) == 0.0


def test_nothing_repeats_in_nothing() -> None:
    empty = column([[], []])
    none = np.zeros(2, np.int64)
    assert loops.may_have_run(empty, 100).tolist() == []
    assert loops.ending_periods(empty, none).tolist() == [0, 0]
    assert loops.repeated_shares(empty).tolist() == [0.0, 0.0]
    assert loops.ending_loop(np.array([1, 2, 3, 2, 3, 2]), 2) == loops.Stretch(1, 5, 2)
