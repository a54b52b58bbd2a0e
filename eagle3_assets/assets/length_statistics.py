"""The asset ``length_statistics``: how long outputs are, whole and by section."""

import dagster as dg
import polars as pl

from eagle3_assets.assets.common import (
    column_schema,
    data_version,
    failing_clearly,
    partitions_definition,
    usual_metadata,
)
from eagle3_assets.contract import LENGTH_STATISTICS
from eagle3_assets.frames import batches
from eagle3_assets.generation.sealed import Sealed, scan_sealed
from eagle3_assets.project import Project
from eagle3_assets.resources import TargetResource
from eagle3_assets.tokens.facts import OUTPUT_COLUMNS, has_output, output_facts
from eagle3_assets.tokens.lengths import histogram_markdown, length_statistics, length_verdict


def build(project: Project) -> dg.AssetsDefinition:
    """The asset for one config."""

    @dg.asset(
        name="length_statistics",
        description="Lengths in tokens of outputs, their reasoning and what follows it; how many are short or cut off.",
        group_name="inspection",
        kinds={"polars", "parquet"},
        partitions_def=partitions_definition(project),
        io_manager_key="parquet",
        code_version="1",
        metadata=column_schema(LENGTH_STATISTICS),
    )
    @failing_clearly()
    def length_statistics_asset(
        context: dg.AssetExecutionContext, raw_generations: Sealed, target: TargetResource
    ) -> dg.MaterializeResult[pl.DataFrame]:
        partition = project.partition(context.partition_key)
        outputs = scan_sealed(raw_generations).filter(has_output()).select(OUTPUT_COLUMNS)
        facts = output_facts(batches(outputs), target.load().profile)
        statistics = length_statistics(facts)
        output = statistics.row(0, named=True)
        figures = {
            key: round(value, 4)
            for key, value in output.items()
            if key not in ("section", "samples") and value is not None
        }
        return dg.MaterializeResult(
            value=statistics,
            metadata={
                **usual_metadata(len(statistics), project.layout.asset_file("length_statistics", partition.key)),
                "verdict": length_verdict(statistics, partition.dataset.length_band),
                "histogram": dg.MetadataValue.md(histogram_markdown(facts["output"])),
                "outputs": output["samples"],
                **figures,
            },
            data_version=data_version(statistics.iter_rows()),
        )

    return length_statistics_asset
