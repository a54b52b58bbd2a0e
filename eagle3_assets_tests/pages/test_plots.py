"""Plots that fit into the UI and lie where they should."""

import base64
from xml.etree import ElementTree

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.config import LengthBand
from eagle3_assets.pages.plots import chart, histogram_markdown
from eagle3_assets.tokens.lengths import length_statistics
from eagle3_assets_tests.tokens.test_lengths import plain

BAND = LengthBand.model_validate({"median": [1_234_567, 2_345_678], "p95": [0, 3_456_789]})


@given(st.lists(st.integers(0, 10_000_000), min_size=1, max_size=300), st.sampled_from([BAND, LengthBand()]))
def test_a_histogram_with_its_marks_fits_in_place_and_is_a_picture(lengths: list[int], band: LengthBand) -> None:
    markdown = histogram_markdown(length_statistics(plain(*lengths)).row(0, named=True), band)
    assert len(markdown) < 1_000
    url = markdown.split("(", 1)[1].split(")", 1)[0]
    picture = ElementTree.fromstring(base64.b64decode(url.removeprefix("data:image/svg+xml;base64,")))  # noqa: S314 - ours
    paths = [path.attrib["d"] for path in picture]
    assert len(paths) == 3 + sum(limit is not None for limit in (band.median, band.p95))
    bars = paths[-3]
    assert bars.startswith("M0 60V") or band.p95
    assert "V0H" in bars  # the fullest bin is as high as the picture


def test_bars_marks_and_band_lie_on_one_log_axis() -> None:
    row = length_statistics(plain(10, 100, 100, 1_000)).row(0, named=True)
    made = chart(row, LengthBand.model_validate({"median": [50, 200]}), 300, 100)
    assert [(m.name, m.tokens) for m in made.marks] == [("median", 100), ("p95", 1_000)]
    median, p95 = (m.x for m in made.marks)
    assert 0.45 < median / p95 < 0.55  # 100 lies midway between 10 and 1,000
    [expected] = made.expected
    assert expected.x < median < expected.x + expected.width
    full = [bar for bar in made.bars if bar.samples == 2]
    assert [(bar.height, bar.y) for bar in full] == [(100, 0)]
    assert [tick.tokens for tick in made.ticks] == [10, 20, 50, 100, 200, 500, 1_000]


def test_a_narrow_axis_keeps_its_powers_of_ten_and_a_short_one_all() -> None:
    def minor(*lengths: int) -> list[int]:
        row = length_statistics(plain(*lengths)).row(0, named=True)
        return [tick.tokens for tick in chart(row, LengthBand(), 300, 100).ticks if tick.minor]

    assert minor(10, 100, 100, 1_000) == [20, 50, 200, 500]
    assert minor(26, 300) == []


def test_the_picture_in_the_ui_says_where_its_axis_ends() -> None:
    row = length_statistics(plain(26, 47, 151)).row(0, named=True)
    band = LengthBand.model_validate({"median": [400, 600]})
    left, right = chart(row, band, 300, 100).ends
    assert left <= 26
    assert right == 600
    said = histogram_markdown(row, band).partition("\n\n")[2]
    assert said.startswith(f"axis {left} to 600 tokens, log; lines: median 47 (orange), p95 151 (green)")


def test_no_outputs_are_no_picture() -> None:
    row = length_statistics(plain()).row(0, named=True)
    assert histogram_markdown(row, LengthBand()) == "no outputs"
    assert isinstance(row["histogram"], list)
    assert pl.Series(row["histogram"]).is_empty()
