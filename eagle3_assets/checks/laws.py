"""The two multi-asset checks: all laws of one asset over a partition in one pass, one result for each."""

import warnings
from collections.abc import Iterator
from functools import partial

import dagster as dg
import polars as pl

from eagle3_assets.assets.common import failing_clearly, partitions_definition
from eagle3_assets.checks.results import check_results, check_specs
from eagle3_assets.generation.sealed import Sealed, scan_sealed
from eagle3_assets.judging import judge_raw, judge_tokenized
from eagle3_assets.project import Project
from eagle3_assets.resources import ProgressListener, TargetResource
from eagle3_assets.tokens.laws import laws_of


def build(project: Project) -> list[dg.AssetChecksDefinition]:
    """The checks for one config."""
    partitions = partitions_definition(project)

    with warnings.catch_warnings():
        # Checks of single partitions are what this project is about; Dagster calls them a preview.
        warnings.simplefilter("ignore", dg.PreviewWarning)

        @dg.multi_asset_check(
            name="laws_of_tokenized_prompts",
            specs=check_specs(laws_of("tokenized_prompts"), compared_with=["prompts"], partitions=partitions),
            description="Every law about prompts, before anything is generated.",
        )
        def prompt_laws(
            context: dg.AssetCheckExecutionContext,
            prompts: pl.LazyFrame,
            tokenized_prompts: pl.LazyFrame,
            target: dg.ResourceParam[TargetResource],
            progress: dg.ResourceParam[ProgressListener],
        ) -> Iterator[dg.AssetCheckResult]:
            with failing_clearly():
                partition = project.partition(context.partition_key)
                judged = judge_tokenized(
                    project,
                    partition,
                    target.load(),
                    prompts,
                    tokenized_prompts,
                    progress=partial(progress.prompts, partition.key, "judged"),
                )
                look = f"eagle3-assets prompt {partition.key} --ids --id"
                results = list(check_results(judged.report, tokenized_prompts, judged.context, look=look))
            yield from results

        @dg.multi_asset_check(
            name="laws_of_raw_generations",
            specs=check_specs(
                laws_of("raw_generations"), compared_with=["prompts", "tokenized_prompts"], partitions=partitions
            ),
            description="Every law about outputs, in one pass over the partition.",
        )
        def generation_laws(
            context: dg.AssetCheckExecutionContext,
            prompts: pl.LazyFrame,
            tokenized_prompts: pl.LazyFrame,
            raw_generations: Sealed,
            target: dg.ResourceParam[TargetResource],
        ) -> Iterator[dg.AssetCheckResult]:
            with failing_clearly():
                partition = project.partition(context.partition_key)
                judged = judge_raw(
                    project, partition, target.load(), tokenized_prompts, raw_generations, prompts=prompts
                )
                look = f"eagle3-assets decode {partition.key} --ids --id"
                results = list(check_results(judged.report, scan_sealed(raw_generations), judged.context, look=look))
            yield from results

    return [prompt_laws, generation_laws]
