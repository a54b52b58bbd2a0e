"""Figures for Prometheus: what a run keeps in its file, what the command says of stored partitions, and the rules."""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from eagle3_assets import metrics
from eagle3_assets.build import build_defs
from eagle3_assets.cli import app
from eagle3_assets.config import CONFIG_VARIABLE, Dataset
from eagle3_assets.engines.base import ServerLoad
from eagle3_assets.generation.progress import Progress, Tracker
from eagle3_assets.jobs import PARTITION_JOB
from eagle3_assets.metrics import figures_text, generation_figures, measured, partition_figures
from eagle3_assets.partitions import Partition
from eagle3_assets.recorded import partition_states
from eagle3_assets.running import HOME_VARIABLE, materialize, persistent_instance
from eagle3_assets_tests.conftest import ProjectMaker, demo_rows

RULES = Path(__file__).parent.parent / "deploy" / "prometheus" / "alerts.yaml"
PARTITION = Partition("d", Dataset(name="d", source=("s",), coverage=0.99), 0, trial=False)

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> Samples:
    """Samples by name and labels, but for those that all have."""
    return {
        (one.name, tuple((k, v) for k, v in one.labels.items() if k not in ("dataset", "partition"))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def snapshot(done: int = 3, servers: tuple[ServerLoad, ...] = ()) -> Progress:
    tracker = Tracker(total=10, kept=990, kept_failed=7)
    for _ in range(done - 1):
        tracker.finished(100)
    tracker.finished(0, "unusable reply")
    tracker.retries, tracker.in_flight = 4, 5
    return tracker.snapshot(servers)


def test_a_runs_figures() -> None:
    hostile = 'http://gpu-1:30000/"\n\\x'
    servers = (ServerLoad(hostile, 5, live=True, evictions=0), ServerLoad("http://gpu-2:30000", 0, False, 2))
    text = figures_text(generation_figures(PARTITION, snapshot(servers=servers), running=True, at=1_000.5))
    assert all('dataset="d",partition="d"' in line for line in text.splitlines() if not line.startswith("#"))
    found = parsed(text)
    name = "eagle3_generation_"
    assert found[f"{name}running", ()] == 1
    assert found[f"{name}last_update_timestamp_seconds", ()] == 1_000.5
    assert found[f"{name}rows", ()] == 10
    assert found[f"{name}partition_rows", ()] == 1_000
    assert found[f"{name}earlier_failures", ()] == 7
    assert found[f"{name}rows_done_total", ()] == 3
    assert found[f"{name}failures_total", (("reason", "unusable reply"),)] == 1
    assert found[f"{name}retries_total", ()] == 4
    assert found[f"{name}output_tokens_total", ()] == 200
    assert found[f"{name}output_tokens_per_second", ()] > 0
    assert found[f"{name}in_flight", ()] == 5
    assert found[f"{name}failed_limit", ()] == pytest.approx(0.01)
    # What stands in a label is escaped, and comes back as it was.
    assert found[f"{name}server_up", (("server", hostile),)] == 1
    assert found[f"{name}server_up", (("server", "http://gpu-2:30000"),)] == 0
    assert found[f"{name}server_in_flight", (("server", hostile),)] == 5
    assert found[f"{name}server_evictions_total", (("server", "http://gpu-2:30000"),)] == 2


def test_what_is_so_at_a_moment_ends_with_the_run() -> None:
    servers = (ServerLoad("http://gpu-1:30000", 5, live=True, evictions=1),)

    def names(*, running: bool) -> set[str]:
        figures = generation_figures(PARTITION, snapshot(servers=servers), running=running, at=0)
        return {figure.name.removeprefix("eagle3_generation_") for figure in figures}

    of_a_moment = {"in_flight", "output_tokens_per_second", "left_seconds", "server_up", "server_in_flight"}
    assert names(running=True) - names(running=False) == of_a_moment
    assert {"running", "rows_done", "failures", "server_evictions"} <= names(running=False)


def test_a_file_is_written_now_and_then_and_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Samples] = []
    write = metrics.write_figures

    def counted(figures: Any, path: Path) -> None:
        write(figures, path)
        written.append(parsed(path.read_text(encoding="utf-8")))

    monkeypatch.setattr(metrics, "write_figures", counted)
    warned: list[object] = []
    with measured(str(tmp_path), PARTITION, warned.append) as take:
        for done in range(1, 9):
            take(snapshot(done))
        assert len(written) == 1 and written[0]["eagle3_generation_running", ()] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["eagle3_d.prom"]
    assert len(written) == 2 and written[1]["eagle3_generation_running", ()] == 0
    assert written[1]["eagle3_generation_rows_done_total", ()] == 8
    # A run that stops in an error says so as well.
    with pytest.raises(RuntimeError), measured(str(tmp_path), PARTITION, warned.append) as take:
        take(snapshot(2))
        raise RuntimeError
    assert written[-1]["eagle3_generation_running", ()] == 0
    assert warned == []


def test_no_run_fails_for_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[object] = []
    monkeypatch.setattr(metrics, "PAUSE_S", 0.0)
    with measured(str(tmp_path / "absent"), PARTITION, warned.append) as take:
        take(snapshot())
        take(snapshot())
    [said] = warned
    assert said == (
        f"metrics.directory: {tmp_path}/absent/eagle3_d.prom: cannot be written: No such file or directory; the run"
        " goes on without"
    )
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with measured(str(tmp_path), PARTITION, warned.append) as take:
        take(snapshot())
    assert "install the extra: pip install '.[metrics]'" in str(warned[-1]) and len(warned) == 2
    with measured(None, PARTITION, warned.append) as take:
        take(snapshot())
    assert len(warned) == 2 and not list(tmp_path.iterdir())


def test_the_command_says_what_is_there_before_anything_was_made(
    make_project: ProjectMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = make_project(dataset={"shards": 2})
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "eagle3.yaml"))
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "no-instance"))
    broken = project.layout.generations("d-01of02")
    broken.mkdir(parents=True)
    (broken / "current.json").write_text("{", encoding="utf-8")
    done = CliRunner().invoke(app, ["metrics", "-"])
    assert done.exit_code == 1 and "damaged: d-01of02" in done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert 'eagle3_partition_sealed{dataset="d",partition="d-00of02"} 0.0' in lines
    assert 'eagle3_partition_damaged{dataset="d",partition="d-01of02"} 1.0' in lines
    assert not any("trial" in line for line in lines)
    assert not (tmp_path / "no-instance").exists()

    done = CliRunner().invoke(app, ["metrics", str(tmp_path / "absent" / "x.prom")])
    assert done.exit_code == 2 and "x.prom: cannot be written: No such file" in done.stderr


