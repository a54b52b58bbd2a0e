"""How much of the trained tokens a draft vocabulary covers by its size: a curve for each dataset, a picture, a page.

What belongs here: geometry on a log axis, and what the page's template is given. Not here: counting (``vocabularies``,
``tokens.vocabulary``), what pages share (``rendering``).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eagle3_assets.pages.plots import LINE_COLOURS, Mark, line_paths, lines_in_place, short_name
from eagle3_assets.pages.rendering import environment, own_file, policy
from eagle3_assets.tokens.columns import Ints
from eagle3_assets.tokens.safe_text import visible
from eagle3_assets.tokens.vocabulary import DraftVocabulary, vocabulary_verdict
from eagle3_assets.tokens.wording import percent
from eagle3_assets.usable import left_out_text
from eagle3_assets.vocabularies import CorpusVocabulary

_WIDTH, _HEIGHT = 240, 60
_CHOSEN, _KNEE = "#0f766e", "#c2410c"


@dataclass(frozen=True, slots=True)
class Curve:
    """The coverage of one dataset's tokens, or of all."""

    name: str
    share: float
    """At the chosen size."""
    points: tuple[tuple[float, float], ...]
    """From the left, rising from the bottom (nothing is covered) to the top (all is)."""


@dataclass(frozen=True, slots=True)
class CoverageChart:
    """Curves on one axis of sizes; lengths in SVG user units, the origin at the upper left."""

    width: float
    height: float
    curves: tuple[Curve, ...]
    chosen: Mark
    knee: Mark
    ticks: tuple[Mark, ...]


def coverage_chart(
    vocabulary: DraftVocabulary,
    datasets: Sequence[tuple[str, Ints]],
    width: float,
    height: float,
    *,
    most_points: int = 120,
) -> CoverageChart:
    """Lays out the curves: sizes from the structural ids alone to all of the target's, on a log axis.

    Args:
        vocabulary: whose order of ids all curves follow.
        datasets: name and counts of each; a single one is all there is, and has the one curve.
        width: of the chart.
        height: of the chart.
        most_points: of each curve.
    """
    least, most = max(1, int(vocabulary.structural.sum())), len(vocabulary.counts)
    sizes = np.unique(np.geomspace(least, most, most_points).round().astype(np.int64))

    def x(size: float) -> float:
        return round(math.log(size / least) / math.log(max(most / least, 2)) * width, 1)

    def curve(name: str, counts: Ints) -> Curve:
        share = vocabulary.covered(counts) / max(int(counts.sum()), 1)
        points = ((x(size), round((1 - float(share[size])) * height, 1)) for size in sizes.tolist())
        return Curve(name, float(share[vocabulary.size]), tuple(points))

    parts = [*datasets, ("all", vocabulary.counts)] if len(datasets) > 1 else datasets
    return CoverageChart(
        width=width,
        height=height,
        curves=tuple(curve(name, counts) for name, counts in parts),
        chosen=Mark("chosen", vocabulary.size, x(vocabulary.size)),
        knee=Mark("knee", vocabulary.knee, x(vocabulary.knee)),
        ticks=tuple(
            Mark(f"{10**power:,}", 10**power, x(10**power)) for power in range(8) if least <= 10**power <= most
        ),
    )


def coverage_markdown(made: CorpusVocabulary) -> str:
    """The curves as Markdown with an inline SVG picture, of all together and the largest datasets if not of all."""
    names = [name for name, _ in made.datasets] + (["all"] if len(made.datasets) > 1 else [])

    def draw(chosen: Sequence[int], points: int) -> tuple[str, str]:
        chart = coverage_chart(made.vocabulary, made.datasets, _WIDTH, _HEIGHT, most_points=points)
        curves = [chart.curves[i] for i in chosen]
        marks = "".join(
            f'<path d="M{mark.x:.0f} 0v{_HEIGHT}" stroke="{colour}"/>'
            for mark, colour in ((chart.chosen, _CHOSEN), (chart.knee, _KNEE))
        )
        named = zip(curves, LINE_COLOURS, strict=False)
        said = ", ".join(f"{colour} {short_name(curve.name)}" for curve, colour in named)
        text = (
            f"{said}; up to {len(made.vocabulary.counts):,} ids, log axis; lines: chosen {chart.chosen.tokens:,}, knee"
            f" {chart.knee.tokens:,}"
        )
        return line_paths([curve.points for curve in curves]) + marks, text

    weights = [*(int(counts.sum()) for _, counts in made.datasets), int(made.vocabulary.counts.sum()) + 1]
    largest = sorted(range(len(names)), key=lambda i: -weights[i])
    return lines_in_place("coverage by size", names, largest, draw)


def coverage_page(made: CorpusVocabulary) -> str:
    """The page as HTML; the same for the same data. It has no script, and asks the network for nothing."""
    style = own_file("preview.css") + own_file("corpus.css")
    rows = made.table().to_dicts()
    names = list(dict.fromkeys(row["dataset"] for row in rows))
    shares = {(row["dataset"], row["draft_ids"]): row["coverage"] for row in rows}
    sizes = [(row["draft_ids"], row["mark"]) for row in rows if row["dataset"] is None]
    return (
        environment()
        .get_template("vocabulary.html.j2")
        .render(
            policy=policy(style),
            style=style,
            verdict=vocabulary_verdict(made.vocabulary),
            record=made.record,
            chart=coverage_chart(made.vocabulary, made.datasets, 900, 190),
            colours=len(LINE_COLOURS),
            names=[name or "all" for name in names],
            table=[(size, mark, [percent(shares[name, size], 2) for name in names]) for size, mark in sizes],
            left_out=visible(left_out_text(made.left_out)),
        )
    )
