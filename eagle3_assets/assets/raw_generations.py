"""The asset ``raw_generations``: exactly the ids that the target emitted. The one asset that costs GPU time."""

from functools import partial
from typing import Any

import dagster as dg
import polars as pl
from pydantic import Field

from eagle3_assets.assets.common import (
    column_schema,
    counts_table,
    data_version,
    failing_clearly,
    partitions_definition,
    reasons_metadata,
    usual_metadata,
)
from eagle3_assets.assets.refusals import refused
from eagle3_assets.config import Sampling
from eagle3_assets.contract import RAW_GENERATIONS
from eagle3_assets.engines.log import heard
from eagle3_assets.generating import Generated, Wishes, generate
from eagle3_assets.generation.loop import Outcome
from eagle3_assets.generation.progress import Progress, Throttle
from eagle3_assets.generation.sealed import read_current, scan_sealed
from eagle3_assets.judging import judge_raw, judge_tokenized
from eagle3_assets.metrics import measured
from eagle3_assets.partitions import Partition
from eagle3_assets.project import Project
from eagle3_assets.remote_code import warning
from eagle3_assets.resources import EngineResource, ProgressListener, TargetResource
from eagle3_assets.target import LoadedTarget
from eagle3_assets.tokens.safe_text import visible

POOL = "generation"
"""Of Dagster's pools: an instance bounds by it how many of the runs that it queues generate at once."""
COUNTS = pl.Schema({"name": pl.String, "count": pl.Int64})


class TrialSampling(dg.Config):
    """Sampling to try on a trial partition; what is left out is the dataset's."""

    max_new_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None

    def apply(self, sampling: Sampling) -> Sampling:
        """The dataset's sampling with what is given here.

        Raises:
            pydantic.ValidationError: a value is out of its range.
        """
        return Sampling.model_validate({**sampling.model_dump(), **self.given()})

    def given(self) -> dict[str, float | int]:
        """What was given."""
        return {key: value for key, value in self.model_dump().items() if value is not None}


class GenerationConfig(dg.Config):
    """What to do beyond generating what is missing."""

    retry_failed: bool = Field(default=False, description="Ask failed prompts again.")
    retry_broken: bool = Field(
        default=False,
        description="Ask again for rows that break a law about single rows, such as ids changed after capture.",
    )
    regenerate: bool = Field(default=False, description="Generate everything anew, in a file beside the old one.")
    accept_environment: bool = Field(
        default=False, description="Go on with a partition although engine, versions or flags have changed."
    )
    trial_sampling: TrialSampling = Field(
        default=TrialSampling(), description="Other sampling parameters; on trial partitions only."
    )

    def wishes(self) -> Wishes:
        """What is wished of the generating."""
        return Wishes(self.retry_failed, self.retry_broken, self.regenerate, self.accept_environment)


def build(project: Project) -> dg.AssetsDefinition:
    """The asset for one config."""

    @dg.asset(
        name="raw_generations",
        description=(
            "The exact output ids of the target for each prompt, with the prompt as sent, the finish reason and the"
            " engine's own counts. Materializing it again generates only what is missing."
        ),
        group_name="generation",
        pool=POOL,
        kinds={project.config.engine.kind, "parquet"},
        partitions_def=partitions_definition(project),
        io_manager_key="generations",
        code_version="1",
        metadata=column_schema(RAW_GENERATIONS),
    )
    @failing_clearly()
    def raw_generations(
        context: dg.AssetExecutionContext,
        config: GenerationConfig,
        prompts: pl.LazyFrame,
        tokenized_prompts: pl.LazyFrame,
        target: dg.ResourceParam[TargetResource],
        engine: dg.ResourceParam[EngineResource],
        progress: dg.ResourceParam[ProgressListener],
    ) -> dg.MaterializeResult[None]:
        partition = project.partition(context.partition_key)
        sampling = _sampling(partition, config)
        loaded = target.load()
        if loaded.settings.trust_remote_code:
            context.log.warning(visible(warning(loaded.code)))
        # A stored check status is not trusted: the laws that stop generation are applied to what is there now.
        told = partial(progress.prompts, partition.key, "judged once more")
        before = judge_tokenized(project, partition, loaded, prompts, tokenized_prompts, progress=told).report
        if before.refusals:
            raise refused("nothing is generated: " + " ".join(before.refusals), partition.key, before.refusals, before)
        log = Throttle(lambda now: context.log.info(now.line()))

        broken = _broken(project, partition, loaded, tokenized_prompts) if config.retry_broken else ()
        directory = project.config.metrics.directory
        with heard(context.log.log), measured(directory, partition, context.log.warning) as measure:

            def listen(now: Progress) -> None:
                progress(partition.key, now)
                log(now)
                measure(now)

            made = generate(
                project,
                partition,
                loaded,
                engine.create(context.instance, context.run.run_id),
                tokenized_prompts,
                sampling=sampling,
                wishes=config.wishes(),
                broken=broken,
                progress=listen,
            )
        return _result(context, made)

    return raw_generations


