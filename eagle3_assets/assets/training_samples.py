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
from eagle3_assets.generation.sealed import Sealed, scan_sealed
from eagle3_assets.judging import judge_raw, without_origin
from eagle3_assets.project import Project
from eagle3_assets.resources import TargetResource


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
        code_version="1",
        automation_condition=GOOD,
        metadata=column_schema(TRAINING_SAMPLES),
    )
    @failing_clearly()
    def training_samples(
        context: dg.AssetExecutionContext,
        prompts: pl.LazyFrame,
        tokenized_prompts: pl.LazyFrame,
        raw_generations: Sealed,
        target: TargetResource,
    ) -> dg.MaterializeResult[pl.LazyFrame]:
        partition = project.partition(context.partition_key)
        report = judge_raw(project, partition, target.load(), tokenized_prompts, raw_generations).report
        rows = scan_sealed(raw_generations)
        refusals = [*report.refusals, *without_origin(prompts, rows)]
        if refusals:
            raise dg.Failure(
                f"{partition.key} is refused as training data, nothing is written. " + " ".join(refusals),
                allow_retries=False,
            )
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


def to_training_samples(prompts: pl.LazyFrame, raw: pl.LazyFrame, quarantined: frozenset[str]) -> pl.LazyFrame:
    """Generated rows which are not quarantined, as the trainers take them.

    Args:
        prompts: ``contract.PROMPTS``.
        raw: ``contract.RAW_GENERATIONS``.
        quarantined: ids of the samples to leave out.

    Returns:
        ``contract.TRAINING_SAMPLES`` in the order of ``raw``. ``loss_mask`` has a 0 for each prompt id and a 1 for each
        output id, the stop token among them; it is not shifted.
    """
    origin = prompts.select("sample_id", "conversation_id", "turn", "sample_index", "source", "source_row")
    zeros = pl.lit(0, pl.UInt8).repeat_by(pl.col("prompt_ids").list.len())
    ones = pl.lit(1, pl.UInt8).repeat_by(pl.col("output_ids").list.len())
    facts = ("turn", "sample_index", "source", "source_row", "finish_type", "identity", "request_key")
    return (
        raw.filter((pl.col("status") == "generated") & ~pl.col("sample_id").is_in(sorted(quarantined)))
        .join(origin, on="sample_id", how="left", maintain_order="left")
        .select(
            id=pl.col("sample_id"),
            conversation_id=pl.col("conversation_id"),
            input_ids=pl.concat_list("prompt_ids", "output_ids"),
            loss_mask=pl.concat_list(zeros, ones),
            metadata=pl.struct(*facts).struct.json_encode(),
        )
    )
