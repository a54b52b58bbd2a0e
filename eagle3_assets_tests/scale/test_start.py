"""How ``deploy/ray/start`` reads its settings: the programs it would start are replaced by one that shows them."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from eagle3_assets_tests.scale.cluster import DEPLOY

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
