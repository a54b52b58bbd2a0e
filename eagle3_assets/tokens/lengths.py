"""How long outputs are: statistics, counts by length, and a verdict in words.

What belongs here: figures over columns of lengths. Not here: finding where reasoning ends (``anatomy``), drawing
(``pages.plots``), Dagster.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from eagle3_assets.config import Band, LengthBand
from eagle3_assets.contract import LENGTH_STATISTICS
from eagle3_assets.tokens.columns import Ints
from eagle3_assets.tokens.quantiles import nearest_rank
from eagle3_assets.tokens.wording import percent

SHORT = 500
"""Outputs below this many tokens count as short."""

SECTIONS = ("output", "reasoning", "answer")

_QUANTILES = {"min": 0.0, "p05": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95, "max": 1.0}
_SHOWN_QUANTILES = [(name, _QUANTILES[name]) for name in ("median", "p95")]
_BINS_PER_DECADE = 20
# The same edges for all data, so that histograms can be compared and added up.
_EDGES = np.unique(
    [0, *np.ceil(10 ** (np.arange(9 * _BINS_PER_DECADE + 1) / _BINS_PER_DECADE) - 1e-9), np.iinfo(np.int32).max]
).astype(np.int64)

Bin = Mapping[str, int]
"""``samples`` outputs of ``low`` tokens up to, and without, ``high``."""


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
    """Statistics of whole outputs, of their reasoning and of what follows it; then the same for each turn.

    Quantiles are by nearest rank, so that every figure is the length of some output.

    Args:
        facts: ``facts.OUTPUT_FACTS``, one row per generated output.

    Returns:
        ``contract.LENGTH_STATISTICS``: three rows, and where outputs are of several turns three more for each, in
        order. Figures are null where there are no outputs.
    """
    rows = [*_section_rows(facts, None)]
    turns = facts["turn"].drop_nulls().unique().sort()
    if len(turns) > 1:
        for turn in turns:
            rows += _section_rows(facts.filter(pl.col("turn") == turn), turn)
    return pl.DataFrame(
        [{key: _plain(row.get(key)) for key in LENGTH_STATISTICS} for row in rows],
        schema=LENGTH_STATISTICS,
        strict=False,
    )


def _section_rows(facts: pl.DataFrame, turn: int | None) -> Iterator[dict[str, object]]:
    for section in SECTIONS:
        column = facts[section].sort()
        yield {
            "section": section,
            "turn": turn,
            "samples": len(column),
            "tokens": int(column.sum()),
            "mean": column.mean(),
            **({name: _quantile(column, q) for name, q in _QUANTILES.items()} if len(column) else {}),
            **(length_figures(column) if len(column) else {}),
            **(_endings(facts) if section == "output" else {}),
            "histogram": histogram(column),
        }


def _endings(facts: pl.DataFrame) -> dict[str, object]:
    """How outputs end, and what they call; about outputs as a whole."""
    finishes = facts["finish_type"].fill_null("none").value_counts(name="samples").sort("finish_type")
    return {
        "cut_off_share": facts["cut_off"].mean(),
        "tool_call_share": facts["tool_call"].mean(),
        "tool_calls": int(facts["tool_calls"].sum()),
        "finish_types": finishes.to_dicts(),
    }


def present_sections(statistics: pl.DataFrame) -> pl.DataFrame:
    """Rows of :func:`length_statistics` to show: whole outputs, and of their sections those that any of them has."""
    return statistics.filter((pl.col("section") == "output") | (pl.col("tokens") > 0))


def length_counts(lengths: pl.Series) -> pl.DataFrame:
    """How many outputs have each length: ``length`` and ``samples``, both Int64, ordered by length.

    What stays small however many outputs there are, and can be added up without losing a quantile.

    Args:
        lengths: integers, none negative.
    """
    return added_counts([pl.DataFrame({"length": lengths.cast(pl.Int64)}).with_columns(samples=pl.lit(1, pl.Int64))])


def added_counts(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The sum of several :func:`length_counts`, one at least."""
    return pl.concat(parts).group_by("length").agg(pl.col("samples").sum()).sort("length")


