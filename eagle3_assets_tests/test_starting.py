"""A run that is starting fails when its process is gone at two looks, and never for any other reason."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.launcher import CheckRunHealthResult, LaunchRunContext, RunLauncher, WorkerStatus
from dagster._core.test_utils import create_run_for_test, instance_for_test
from dagster._serdes import ConfigurableClass, ConfigurableClassData

from eagle3_assets import starting
from eagle3_assets.starting import watch_starting_runs

STARTING = dg.DagsterRunStatus.STARTING
FAILED = CheckRunHealthResult(WorkerStatus.FAILED, "Ray job failed. Message: its node has died")
ENDED = CheckRunHealthResult(WorkerStatus.SUCCESS)
RUNNING = CheckRunHealthResult(WorkerStatus.RUNNING)
LOST = CheckRunHealthResult(WorkerStatus.UNKNOWN, "RuntimeError: ... Job dagster-run-1 does not exist.\n\nStack Trace:")
LOST_BY_KUBERNETES = CheckRunHealthResult(WorkerStatus.UNKNOWN, "Job dagster-run-1 could not be found")
REFUSED = CheckRunHealthResult(WorkerStatus.UNKNOWN, "ApiException: (403) Forbidden: cannot get resource jobs")
SILENT = CheckRunHealthResult(WorkerStatus.UNKNOWN)


class Cluster(RunLauncher, ConfigurableClass):
    """A launcher whose runs' processes are as a test says; a real one shows most of this only when a machine dies."""

    health: CheckRunHealthResult | Exception = RUNNING
    begins = False
    asked = 0
    hangs: threading.Event | None = None
    """Until it is set."""

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._inst_data = inst_data

    @property
    def inst_data(self) -> ConfigurableClassData | None:
        return self._inst_data

    @classmethod
    def config_type(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> "Cluster":  # noqa: ARG003
        return cls(inst_data)

    def launch_run(self, context: LaunchRunContext) -> None:
        raise NotImplementedError

    def terminate(self, run_id: str) -> bool:
        raise NotImplementedError

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: dg.DagsterRun) -> CheckRunHealthResult:
        self.asked += 1
        if self.hangs:
            self.hangs.wait()
        if self.begins:
            start = dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, run.job_name)
            self._instance.handle_run_event(run.run_id, start)
        if isinstance(self.health, Exception):
            raise self.health
        return self.health


def instance_of(folder: Path, *, monitored: bool = True) -> Any:
    launcher = {"module": __name__, "class": "Cluster"}
    return instance_for_test(
        overrides={"run_launcher": launcher, "run_monitoring": {"enabled": monitored}}, temp_dir=str(folder)
    )


@pytest.fixture
def cluster_instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with instance_of(tmp_path) as instance:
        yield instance


class Watch:
    """The sensor, as Dagster's daemon asks it: each time with the cursor that it left."""

    def __init__(self, instance: dg.DagsterInstance, health: CheckRunHealthResult | Exception) -> None:
        self.instance = instance
        launcher = instance.run_launcher
        assert isinstance(launcher, Cluster)
        self.launcher = launcher
        self.launcher.health = health
        self.cursor: str | None = None

    def look(self) -> str:
        context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor)
        said = watch_starting_runs(context)
        self.cursor = context.cursor
        assert isinstance(said, dg.SkipReason) and said.skip_message
        return said.skip_message

    def status(self, run: dg.DagsterRun) -> dg.DagsterRunStatus:
        found = self.instance.get_run_by_id(run.run_id)
        assert found
        return found.status


