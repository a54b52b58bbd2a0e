"""How long outputs are: statistics, a verdict in words, and a histogram small enough to be shown in place.

What belongs here: figures over columns of lengths. Not here: finding where reasoning ends (``anatomy``), Dagster.
"""

import base64
import math
from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eagle3_assets.config import Band, LengthBand
from eagle3_assets.contract import LENGTH_STATISTICS

SHORT = 500
"""Outputs below this many tokens count as short."""

_QUANTILES = {"min": 0.0, "p05": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "max": 1.0}
_BINS, _WIDTH, _HEIGHT = 24, 240, 60


def length_figures(lengths: pl.Series) -> dict[str, float]:
    """What a dataset's band is about: ``median`` and ``p95``, each some output's length, and ``share_under_500``.

    Args:
        lengths: tokens per output, integers, one at least.
    """
    ordered = lengths.sort()
    return {
        "median": _quantile(ordered, _QUANTILES["median"]),
        "p95": _quantile(ordered, _QUANTILES["p95"]),
        "share_under_500": int((ordered < SHORT).sum()) / len(ordered),
    }


def length_statistics(facts: pl.DataFrame) -> pl.DataFrame:
    """Statistics of whole outputs, of their reasoning and of what follows it.

    Quantiles are by nearest rank, so that every figure is the length of some output.

    Args:
        facts: ``facts.OUTPUT_FACTS``, one row per generated output.

    Returns:
        ``contract.LENGTH_STATISTICS``, three rows; figures are null where there are no outputs.
    """
    rows = []
    for section in ("output", "reasoning", "answer"):
        column = facts[section].sort()
        whole = section == "output"
        rows.append(
            {
                "section": section,
                "samples": len(column),
                "tokens": int(column.sum()),
                "mean": column.mean(),
                **({name: _quantile(column, q) for name, q in _QUANTILES.items()} if len(column) else {}),
                **(length_figures(column) if len(column) else {}),
                "cut_off_share": facts["cut_off"].mean() if whole else None,
                "tool_call_share": facts["tool_call"].mean() if whole else None,
            }
        )
    return pl.DataFrame(
        [{key: _plain(row.get(key)) for key in LENGTH_STATISTICS} for row in rows],
        schema=LENGTH_STATISTICS,
        strict=False,
    )


def band_misses(figures: Mapping[str, float], band: LengthBand) -> list[str]:
    """What lies outside the expected band, one phrase each; empty if all is inside or nothing is expected.

    Args:
        figures: of :func:`length_figures`, or a row of :func:`length_statistics` that has outputs.
        band: the dataset's expectation.
    """
    expected: tuple[tuple[str, str, Band | None, str], ...] = (
        ("median", "median", band.median, ",.0f"),
        ("p95", "p95", band.p95, ",.0f"),
        ("share_under_500", f"share under {SHORT}", band.share_under_500, ".2%"),
    )
    return [
        f"{name} {figures[key]:{form}} is outside {limits.low:{form}}-{limits.high:{form}}"
        for key, name, limits, form in expected
        if limits is not None and figures[key] not in limits
    ]


def expects_lengths(band: LengthBand) -> bool:
    """Whether a band expects anything at all."""
    return not (band.median is None and band.p95 is None and band.share_under_500 is None)


def figures_text(figures: Mapping[str, float]) -> str:
    """The figures in words: ``median 471, p95 1,204, 51% under 500``."""
    return f"median {figures['median']:,.0f}, p95 {figures['p95']:,.0f}, {figures['share_under_500']:.0%} under {SHORT}"


def length_verdict(statistics: pl.DataFrame, band: LengthBand) -> str:
    """The statistics in one sentence: ``median 471, p95 1,204, 51 % under 500: inside the expected band``."""
    output = statistics.row(0, named=True)
    if not output["samples"]:
        return "no outputs"
    figures = figures_text(output)
    if not expects_lengths(band):
        return f"{figures}; no band is expected of this dataset"
    misses = band_misses(output, band)
    return f"{figures}: " + ("; ".join(misses) if misses else "inside the expected band")


def histogram_markdown(lengths: pl.Series) -> str:
    """A histogram on a log axis as Markdown with an inline SVG picture.

    Dagster's UI shows Markdown of less than 1,000 characters in place and hides longer text, and it strips HTML: hence
    one path of few points in a data URL.

    Args:
        lengths: integer tokens per output.
    """
    values = lengths.to_numpy()
    if not len(values):
        return "no outputs"
    counts, edges = _log_bins(values)
    return f"![histogram]({_svg_url(counts)}) {edges[0]:,.0f} to {edges[-1]:,.0f} tokens, log axis"


def _log_bins(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    low, high = max(int(values.min()), 1), max(int(values.max()), 2)
    edges = np.geomspace(low, max(high, low + 1), _BINS + 1)
    counts, _ = np.histogram(np.clip(values, low, None), bins=edges)
    return counts, edges


def _svg_url(counts: NDArray[np.int64]) -> str:
    heights = np.round(counts / counts.max() * _HEIGHT).astype(int)
    step = _WIDTH // _BINS
    path = f"M0 {_HEIGHT}" + "".join(f"V{_HEIGHT - h}h{step}" for h in heights) + f"V{_HEIGHT}"
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}">'
        f'<path d="{path}" fill="#4f43dd"/></svg>'
    )
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _quantile(ordered: pl.Series, q: float) -> float:
    """The shortest real length which at least this share of the outputs do not exceed (nearest rank)."""
    return float(ordered[max(0, math.ceil(q * len(ordered) - 1e-9) - 1)])


def _plain(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value
