"""Runs whose process is gone before it began, as with the machine that it was to run on.

What belongs here: the sensor that finds them. Not here: runs that have begun, which Dagster's run monitoring watches.
Of one that is starting it looks at the clock alone; and where runs wait for room in a cluster, that runs for a day.
"""

import json
import os
import re
import threading
from collections.abc import Sequence
from contextlib import suppress

import dagster as dg
from dagster._core.launcher import CheckRunHealthResult, RunLauncher, WorkerStatus

WATCH = "watch_starting_runs"
WATCH_VARIABLE = "EAGLE3_WATCH_STARTS"
"""Set where ``deploy/`` starts the code location of a cluster: the sensor is on there."""
LOOK_S = 30
ASK_S = 40.0
"""For the answers to one look: Dagster gives a sensor up after 60 seconds."""

_NOT_THERE = re.compile(r"Job \S+ (does not exist|could not be found)")
"""What Ray and Kubernetes say of a job that they do not have, told apart from a question that they refuse."""
_UNTOLD = CheckRunHealthResult(WorkerStatus.UNKNOWN)


@dg.sensor(
    name=WATCH,
    minimum_interval_seconds=LOOK_S,
    default_status=dg.DefaultSensorStatus.RUNNING if os.environ.get(WATCH_VARIABLE) else dg.DefaultSensorStatus.STOPPED,
    description="For clusters: fails a run of this instance that is still starting and whose job on the cluster has"
    " ended, or is not there any more, at two looks, so that Dagster runs it again. On without being asked under"
    " deploy/ray and deploy/k8s.",
)
def watch_starting_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    """Its cursor has the runs that were without a process at the last look."""
    instance = context.instance
    launcher = instance.run_launcher
    if not (instance.run_monitoring_enabled and launcher.supports_check_run_worker_health):
        return dg.SkipReason("the instance has no run monitoring, or its launcher cannot say how a run's process is")
    before = set(json.loads(context.cursor or "[]"))
    runs = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTING]))
    answers = _asked(launcher, runs)
    waiting, untold, suspected, failed = 0, 0, [], []
    for run in runs:
        health = answers.get(run.run_id, _UNTOLD)
        why = why_gone(health)
        # It may have begun, or ended, while the cluster was asked.
        now = instance.get_run_by_id(run.run_id)
        if now is None or now.status != dg.DagsterRunStatus.STARTING:
            continue
        if why is None:
            waiting += 1
            untold += health.status == WorkerStatus.UNKNOWN
        elif run.run_id in before:
            instance.report_run_failed(now, f"The process of this run was gone before the run began. {why}")
            failed.append(run.run_id)
        else:
            suspected.append(run.run_id)
    context.update_cursor(json.dumps(suspected))
    told = f"; of {untold} of them the cluster tells nothing" if untold else ""
    told += f"; failed: {', '.join(failed)}" if failed else ""
    return dg.SkipReason(f"{waiting} runs are starting, {len(suspected)} have no process{told}")


def _asked(launcher: RunLauncher, runs: Sequence[dg.DagsterRun]) -> dict[str, CheckRunHealthResult]:
    """How the processes of runs are, as far as the cluster says so in time.

    Launchers wait for a cluster that hangs for as long as it does, and so would a thread of the code server at every
    look, until none was left for anything else. So a thread beside them asks, and while it waits there is no other.
    """
    answers: dict[str, CheckRunHealthResult] = {}

    def ask() -> None:
        for run in runs:
            # A cluster that is away raises what the launcher's client does. The next look may find it back.
            with suppress(Exception):
                answers[run.run_id] = launcher.check_run_worker_health(run)

    if runs and not any(thread.name == WATCH for thread in threading.enumerate()):
        asking = threading.Thread(target=ask, name=WATCH, daemon=True)
        asking.start()
        asking.join(ASK_S)
    return dict(answers)


def why_gone(health: CheckRunHealthResult) -> str | None:
    """Why a run that has not begun never will, if that is so."""
    said = health.msg or ""
    if health.status in (WorkerStatus.FAILED, WorkerStatus.SUCCESS):
        return said or "Its job has ended."
    # Of Ray's answer not the stack around it.
    found = _NOT_THERE.search(said) if health.status == WorkerStatus.UNKNOWN else None
    return f"{found[0]}." if found else None