def _broken(
    project: Project, partition: Partition, target: LoadedTarget, tokenized_prompts: pl.LazyFrame
) -> frozenset[str]:
    """Samples of the current file whose rows break a law; none where nothing is sealed yet."""
    sealed = read_current(project.layout.generations(partition.key))
    if sealed is None:
        return frozenset()
    return judge_raw(project, partition, target, tokenized_prompts, sealed).report.broken


def _sampling(partition: Partition, config: GenerationConfig) -> Sampling:
    given = config.trial_sampling.given()
    if not given:
        return partition.dataset.sampling
    if not partition.trial:
        raise dg.Failure(
            f"trial_sampling changes {', '.join(given)} of {partition.key}, which is no trial: set the dataset's"
            f" sampling in the config, or try it on {partition.dataset.name}-trial",
            allow_retries=False,
        )
    try:
        return config.trial_sampling.apply(partition.dataset.sampling)
    except ValueError as error:
        raise dg.Failure(f"trial_sampling cannot be used: {error}", allow_retries=False) from None


def _result(context: dg.AssetExecutionContext, made: Generated) -> dg.MaterializeResult[None]:
    outcome, pointer = made.outcome, made.outcome.sealed.pointer
    for line in outcome.environment_changes:
        context.log.warning(f"the environment changed: {line}")
    if outcome.torn_bytes:
        context.log.info(f"the journal's end was torn ({outcome.torn_bytes:,} bytes); its prompts were asked again")
    for name in outcome.left_beside:
        context.log.info(f"kept beside the current file: {name}")
    facts = (
        scan_sealed(outcome.sealed)
        .select("request_key", "ids_sha256", "status", "reason", tokens=pl.col("output_ids").list.len())
        .collect()
    )
    reasons = facts.filter(pl.col("status") != "generated")["reason"]
    return dg.MaterializeResult(
        metadata={
            "generated": pointer.generated,
            "failed": pointer.failed,
            "refused_prompts": pointer.refused,
            **reasons_metadata("without_output", reasons),
            "output_tokens": int(facts["tokens"].sum()),
            "generated_in_this_run": outcome.generated,
            "kept_from_before": outcome.kept,
            "failures_in_this_run": counts_table(
                "reason", pl.DataFrame(list(outcome.failures.items()), schema=COUNTS, orient="row")
            ),
            "retries": outcome.retries,
            **_evictions(outcome),
            "seconds": round(outcome.seconds, 2),
            "tokens_per_second": round(outcome.tokens_per_s, 1),
            **{f"latency_{name}_s": round(value, 3) for name, value in outcome.latency_s.items()},
            **usual_metadata(outcome.sealed.rows, outcome.sealed.path),
            "identity": made.identity.fingerprint,
            "identity_facts": dg.MetadataValue.json(made.identity.model_dump(mode="json")),
            "environment": dg.MetadataValue.json(dict(made.description.environment)),
        },
        data_version=data_version(facts.select("request_key", "ids_sha256").iter_rows()),
    )


def _evictions(outcome: Outcome) -> dict[str, Any]:
    """How often servers were left out, in all and each; nothing of an engine without servers."""
    if not outcome.servers:
        return {}
    each = [(server.endpoint, server.evictions) for server in outcome.servers]
    return {
        "evictions": sum(evictions for _, evictions in each),
        "evictions_by_server": counts_table("server", pl.DataFrame(each, schema=COUNTS, orient="row"), "evictions"),
    }