def counted_figures(counts: pl.DataFrame) -> dict[str, Any]:
    """``samples``, ``tokens``, ``mean``, ``median``, ``p95``, ``share_under_500`` and ``histogram`` of counts.

    The same figures that :func:`length_statistics` has; those that need an output are null without one.

    Args:
        counts: of :func:`length_counts`.
    """
    length, each = counts["length"].to_numpy(), counts["samples"].to_numpy()
    samples, tokens = int(each.sum()), int((length * each).sum())
    if not samples:
        return {"samples": 0, "tokens": 0, "histogram": []}
    up_to = np.cumsum(each)
    return {
        "samples": samples,
        "tokens": tokens,
        "mean": tokens / samples,
        **{
            name: int(length[np.searchsorted(up_to, nearest_rank(samples, q), "right")]) for name, q in _SHOWN_QUANTILES
        },
        "share_under_500": int(each[length < SHORT].sum()) / samples,
        "histogram": _binned(length, each),
    }


def histogram(lengths: pl.Series) -> list[Bin]:
    """Counts by length in bins about 12 % wide, from the shortest to the longest; empty if there are none.

    Args:
        lengths: integers, none negative.
    """
    return [] if lengths.is_empty() else _binned(lengths.to_numpy(), None)


def _binned(lengths: Ints, weights: Ints | None) -> list[Bin]:
    place = np.searchsorted(_EDGES, lengths, side="right") - 1
    place = np.minimum(place, len(_EDGES) - 2)
    first = int(place.min())
    counts = np.bincount(place - first, weights)
    return [
        {"low": int(_EDGES[first + i]), "high": int(_EDGES[first + i + 1]), "samples": int(count)}
        for i, count in enumerate(counts)
    ]


def merged(bins: Sequence[Bin], most: int) -> list[Bin]:
    """At most so many bins that say the same more coarsely: neighbours are added up.

    Args:
        bins: of :func:`histogram`.
        most: one or more.
    """
    step = math.ceil(len(bins) / most) or 1
    groups = (bins[start : start + step] for start in range(0, len(bins), step))
    return [
        {"low": group[0]["low"], "high": group[-1]["high"], "samples": sum(b["samples"] for b in group)}
        for group in groups
    ]


def band_misses(figures: Mapping[str, float], band: LengthBand) -> list[str]:
    """What lies outside the expected band, one phrase each; empty if all is inside or nothing is expected.

    Args:
        figures: of :func:`length_figures`, or a row of :func:`length_statistics` that has outputs.
        band: the dataset's expectation.
    """
    return [
        f"{name} {written(figures[key])} is outside {written(limits.low)}-{written(limits.high)}"
        for name, key, limits, written in _expectations(band)
        if limits is not None and figures[key] not in limits
    ]


def expects_lengths(band: LengthBand) -> bool:
    """Whether a band expects anything at all."""
    return not (band.median is None and band.p95 is None and band.share_under_500 is None)


def figures_text(figures: Mapping[str, float]) -> str:
    """The figures in words: ``median 471, p95 1,204, 51.2% under 500``."""
    short = percent(figures["share_under_500"])
    return f"median {figures['median']:,.0f}, p95 {figures['p95']:,.0f}, {short} under {SHORT}"


def band_text(band: LengthBand) -> str:
    """What a dataset expects: ``median 100 to 600, p95 400 to 2,000``; empty where it expects nothing."""
    return ", ".join(
        f"{name} {written(limits.low)} to {written(limits.high)}"
        for name, _, limits, written in _expectations(band)
        if limits is not None
    )


def length_verdict(statistics: pl.DataFrame, band: LengthBand, dataset: str) -> str:
    """The statistics in one sentence, with the dataset's expectation.

    ``median 471, p95 1,204, 51.2% under 500: inside the band expected of glaive (median 100 to 600)``
    """
    output = statistics.row(0, named=True)
    if not output["samples"]:
        return "no outputs"
    figures = figures_text(output)
    if not expects_lengths(band):
        return f"{figures}; no band is expected of {dataset}"
    misses = band_misses(output, band)
    if misses:
        return f"{figures}: outside the band expected of {dataset}: {'; '.join(misses)}"
    return f"{figures}: inside the band expected of {dataset} ({band_text(band)})"


def _expectations(band: LengthBand) -> tuple[tuple[str, str, Band | None, Callable[[float], str]], ...]:
    """Each figure's name, its key, what is expected of it, and how it is written."""
    return (
        ("median", "median", band.median, "{:,.0f}".format),
        ("p95", "p95", band.p95, "{:,.0f}".format),
        (f"share under {SHORT}", "share_under_500", band.share_under_500, partial(percent, decimals=2)),
    )


def _quantile(ordered: pl.Series, q: float) -> float:
    """The shortest real length which at least this share of the outputs do not exceed (nearest rank)."""
    return float(ordered[nearest_rank(len(ordered), q)])


def _plain(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value
