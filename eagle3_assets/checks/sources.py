"""The check of ``prompts``: every line of the source is accounted for, and the stored rows are what it says now."""

import warnings

import dagster as dg
import polars as pl

from eagle3_assets.assets.common import failing_clearly, partitions_definition
from eagle3_assets.project import Project
from eagle3_assets.prompts.rows import PromptRows, read_partition
from eagle3_assets.tokens.safe_text import markdown_text, visible

ACCOUNTED = "source_rows_accounted"
SHOWN = 20


def build(project: Project) -> dg.AssetChecksDefinition:
    """The check for one config."""
    with warnings.catch_warnings():
        # Checks of single partitions are what this project is about; Dagster calls them a preview.
        warnings.simplefilter("ignore", dg.PreviewWarning)

        @dg.asset_check(
            asset="prompts",
            name=ACCOUNTED,
            description="Every line of the source is a prompt of some partition, or is refused by name.",
            partitions_def=partitions_definition(project),
        )
        def source_rows_accounted(context: dg.AssetCheckExecutionContext, prompts: pl.LazyFrame) -> dg.AssetCheckResult:
            with failing_clearly():
                found = read_partition(project.partition(context.partition_key), project.config.trial_rows)
            return accounted(found, changed=not found.rows.equals(prompts.collect()))

    return source_rows_accounted


def accounted(found: PromptRows, *, changed: bool) -> dg.AssetCheckResult:
    """The result for what a source gives now.

    Args:
        found: of the source.
        changed: whether that differs from the stored prompts.
    """
    refused = len(found.refused)
    nothing = found.lines == refused
    said = f"{found.lines:,} lines: {found.lines - refused:,} conversations, {refused:,} refused"
    said += f"; first {found.refused[0]}" if refused else ""
    said += "; no line is usable" if nothing and refused else "; the source is empty" if nothing else ""
    said += "; the source has changed since prompts was materialized: materialize it again" if changed else ""
    return dg.AssetCheckResult(
        passed=not (refused or nothing or changed),
        severity=dg.AssetCheckSeverity.ERROR if nothing else dg.AssetCheckSeverity.WARN,
        description=markdown_text(visible(said + ".")),
        metadata={
            "lines": found.lines,
            "refused": refused,
            "in_other_partitions": found.elsewhere,
            "refused_lines": dg.MetadataValue.table(
                [
                    dg.TableRecord({"source": r.source, "line": r.line, "reason": visible(r.reason)})
                    for r in found.refused[:SHOWN]
                ],
                schema=dg.TableSchema(
                    [
                        dg.TableColumn("source", "string"),
                        dg.TableColumn("line", "int"),
                        dg.TableColumn("reason", "string"),
                    ]
                ),
            ),
        },
    )
