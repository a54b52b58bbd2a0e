"""The usual jobs. What belongs here: selections with a name. Not here: assets, schedules."""

from typing import TYPE_CHECKING, Any

import dagster as dg

from eagle3_assets.assets.common import partitions_definition
from eagle3_assets.assets.raw_generations import TrialSampling
from eagle3_assets.config import TRIAL_SUFFIX
from eagle3_assets.project import Project
from eagle3_assets.tokens.laws import ON_REQUEST

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

PARTITION_JOB = "partition"
TRIAL_JOB = "trial"
EXPORT_JOB = "export"
CORPUS_JOB = "corpus"
REPLAY_JOB = "replay"

_ON_REQUEST = dg.AssetSelection.checks(*(dg.AssetCheckKey(dg.AssetKey(law.asset), law.name) for law in ON_REQUEST))

_OF_THE_CORPUS = dg.AssetSelection.assets("corpus_summary", "draft_vocabulary")
"""Assets without partitions: a run for a partition has no use for them."""

_EXPORT = dg.AssetSelection.assets("training_export")
"""Several times the size of the samples that it is made of: it is made for who asks for it. The terminal's ``export``
puts several partitions together and needs none of it."""

partition_job = dg.define_asset_job(
    PARTITION_JOB,
    selection=dg.AssetSelection.all() - _ON_REQUEST - _OF_THE_CORPUS - _EXPORT,
    description="Prompts to training samples of one partition, with every check but the replay."
    " Generates what is missing. For a whole dataset, launch a backfill: type its name, select all.",
    tags={"eagle3/work": "partition"},
)

export_job = dg.define_asset_job(
    EXPORT_JOB,
    selection=_EXPORT,
    description="The training samples of one partition as files of a trainer's format, from what is there already. For"
    " several partitions in one directory: eagle3-assets export.",
    tags={"eagle3/work": "export"},
)

corpus_job = dg.define_asset_job(
    CORPUS_JOB,
    selection=_OF_THE_CORPUS,
    description="All partitions together, as they are now: what counts, what is missing, stale or refused, and the"
    " drafter's vocabulary.",
    tags={"eagle3/work": "corpus"},
)


def trial_job(project: Project) -> "UnresolvedAssetJobDefinition":
    """The job for a first look: a trial, with its dataset's sampling in the Launchpad, ready to be changed.

    Of another partition it makes nothing: ``raw_generations`` takes such sampling for trials alone.
    """

    def sampling_of(key: str) -> dict[str, Any]:
        sampling = project.partition(key).dataset.sampling.model_dump(exclude_none=True)
        offered = {name: sampling[name] for name in TrialSampling.model_fields if name in sampling}
        return {"ops": {"raw_generations": {"config": {"trial_sampling": offered}}}}

    return dg.define_asset_job(
        TRIAL_JOB,
        selection=dg.AssetSelection.assets("decoded_previews", "length_statistics").upstream() - _ON_REQUEST,
        config=dg.PartitionedConfig(partitions_definition(project), run_config_for_partition_key_fn=sampling_of),
        description="A dataset's trial, with sampling of your own: prompts to previews and lengths. Choose a partition"
        f" that ends in {TRIAL_SUFFIX}; others are refused.",
        tags={"eagle3/work": "trial"},
    )


def replay_job(project: Project) -> "UnresolvedAssetJobDefinition":
    """The job that has the target score what is there, of one partition.

    Dagster finds no partitions in a job of checks alone, so they come with its config.
    """
    return dg.define_asset_job(
        REPLAY_JOB,
        selection=_ON_REQUEST,
        config=dg.PartitionedConfig(partitions_definition(project), run_config_for_partition_key_fn=lambda _: {}),
        description="The target scores a sample of one partition's outputs: are they its own? Costs its time.",
        tags={"eagle3/work": "replay"},
    )
