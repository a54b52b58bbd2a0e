"""The asset ``length_statistics``: how long outputs are, whole and by section."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import polars as pl

from eagle3_assets.assets.common import (
    column_schema,
    counts_table,
    data_version,
    failing_clearly,
    partitions_definition,
    usual_metadata,
)
from eagle3_assets.contract import COLUMN_MEANINGS, LENGTH_STATISTICS
from eagle3_assets.generation.sealed import Sealed
from eagle3_assets.inspecting import partition_facts
from eagle3_assets.pages.plots import histogram_markdown
from eagle3_assets.project import Project
from eagle3_assets.resources import TargetResource
from eagle3_assets.tokens.lengths import length_statistics, length_verdict, present_sections

NO_FIGURES = ("section", "turn", "samples", "finish_types", "histogram")
"""Columns that are no single number about the outputs."""
FIGURES = ("samples", "tokens", "mean", "median", "p95", "max", "share_under_500")
"""What the table in the metadata shows."""


def build(project: Project) -> dg.AssetsDefinition:
    """The asset for one config."""

    @dg.asset(
        name="length_statistics",
        description="Lengths in tokens of outputs, their reasoning and what follows it; how many are short or cut off.",
        group_name="inspection",
        kinds={"polars", "parquet"},
        partitions_def=partitions_definition(project),
        io_manager_key="parquet",
        code_version="3",
        metadata=column_schema(LENGTH_STATISTICS),
    )
    @failing_clearly()
    def length_statistics_asset(
        context: dg.AssetExecutionContext, raw_generations: Sealed, target: dg.ResourceParam[TargetResource]
    ) -> dg.MaterializeResult[pl.DataFrame]:
        partition = project.partition(context.partition_key)
        statistics = length_statistics(partition_facts(raw_generations, target.load().profile))
        output = statistics.row(0, named=True)
        figures = {key: round(value, 4) for key, value in output.items() if key not in NO_FIGURES and value is not None}
        dataset = partition.dataset
        return dg.MaterializeResult(
            value=statistics,
            metadata={
                "verdict": length_verdict(statistics, dataset.length_band, dataset.name),
                "histogram": dg.MetadataValue.md(histogram_markdown(output, dataset.length_band)),
                "sections": sections_table(statistics),
                "finish_types": counts_table("finish type", finish_types(output), "outputs"),
                "outputs": output["samples"],
                **figures,
                **usual_metadata(len(statistics), project.layout.asset_file("length_statistics", partition.key)),
            },
            data_version=data_version(statistics.iter_rows()),
        )

    return length_statistics_asset


def finish_types(output: Mapping[str, Any]) -> pl.DataFrame:
    """How outputs ended and how many, from the row of whole outputs."""
    schema = {"finish_type": pl.String, "samples": pl.Int64}
    return pl.DataFrame(output["finish_types"], schema=schema)


def sections_table(statistics: pl.DataFrame) -> dg.MetadataValue:
    """Outputs, their sections and their turns, a row for each."""
    shown = (
        present_sections(statistics)
        .select("section", "turn", *FIGURES)
        .with_columns(pl.col("mean", "share_under_500").round(4))
    )
    return dg.MetadataValue.table(
        [
            dg.TableRecord({key: "all" if key == "turn" and value is None else value for key, value in row.items()})
            for row in shown.with_columns(pl.col("turn").cast(pl.String)).iter_rows(named=True)
        ],
        schema=dg.TableSchema(
            [
                dg.TableColumn("section", "string"),
                dg.TableColumn("turn", "string", description=COLUMN_MEANINGS["turn"]),
                *(dg.TableColumn(name, "float", description=COLUMN_MEANINGS[name]) for name in FIGURES),
            ]
        ),
    )
