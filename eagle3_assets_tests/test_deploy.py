"""The settings of Dagster that are shipped say the same wherever they stand, and hold no secret."""

import logging
import re
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._core.events import DagsterEvent, DagsterEventType
from dagster._core.events.log import EventLogEntry
from dagster._daemon.monitoring.run_monitoring import monitor_starting_run

from eagle3_assets.assets.raw_generations import POOL

DAY_S = 86_400
DEPLOY = Path(__file__).parents[1] / "deploy"


def settings(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    return loaded


def of_the_chart(values: dict[str, Any]) -> dict[str, Any]:
    """The instance's settings that Dagster's chart makes of its values, by the names that Dagster has for them."""

    def named(section: Any) -> Any:
        if not isinstance(section, dict):
            return section
        return {re.sub("([A-Z])", r"_\1", name).lower(): named(inner) for name, inner in section.items()}

    daemon = named(values["dagsterDaemon"])
    concurrency = named(values["concurrency"])
    assert concurrency.pop("enabled")
    return {
        "concurrency": concurrency,
        "run_monitoring": daemon["run_monitoring"],
        "run_retries": daemon["run_retries"],
        "telemetry": values["telemetry"],
        **values["additionalInstanceConfig"],
    }


@dg.job
def waits() -> None:
    pass


def test_ray_and_kubernetes_have_postgres_settings() -> None:
    postgres, ray, helm = settings("postgres/dagster.yaml"), settings("ray/dagster.yaml"), settings("k8s/values.yaml")
    # But for how long a run may wait for a machine.
    clusters = postgres | {"run_monitoring": postgres["run_monitoring"] | {"start_timeout_seconds": DAY_S}}
    assert {name: ray[name] for name in postgres} == clusters
    assert ray.keys() - postgres.keys() == {"run_launcher", "compute_logs"}
    assert of_the_chart(helm) | {"storage": postgres["storage"]} == clusters


def test_on_kubernetes_runs_wait_in_the_queue() -> None:
    """Dagster's chart has every run launched at once, past all limits, where its run coordinator is off."""
    assert "runCoordinator" not in settings("k8s/values.yaml")["dagsterDaemon"]


@pytest.mark.parametrize("name", ["ray/dagster.yaml", "k8s/values.yaml"])
@pytest.mark.parametrize(("waited_s", "given_up"), [(DAY_S / 2, False), (DAY_S + 60, True)])
def test_a_run_waits_for_room_as_long_as_partitions_take(
    tmp_path: Path, name: str, waited_s: float, given_up: bool
) -> None:
    loaded = settings(name)
    watching = (of_the_chart(loaded) if name.startswith("k8s/") else loaded)["run_monitoring"]
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides={"run_monitoring": watching}) as instance:
        run = instance.create_run_for_job(waits)
        launched = DagsterEvent(event_type_value=DagsterEventType.PIPELINE_STARTING.value, job_name="waits")
        instance.handle_new_event(
            EventLogEntry(  # type: ignore[no-untyped-call]
                error_info=None,
                level=logging.INFO,
                user_message="",
                run_id=run.run_id,
                timestamp=time.time() - waited_s,
                job_name="waits",
                dagster_event=launched,
            )
        )
        record = instance.get_run_record_by_id(run.run_id)
        assert record and record.dagster_run.status is dg.DagsterRunStatus.STARTING
        monitor_starting_run(instance, record, logging.getLogger(__name__))
        found = instance.get_run_by_id(run.run_id)
        assert found and (found.status is dg.DagsterRunStatus.FAILURE) == given_up


def test_what_a_run_on_kubernetes_takes_is_said_once() -> None:
    """Of two places the code server's would count, whatever the launcher says."""
    values = settings("k8s/values.yaml")
    [deployment] = values["dagster-user-deployments"]["deployments"]
    assert deployment["includeConfigInLaunchedRuns"] == {"enabled": True}
    assert "resources" not in values["runLauncher"]["config"]["k8sRunLauncher"]
    # As docs/cluster.md says it of a run, and as Ray's launcher has it.
    assert deployment["resources"]["requests"] == {"cpu": "1", "memory": "2Gi"}
    ray = settings("ray/dagster.yaml")["run_launcher"]["config"]["ray"]
    assert (ray["num_cpus"], ray["memory"]) == (1, 2 * 1024**3)


def test_servers_are_not_restarted_one_by_one_under_a_run() -> None:
    documents = yaml.safe_load_all((DEPLOY / "k8s" / "sglang.yaml").read_text(encoding="utf-8"))
    [servers] = [document for document in documents if document["kind"] == "StatefulSet"]
    assert servers["spec"]["updateStrategy"] == {"type": "OnDelete"}


def test_the_database_is_named_by_the_environment_alone() -> None:
    database = settings("postgres/dagster.yaml")["storage"]["postgres"]["postgres_db"]
    assert all(value.keys() == {"env"} for name, value in database.items() if name != "params")


def test_a_database_whose_machine_is_gone_is_noticed_within_minutes() -> None:
    """Linux asks for a silent connection's other end after two hours."""
    params = settings("postgres/dagster.yaml")["storage"]["postgres"]["postgres_db"]["params"]
    silent = params["keepalives_idle"] + params["keepalives_interval"] * params["keepalives_count"]
    assert silent == params["tcp_user_timeout"] / 1000 == 240
    assert settings("k8s/values.yaml")["postgresql"]["postgresqlParams"] == params


def test_what_generates_is_of_the_pool_that_the_settings_name() -> None:
    assert f'"{POOL}"' in (DEPLOY / "postgres" / "dagster.yaml").read_text(encoding="utf-8")
    assert f"`{POOL}`" in (DEPLOY.parent / "docs" / "cluster.md").read_text(encoding="utf-8")
