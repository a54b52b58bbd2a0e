"""How ``deploy/ray/start`` reads its settings: the programs it would start are replaced by one that shows them."""

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from eagle3_assets_tests.scale.cluster import BIN, DEPLOY, instance_yaml, needed, postgres, wait_for
from eagle3_assets_tests.served import free_port

pytestmark = pytest.mark.scale


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """A settings file whose ``ray`` prints its arguments and environment."""
    (tmp_path / "ray").write_text('#!/bin/sh\necho "$@"\nenv\n', encoding="utf-8")
    (tmp_path / "ray").chmod(0o755)
    settings = tmp_path / "cluster.env"
    lines = ["# KEY=no", "", f"EAGLE3_BIN={tmp_path}", "EAGLE3_RAY_HEAD=10.0.0.1:6379", "lower=no"]
    secrets = ["AWS_SECRET_ACCESS_KEY=YQ=", "EMPTY=", "SPACED=a b $HOME `id`", "LAST=a=b=="]
    settings.write_text("\n".join([*lines, *secrets]), encoding="utf-8")  # no line end: editors differ
    settings.chmod(0o600)
    return settings


def start(settings: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "EAGLE3_CLUSTER": str(settings), **more}
    command = [str(DEPLOY / "ray" / "start"), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def runs(daemon: int) -> bool:
    return Path(f"/proc/{daemon}").exists()


class Health(BaseHTTPRequestHandler):
    """The page of Ray's dashboard that says whether the head is well; asked by somebody without the token."""

    status = 200
    hangs = False

    def do_GET(self) -> None:
        while self.hangs:
            time.sleep(0.1)
        self.send_response(self.status if self.path == "/api/gcs_healthz" else 401)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def head(port: int = 0) -> Iterator[tuple[type[Health], int]]:
    """A head, as far as the daemon's script asks it; its page and port."""
    page = type("Page", (Health,), {})
    server = ThreadingHTTPServer(("127.0.0.1", port), page)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    serving.start()
    try:
        yield page, server.server_port
    finally:
        server.shutdown()
        server.server_close()


def test_settings_reach_what_is_started_as_they_are_written(started: Path) -> None:
    done = start(started, "worker", "--num-cpus", "3", LAST="won")
    assert done.returncode == 0, done.stderr
    called, *environment = done.stdout.splitlines()
    assert called.startswith("start --block") and called.endswith("--address 10.0.0.1:6379 --num-cpus 3")
    assert {"AWS_SECRET_ACCESS_KEY=YQ=", "EMPTY=", "SPACED=a b $HOME `id`", "LAST=won"} <= set(environment)
    assert not any(line.startswith(("lower=", "KEY=", "# KEY=")) for line in environment)
    assert "LAST=a=b==" in start(started, "worker").stdout.splitlines()


def test_jobs_wait_for_room_as_long_as_dagster_does(started: Path) -> None:
    watching = yaml.safe_load((DEPLOY / "ray" / "dagster.yaml").read_text(encoding="utf-8"))["run_monitoring"]
    shown = start(started, "head").stdout.splitlines()
    assert f"RAY_JOB_START_TIMEOUT_SECONDS={watching['start_timeout_seconds']}" in shown
    assert "RAY_JOB_START_TIMEOUT_SECONDS=5" in start(started, "head", RAY_JOB_START_TIMEOUT_SECONDS="5").stdout


def fake_daemon(started: Path, does: str) -> None:
    for name, line in (("python", "exit 0"), ("dagster-daemon", does)):
        started.with_name(name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        started.with_name(name).chmod(0o755)


@contextmanager
def starting(settings: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """``start daemon``, for a head at that port."""
    jobs = f"http://127.0.0.1:{port}"
    environment = {"PATH": os.environ["PATH"], "EAGLE3_CLUSTER": str(settings), "EAGLE3_RAY_JOBS": jobs}
    command = [str(DEPLOY / "ray" / "start"), "daemon"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_the_daemon_runs_while_the_head_answers(started: Path) -> None:
    told = started.with_name("told")
    fake_daemon(started, f"echo $$ >>{told}\nexec sleep 600")

    def daemons() -> list[int]:
        return [int(line) for line in told.read_text(encoding="utf-8").split()] if told.exists() else []

    port = free_port()
    with starting(started, port) as process:
        assert process.stderr is not None
        # There is no head yet.
        assert process.stderr.readline().endswith(
            f"does not answer at http://127.0.0.1:{port}: the daemon begins when it does\n"
        )
        assert daemons() == []
        for times in (1, 2):
            with head(port):
                wait_for(lambda: len(daemons()) == times, "the daemon runs")  # noqa: B023 - called at once
            wait_for(lambda: not runs(daemons()[-1]), "the daemon ends with the head")
            assert process.stderr.readline().endswith("the daemon ends, and begins anew when it does\n")
        with head(port) as (page, _):
            wait_for(lambda: len(daemons()) == 3, "the daemon runs")
            page.status = 503
            wait_for(lambda: not runs(daemons()[-1]), "the daemon ends with what the head keeps")
            page.status = 200
            wait_for(lambda: len(daemons()) == 4, "the daemon runs")
            process.terminate()
            assert process.wait(60) == 143 and not runs(daemons()[-1])
        assert process.stderr.read().count("Ray's head does not answer") == 1


def test_the_daemon_ends_when_the_head_hangs(started: Path) -> None:
    told = started.with_name("told")
    fake_daemon(started, f"echo $$ >>{told}\nexec sleep 600")
    with head() as (page, port), starting(started, port) as process:
        wait_for(told.exists, "the daemon runs")
        page.hangs = True
        wait_for(lambda: not runs(int(told.read_text(encoding="utf-8"))), "the daemon ends")
        page.hangs = False
        wait_for(lambda: len(told.read_text(encoding="utf-8").split()) == 2, "the daemon runs again")
        assert process.poll() is None


def test_a_daemon_that_fails_ends_what_started_it(started: Path) -> None:
    fake_daemon(started, "exit 3")
    with head() as (_, port):
        assert start(started, "daemon", EAGLE3_RAY_JOBS=f"http://127.0.0.1:{port}").returncode == 3


@pytest.mark.parametrize("jobs", ["http://10.0.0.1", "10.0.0.1:8265", "https://10.0.0.1:8265", "ray://10.0.0.1:10001"])
def test_an_address_that_the_daemon_could_not_ask_is_refused(started: Path, jobs: str) -> None:
    done = start(started, "daemon", EAGLE3_RAY_JOBS=jobs)
    assert done.returncode == 2 and f"EAGLE3_RAY_JOBS must be http://HOST:PORT, and not {jobs}" in done.stderr


def test_the_pool_is_known_before_the_daemon_runs_and_has_the_limit_of_now(started: Path, tmp_path: Path) -> None:
    needed(BIN.is_dir(), "the environment that scripts/scale/make-env makes")
    look = """import dagster
storage = dagster.DagsterInstance.get().event_log_storage
print([(pool.name, pool.limit, pool.from_default) for pool in storage.get_pool_limits()])"""
    for name, does in (("python", f'exec {BIN}/python "$@"'), ("dagster-daemon", f"exec {BIN}/python -c '{look}'")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    (home := tmp_path / "home").mkdir()
    with postgres("hunter3") as port, head() as (_, head_port):
        settings = {
            "HOST": "127.0.0.1",
            "PORT": str(port),
            "USERNAME": "postgres",
            "PASSWORD": "hunter3",
            "DB": "postgres",
        }
        more = {f"DAGSTER_PG_{name}": value for name, value in settings.items()}
        more |= {"DAGSTER_HOME": str(home), "EAGLE3_RAY_JOBS": f"http://127.0.0.1:{head_port}"}
        for limit in (8, 8, 3):
            pools = {"pools": {"default_limit": limit, "granularity": "run"}}
            (home / "dagster.yaml").write_text(
                instance_yaml(DEPLOY / "postgres" / "dagster.yaml", concurrency=pools), encoding="utf-8"
            )
            done = start(started, "daemon", **more)
            assert done.returncode == 0, done.stderr
            assert f"[('generation', {limit}, True)]" in done.stdout


def test_settings_that_others_may_read_are_refused(started: Path) -> None:
    for mode in (0o604, 0o644, 0o602):
        started.chmod(mode)
        done = start(started, "worker")
        assert done.returncode == 2 and done.stdout == ""
        assert f"{started} has secrets" in done.stderr and "chmod 600" in done.stderr
    started.chmod(0o640)  # an account's group of its own
    assert start(started, "worker").returncode == 0


@pytest.mark.parametrize("quoted", ['"a b"', "'x'"])
def test_quotes_are_refused_and_the_value_is_not_repeated(started: Path, quoted: str) -> None:
    started.write_text(started.read_text(encoding="utf-8") + f"\nSECRET={quoted}\n", encoding="utf-8")
    done = start(started, "worker")
    assert done.returncode == 2 and "the quotes around SECRET" in done.stderr and quoted not in done.stderr


def test_what_is_missing_is_named(started: Path) -> None:
    assert "no part of the cluster is called workr" in start(started, "workr").stderr
    assert start(started, "workr").returncode == 2
    assert "EAGLE3_BIN: name the bin directory" in start(started.with_name("none"), "worker").stderr
    assert "EAGLE3_CODE_PORT: a free port" in start(started, "code").stderr
