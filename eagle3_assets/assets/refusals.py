"""What a reader is told of a partition that laws refuse: which laws, how many rows, what to do, where to look.

What belongs here: metadata of such a failure. Not here: deciding it (``tokens``, ``training``).
"""

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg
import polars as pl

from eagle3_assets.tokens.evidence import worst_first
from eagle3_assets.tokens.safe_text import markdown_text, visible
from eagle3_assets.tokens.verdict import Report, Verdict

LOOK = {"tokenized_prompts": "prompt", "raw_generations": "decode"}
"""The command that shows a sample, by the asset that laws are about."""
COLUMNS = (
    dg.TableColumn("law", "string"),
    dg.TableColumn("samples", "int", description="that break it, or faults of the partition"),
    dg.TableColumn("of", "int", description="rows that the law was shown"),
    dg.TableColumn("first", "string", description="the first sample that breaks it; empty where it is about no sample"),
)


def refused(said: str, partition: str, reasons: Iterable[str], report: Report) -> dg.Failure:
    """The failure of an asset that refuses a partition, with what a reader needs; and the same as an observation.

    A failure's metadata is in the run alone, and nothing is materialized. The observation stands on the asset's page
    beside the partition, which stays failed or missing.

    Args:
        said: the failure in words.
        partition: its key.
        reasons: why, one text for each.
        report: that the laws gave, of prompts or of outputs.
    """
    metadata = refusal_metadata(partition, reasons, report)
    context = dg.AssetExecutionContext.get()
    context.log_event(dg.AssetObservation(asset_key=context.asset_key, partition=partition, metadata=metadata))
    return dg.Failure(visible(said, keep_lines=True), metadata=metadata, allow_retries=False)


def refusal_metadata(partition: str, reasons: Iterable[str], report: Report) -> Mapping[str, Any]:
    """Metadata of a refusal: why, each law that the partition is refused for, and the command to the first sample.

    Args:
        partition: its key.
        reasons: why it is refused, one text for each.
        report: that the laws gave.
    """
    laws = _refusing(report)
    firsts = {verdict.law.name: _first(report, verdict) for verdict in laws}
    metadata: dict[str, Any] = {
        "state": "refused: nothing is written",
        "why": dg.MetadataValue.md("\n".join(f"- {markdown_text(visible(reason))}" for reason in reasons)),
        "rows_judged": report.rows,
        "rows_quarantined": len(report.quarantined),
        "quarantine_limit": report.quarantine_limit,
    }
    if laws:  # else the reasons are about all of it, and say themselves what to do
        metadata |= {
            "refused_by": dg.MetadataValue.table(
                [
                    dg.TableRecord(
                        {
                            "law": verdict.law.name,
                            "samples": verdict.violations,
                            "of": verdict.rows,
                            "first": visible(firsts[verdict.law.name] or ""),
                        }
                    )
                    for verdict in laws
                ],
                schema=dg.TableSchema(list(COLUMNS)),
            ),
            "what_to_do": dg.MetadataValue.md("\n".join(f"- {markdown_text(v.law.remedy)}" for v in laws)),
        }
    command = f"eagle3-assets {LOOK[report.verdicts[0].law.asset]} {partition}"
    first = next((first for first in firsts.values() if first is not None), None)
    return {**metadata, "look": command if first is None else f"{command} --ids --id {shlex.quote(visible(first))}"}


def _refusing(report: Report) -> list[Verdict]:
    """Laws that refuse by themselves, and those that quarantine too much together; none where no law is the reason."""
    together = report.refused_together
    return [v for v in report.verdicts if v.refuses or (together and v.violations and v.effect != "warn")]


def _first(report: Report, verdict: Verdict) -> str | None:
    # A row may be at fault for having no id, and no command can name it.
    found = worst_first(report.findings.filter((pl.col("law") == verdict.law.name) & (pl.col("sample_id") != "")))
    return None if found.is_empty() else str(found["sample_id"][0])
