"""The checks of ``prompts``: every row of the source is accounted for, and the source is still what it was."""

import warnings
from collections.abc import Iterator

import dagster as dg
import polars as pl

from eagle3_assets.assets.common import failing_clearly, partitions_definition
from eagle3_assets.assets.prompts import source_metadata
from eagle3_assets.project import Project
from eagle3_assets.prompts.record import SourceRecord, rows_digest
from eagle3_assets.prompts.rows import used_rows
from eagle3_assets.sourcing import source_changes, stored_record
from eagle3_assets.tokens.safe_text import markdown_text, visible
from eagle3_assets.tokens.wording import percent

ACCOUNTED = "source_rows_accounted"
UNCHANGED = "source_unchanged"
SHOWN_CHANGES = 5


def build(project: Project) -> dg.AssetChecksDefinition:
    """The checks for one config."""
    partitions = partitions_definition(project)
    meanings = {
        ACCOUNTED: "Every row of the source is used in some partition, left out by a setting, or refused by"
        " name; of all of them no more than the dataset's refused_limit are refused.",
        UNCHANGED: "The source and the settings are those that the stored prompts were made of.",
    }
    with warnings.catch_warnings():
        # Checks of single partitions are what this project is about; Dagster calls them a preview.
        warnings.simplefilter("ignore", dg.PreviewWarning)

        @dg.multi_asset_check(
            name="source_of_prompts",
            specs=[
                dg.AssetCheckSpec(name, asset="prompts", description=meaning, partitions_def=partitions)
                for name, meaning in meanings.items()
            ],
            description="The stored prompts against their source, which is not read again unless it has changed.",
            can_subset=True,
        )
        def source_of_prompts(
            context: dg.AssetCheckExecutionContext, prompts: pl.LazyFrame
        ) -> Iterator[dg.AssetCheckResult]:
            with failing_clearly():
                partition = project.partition(context.partition_key)
                record = stored_record(project, partition)
                stored = prompts.collect()
                if record is None or record.prompts != rows_digest(stored):
                    results = [_unknown(name, recorded=record is not None) for name in meanings]
                else:
                    results = [
                        accounted(record, used_rows(stored), partition.dataset.refused_limit),
                        unchanged(source_changes(project, partition, record)),
                    ]
            wanted = {key.name for key in context.selected_asset_check_keys}
            yield from (result for result in results if result.check_name in wanted)

    return source_of_prompts


def accounted(record: SourceRecord, used: int, refused_limit: float) -> dg.AssetCheckResult:
    """The result for a record.

    Args:
        record: that belongs to the stored prompts.
        used: rows of the source that the stored prompts were made of.
        refused_limit: share of refused rows above which the check fails.
    """
    accounts = record.accounts
    lost = accounts.unaccounted + accounts.used - used
    refused, share = accounts.refused, accounts.refused_share
    said = f"{accounts.rows:,} rows read: {accounts.used:,} used, {refused:,} refused"
    for count, what in (
        (accounts.elsewhere, "in other partitions"),
        (accounts.skipped, "skipped"),
        (accounts.left_out, "not in the sample"),
        (accounts.further_samples, "further samples of prompts in other rows"),
    ):
        said += f", {count:,} {what}" if count else ""
    said += f"; first {record.refused[0]}" if record.refused else ""
    if share > refused_limit:
        said += f"; {percent(share, 2)} refused is more than refused_limit ({percent(refused_limit, 2)})"
    if accounts.nothing_usable:
        none = "`skip` leaves out every row" if accounts.rows else "the source is empty"
        said += f"; {'no row is usable' if refused else none}"
    if lost:
        said += f"; {lost:,} rows are not accounted for: materialize prompts again"
    bad = lost != 0 or accounts.nothing_usable
    return dg.AssetCheckResult(
        asset_key="prompts",
        check_name=ACCOUNTED,
        passed=not bad and share <= refused_limit,
        severity=dg.AssetCheckSeverity.ERROR if bad else dg.AssetCheckSeverity.WARN,
        description=markdown_text(visible(said + ".")),
        metadata={
            **source_metadata(record),
            "refused_share": dg.MetadataValue.float(round(share, 6)),
            "refused_limit": dg.MetadataValue.float(float(refused_limit)),
            "unaccounted": lost,
        },
    )


def unchanged(changes: list[str]) -> dg.AssetCheckResult:
    """The result for what has changed of the source, one line each."""
    said = "The source is what the prompts were made of."
    if changes:
        more = f" and {len(changes) - SHOWN_CHANGES:,} more" if len(changes) > SHOWN_CHANGES else ""
        said = (
            f"The source has changed since prompts was materialized ({'; '.join(changes[:SHOWN_CHANGES])}{more}):"
            " materialize it again."
        )
    return dg.AssetCheckResult(
        asset_key="prompts",
        check_name=UNCHANGED,
        passed=not changes,
        severity=dg.AssetCheckSeverity.WARN,
        description=markdown_text(visible(said)),
        metadata={"changes": len(changes)},
    )


def _unknown(name: str, *, recorded: bool) -> dg.AssetCheckResult:
    said = "is of other prompts than the stored ones" if recorded else "is not there, or of another version"
    return dg.AssetCheckResult(
        asset_key="prompts",
        check_name=name,
        passed=False,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"The record of the prompts' source {said}: materialize prompts again.",
    )
