"""A cluster on one machine: Postgres, Ray nodes, Dagster's services, each a process that can be killed like a machine.

What belongs here: starting and ending them with the files of ``deploy/``. Not here: what a test does with them.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from eagle3_assets_tests.served import Api, free_port

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
BIN = ROOT / ".cache" / "scale-venv" / "bin"
"""Made by ``scripts/scale/make-env``."""
PATIENCE_S = 180.0

T = TypeVar("T")

RUNS = """
{
  runsOrError(limit: 200) {
    ... on Runs { results { runId status startTime endTime tags { key value } } }
  }
}
"""


def needed(there: object, what: str) -> None:
    """Skips the test where something is missing, but in CI."""
    if there:
        return
    if os.environ.get("CI"):
        pytest.fail(f"{what} is missing")
    pytest.skip(f"needs {what}")


def wait_for(found: Callable[[], T | None], what: str, seconds: float = PATIENCE_S) -> T:
    """What a function finds, asked again until it does."""
    until = time.monotonic() + seconds
    while not (it := found()):
        assert time.monotonic() < until, f"waited {seconds:.0f} s: {what}"
        time.sleep(0.5)
    return it


@dataclass
class Machine:
    """A process with all that it starts, in a namespace of its own: they end at once, as when a machine dies."""

    process: subprocess.Popen[bytes]

    def die(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def machine(command: list[str], folder: Path, environment: Mapping[str, str]) -> Iterator[Machine]:
    """Runs a command as the first process of a namespace, in a folder that is the machine's own."""
    folder.mkdir(exist_ok=True)
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = ["unshare", *as_root, "--pid", "--fork", "--kill-child", "--mount-proc"]
    with (folder / "log").open("wb") as output:
        process = subprocess.Popen(
            [*unshare, *command], cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
    it = Machine(process)
    try:
        yield it
    finally:
        it.die()


@contextmanager
def postgres(password: str) -> Iterator[int]:
    """A new Postgres server with the password for the account and database ``postgres``; its port."""
    port = free_port()
    with postgres_folder(password) as folder, postgres_server(folder, port):
        yield port


@contextmanager
def postgres_folder(password: str) -> Iterator[Path]:
    """A new Postgres server's data, which outlive the server."""
    folder = Path(tempfile.mkdtemp(prefix="eagle3-postgres-"))
    try:
        secret = folder / "password"
        secret.write_text(password)
        if os.geteuid() == 0:  # Postgres refuses to run as root
            shutil.chown(folder, "postgres")
            shutil.chown(secret, "postgres")
        how = ["-U", "postgres", "--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync"]
        initdb = [str(_postgres_program("initdb")), "-D", str(folder / "data"), *how]
        subprocess.run(initdb, check=True, stdout=subprocess.DEVNULL, **_as_postgres(folder))
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def postgres_server(folder: Path, port: int) -> Iterator[None]:
    """Serves these data for as long as the context lasts."""
    data = ["-D", str(folder / "data")]
    serve = [str(_postgres_program("postgres")), *data, "-p", str(port), "-h", "127.0.0.1", "-k", "", "-F"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(serve, **quiet, **_as_postgres(folder))
    try:
        ready = [str(_postgres_program("pg_isready")), "-q", "-h", "127.0.0.1", "-p", str(port)]
        wait_for(lambda: subprocess.run(ready, check=False).returncode == 0, "Postgres answers")
        yield
    finally:
        process.send_signal(signal.SIGQUIT)  # at once, with all that serve a connection
        process.wait()


def _postgres_program(name: str) -> Path:
    programs = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    needed(programs, "Debian's package postgresql")
    return programs[-1]


def _as_postgres(folder: Path) -> dict[str, Any]:
    return {"cwd": folder, **({"user": "postgres"} if os.geteuid() == 0 else {})}


def dump(port: int, password: str) -> bytes:
    """All that the database ``postgres`` holds."""
    command = ["pg_dump", "-h", "127.0.0.1", "-p", str(port), "-U", "postgres", "postgres"]
    return subprocess.run(
        command, env={**os.environ, "PGPASSWORD": password}, stdout=subprocess.PIPE, check=True
    ).stdout


def instance_yaml(source: Path, **changes: Any) -> str:
    """A ``dagster.yaml`` as it is shipped, with sections changed in some keys."""
    settings = yaml.safe_load(source.read_text(encoding="utf-8"))
    for section, values in changes.items():
        settings[section] |= values
    return yaml.safe_dump(settings)


@dataclass
class Ray:
    """A Ray cluster's job server, as its dashboard shows it."""

    url: str
    token: str
    nodes: dict[str, Machine] = field(default_factory=dict)
    """Workers by the name of the resource that each alone has."""

    def get(self, path: str) -> Any:
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {self.token}"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310 - a loopback address
            return json.load(reply)

    def reaches(self, nodes: int) -> bool:
        """Whether so many nodes are alive; not so where the head does not answer yet."""
        try:
            return len(self.alive()) == nodes
        except OSError:
            return False

    def running(self) -> dict[str, list[str]]:
        """The Dagster runs under way, by the worker that they are on."""
        names = {
            node["node_id"]: name for node in self.alive() for name in self.nodes if name in node["resources_total"]
        }
        found: dict[str, list[str]] = {}
        for job in self.get("/api/jobs/"):
            if job["status"] == "RUNNING" and job["driver_node_id"] in names:
                found.setdefault(names[job["driver_node_id"]], []).append(job["metadata"]["dagster/run-id"])
        return found

    def lost(self) -> set[str]:
        """The Dagster runs whose job failed otherwise than by what the run itself did."""
        failed = (job for job in self.get("/api/jobs/") if job["status"] == "FAILED")
        return {
            job["metadata"]["dagster/run-id"] for job in failed if job["error_type"] != "JOB_ENTRYPOINT_COMMAND_ERROR"
        }

    def alive(self) -> list[dict[str, Any]]:
        nodes = self.get("/api/v0/nodes?detail=true")["data"]["result"]["result"]
        return [node for node in nodes if node["state"] == "ALIVE"]


@contextmanager
def mock_server(folder: Path, delay_s: float) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A mock server's URL, and its process."""
    port = free_port()
    command = [sys.executable, "-m", "eagle3_assets_tests.scale.server", str(port), str(delay_s)]
    with (folder / f"server-{port}.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}", process
    finally:
        process.kill()
        process.wait()


def runs_of(api: Api) -> list[dict[str, Any]]:
    """Every run, with its tags and its partition by name."""
    found = api(RUNS)["runsOrError"]["results"]
    for run in found:
        run["tags"] = {tag["key"]: tag["value"] for tag in run["tags"]}
        run["partition"] = run["tags"]["dagster/partition"]
    return list(found)


def most_at_once(runs: list[dict[str, Any]]) -> int:
    """How many runs were under way at the same time."""
    spans = [(run["startTime"], run["endTime"]) for run in runs if run["startTime"]]
    moments = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    return max(accumulate(change for _, change in moments))
