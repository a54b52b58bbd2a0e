"""Histograms of lengths as SVG: where bars, marks and bands lie, and the small picture for the Dagster UI.

What belongs here: geometry on a log axis. Not here: counting (``tokens.lengths``), the page around it (``page``).
"""

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from eagle3_assets.config import Band, LengthBand
from eagle3_assets.tokens.lengths import Bin, merged

BARS_IN_PLACE = 36
IN_PLACE = 1_000
"""Dagster's UI shows Markdown of fewer characters in place and hides longer text behind a click."""
_POINTS_IN_PLACE = (24, 18, 14, 11, 9)
"""Of each line, as there is room."""
_NAME = 26
LINE_COLOURS = ("royalblue", "orangered", "seagreen", "purple", "goldenrod", "teal", "crimson", "gray")
"""Of the datasets' lines, by names that SVG and people know; in a page then again from the first, with dashes."""
_WIDTH, _HEIGHT = 240, 60
_COLOURS = {"median": "#c2410c", "p95": "#0f766e"}
_COLOUR_NAMES = {"median": "orange", "p95": "green"}
_DECADES_BEYOND = 1
"""How far an expectation may stretch the axis beyond the data: a wide one shall not squeeze the bars."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Outputs of ``low`` tokens up to, and without, ``high``."""

    x: float
    y: float
    width: float
    height: float
    low: int
    high: int
    samples: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A figure on the axis."""

    name: str
    tokens: int
    x: float
    minor: bool = False
    """Of a round number: whether a narrow chart does without it."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Where a dataset expects a figure."""

    name: str
    low: float
    high: float
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Chart:
    """A histogram laid out; lengths in SVG user units, the origin at the upper left."""

    width: float
    height: float
    most: int
    """Outputs in the fullest bar, which is as high as the chart."""
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    expected: tuple[Expected, ...]
    ticks: tuple[Mark, ...]
    """Round numbers of tokens."""
    ends: tuple[int, int]
    """Tokens at the left and at the right end."""


def chart(row: Mapping[str, Any], band: LengthBand, width: float, height: float, *, most_bars: int = 200) -> Chart:
    """Lays out the histogram of one row of ``contract.LENGTH_STATISTICS`` that has outputs.

    Args:
        row: with ``histogram``, ``median`` and ``p95``.
        band: what is expected; an empty one for sections that nothing is expected of.
        width: of the chart.
        height: of the chart.
        most_bars: bins are merged down to these.
    """
    bins: Sequence[Bin] = merged(row["histogram"], most_bars)
    limits = [(name, limit) for name, limit in (("median", band.median), ("p95", band.p95)) if limit is not None]
    left, right = _domain(bins, [limit for _, limit in limits])

    def x(tokens: float) -> float:
        return round(min(max((_position(tokens) - left) / (right - left), 0.0), 1.0) * width, 1)

    most = max(b["samples"] for b in bins)
    bars = []
    for b in bins:
        tall = round(b["samples"] / most * height, 1)
        left_edge, right_edge = x(b["low"]), x(b["high"])
        bars.append(Bar(left_edge, height - tall, right_edge - left_edge, tall, b["low"], b["high"], b["samples"]))
    return Chart(
        width=width,
        height=height,
        most=most,
        bars=tuple(bars),
        marks=tuple(Mark(name, row[name], x(row[name])) for name in ("median", "p95")),
        expected=tuple(
            Expected(name, limit.low, limit.high, x(limit.low), x(limit.high) - x(limit.low)) for name, limit in limits
        ),
        ticks=_ticks(left, right, width),
        ends=(round(10**left), round(10**right)),
    )


