"""The usual jobs. What belongs here: selections with a name. Not here: assets, schedules."""

from typing import TYPE_CHECKING

import dagster as dg

from eagle3_assets.assets.common import partitions_definition
from eagle3_assets.project import Project
from eagle3_assets.tokens.laws import ON_REQUEST

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

PARTITION_JOB = "partition"
REPLAY_JOB = "replay"

_ON_REQUEST = dg.AssetSelection.checks(*(dg.AssetCheckKey(dg.AssetKey(law.asset), law.name) for law in ON_REQUEST))

partition_job = dg.define_asset_job(
    PARTITION_JOB,
    selection=dg.AssetSelection.all() - _ON_REQUEST,
    description="Prompts to training samples of one partition, with every check but the replay.",
    tags={"eagle3/work": "partition"},
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
