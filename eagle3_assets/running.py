"""Partitions materialized from the terminal: the same job that the UI runs, on the same persistent Dagster instance.

What belongs here: the instance's home, running, and reading what came of it. Not here: drawing, commands (``cli``).
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagle3_assets.generating import Wishes
from eagle3_assets.planning import Throughput
from eagle3_assets.project import Project
from eagle3_assets.storage.files import StorageError
from eagle3_assets.tokens.safe_text import plain_text
from eagle3_assets.tokens.verdict import Status

if TYPE_CHECKING:
    import dagster as dg

    from eagle3_assets.resources import ProgressListener

HOME_VARIABLE = "DAGSTER_HOME"

LOOKED_BACK = 100
"""How many materializations are looked through for those that generated anything."""

ENOUGH_S = 600.0
"""So many seconds of generating, newest runs first, say how fast it is; what lies further back may be of other days."""

# In what Dagster says of settings that it cannot use, with the stack of it.
_UNSET = re.compile(r'environment variable "(\w+)" which is not set')
_NOT_INSTALLED = re.compile(r"Couldn't import module (\w+)")

INSTANCE_YAML = """\
# Settings of this Dagster instance. https://docs.dagster.io/deployment/oss/dagster-yaml
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  runs:
    # Each run of the embedded engine loads the model for itself, and SQLite takes one writer at a time.
    max_concurrent_runs: 2
run_retries:
  enabled: true
  # A law that fails will fail again; only a machine that broke is worth another try.
  retry_on_asset_or_op_failure: false
"""


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """One check's result on one partition."""

    asset: str
    name: str
    status: Status
    said: str


