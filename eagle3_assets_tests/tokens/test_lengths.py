"""Statistics against a plain recount, their verdict in words, and a plot that fits into the UI."""

import base64
import statistics
from xml.etree import ElementTree

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.config import LengthBand
from eagle3_assets.contract import LENGTH_STATISTICS
from eagle3_assets.tokens.facts import OUTPUT_FACTS
from eagle3_assets.tokens.lengths import (
    band_misses,
    histogram_markdown,
    length_figures,
    length_statistics,
    length_verdict,
)

OUTPUTS = st.lists(
    st.tuples(st.integers(0, 5_000), st.integers(0, 5_000), st.booleans(), st.booleans()), min_size=1, max_size=60
)


def facts(rows: list[tuple[int, int, bool, bool]]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "sample_id": str(i),
                "output": reasoning + answer,
                "reasoning": reasoning,
                "answer": answer,
                "reasoning_end": -1,
                "cut_off": cut,
                "tool_call": tool,
            }
            for i, (reasoning, answer, cut, tool) in enumerate(rows)
        ],
        schema=OUTPUT_FACTS,
    )


@given(OUTPUTS)
def test_statistics_are_what_a_plain_recount_gives(rows: list[tuple[int, int, bool, bool]]) -> None:
    made = length_statistics(facts(rows))
    assert made.schema == LENGTH_STATISTICS
    sections = {
        "output": [reasoning + answer for reasoning, answer, _, _ in rows],
        "reasoning": [reasoning for reasoning, _, _, _ in rows],
        "answer": [answer for _, answer, _, _ in rows],
    }
    for row in made.iter_rows(named=True):
        lengths = sorted(sections[row["section"]])
        assert row["samples"] == len(lengths)
        assert row["tokens"] == sum(lengths)
        assert abs(row["mean"] - statistics.fmean(lengths)) < 1e-6
        assert (row["min"], row["max"]) == (lengths[0], lengths[-1])
        assert row["median"] == statistics.median_low(lengths)
        assert row["p95"] == min(n for n in lengths if 20 * sum(m <= n for m in lengths) >= 19 * len(lengths))
        assert abs(row["share_under_500"] - sum(n < 500 for n in lengths) / len(lengths)) < 1e-9
    output = made.row(0, named=True)
    assert abs(output["cut_off_share"] - statistics.fmean(cut for _, _, cut, _ in rows)) < 1e-9
    assert abs(output["tool_call_share"] - statistics.fmean(tool for _, _, _, tool in rows)) < 1e-9


def test_no_outputs_are_no_figures() -> None:
    made = length_statistics(facts([]))
    assert made["samples"].to_list() == [0, 0, 0]
    assert made["median"].null_count() == 3
    assert length_verdict(made, LengthBand()) == "no outputs"
    assert histogram_markdown(facts([])["output"]) == "no outputs"


def test_the_verdict_in_words() -> None:
    made = length_statistics(facts([(400, 71, False, False), (1_000, 204, False, False), (100, 30, False, False)]))
    assert (
        length_verdict(made, LengthBand())
        == "median 471, p95 1,204, 67% under 500; no band is expected of this dataset"
    )
    inside = LengthBand.model_validate({"median": [400, 500]})
    assert length_verdict(made, inside) == "median 471, p95 1,204, 67% under 500: inside the expected band"
    outside = LengthBand.model_validate({"median": [500, 900], "share_under_500": [0.0, 0.5]})
    misses = ["median 471 is outside 500-900", "share under 500 66.67% is outside 0.00%-50.00%"]
    assert band_misses(made.row(0, named=True), outside) == misses
    assert length_verdict(made, outside).endswith(f"67% under 500: {'; '.join(misses)}")


@given(st.lists(st.integers(0, 2_000), min_size=1, max_size=80))
def test_the_law_and_the_statistics_have_the_same_figures(lengths: list[int]) -> None:
    row = length_statistics(facts([(0, n, False, False) for n in lengths])).row(0, named=True)
    figures = length_figures(pl.Series(lengths, dtype=pl.Int64))
    assert figures == {name: row[name] for name in figures}


@given(st.lists(st.integers(0, 10_000_000), min_size=1, max_size=300))
def test_a_histogram_fits_in_place_and_is_a_picture(lengths: list[int]) -> None:
    markdown = histogram_markdown(pl.Series(lengths, dtype=pl.Int32))
    assert len(markdown) < 1_000
    url = markdown.split("(", 1)[1].split(")", 1)[0]
    picture = ElementTree.fromstring(base64.b64decode(url.removeprefix("data:image/svg+xml;base64,")))  # noqa: S314 - ours
    [path] = picture
    assert path.attrib["d"].startswith("M0 60V")
    assert "V0h" in path.attrib["d"]  # the fullest bin is as high as the picture