@pytest.mark.slow
def test_figures_of_real_runs(make_project: ProjectMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prom").mkdir()
    rows = [*demo_rows("chat", 3), {"id": "x", "messages": [{"role": "user", "content": "<|im_end|>"}]}]
    project = make_project(rows, dataset={"shards": 2, "quarantine_limit": 1.0}, metrics={"directory": "prom"})
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "eagle3.yaml"))
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))
    began = time.time()
    with persistent_instance() as instance:
        runs = list(materialize(project, ["d-00of02", "d-01of02"], instance))
        assert sum(run.generated or 0 for run in runs) == 3
        for run in runs:
            found = parsed((tmp_path / "prom" / f"eagle3_{run.partition}.prom").read_text(encoding="utf-8"))
            assert found["eagle3_generation_running", ()] == 0
            assert found["eagle3_generation_rows_done_total", ()] == run.generated
            assert found["eagle3_generation_output_tokens_total", ()] > 0
        states = {state.partition.key: state for state in partition_states(project, instance)}
        for run in runs:
            state = states[run.partition]
            assert state.checks == {(check.asset, check.name): check.status for check in run.checks}
            assert {"prompts", "raw_generations"} <= state.materialized.keys()
            assert "corpus_summary" not in state.materialized
            assert all(began <= when <= time.time() for when in state.materialized.values())

    file = tmp_path / "corpus.prom"
    done = CliRunner().invoke(app, ["metrics", str(file)])
    assert done.exit_code == 0, done.output
    text = file.read_text(encoding="utf-8")
    assert text == figures_text(partition_figures(list(states.values()), 0)).replace(
        "eagle3_state_timestamp_seconds 0.0",
        re.findall("^eagle3_state_timestamp_seconds .*$", text, re.MULTILINE)[0],
    )
    for run in runs:
        for outcome, count in {"generated": run.generated, "refused": run.refused, "failed": run.failed}.items():
            of = f'dataset="d",outcome="{outcome}",partition="{run.partition}"'
            assert f"eagle3_partition_rows{{{of}}} {float(count or 0)}" in text
    assert re.search(
        '^eagle3_partition_check_found{.*check="prompt_injection".*status="warned"} 1.0$', text, re.MULTILINE
    )

    # What a run is about to judge has not been judged.
    with persistent_instance() as instance:
        instance.create_run_for_job(
            build_defs(project).resolve_job_def(PARTITION_JOB), tags={"dagster/partition": "d-00of02"}
        )
        first, second = partition_states(project, instance)
    assert set(first.checks.values()) == {"no_result"}
    assert "no_result" not in second.checks.values()


def test_rules_and_page_name_the_figures_that_there_are() -> None:
    servers = (ServerLoad("s", 0, live=True, evictions=0),)
    figures = [*generation_figures(PARTITION, snapshot(servers=servers), running=True, at=0), *partition_figures([], 0)]
    names = {f"{figure.name}_total" if figure.counter else figure.name for figure in figures}
    asked = set(re.findall(r"\beagle3_\w+", RULES.read_text(encoding="utf-8")))
    assert asked and asked <= names
    page = (RULES.parent.parent.parent / "docs" / "operations.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\beagle3_(?:generation|partition|state)_\w+", page)) == names


@pytest.mark.scale
@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is missing: apt-get install prometheus")
@pytest.mark.parametrize("what", [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]])
def test_prometheus_takes_the_rules_and_they_fire_when_they_should(what: list[str]) -> None:
    done = subprocess.run(
        ["promtool", *what],  # noqa: S607 - wherever it was installed
        cwd=RULES.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout
