"""Shares of servers, kept in Postgres: runs that start at the same moment, and Postgres away for a while."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from eagle3_assets_tests.scale.cluster import (
    BIN,
    DEPLOY,
    ROOT,
    mock_server,
    needed,
    postgres,
    postgres_folder,
    postgres_server,
    wait_for,
)
from eagle3_assets_tests.served import free_port

pytestmark = [pytest.mark.scale, pytest.mark.timeout(300)]

PASSWORD = "hunter4-hunter4"  # noqa: S105 - of a server that lives as long as the test


def environment_of(home: Path, port: int) -> dict[str, str]:
    where = {"HOST": "127.0.0.1", "PORT": str(port), "USERNAME": "postgres", "PASSWORD": PASSWORD, "DB": "postgres"}
    return {**os.environ, "DAGSTER_HOME": str(home), **{f"DAGSTER_PG_{name}": value for name, value in where.items()}}


def test_a_run_outlives_a_restart_of_postgres(tmp_path: Path) -> None:
    """One that has no share yet gets it when Postgres is back; one that cannot give it back ends all the same."""
    needed(BIN.is_dir(), "the environment that scripts/scale/make-env makes")
    port, log = free_port(), tmp_path / "log"
    (tmp_path / "dagster.yaml").write_text((DEPLOY / "postgres" / "dagster.yaml").read_text())
    environment = environment_of(tmp_path, port)
    with postgres_folder(PASSWORD) as folder, mock_server(tmp_path, delay_s=0.01) as (endpoint, _):
        command = [str(BIN / "python"), "-m", "eagle3_assets_tests.scale.sharer", endpoint, "50"]
        with (
            postgres_server(folder, port),
            log.open("w") as stderr,
        ):
            run = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
            assert run.stdin is not None and run.stdout is not None
            assert run.stdout.readline() == "started\n", log.read_text()
        try:
            run.stdin.write("go on\n")
            run.stdin.flush()
            wait_for(lambda: "storage failed: DagsterPostgresException (asked again" in log.read_text(), "it is asked")
            with postgres_server(folder, port):
                assert run.stdout.readline() == "answered\n", log.read_text()
            run.stdin.write("go on\n")
            run.stdin.flush()
            assert run.stdout.readline() == "closed\n", log.read_text()
            assert run.wait() == 0
            assert "are given back when the run has ended: DagsterPostgresException" in log.read_text()
            assert PASSWORD not in log.read_text()
        finally:
            run.kill()
            run.wait()


def test_runs_that_start_at_the_same_moment_all_get_a_share_and_no_slot_is_given_twice(tmp_path: Path) -> None:
    """Dagster inserts a new pool's row for each of them, and may let two claim one slot."""
    needed(BIN.is_dir(), "the environment that scripts/scale/make-env makes")
    runs, limit = 8, 16
    (tmp_path / "dagster.yaml").write_text((DEPLOY / "postgres" / "dagster.yaml").read_text())
    with postgres(PASSWORD) as port:
        command = [str(BIN / "python"), "-m", "eagle3_assets_tests.scale.claimers", str(runs), str(limit)]
        for _ in range(4):
            done = subprocess.run(
                command, cwd=ROOT, env=environment_of(tmp_path, port), capture_output=True, check=False
            )
            assert done.returncode == 0, done.stderr.decode()
            given = json.loads(done.stdout)
            assert len(given) == runs
            assert sum(given) <= limit


def test_a_database_that_lets_nobody_in_is_one_message(tmp_path: Path) -> None:
    needed(BIN.is_dir(), "the environment that scripts/scale/make-env makes")
    (tmp_path / "dagster.yaml").write_text((DEPLOY / "postgres" / "dagster.yaml").read_text())
    command = [str(BIN / "eagle3-assets"), "materialize", "chat-trial"]
    with postgres(PASSWORD) as port:
        environment = environment_of(tmp_path, port) | {"DAGSTER_PG_PASSWORD": "another-hunter"}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    told = " ".join(done.stderr.split())
    assert done.returncode == 2, told
    assert "database of the Dagster instance cannot be used: " in told and "password authentication failed" in told
    assert "Traceback" not in told and "another-hunter" not in told
