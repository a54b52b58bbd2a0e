"""From a law to its check spec, from a verdict to its check result."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import dagster as dg
import polars as pl

from eagle3_assets.tokens.context import SAMPLE_ROWS, Context
from eagle3_assets.tokens.evidence import Evidence, collect_evidence, evidence_markdown, worst_first
from eagle3_assets.tokens.laws import RowLaw
from eagle3_assets.tokens.laws.base import Law
from eagle3_assets.tokens.safe_text import markdown_text, visible
from eagle3_assets.tokens.verdict import Report, Verdict

SHOWN = 5


def check_specs(
    laws: Iterable[Law], *, compared_with: Iterable[str] = (), partitions: dg.PartitionsDefinition[str]
) -> list[dg.AssetCheckSpec]:
    """One check for each law. Only laws which save generating time block in Dagster.

    Args:
        laws: of one asset.
        compared_with: other assets that the laws read.
        partitions: the assets' own.
    """
    return [
        dg.AssetCheckSpec(
            law.name,
            asset=law.asset,
            description=_description(law),
            blocking=law.effect == "block",
            partitions_def=partitions,
            additional_deps=compared_with,
        )
        for law in laws
    ]


def check_results(
    report: Report,
    frame: pl.LazyFrame,
    context: Context,
    *,
    look: str | None = None,
    more: Mapping[str, Any] | None = None,
) -> Iterator[dg.AssetCheckResult]:
    """One result for each verdict.

    Args:
        report: of the frame.
        frame: the judged rows; those of the first offenders are read again.
        context: what they were judged against.
        look: the command that shows a sample, up to the sample's id; it stands beside the first offender.
        more: metadata of each result besides the usual.
    """
    for verdict in report.verdicts:
        found = worst_first(report.findings.filter(pl.col("law") == verdict.law.name))
        evidence: list[Evidence] = []
        if not found.is_empty():
            offenders = found["sample_id"].unique(maintain_order=True).head(SHOWN).to_list()
            rows = frame.filter(pl.col("sample_id").is_in(offenders)).collect()
            evidence = collect_evidence(found, [rows], context, limit=SHOWN)
        yield dg.AssetCheckResult(
            asset_key=dg.AssetKey(verdict.law.asset),
            check_name=verdict.law.name,
            passed=verdict.status == "passed",
            severity=dg.AssetCheckSeverity.ERROR if verdict.severity == "ERROR" else dg.AssetCheckSeverity.WARN,
            description=markdown_text(visible(_said(verdict))),
            metadata={**_metadata(verdict, evidence, look), **(more or {})},
        )


def _said(verdict: Verdict) -> str:
    # What a broken law means is not so of rows that only have a remark.
    if verdict.status in ("passed", "not_judged") or not verdict.violations:
        return verdict.summary
    return f"{verdict.summary} {verdict.law.meaning} {verdict.law.remedy}"


def _description(law: Law) -> str:
    sampled = isinstance(law, RowLaw) and law.sampled
    return f"{law.definition} Effect: {law.effect}.{f' Judged on a sample of {SAMPLE_ROWS:,} rows.' if sampled else ''}"


def _metadata(verdict: Verdict, evidence: list[Evidence], look: str | None) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "status": verdict.status,
        "effect": verdict.effect,
        "judged": verdict.judged,
        "violations": verdict.violations,
        "warnings": verdict.warnings,
        "share": round(verdict.share, 6),
        **{name: dg.MetadataValue.float(float(value)) for name, value in verdict.figures.items()},
    }
    if verdict.law.causes:
        metadata["known_causes"] = ", ".join(verdict.law.causes)
    if evidence:
        metadata["offenders"] = _table(evidence)
        metadata["in_context"] = dg.MetadataValue.md(evidence_markdown(evidence))
        if look:
            metadata["look"] = f"{look} {shlex.quote(visible(evidence[0].sample_id))}"
    return metadata


def _table(evidence: list[Evidence]) -> dg.MetadataValue:
    columns = ("sample_id", "index", "detail", "ids", "text")
    return dg.MetadataValue.table(
        [
            dg.TableRecord(
                {
                    "sample_id": visible(item.sample_id),
                    "index": -1 if item.index is None else item.index,
                    "detail": visible(item.detail),
                    "ids": item.ids_line,
                    "text": visible(item.text),
                }
            )
            for item in evidence
        ],
        schema=dg.TableSchema([dg.TableColumn(name, "int" if name == "index" else "string") for name in columns]),
    )
