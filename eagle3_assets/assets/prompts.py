"""The asset ``prompts``: what the target shall be asked."""

import dagster as dg
import polars as pl

from eagle3_assets.assets.common import (
    column_schema,
    data_version,
    failing_clearly,
    partitions_definition,
    usual_metadata,
)
from eagle3_assets.contract import PROMPTS
from eagle3_assets.project import Project
from eagle3_assets.prompts.rows import read_partition

SHOWN = 20


def build(project: Project) -> dg.AssetsDefinition:
    """The asset for one config."""

    @dg.asset(
        name="prompts",
        description="Conversations of the source dataset, normalised: one row per assistant turn to generate.",
        group_name="prompts",
        kinds={"polars", "parquet"},
        partitions_def=partitions_definition(project),
        io_manager_key="parquet",
        code_version="1",
        metadata=column_schema(PROMPTS),
    )
    @failing_clearly()
    def prompts(context: dg.AssetExecutionContext) -> dg.MaterializeResult[pl.DataFrame]:
        partition = project.partition(context.partition_key)
        found = read_partition(partition, project.config.trial_rows)
        for refused in found.refused[:SHOWN]:
            context.log.warning(f"refused: {refused}")
        path = project.layout.asset_file("prompts", partition.key)
        return dg.MaterializeResult(
            value=found.rows,
            metadata={
                **usual_metadata(len(found.rows), path),
                "source": dg.MetadataValue.path(partition.dataset.source),
                "source_lines": found.lines,
                "refused_lines": len(found.refused),
                "rows_with_tools": int(found.rows["tools"].is_not_null().sum()),
            },
            data_version=data_version(found.rows.select("sample_id", "messages", "tools").iter_rows()),
        )

    return prompts
