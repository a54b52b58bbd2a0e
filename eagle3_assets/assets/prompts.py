"""The asset ``prompts``: what the target shall be asked."""

from collections import Counter
from collections.abc import Iterable, Sequence

import dagster as dg
import polars as pl

from eagle3_assets.assets.common import (
    column_schema,
    counts_table,
    failing_clearly,
    partitions_definition,
    usual_metadata,
)
from eagle3_assets.contract import PROMPTS
from eagle3_assets.project import Project
from eagle3_assets.prompts.record import SourceRecord
from eagle3_assets.prompts.row_index import READER
from eagle3_assets.prompts.rows import NotedRow
from eagle3_assets.prompts.sources import FileState
from eagle3_assets.sourcing import take_prompts
from eagle3_assets.tokens.safe_text import visible

SHOWN_FILES = 50


def build(project: Project) -> dg.AssetsDefinition:
    """The asset for one config."""

    @dg.asset(
        name="prompts",
        description="Conversations of the source dataset, normalised: one row per assistant turn to generate.",
        group_name="prompts",
        kinds={"polars", "parquet"},
        partitions_def=partitions_definition(project),
        io_manager_key="parquet",
        code_version=READER,
        metadata=column_schema(PROMPTS),
    )
    @failing_clearly()
    def prompts(context: dg.AssetExecutionContext) -> dg.MaterializeResult[pl.DataFrame]:
        partition = project.partition(context.partition_key)
        found, record = take_prompts(project, partition)
        for refused in found.refused:
            context.log.warning(visible(f"refused: {refused}"))
        for remarked in found.remarked:
            context.log.warning(visible(f"remark: {remarked}"))
        if found.unread_keys:
            context.log.info(f"keys of the rows that are not read: {found.unread_said}")
        if found.left_out_files:
            context.log.warning(visible(f"in the source and not read: {', '.join(found.left_out_files[:SHOWN_FILES])}"))
        path = project.layout.asset_file("prompts", partition.key)
        return dg.MaterializeResult(
            value=found.rows,
            metadata={
                **usual_metadata(len(found.rows), path),
                "rows_with_tools": int(found.rows["tools"].is_not_null().sum()),
                "equal_prompts": record.duplicates,
                **source_metadata(record),
                "refused_rows_file": dg.MetadataValue.path(str(project.layout.refused_rows(partition.key))),
            },
            data_version=dg.DataVersion(record.prompts),
        )

    return prompts


def source_metadata(record: SourceRecord) -> dict[str, dg.MetadataValue | int]:
    """What was read, where its rows ended, and the first refused ones."""
    accounts = record.accounts
    formats = Counter(state.format or "none: no row was read" for state in record.files)
    return {
        "source_rows": accounts.rows,
        "used": accounts.used,
        "refused": accounts.refused,
        "skipped": accounts.skipped,
        "in_other_partitions": accounts.elsewhere,
        "left_out_by_sample": accounts.left_out,
        "further_samples": accounts.further_samples,
        "refused_rows": _rows_table(record.refused),
        "remarks": record.remarks,
        "remarked_rows": _rows_table(record.remarked),
        "unread_keys": counts_table("key", pl.DataFrame(list(record.unread_keys.items()), orient="row"), "rows"),
        "source_files": _files_table(record.files),
        "formats": counts_table("format", pl.DataFrame(formats.most_common(), orient="row"), "files"),
        "files_left_out": len(record.left_out_files),
    }


def _rows_table(rows: Iterable[NotedRow]) -> dg.MetadataValue:
    columns = [
        dg.TableColumn("source", "string"),
        dg.TableColumn("row", "int"),
        dg.TableColumn("reason", "string"),
    ]
    return dg.MetadataValue.table(
        [dg.TableRecord({"source": visible(r.source), "row": r.row, "reason": visible(r.reason)}) for r in rows],
        schema=dg.TableSchema(columns),
    )


def _files_table(files: Sequence[FileState]) -> dg.MetadataValue:
    columns = [
        dg.TableColumn("file", "string"),
        dg.TableColumn("bytes", "int"),
        dg.TableColumn("sha256", "string", description="of the whole file; empty where the limit came before it"),
    ]
    return dg.MetadataValue.table(
        [
            dg.TableRecord({"file": visible(state.name), "bytes": state.size, "sha256": state.sha256 or ""})
            for state in files[:SHOWN_FILES]
        ],
        schema=dg.TableSchema(columns),
    )