@dataclass(frozen=True, slots=True)
class Line:
    """The lengths of one dataset as a line."""

    name: str
    samples: int
    median: int
    points: tuple[tuple[float, float], ...]
    """From the left; both ends lie on the axis."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """Several histograms on one axis; lengths in SVG user units, the origin at the upper left."""

    width: float
    height: float
    lines: tuple[Line, ...]
    ticks: tuple[Mark, ...]
    """Round numbers of tokens."""


def overlay(
    rows: Sequence[Mapping[str, Any]], width: float, height: float, *, most_points: int = 200
) -> Overlay | None:
    """Lays out the histograms of several datasets, each as the share of its outputs: how many there are plays no part.

    Args:
        rows: of ``contract.CORPUS_SUMMARY``, without the last.
        width: of the chart.
        height: of the chart; the highest line reaches it.
        most_points: bins of each line are merged down to these.

    Returns:
        None where no dataset has an output.
    """
    counted = {row["dataset"]: merged(row["histogram"], most_points) for row in rows if row["samples"]}
    if not counted:
        return None
    left = min(_position(bins[0]["low"]) for bins in counted.values())
    right = max(_position(bins[-1]["high"]) for bins in counted.values())

    def x(position: float) -> float:
        return round((position - left) / (right - left) * width, 1)

    # Bins of the lowest lengths and merged ones are wider than others: a share by width can be compared.
    heights = {
        name: [b["samples"] / (_position(b["high"]) - _position(b["low"])) for b in bins]
        for name, bins in counted.items()
    }
    samples = {row["dataset"]: row["samples"] for row in rows}
    most = max(high / samples[name] for name, highs in heights.items() for high in highs)
    lines = []
    for row in rows:
        name = row["dataset"]
        if name not in counted:
            continue
        bins = counted[name]
        middles = [x((_position(b["low"]) + _position(b["high"])) / 2) for b in bins]
        tops = [round(height - high / samples[name] / most * height, 1) for high in heights[name]]
        ends = (x(_position(bins[0]["low"])), height), (x(_position(bins[-1]["high"])), height)
        points = (ends[0], *zip(middles, tops, strict=True), ends[1])
        lines.append(Line(name, row["samples"], row["median"], points))
    return Overlay(width, height, tuple(lines), _ticks(left, right, width))


def overlay_markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The same as Markdown with an inline SVG picture, of the largest datasets if not of all.

    Args:
        rows: of ``contract.CORPUS_SUMMARY``.
    """
    counted = [row for row in rows[:-1] if row["samples"]]
    if not counted:
        return "no outputs"

    def draw(chosen: Sequence[int], points: int) -> tuple[str, str]:
        made = overlay([counted[i] for i in chosen], _WIDTH, _HEIGHT, most_points=points)
        lines = made.lines if made else ()
        named = zip(lines, LINE_COLOURS, strict=False)
        said = ", ".join(f"{colour} {short_name(line.name)} (median {line.median:,})" for line, colour in named)
        text = f"{said}; tokens on a log axis, share of each dataset's outputs"
        return line_paths([line.points for line in lines]), text

    largest = sorted(range(len(counted)), key=lambda i: -counted[i]["samples"])
    return lines_in_place("lengths by dataset", [row["dataset"] for row in counted], largest, draw)


def lines_in_place(
    what: str,
    names: Sequence[str],
    by_weight: Sequence[int],
    draw: Callable[[Sequence[int], int], tuple[str, str]],
) -> str:
    """Markdown with a picture of lines that Dagster's UI shows in place, as :func:`histogram_markdown` says.

    As many lines as have room, each in a colour of its own, with as many points as have room; the others are named, as
    far as there is room for that.

    Args:
        what: the picture's alternative text.
        names: of all lines.
        by_weight: places in ``names``, those first that must not be left out.
        draw: takes the places of the lines to draw, in order, and how many points each may have; gives SVG elements and
            what is said of them.
    """
    for lines in range(min(len(names), len(LINE_COLOURS)), 0, -1):
        left_out = [short_name(names[i]) for i in by_weight[lines:]]
        for points in _POINTS_IN_PLACE:
            paths, said = draw(sorted(by_weight[:lines]), points)
            svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}">{paths}</svg>'
            text = f"![{what}]({data_url(svg)}) {said}"
            if len(text) + len(_left_out_text(left_out, 0)) < IN_PLACE:
                told = (_left_out_text(left_out, some) for some in range(len(left_out), -1, -1))
                return text + next(more for more in told if len(text) + len(more) < IN_PLACE)
    return "the picture is too large to be shown in place; it is on the page"


def _left_out_text(names: Sequence[str], named: int) -> str:
    """So many of the lines that are not drawn by name, and how many more there are."""
    more = f"{len(names) - named} more, on the page" if named < len(names) else ""
    return f"; not drawn: {', '.join([*names[:named], *([more] if more else [])])}" if names else ""


