"""The check of ``raw_generations`` that asks the target again: alone, where a person wants it."""

import warnings
from collections.abc import Iterator
from typing import Any

import dagster as dg
import polars as pl
from pydantic import Field

from eagle3_assets.assets.common import failing_clearly, partitions_definition, reasons_table
from eagle3_assets.checks.results import check_results, check_specs
from eagle3_assets.generation.sealed import Sealed
from eagle3_assets.project import Project
from eagle3_assets.replaying import SAMPLES, Replayed, replay
from eagle3_assets.resources import EngineResource, TargetResource
from eagle3_assets.tokens.laws import ON_REQUEST

OP = "replay_of_raw_generations"


class ReplayConfig(dg.Config):
    """How much to replay."""

    samples: int = Field(
        default=SAMPLES, ge=1, description="Outputs to score; those with recorded log-probabilities come first."
    )


def build(project: Project) -> dg.AssetChecksDefinition:
    """The check for one config."""
    with warnings.catch_warnings():
        # Checks of single partitions are what this project is about; Dagster calls them a preview.
        warnings.simplefilter("ignore", dg.PreviewWarning)

        @dg.multi_asset_check(
            name=OP,
            specs=check_specs(ON_REQUEST, partitions=partitions_definition(project)),
            description="The target scores a sample of its recorded outputs. Runs where it is asked for alone, not with"
            " a materialization.",
            can_subset=True,
        )
        def replay_laws(
            context: dg.AssetCheckExecutionContext,
            config: ReplayConfig,
            raw_generations: Sealed,
            target: dg.ResourceParam[TargetResource],
            engine: dg.ResourceParam[EngineResource],
        ) -> Iterator[dg.AssetCheckResult]:
            if context.job_def.asset_layer.executable_asset_keys:
                return  # Dagster's UI adds every check of an asset to its materialization; this one costs GPU time
            with failing_clearly():
                partition = project.partition(context.partition_key)
                made = replay(
                    project,
                    partition,
                    target.load(),
                    engine.create(context.instance, context.run.run_id),
                    raw_generations,
                    samples=config.samples,
                )
                judged = made.judged
                look = f"eagle3-assets decode {partition.key} --ids --id"
                results = list(
                    check_results(judged.report, made.rows.lazy(), judged.context, look=look, more=_metadata(made))
                )
            yield from results

    return replay_laws


def _metadata(made: Replayed) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "scored": len(made.rows) - len(made.unscored),
        "not_scored": len(made.unscored),
        "tolerance": dg.MetadataValue.float(made.judged.context.replay_tolerance or 0.0),
        "scored_by": made.scored_by.weights,
        "generated_by": made.generated_by.weights,
        "same_weights": made.same_weights,
    }
    if made.unscored:
        metadata["not_scored_reasons"] = reasons_table(pl.Series(list(made.unscored.values()), dtype=pl.String))
    return metadata
