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


def begins_again(ids: list[int]) -> list[int]:
    return [n for n in range(1, len(ids) // 2 + 1) if ids[:n] == ids[n : 2 * n]]


def suffix(ids: list[int], period: int) -> int:
    """How many ids at the end repeat after ``period``, the first round counted."""
    start = len(ids) - period
    while start and ids[start - 1] == ids[start - 1 + period]:
        start -= 1
    return len(ids) - start


@given(rows=ROWS, skipped=st.integers(0, 1), cut=st.integers(0, 2))
def test_no_row_that_repeats_at_its_edges_is_left_out(rows: list[list[int]], skipped: int, cut: int) -> None:
    starts = np.array([min(skipped, len(row)) for row in rows], np.int64)
    ends = np.array([max(len(row) - cut, 0) for row in rows], np.int64)
    begins, ending = loops.edges_again(column(rows), starts, ends)
    for number, row in enumerate(rows):
        said = row[starts[number] :]
        for period in begins_again(said):
            if period >= loops.GRAM or any(more > period for more in begins_again(said[period:])):
                assert begins[number]
        inner = row[: ends[number]]
        if any(suffix(inner, period) >= max(24, 3 * period) for period in range(1, len(inner) // 3 + 1)):
            assert ending[number]


def test_rows_that_repeat_nothing_are_left_out() -> None:
    random = np.random.default_rng(0)
    rows = [random.integers(0, 150_000, length).tolist() for length in range(2, 1_000, 7)]
    rows[40][-100:] = [*rows[40][-50:]] * 2
    rows[90][:60] = [*rows[90][:30]] * 2
    rows[50][1], rows[60][:6] = rows[50][0], [*rows[60][:3]] * 2  # so few are no piece of a stream
    rows[70][:12] = [*rows[70][:2], *rows[70][:5], *rows[70][:5]]  # but these are, with more each time
    begins, ending = loops.edges_again(
        column(rows), np.zeros(len(rows), np.int64), np.array([len(row) for row in rows], np.int64)
    )
    assert (np.flatnonzero(begins).tolist(), np.flatnonzero(ending).tolist()) == ([70, 90], [40])


@given(ids=st.lists(st.integers(0, 1), max_size=40), times=st.integers(2, 4), shortest=st.integers(1, 12))
def test_loops_at_the_end(ids: list[int], times: int, shortest: int) -> None:
    found = list(loops.ending_loops(np.array(ids, np.int32), shortest, times))
    right = [p for p in range(1, len(ids) // times + 1) if suffix(ids, p) >= max(shortest, times * p)]
    assert [loop.period for loop in found][:1] == right[:1]
    for loop in found:
        assert loop.length == suffix(ids, loop.period) == len(ids) - loop.start >= max(shortest, times * loop.period)
    assert max((loop.length for loop in found), default=0) == max((suffix(ids, p) for p in right), default=0)


@pytest.mark.parametrize(
    "sizes", [[1, 2], [1, 2, 3, 4], [3, 7, 40, 41], [8, 16, 24, 32, 40], [50, 100, 100], [200, 201]]
)
def test_pieces_that_each_repeat_the_last_one(sizes: list[int]) -> None:
    text = np.random.default_rng(1).permutation(1_000).astype(np.int32)
    joined = np.concatenate([text[:size] for size in sizes])
    assert loops.growing_beginnings(joined) == np.cumsum(sizes[:-1]).tolist()


@pytest.mark.parametrize("rounds", [2, 3, 5, 7, 12])
def test_a_loop_does_not_grow(rounds: int) -> None:
    text = np.arange(30, dtype=np.int32)
    assert len(loops.growing_beginnings(np.tile(text, rounds))) == 1
    assert loops.growing_beginnings(text) == loops.growing_beginnings(text[:0]) == []


@pytest.mark.timeout(60)  # a second and a half; minutes where each beginning is compared with all the rest
def test_a_million_ids_in_a_loop_take_no_longer_than_any() -> None:
    for text in ([7], [7, 8], [7, 8, 9, 7, 8, 9, 7, 8, 9, 10]):
        ids = np.resize(np.array(text, np.int32), 1_000_000)
        assert loops.growing_beginnings(ids)
        assert [loop.length for loop in loops.ending_loops(ids, 100, 3)] == [len(ids)]


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
    assert [found.tolist() for found in loops.edges_again(empty, none, none)] == [[False, False]] * 2
    assert list(loops.ending_loops(np.array([], np.int32), 3, 3)) == []
    assert loops.repeated_shares(empty).tolist() == [0.0, 0.0]
    assert loops.ending_loop(np.array([1, 2, 3, 2, 3, 2]), 2) == loops.Stretch(1, 5, 2)
