"""Statistics against a plain recount, and their verdict in words."""

import statistics
from collections import Counter
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.config import LengthBand
from eagle3_assets.contract import LENGTH_STATISTICS
from eagle3_assets.tokens.facts import OUTPUT_FACTS
from eagle3_assets.tokens.lengths import (
    band_misses,
    histogram,
    length_figures,
    length_statistics,
    length_verdict,
    merged,
    present_sections,
)

Row = tuple[int, int, bool, int, int]
"""Reasoning, answer, whether cut off, calls, turn."""

OUTPUTS = st.lists(
    st.tuples(st.integers(0, 5_000), st.integers(0, 5_000), st.booleans(), st.integers(0, 3), st.sampled_from([1, 3])),
    min_size=1,
    max_size=60,
)


def facts(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "sample_id": f"c{i}:{turn}:0",
                "turn": turn,
                "output": reasoning + answer,
                "reasoning": reasoning,
                "answer": answer,
                "reasoning_end": -1,
                "finish_type": "length" if cut else "stop",
                "cut_off": cut,
                "tool_call": calls > 0,
                "tool_calls": calls,
            }
            for i, (reasoning, answer, cut, calls, turn) in enumerate(rows)
        ],
        schema=OUTPUT_FACTS,
    )


def plain(*lengths: int) -> pl.DataFrame:
    return facts([(0, length, False, 0, 1) for length in lengths])


@given(OUTPUTS)
def test_statistics_are_what_a_plain_recount_gives(rows: list[Row]) -> None:
    made = length_statistics(facts(rows))
    assert made.schema == LENGTH_STATISTICS
    turns = sorted({row[4] for row in rows})
    groups = [None, *turns] if len(turns) > 1 else [None]
    assert list(made.select("turn", "section").iter_rows()) == [
        (turn, section) for turn in groups for section in ("output", "reasoning", "answer")
    ]
    for row in made.iter_rows(named=True):
        of_turn = [r for r in rows if row["turn"] in (None, r[4])]
        recount(row, of_turn)


def test_a_section_that_no_output_has_is_not_shown() -> None:
    made = length_statistics(facts([(0, 7, False, 0, 1), (0, 9, False, 0, 3)]))
    assert len(made) == 9
    shown = present_sections(made).select("turn", "section").rows()
    assert shown == [(turn, section) for turn in (None, 1, 3) for section in ("output", "answer")]
    assert present_sections(length_statistics(plain()))["section"].to_list() == ["output"]
    assert len(present_sections(length_statistics(facts([(1, 7, False, 0, 1)])))) == 3


def recount(row: dict[str, Any], rows: list[Row]) -> None:
    section = row["section"]
    lengths = sorted({"output": r[0] + r[1], "reasoning": r[0], "answer": r[1]}[section] for r in rows)
    assert row["samples"] == len(lengths)
    assert row["tokens"] == sum(lengths)
    assert abs(row["mean"] - statistics.fmean(lengths)) < 1e-6
    assert (row["min"], row["max"]) == (lengths[0], lengths[-1])
    assert row["median"] == statistics.median_low(lengths)
    assert row["p95"] == min(n for n in lengths if 20 * sum(m <= n for m in lengths) >= 19 * len(lengths))
    assert abs(row["share_under_500"] - sum(n < 500 for n in lengths) / len(lengths)) < 1e-9
    assert sum(b["samples"] for b in row["histogram"]) == len(lengths)
    for b in row["histogram"]:
        assert b["samples"] == sum(b["low"] <= n < b["high"] for n in lengths)
    if section == "output":
        assert abs(row["cut_off_share"] - statistics.fmean(r[2] for r in rows)) < 1e-9
        assert abs(row["tool_call_share"] - statistics.fmean(r[3] > 0 for r in rows)) < 1e-9
        assert row["tool_calls"] == sum(r[3] for r in rows)
        ended = Counter("length" if r[2] else "stop" for r in rows)
        assert {f["finish_type"]: f["samples"] for f in row["finish_types"]} == ended


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=60), st.integers(1, 50))
def test_merged_bins_say_the_same_more_coarsely(lengths: list[int], most: int) -> None:
    bins = merged(histogram(pl.Series(lengths, dtype=pl.Int32)), most)
    assert len(bins) <= most
    assert [b["high"] for b in bins[:-1]] == [b["low"] for b in bins[1:]]
    for b in bins[:-1]:
        assert b["samples"] == sum(b["low"] <= n < b["high"] for n in lengths)
    assert sum(b["samples"] for b in bins) == len(lengths)


def test_no_outputs_are_no_figures() -> None:
    made = length_statistics(facts([]))
    assert made["samples"].to_list() == [0, 0, 0]
    assert made["median"].null_count() == 3
    assert length_verdict(made, LengthBand(), "d") == "no outputs"


def test_the_verdict_in_words() -> None:
    made = length_statistics(plain(471, 1_204, 130))
    assert length_verdict(made, LengthBand(), "d") == "median 471, p95 1,204, 66.7% under 500; no band is expected of d"
    inside = LengthBand.model_validate({"median": [400, 500], "p95": [1_000, 2_000]})
    assert length_verdict(made, inside, "d") == (
        "median 471, p95 1,204, 66.7% under 500: inside the band expected of d (median 400 to 500, p95 1,000 to 2,000)"
    )
    outside = LengthBand.model_validate({"median": [500, 900], "share_under_500": [0.0, 0.5]})
    misses = ["median 471 is outside 500-900", "share under 500 66.67% is outside 0%-50.00%"]
    assert band_misses(made.row(0, named=True), outside) == misses
    assert length_verdict(made, outside, "d").endswith(f": outside the band expected of d: {'; '.join(misses)}")


@given(st.lists(st.integers(0, 2_000), min_size=1, max_size=80))
def test_the_law_and_the_statistics_have_the_same_figures(lengths: list[int]) -> None:
    row = length_statistics(plain(*lengths)).row(0, named=True)
    figures = length_figures(pl.Series(lengths, dtype=pl.Int64))
    assert figures == {name: row[name] for name in figures}