def line_paths(lines: Sequence[Sequence[tuple[float, float]]]) -> str:
    """SVG paths of lines in the colours of ``LINE_COLOURS``, in whole units and from point to point, to be short."""
    paths = []
    for points, colour in zip(lines, LINE_COLOURS, strict=False):
        whole = [(round(x), round(y)) for x, y in points]
        steps = [(x - before_x, y - before_y) for (before_x, before_y), (x, y) in pairwise(whole)]
        # A minus sign parts numbers as well as a space does.
        moves = " ".join(f"{dx} {dy}" for dx, dy in steps).replace(" -", "-")
        paths.append(f'<path d="M{whole[0][0]} {whole[0][1]}l{moves}" stroke="{colour}"/>')
    return f'<g fill="none">{"".join(paths)}</g>'


def short_name(name: str) -> str:
    """A name that takes little room in a sentence: what is long has its middle left out."""
    return name if len(name) <= _NAME else f"{name[: _NAME // 2]}...{name[-(_NAME // 2 - 3) :]}"


def histogram_markdown(row: Mapping[str, Any], band: LengthBand) -> str:
    """A histogram as Markdown with an inline SVG picture, median, p95 and what is expected of them drawn in.

    Dagster's UI strips HTML and hides what has ``IN_PLACE`` characters: hence few paths in a data URL.

    Args:
        row: the row of whole outputs of ``contract.LENGTH_STATISTICS``.
        band: what the dataset expects.
    """
    if not row["histogram"]:
        return "no outputs"
    made = chart(row, band, _WIDTH, _HEIGHT, most_bars=BARS_IN_PLACE)
    said = ", ".join(f"{mark.name} {mark.tokens:,} ({_COLOUR_NAMES[mark.name]})" for mark in made.marks)
    left, right = made.ends
    return f"![histogram]({_svg_url(made)})\n\naxis {left:,} to {right:,} tokens, log; lines: {said}" + (
        "; shaded: where they are expected" if made.expected else ""
    )


def _svg_url(made: Chart) -> str:
    shades = "".join(
        f'<path d="M{e.x:.0f} 0h{max(e.width, 1):.0f}v{_HEIGHT}h-{max(e.width, 1):.0f}" fill="{_COLOURS[e.name]}"'
        ' opacity=".2"/>'
        for e in made.expected
    )
    outline = f"M{made.bars[0].x:.0f} {_HEIGHT}"
    outline += "".join(f"V{b.y:.0f}H{b.x + b.width:.0f}" for b in made.bars) + f"V{_HEIGHT}"
    lines = "".join(f'<path d="M{m.x:.0f} 0v{_HEIGHT}" stroke="{_COLOURS[m.name]}"/>' for m in made.marks)
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="440" height="110">'
        f'{shades}<path d="{outline}" fill="#7c83e8"/>{lines}</svg>'
    )
    return data_url(svg)


def data_url(svg: str) -> str:
    """A picture as the address of an image in Markdown."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _position(tokens: float) -> float:
    """On a log axis, on which nothing at all lies half a token below one."""
    return math.log10(max(tokens, 0.5))


def _domain(bins: Sequence[Bin], limits: Sequence[Band]) -> tuple[float, float]:
    left, right = _position(bins[0]["low"]), _position(bins[-1]["high"])
    for limit in limits:
        left = min(left, max(_position(limit.low), left - _DECADES_BEYOND))
        right = max(right, min(_position(limit.high), right + _DECADES_BEYOND))
    return left, right


def _ticks(left: float, right: float, width: float) -> tuple[Mark, ...]:
    """1, 2, 5, 10, ... within the axis, or only powers of ten on a long one.

    Minor are those between powers of ten, where two powers tell the axis without them.
    """
    steps = (1, 2, 5) if right - left < 3.5 else (1,)
    numbers = [step * 10**power for power in range(10) for step in steps]
    shown = [n for n in numbers if left <= _position(n) <= right]
    powers = [n for n in shown if str(n).strip("0") == "1"]
    return tuple(
        Mark(f"{n:,}", n, round((_position(n) - left) / (right - left) * width, 1), len(powers) > 1 and n not in powers)
        for n in shown
    )
