"""Everything that Dagster loads, assembled in one place for any config. Not here: which config (``definitions``)."""

import dagster as dg

from eagle3_assets.assets import (
    corpus_summary,
    decoded_previews,
    draft_vocabulary,
    length_statistics,
    prompts,
    raw_generations,
    tokenized_prompts,
    training_export,
    training_samples,
)
from eagle3_assets.automation import alert_sensors, carry_on
from eagle3_assets.checks import laws, replay, sources, vocabulary
from eagle3_assets.jobs import corpus_job, export_job, partition_job, replay_job, trial_job
from eagle3_assets.project import Project
from eagle3_assets.resources import EngineResource, ProgressListener, TargetResource
from eagle3_assets.starting import watch_starting_runs
from eagle3_assets.storage.io_managers import GenerationsIOManager, ParquetIOManager

ASSETS = (
    prompts,
    tokenized_prompts,
    raw_generations,
    decoded_previews,
    length_statistics,
    training_samples,
    training_export,
    corpus_summary,
    draft_vocabulary,
)


def build_defs(project: Project, *, listener: ProgressListener | None = None) -> dg.Definitions:
    """The definitions of one project.

    Args:
        project: a config made ready.
        listener: is told how far generations are.
    """
    # Dagster takes no nulls in maps; what is left out is the setting's default.
    return dg.Definitions(
        assets=[module.build(project) for module in ASSETS],
        asset_checks=[
            sources.build(project),
            *laws.build(project),
            replay.build(project),
            vocabulary.build(project),
        ],
        jobs=[trial_job(project), partition_job, export_job, corpus_job, replay_job(project)],
        sensors=[carry_on, watch_starting_runs, *alert_sensors(project.config.alerts)],
        resources={
            "target": TargetResource(project.config.target),
            "engine": EngineResource(project.config.engine, project.config.target, project.layout.servers()),
            "progress": listener or ProgressListener(),
            "parquet": ParquetIOManager(project.layout),
            "generations": GenerationsIOManager(project.layout),
        },
        # A process for each step would cost seconds a step; parallelism is across partitions and inside the generation.
        executor=dg.in_process_executor,
    )
