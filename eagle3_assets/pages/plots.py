"""Histograms of lengths as SVG: where bars, marks and bands lie, and the small picture for the Dagster UI.

What belongs here: geometry on a log axis. Not here: counting (``tokens.lengths``), the page around it (``page``).
"""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eagle3_assets.config import Band, LengthBand
from eagle3_assets.tokens.lengths import Bin, merged

BARS_IN_PLACE = 36
_WIDTH, _HEIGHT = 240, 60
_COLOURS = {"median": "#c2410c", "p95": "#0f766e"}
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
        ticks=tuple(Mark(f"{tokens:,}", tokens, x(tokens)) for tokens in _round_numbers(left, right)),
    )


def histogram_markdown(row: Mapping[str, Any], band: LengthBand) -> str:
    """A histogram as Markdown with an inline SVG picture, median, p95 and what is expected of them drawn in.

    Dagster's UI shows Markdown of less than 1,000 characters in place and hides longer text, and it strips HTML: hence
    few paths in a data URL.

    Args:
        row: the row of whole outputs of ``contract.LENGTH_STATISTICS``.
        band: what the dataset expects.
    """
    if not row["histogram"]:
        return "no outputs"
    made = chart(row, band, _WIDTH, _HEIGHT, most_bars=BARS_IN_PLACE)
    said = ", ".join(f"{mark.name} {mark.tokens:,}" for mark in made.marks)
    return f"![histogram]({_svg_url(made)}) {row['min']:,} to {row['max']:,} tokens, log axis; lines: {said}" + (
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
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}">'
        f'{shades}<path d="{outline}" fill="#7c83e8"/>{lines}</svg>'
    )
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


def _round_numbers(left: float, right: float) -> list[int]:
    """1, 2, 5, 10, ... within the axis, or only powers of ten on a long one."""
    steps = (1, 2, 5) if right - left < 3.5 else (1,)
    numbers = (step * 10**power for power in range(10) for step in steps)
    return [n for n in numbers if left <= _position(n) <= right]
