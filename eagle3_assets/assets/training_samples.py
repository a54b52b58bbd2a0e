"""The asset ``training_samples``: ids and loss mask, only of samples that pass every law."""

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
from eagle3_assets.automation import GOOD
from eagle3_assets.contract import TRAINING_SAMPLES
from eagle3_assets.generation.sealed import Sealed
from eagle3_assets.project import Project
from eagle3_assets.resources import TargetResource
from eagle3_assets.training import Stored, judge_for_training, to_training_samples


def build(project: Project) -> dg.AssetsDefinition:
    """The asset for one config."""

    @dg.asset(
        name="training_samples",
        description=(
            "Prompt and output ids with a loss mask, for the trainers. Applies every law anew: leaves quarantined"
            " samples out and refuses the partition where a law says so."
        ),
        group_name="training",
        kinds={"polars", "parquet"},
        partitions_def=partitions_definition(project),
        io_manager_key="parquet",
        code_version="2",
        automation_condition=GOOD,
        metadata=column_schema(TRAINING_SAMPLES),
    )
    @failing_clearly()
    def training_samples(
        context: dg.AssetExecutionContext,
        prompts: pl.LazyFrame,
        tokenized_prompts: pl.LazyFrame,
        raw_generations: Sealed,
        target: dg.ResourceParam[TargetResource],
    ) -> dg.MaterializeResult[pl.LazyFrame]:
        partition = project.partition(context.partition_key)
        stored = Stored(prompts, tokenized_prompts, raw_generations)
        report = judge_for_training(project, partition, target.load(), stored)
        rows = stored.raw
        samples = to_training_samples(prompts, rows, report.quarantined)
        facts = samples.select(
            "id", tokens=pl.col("loss_mask").list.len(), trained=pl.col("loss_mask").list.sum()
        ).collect()
        hashes = rows.filter(pl.col("sample_id").is_in(facts["id"].to_list())).select("sample_id", "ids_sha256")
        laws = report.findings.filter(
            pl.col("sample_id").is_in(list(report.quarantined)) & (pl.col("severity") == "error")
        )
        path = project.layout.asset_file("training_samples", partition.key)
        for law, count in laws["law"].value_counts(sort=True).iter_rows():
            context.log.warning(f"left out by {law}: {count} samples")
        return dg.MaterializeResult(
            value=samples,
            metadata={
                **usual_metadata(len(facts), path),
                "left_out": len(report.quarantined),
                "left_out_by_law": counts_table("law", laws["law"].value_counts(sort=True)),
                "tokens": int(facts["tokens"].sum()),
                "trained_tokens": int(facts["trained"].sum()),
                "identity": raw_generations.pointer.fingerprint,
                "lowered_laws": dg.MetadataValue.json(dict(project.config.law_effects)),
            },
            data_version=data_version(hashes.collect().iter_rows()),
        )

    return training_samples
