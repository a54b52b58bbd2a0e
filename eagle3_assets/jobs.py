"""The usual jobs. What belongs here: selections with a name. Not here: assets, schedules."""

import dagster as dg

PARTITION_JOB = "partition"

partition_job = dg.define_asset_job(
    PARTITION_JOB,
    selection=dg.AssetSelection.all(),
    description="Prompts to training samples of one partition, with every check.",
    tags={"eagle3/work": "partition"},
)