@pytest.mark.parametrize(
    ("health", "why"),
    [
        (FAILED, "Ray job failed. Message: its node has died"),
        (ENDED, "Its job has ended."),
        (LOST, "Job dagster-run-1 does not exist."),
        (LOST_BY_KUBERNETES, "Job dagster-run-1 could not be found."),
    ],
)
def test_a_run_without_a_process_fails_at_the_second_look(
    cluster_instance: dg.DagsterInstance, health: CheckRunHealthResult, why: str
) -> None:
    run = create_run_for_test(cluster_instance, status=STARTING)
    begun = create_run_for_test(cluster_instance, status=dg.DagsterRunStatus.STARTED)
    watch = Watch(cluster_instance, health)
    assert watch.look() == "0 runs are starting, 1 have no process"
    assert watch.status(run) == STARTING
    assert watch.look() == f"0 runs are starting, 0 have no process; failed: {run.run_id}"
    assert watch.status(run) == dg.DagsterRunStatus.FAILURE
    assert watch.status(begun) == dg.DagsterRunStatus.STARTED  # Dagster's to watch
    failure = cluster_instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE)[0]
    assert failure.message == f"The process of this run was gone before the run began. {why}"
    assert watch.look() == "0 runs are starting, 0 have no process"


@pytest.mark.parametrize(
    ("health", "told"),
    [
        (RUNNING, ""),
        (REFUSED, "; of 2 of them the cluster tells nothing"),
        (SILENT, "; of 2 of them the cluster tells nothing"),
        (ConnectionError("the head is away"), "; of 2 of them the cluster tells nothing"),
    ],
)
def test_a_run_that_waits_for_room_or_that_nobody_can_tell_of_is_left_alone(
    cluster_instance: dg.DagsterInstance, health: CheckRunHealthResult | Exception, told: str
) -> None:
    runs = [create_run_for_test(cluster_instance, status=STARTING) for _ in range(2)]
    watch = Watch(cluster_instance, health)
    assert [watch.look() for _ in range(3)] == [f"2 runs are starting, 0 have no process{told}"] * 3
    assert [watch.status(run) for run in runs] == [STARTING, STARTING]


def test_a_cluster_that_hangs_holds_up_one_thread_and_is_asked_again_when_it_goes_on(
    cluster_instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starting, "ASK_S", 0.1)
    run = create_run_for_test(cluster_instance, status=STARTING)
    watch = Watch(cluster_instance, FAILED)
    watch.launcher.hangs = threading.Event()
    assert {watch.look() for _ in range(3)} == {
        "1 runs are starting, 0 have no process; of 1 of them the cluster tells nothing"
    }
    assert watch.launcher.asked == 1
    [asking] = [thread for thread in threading.enumerate() if thread.name == starting.WATCH]
    watch.launcher.hangs.set()
    asking.join()
    monkeypatch.setattr(starting, "ASK_S", 60.0)
    watch.look()
    watch.look()
    assert watch.status(run) == dg.DagsterRunStatus.FAILURE


def test_a_process_that_is_there_again_is_suspected_anew(cluster_instance: dg.DagsterInstance) -> None:
    run = create_run_for_test(cluster_instance, status=STARTING)
    watch = Watch(cluster_instance, LOST)  # between "starting" and the job's arrival at the cluster
    watch.look()
    watch.launcher.health = RUNNING
    watch.look()
    watch.launcher.health = LOST
    watch.look()
    assert watch.status(run) == STARTING
    watch.look()
    assert watch.status(run) == dg.DagsterRunStatus.FAILURE


def test_a_run_that_begins_while_the_cluster_is_asked_goes_on(cluster_instance: dg.DagsterInstance) -> None:
    run = create_run_for_test(cluster_instance, status=STARTING)
    watch = Watch(cluster_instance, LOST)
    watch.look()
    watch.launcher.begins = True
    assert watch.look() == "0 runs are starting, 0 have no process"
    assert watch.status(run) == dg.DagsterRunStatus.STARTED


def test_an_instance_without_run_monitoring_is_left_alone(tmp_path: Path) -> None:
    with instance_of(tmp_path, monitored=False) as instance:
        run = create_run_for_test(instance, status=STARTING)
        watch = Watch(instance, FAILED)
        assert all("no run monitoring" in watch.look() for _ in range(2))
        assert watch.status(run) == STARTING and watch.launcher.asked == 0