@dataclass(frozen=True, slots=True)
class PartitionRun:
    """What came of one partition."""

    partition: str
    succeeded: bool
    """Whether Dagster says that every step did."""
    generated: int | None = None
    """Outputs that this run generated; None if it did not come to that."""
    failed: int | None = None
    """Prompts that were sent and have no output, each with its reason in the data."""
    refused: int | None = None
    """Prompts that were never sent, each with its reason in the data."""
    kept: int | None = None
    """Outputs taken over from earlier runs."""
    commonest_reason: str | None = None
    """Of the prompts without an output, in one short line: why most of them have none."""
    failures: list[str] = field(default_factory=list)
    """Why steps failed, in the words written for people; empty if the run succeeded."""
    checks: list[CheckOutcome] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Whether every step succeeded and no law blocked or refused."""
        return self.succeeded and not self.failures and all(check.status != "failed" for check in self.checks)


def _home() -> Path:
    return Path(os.environ.get(HOME_VARIABLE) or Path.cwd() / ".eagle3" / "dagster").resolve()


def instance_home() -> Path:
    """The instance's directory, made if need be: ``$DAGSTER_HOME``, or ``.eagle3/dagster`` below this folder.

    Raises:
        StorageError: it cannot be made.
    """
    home = _home()
    try:
        home.mkdir(parents=True, exist_ok=True)
        if not any(home.iterdir()):  # an instance that is there has its own settings
            (home / "dagster.yaml").write_text(INSTANCE_YAML, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{home}: cannot be the Dagster instance's directory: {error.strerror}") from None
    os.environ[HOME_VARIABLE] = str(home)
    return home


def measured_throughput(engine: str, tokenizer: str) -> Throughput | None:
    """The throughput of the newest runs that generated anything, from the instance's materializations.

    Args:
        engine: its kind; how fast another kind was says nothing.
        tokenizer: hash of the target's tokenizer files, by which another target is told apart without its weights.

    Returns:
        the mean over their time, so that a tiny run has no more part in it than it took. None where no such run is
        known. No instance is made for it.
    """
    with existing_instance() as instance:
        return throughput_of(instance, engine, tokenizer) if instance else None


def throughput_of(instance: "dg.DagsterInstance", engine: str, tokenizer: str) -> Throughput | None:
    """The same of an instance that is at hand; see :func:`measured_throughput`."""
    import dagster as dg

    runs: list[tuple[str, int, float, float]] = []
    records = instance.fetch_materializations(dg.AssetKey("raw_generations"), limit=LOOKED_BACK).records
    for made in filter(None, (record.asset_materialization for record in records)):
        facts: dict[str, Any] = {name: value.value for name, value in made.metadata.items()}
        environment, speed = facts.get("environment") or {}, facts.get("tokens_per_second")
        same = environment.get("engine") == engine and (facts.get("identity_facts") or {}).get("tokenizer") == tokenizer
        if speed and same:
            runs.append((made.partition or "", facts["generated_in_this_run"], facts["seconds"], speed))
        if sum(seconds for *_, seconds, _ in runs) >= ENOUGH_S:
            break
    seconds = sum(seconds for *_, seconds, _ in runs)
    if not seconds:
        return None
    tokens = sum(seconds * speed for *_, seconds, speed in runs)
    return Throughput(tokens / seconds, len(runs), runs[0][0], sum(outputs for _, outputs, *_ in runs), seconds)


@contextmanager
def persistent_instance() -> Iterator["dg.DagsterInstance"]:
    """The Dagster instance that terminal and UI share.

    Raises:
        StorageError: its settings cannot be used, or its database fails, at the start or later: a full disk, a damaged
            file, a server that is away.
    """
    from sqlalchemy.exc import DBAPIError  # Dagster's own way to its databases

    home = instance_home()
    try:
        with _opened(home) as instance:
            yield instance
    except Exception as error:
        # Postgres' storages raise an exception of their own for one that the database's was the cause of.
        fault = error if isinstance(error, DBAPIError) else error.__cause__
        if not isinstance(fault, DBAPIError):
            raise
        raise StorageError(
            f"{home}: the database of the Dagster instance cannot be used: {str(fault.orig).strip()}. Generated rows"
            " are kept with the data; run again when that is mended."
        ) from error


def _opened(home: Path) -> "dg.DagsterInstance":
    import dagster as dg
    from dagster_shared.check import CheckError
    from yaml import YAMLError

    try:
        return dg.DagsterInstance.get()
    except (dg.DagsterInvalidConfigError, CheckError, YAMLError) as error:
        said = str(error)
        if names := sorted(set(_UNSET.findall(said))):
            said = f"not set in the environment: {', '.join(names)}"
        elif module := _NOT_INSTALLED.search(said):
            said = f"{module[1]} is not installed; docs/cluster.md says which extra brings it"
        elif isinstance(error, dg.DagsterInvalidConfigError):
            said = " ".join(fault.message for fault in error.errors)
        raise StorageError(f"{home / 'dagster.yaml'} cannot be used: {said}") from error


def require_instance() -> None:
    """Makes sure that another program can open the instance; that costs seconds, where its settings are not ours.

    Raises:
        StorageError: as of :func:`persistent_instance`.
    """
    settings = instance_home() / "dagster.yaml"
    if settings.exists() and settings.read_bytes() != INSTANCE_YAML.encode():
        with persistent_instance():
            pass


@contextmanager
def existing_instance() -> Iterator["dg.DagsterInstance | None"]:
    """The same instance where there is one; None is made where there is none.

    Raises:
        StorageError: as of :func:`persistent_instance`.
    """
    home = _home()
    if not home.is_dir() or not any(home.iterdir()):
        yield None
        return
    with persistent_instance() as instance:
        yield instance


def materialize(
    project: Project,
    partitions: Sequence[str],
    instance: "dg.DagsterInstance",
    *,
    listener: "ProgressListener | None" = None,
    wishes: Wishes | None = None,
) -> Iterator[PartitionRun]:
    """Runs the partition job for one partition after the other; yields each result when it is there.

    Raises:
        UnknownPartitionError: before anything runs, if one of them does not exist.
        KeyboardInterrupt: a run was interrupted; what it generated is in its journal.
    """
    from eagle3_assets.jobs import PARTITION_JOB

    yield from _run(
        PARTITION_JOB, project, partitions, instance, listener, "raw_generations", asdict(wishes or Wishes())
    )


def replay(
    project: Project, partitions: Sequence[str], instance: "dg.DagsterInstance", *, samples: int
) -> Iterator[PartitionRun]:
    """Runs the replay job for one partition after the other; see :func:`materialize`.

    Args:
        project: a config made ready.
        partitions: their keys.
        instance: that keeps the results.
        samples: most outputs to score of each.
    """
    from eagle3_assets.checks.replay import OP
    from eagle3_assets.jobs import REPLAY_JOB

    yield from _run(REPLAY_JOB, project, partitions, instance, None, OP, {"samples": samples})


def _run(
    name: str,
    project: Project,
    partitions: Sequence[str],
    instance: "dg.DagsterInstance",
    listener: "ProgressListener | None",
    op: str,
    config: dict[str, Any],
) -> Iterator[PartitionRun]:
    from eagle3_assets.build import build_defs

    for key in partitions:
        project.partition(key)
    job = build_defs(project, listener=listener).resolve_job_def(name)
    for key in partitions:
        result = job.execute_in_process(
            instance=instance,
            partition_key=key,
            raise_on_error=False,
            run_config=_run_config(op, config),
        )
        if any(_interrupted(event) for event in result.all_events if event.is_step_failure):
            raise KeyboardInterrupt  # Dagster makes a failed step of it, and the next partition would start
        metadata = {e.step_key: e.materialization.metadata for e in result.get_asset_materialization_events()}
        counts = metadata.get("raw_generations", {})
        # Where nothing was generated, the refused prompts may say why.
        reason = (counts or metadata.get("tokenized_prompts", {})).get("commonest_reason")
        yield PartitionRun(
            partition=key,
            succeeded=result.success,
            generated=_count(counts.get("generated_in_this_run")),
            failed=_count(counts.get("failed")),
            refused=_count(counts.get("refused_prompts")),
            kept=_count(counts.get("kept_from_before")),
            commonest_reason=str(reason.value) if reason is not None else None,
            failures=[_failure(event) for event in result.all_events if event.is_step_failure],
            checks=[check_outcome(evaluation) for evaluation in result.get_asset_check_evaluations()],
        )


def _count(value: "dg.MetadataValue[Any] | None") -> int | None:
    return int(value.value) if value is not None and value.value is not None else None


def _run_config(op: str, config: dict[str, Any]) -> dict[str, Any]:
    return {
        # The terminal shows a bar and tables; the run's own log is in the instance.
        "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
        "ops": {op: {"config": config}},
    }


def _interrupted(event: "dg.DagsterEvent") -> bool:
    error = event.step_failure_data.error
    while error and error.cls_name != "DagsterExecutionInterruptedError":
        error = error.cause
    return error is not None


def _failure(event: "dg.DagsterEvent") -> str:
    data = event.step_failure_data
    if data.user_failure_data and data.user_failure_data.description:
        return f"{event.step_key}: {data.user_failure_data.description}"
    error = data.error
    while error and error.cause:
        error = error.cause
    return f"{event.step_key}: {error.message.strip() if error else 'failed'}"


def check_outcome(evaluation: "dg.AssetCheckEvaluation") -> CheckOutcome:
    """One check's result, in the words of the laws where it is a law's."""
    status = evaluation.metadata.get("status")
    said: Status
    if status is not None:
        said = status.value  # type: ignore[assignment] # the laws' checks carry the verdict's own status
    elif evaluation.passed:
        said = "passed"
    else:
        said = "failed" if evaluation.severity.value == "ERROR" else "warned"
    return CheckOutcome(
        evaluation.asset_key.path[-1], evaluation.check_name, said, plain_text(evaluation.description or "")
    )
