"""What Dagster does by itself, if somebody switches it on.

What belongs here: the condition and the sensors. Not here: what is made then (``assets``), what is told (``alerts``).
"""

from collections.abc import Collection, Sequence

import dagster as dg
from dagster._core.events import RunFailureReason
from dagster._core.execution.backfill import BULK_ACTION_TERMINAL_STATUSES
from dagster._core.execution.retries import auto_reexecution_should_retry_run
from dagster._core.storage.tags import BACKFILL_ID_TAG, WILL_RETRY_TAG

from eagle3_assets.alerts import FoundByCheck, RunReport, failed_checks_text, failed_run_text, send, webhook_url
from eagle3_assets.config import Alerts
from eagle3_assets.tokens.safe_text import plain_text

SENSOR = "carry_good_partitions_on"
FAILED_RUNS = "alert_of_failed_runs"
FAILED_CHECKS = "alert_of_failed_checks"

_TRIED = (dg.AutomationCondition.newly_requested() | dg.AutomationCondition.execution_failed().newly_true()).since(
    dg.AutomationCondition.any_deps_updated()
)
"""It was asked for, or failed, and what it is made of is still the same: trying again would give the same."""

GOOD = (
    dg.AutomationCondition.missing()
    & ~dg.AutomationCondition.any_deps_missing()
    & ~dg.AutomationCondition.any_deps_in_progress()
    & dg.AutomationCondition.all_deps_blocking_checks_passed()
    & ~dg.AutomationCondition.in_progress()
    & ~_TRIED
).with_label("all that it is made of is there and good, and it is not")
"""For what follows ``raw_generations``. Laws about outputs block nothing in Dagster: what follows applies them itself
and refuses, once, what breaks them. To ask for their checks too would leave out nearly all that is good: one that
warns, or could not be judged, has not passed either, and Dagster's conditions know no severities."""

_REASONS = {
    RunFailureReason.START_TIMEOUT: "it did not start in the time that the instance gives it",
    RunFailureReason.JOB_INITIALIZATION_FAILURE: "it could not be set up; the log of the run says why",
    RunFailureReason.RUN_WORKER_RESTART: "its process was started anew by the cluster",
    RunFailureReason.UNEXPECTED_TERMINATION: "its process was told to end",
}

carry_on = dg.AutomationConditionSensorDefinition(
    SENSOR,
    target=dg.AssetSelection.assets("training_samples", "training_export"),
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Makes the training samples and the export of every partition that has good generations and none yet,"
    " once; a partition that a law refuses is tried again when it is generated anew.",
    run_tags={"eagle3/work": "carry on"},
)


def alert_sensors(alerts: Alerts) -> list[dg.SensorDefinition]:
    """The sensors that tell a webhook of runs which need a person; none where the config names no webhook.

    Dagster evaluates them after every run of this code location that its daemon knows; what the terminal materializes
    is told at the terminal. Each run is told once: a message that does not get through fails the sensor's tick, whose
    error says so, and the next run is gone on with.
    """
    if alerts.webhook_env is None:
        return []
    variable = alerts.webhook_env
    severities = {dg.AssetCheckSeverity.ERROR} | ({dg.AssetCheckSeverity.WARN} if alerts.warnings else set())

    @dg.run_failure_sensor(
        name=FAILED_RUNS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Tells the webhook in {variable} of every run that failed and that Dagster does not"
        " run again by itself: what, of which partition, and why.",
    )
    def failed_runs(context: dg.RunFailureSensorContext) -> None:
        if _runs_again(context):
            return  # nobody needs to do anything
        failures = [(event.step_key or "", _for_people(event)) for event in context.get_step_failure_events()]
        report = _report(context, severities, failures, _without_a_step(context.failure_event))
        send(webhook_url(variable), failed_run_text(report, alerts.ui_url))

    @dg.run_status_sensor(
        run_status=dg.DagsterRunStatus.SUCCESS,
        name=FAILED_CHECKS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Tells the webhook in {variable} of checks that failed in a run that succeeded"
        f"{' or only warned' if alerts.warnings else ''}.",
    )
    def failed_checks(context: dg.RunStatusSensorContext) -> None:
        report = _report(context, severities)
        if report.checks:
            send(webhook_url(variable), failed_checks_text(report, alerts.ui_url))

    return [failed_runs, failed_checks]


def _runs_again(context: dg.RunFailureSensorContext) -> bool:
    """Whether Dagster runs a failed run again by itself, decided as its daemon does."""
    run, instance = context.dagster_run, context.instance
    will: bool
    said = run.tags.get(WILL_RETRY_TAG)
    # Written after the failure, which may be seen before.
    if said is None and instance.run_retries_enabled:
        failed = run.with_status(dg.DagsterRunStatus.FAILURE)
        will = auto_reexecution_should_retry_run(instance, failed, _failure_reason(context.failure_event))
    else:
        will = said == "true"
    if not will or BACKFILL_ID_TAG not in run.tags:
        return will
    # One that was cancelled or failed has nothing run again, whatever the tag says.
    backfill = instance.get_backfill(run.tags[BACKFILL_ID_TAG])
    return backfill is not None and backfill.status not in BULK_ACTION_TERMINAL_STATUSES


def _report(
    context: dg.RunStatusSensorContext,
    severities: Collection[dg.AssetCheckSeverity],
    failures: Sequence[tuple[str, str | None]] = (),
    reason: str | None = None,
) -> RunReport:
    run = context.dagster_run
    entries = context.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ASSET_CHECK_EVALUATION)
    events = (entry.dagster_event for entry in entries)
    evaluations = [event.asset_check_evaluation_data for event in events if event is not None]
    return RunReport(
        run_id=run.run_id,
        job=run.job_name,
        partition=context.partition_key,
        failures=failures,
        reason=reason,
        checks=[_found(one) for one in evaluations if _tells(one, severities)],
    )


def _tells(evaluation: dg.AssetCheckEvaluation, severities: Collection[dg.AssetCheckSeverity]) -> bool:
    """Whether a check found something; one that could judge nothing is no news."""
    status = evaluation.metadata.get("status")
    judged = status is None or status.value != "not_judged"
    return judged and not evaluation.passed and evaluation.severity in severities


def _found(evaluation: dg.AssetCheckEvaluation) -> FoundByCheck:
    look = evaluation.metadata.get("look")
    return FoundByCheck(
        name=evaluation.check_name,
        said=plain_text(evaluation.description or "did not pass"),
        look=str(look.value) if look is not None else None,
    )


def _for_people(failure: dg.DagsterEvent) -> str | None:
    """Why a step failed, where that was written for people: other errors may quote an address with its password."""
    said = failure.step_failure_data.user_failure_data
    return said.description if said else None


def _without_a_step(failure: dg.DagsterEvent) -> str | None:
    """Why a run failed where no step did. Not the event's message, to which run monitoring adds what containers log."""
    reason = _failure_reason(failure)
    return _REASONS.get(reason) if reason else None


def _failure_reason(failure: dg.DagsterEvent) -> RunFailureReason | None:
    return failure.job_failure_data.failure_reason if failure.event_specific_data else None
