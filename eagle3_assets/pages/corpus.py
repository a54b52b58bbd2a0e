"""The page of the corpus: all datasets beside one another in one HTML file that needs nothing else.

What belongs here: what the template is given. Not here: gathering the data (``summary``), geometry (``plots``).

The page has no script: it opens from disk, asks the network for nothing, and its content security policy says so.
"""

import polars as pl

from eagle3_assets.pages.plots import LINE_COLOURS, overlay
from eagle3_assets.pages.rendering import environment, own_file, policy
from eagle3_assets.summary import COUNTED, STATE_MEANINGS, projection_text, summary_verdict
from eagle3_assets.tokens.safe_text import visible


def corpus_page(summary: pl.DataFrame) -> str:
    """The page as HTML; the same for the same data.

    Args:
        summary: ``contract.CORPUS_SUMMARY``.
    """
    style = own_file("preview.css") + own_file("corpus.css")
    rows = summary.to_dicts()
    partitions = [{**p, "why": [visible(why) for why in p["why"]]} for p in rows[-1]["partitions"]]
    return (
        environment()
        .get_template("corpus.html.j2")
        .render(
            policy=policy(style),
            style=style,
            verdict=summary_verdict(summary),
            datasets=rows[:-1],
            whole=rows[-1],
            chart=overlay(rows[:-1], 900, 190),
            colours=len(LINE_COLOURS),
            projections=[(row, projection_text(row)) for row in rows],
            partitions=partitions,
            meanings=STATE_MEANINGS,
            counted=COUNTED,
        )
    )
