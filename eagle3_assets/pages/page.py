"""The page of a partition: lengths, verdicts and chosen samples in one HTML file that needs nothing else.

What belongs here: what the template is given. Not here: gathering the data (``inspecting``), the samples' JSON
(``samples``), geometry (``plots``), templates and the page's locks (``rendering``).

The page opens from disk, asks the network for nothing, and says so itself: its content security policy lets only its
own script and its own style run, by their hashes. Model text reaches the document as text alone: through autoescaping
here, through text nodes in the script.
"""

from collections.abc import Mapping
from typing import Any

from eagle3_assets.config import LengthBand
from eagle3_assets.decoding import Decoder
from eagle3_assets.inspecting import Inspection
from eagle3_assets.pages.plots import Chart, chart
from eagle3_assets.pages.rendering import environment, own_file, policy
from eagle3_assets.pages.samples import samples_json
from eagle3_assets.target import LoadedTarget
from eagle3_assets.tokens.lengths import SECTIONS, length_verdict, present_sections
from eagle3_assets.tokens.safe_text import visible
from eagle3_assets.tokens.verdict import Status, Verdict

STATUS_WORDS: dict[Status, str] = {
    "passed": "holds",
    "warned": "warns",
    "failed": "fails",
    "not_judged": "not judged",
}
_WORST_FIRST: tuple[Status, ...] = ("failed", "warned", "not_judged", "passed")


def preview_page(inspection: Inspection, target: LoadedTarget) -> str:
    """The page as HTML; the same for the same data.

    Args:
        inspection: of the partition.
        target: that made it.
    """
    style, script = own_file("preview.css"), own_file("preview.js")
    statistics = present_sections(inspection.statistics).to_dicts()
    whole = [row for row in statistics if row["turn"] is None]
    dataset = inspection.partition.dataset
    report = inspection.report
    data = samples_json(
        inspection.samples, report.findings, report.quarantined, Decoder(target.tokenizer, target.profile)
    )
    verdicts = sorted(report.verdicts, key=lambda verdict: _WORST_FIRST.index(verdict.status))
    return (
        environment()
        .get_template("preview.html.j2")
        .render(
            partition=inspection.partition.key,
            dataset=dataset.name,
            profile=target.profile.name,
            policy=policy(style, script),
            style=style,
            script=script,
            data=data,
            data_kb=max(1, round(len(data.encode()) / 1_000)),
            verdict=length_verdict(inspection.statistics, dataset.length_band, dataset.name),
            output=whole[0],
            whole=whole,
            turns=[row for row in statistics if row["turn"] is not None],
            histograms=_charts(whole, dataset.length_band),
            laws=[_law(verdict) for verdict in verdicts],
            law_counts=[
                (words, count)
                for status, words in STATUS_WORDS.items()
                if (count := sum(v.status == status for v in report.verdicts))
            ],
            quarantined=len(report.quarantined),
            shown=len(inspection.samples),
        )
    )


def _charts(whole: list[dict[str, Any]], band: LengthBand) -> dict[str, Chart]:
    """The whole output's large, those of its sections small and without expectation; none where there is no length."""
    sizes = dict(zip(SECTIONS, ((900, 190), (340, 100), (340, 100)), strict=True))
    return {
        row["section"]: chart(row, band if row["section"] == "output" else LengthBand(), *sizes[row["section"]])
        for row in whole
        if row["max"]
    }


def _law(verdict: Verdict) -> Mapping[str, str]:
    return {
        "name": verdict.law.name,
        "status": verdict.status,
        "words": STATUS_WORDS[verdict.status],
        "summary": visible(verdict.summary),
        "meaning": verdict.law.meaning,
    }
