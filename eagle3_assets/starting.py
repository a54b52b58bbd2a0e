"""Runs whose process is gone before it began, as with the machine that it was to run on.

What belongs here: the sensor that finds them. Not here: runs that have begun, which Dagster's run monitoring watches.
Of one that is starting it looks at the clock alone; and where runs wait for room in a cluster, that runs for a day.
"""

import json
import os
import re

import dagster as dg
from dagster._core.launcher import CheckRunHealthResult, WorkerStatus

WATCH = "watch_starting_runs"
WATCH_VARIABLE = "EAGLE3_WATCH_STARTS"
"""Set where ``deploy/`` starts the code location of a cluster: the sensor is on there."""
LOOK_S = 30

_NOT_THERE = re.compile(r"Job \S+ (does not exist|could not be found)")
"""What Ray and Kubernetes say of a job that they do not have, told apart from a question that they refuse."""


@dg.sensor(
    name=WATCH,
    minimum_interval_seconds=LOOK_S,
    default_status=dg.DefaultSensorStatus.RUNNING if os.environ.get(WATCH_VARIABLE) else dg.DefaultSensorStatus.STOPPED,
    description="For clusters: fails a run that is still starting and whose job on the cluster has ended, or is not"
    " there any more, at two looks, so that Dagster runs it again. On without being asked under deploy/ray and"
    " deploy/k8s.",
)
def watch_starting_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Its cursor has the runs that were without a process at the last look."""
    instance = context.instance
    launcher = instance.run_launcher
    if not (instance.run_monitoring_enabled and launcher.supports_check_run_worker_health):
        return dg.SkipReason("the instance has no run monitoring, or its launcher cannot say how a run's process is")
    before = set(json.loads(context.cursor or "[]"))
    waiting, suspected, failed = 0, [], []
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTING])):
        why = why_gone(launcher.check_run_worker_health(run))
        # It may have begun, or ended, while the cluster was asked.
        now = instance.get_run_by_id(run.run_id)
        if now is None or now.status != dg.DagsterRunStatus.STARTING:
            continue
        if why is None:
            waiting += 1
        elif run.run_id in before:
            instance.report_run_failed(now, f"The process of this run was gone before the run began. {why}")
            failed.append(run.run_id)
        else:
            suspected.append(run.run_id)
    context.update_cursor(json.dumps(suspected))
    told = f"; failed: {', '.join(failed)}" if failed else ""
    return dg.SkipReason(f"{waiting} runs are starting, {len(suspected)} have no process{told}")


def why_gone(health: CheckRunHealthResult) -> str | None:
    """Why a run that has not begun never will, if that is so."""
    said = health.msg or ""
    if health.status in (WorkerStatus.FAILED, WorkerStatus.SUCCESS):
        return said or "Its job has ended."
    return said if health.status == WorkerStatus.UNKNOWN and _NOT_THERE.search(said) else None
