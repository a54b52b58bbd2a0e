"""A backfill on a Ray cluster with Postgres and an object store, a node and a server of which die on the way."""

import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl
import pytest
import yaml
from upath import UPath

from eagle3_assets.config import CONFIG_VARIABLE, STORAGE_VARIABLE, load_config
from eagle3_assets.files import names_in
from eagle3_assets.generation.sealed import read_current, scan_sealed
from eagle3_assets.generation.shared import find_unfinished
from eagle3_assets.project import Project
from eagle3_assets.storage.files import sealed_generations
from eagle3_assets.tokens.laws import LAWS, ON_REQUEST
from eagle3_assets_tests.conftest import write_jsonl
from eagle3_assets_tests.scale.cluster import (
    BIN,
    DEPLOY,
    Machine,
    Ray,
    dump,
    instance_yaml,
    machine,
    mock_server,
    most_at_once,
    needed,
    postgres,
    runs_of,
    wait_for,
)
from eagle3_assets_tests.scale.conftest import CREDENTIALS
from eagle3_assets_tests.scale.server import RUNNING
from eagle3_assets_tests.scale.test_storage import files_below, told_of
from eagle3_assets_tests.served import Api, free_port
from eagle3_assets_tests.test_backfill import ASSETS, LAUNCH, STATUS

pytestmark = [pytest.mark.scale, pytest.mark.timeout(1500)]

PASSWORD = "hunter3-hunter3"  # noqa: S105 - of a server that lives as long as the test
TOKEN = "hunter4" * 8
SHARDS = 12
ROWS = 480
DELAY_S = 0.6
FLUSH_ROWS = 5
GENERATING = 3
"""Partitions at once; the workers have room for more runs."""

CHECKS = """
query ($asset: AssetKeyInput!, $check: String!) {
  assetCheckExecutions(assetKey: $asset, checkName: $check, limit: 100) {
    partition status timestamp evaluation { success severity description }
  }
}
"""

FAILURES = """
query ($run: ID!) {
  logsForRun(runId: $run) { ... on EventConnection { events { __typename ... on MessageEvent { message } } } }
}
"""


def asked(url: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{url}/asked", timeout=30) as reply:  # noqa: S310 - a loopback address
        return dict(json.load(reply))


def write_config(folder: Path, endpoints: list[str], shards: int = SHARDS) -> Path:
    """A dataset in shards, on servers that all runs share."""
    words = ("map", "bridge", "clock", "window", "train", "letter", "garden")
    prompts = (
        {"id": f"p-{i:04}", "messages": [{"role": "user", "content": f"Tell me of {words[i % 7]} number {i}, please."}]}
        for i in range(ROWS)
    )
    write_jsonl(folder / "prompts.jsonl", list(prompts))
    settings = {
        "target": {"model": "demo"},
        "engine": {"kind": "sglang", "endpoints": endpoints, "share_servers": True, "logprob_share": 0.2},
        "storage": {"root": "local", "flush_rows": FLUSH_ROWS, "flush_seconds": 2, "lease_seconds": 20},
        "datasets": [
            {
                "name": "d",
                "source": "prompts.jsonl",
                "shards": shards,
                "sampling": {"max_new_tokens": 100, "temperature": 1.0, "seed": 3},
            }
        ],
    }
    path = folder / "eagle3.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Cluster:
    """What a test reaches of it."""

    api: Api
    ray: Ray
    postgres: int
    """The database's port."""
    logs: Path
    """Ray's."""
    head: list[Machine]
    """The last one is that which runs."""
    start_head: Callable[[], None]
    start_worker: Callable[[str], None]


@contextmanager
def cluster(
    folder: Path,
    config: Path,
    bucket: UPath,
    workers: Sequence[str] = ("worker-a", "worker-b"),
    generating: int = GENERATING,
) -> Iterator[Cluster]:
    """Postgres, a head and workers, code server, webserver and daemon, with the files of ``deploy/ray``."""
    home = folder / "home"
    home.mkdir()
    limits = {"runs": {"max_concurrent_runs": 4}, "pools": {"default_limit": generating, "granularity": "run"}}
    watching = {"poll_interval_seconds": 5, "free_slots_after_run_end_seconds": 5}
    shipped = DEPLOY / "ray" / "dagster.yaml"
    (home / "dagster.yaml").write_text(instance_yaml(shipped, concurrency=limits, run_monitoring=watching))
    token = folder / "ray-token"
    token.write_text(TOKEN)
    ports = {name: free_port() for name in ("gcs", "dashboard", "client", "code", "web")}
    with ExitStack() as stack:
        short = stack.enter_context(tempfile.TemporaryDirectory(prefix="e3-"))  # the path of a socket has a limit
        database = stack.enter_context(postgres(PASSWORD))
        environment = {
            **os.environ,
            "EAGLE3_BIN": str(BIN),
            CONFIG_VARIABLE: str(config),
            STORAGE_VARIABLE: str(bucket),
            "EAGLE3_RAY_HEAD": f"127.0.0.1:{ports['gcs']}",
            "EAGLE3_RAY_JOBS": f"http://127.0.0.1:{ports['dashboard']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "DAGSTER_HOME": str(home),
            "EAGLE3_CODE_PORT": str(ports["code"]),
            "DAGSTER_PG_HOST": "127.0.0.1",
            "DAGSTER_PG_PORT": str(database),
            "DAGSTER_PG_USERNAME": "postgres",
            "DAGSTER_PG_PASSWORD": PASSWORD,
            "DAGSTER_PG_DB": "postgres",
            "OMP_NUM_THREADS": "1",
            "RAY_raylet_start_wait_time_s": "120",
        }

        def start(name: str, *arguments: str) -> Machine:
            command = [str(DEPLOY / "ray" / "start"), *arguments]
            return stack.enter_context(machine(command, folder / name, environment))

        # Several nodes of one machine must not want the same ports.
        own = ["--node-ip-address", "127.0.0.1", "--min-worker-port", "0", "--max-worker-port", "0"]
        head_ports = {"port": "gcs", "dashboard-port": "dashboard", "ray-client-server-port": "client"}
        ray = Ray(environment["EAGLE3_RAY_JOBS"], TOKEN)
        head: list[Machine] = []

        def start_head() -> None:
            of_head = [*own, "--temp-dir", short, f"--dashboard-agent-listen-port={free_port()}"]
            named = [f"--{name}={ports[key]}" for name, key in head_ports.items()]
            head.append(start(f"head-{len(head)}", "head", *of_head, *named))
            wait_for(partial(ray.reaches, 1), "the head is up")

        def start_worker(name: str) -> None:
            only = ["--num-cpus", "2", "--resources", json.dumps({name: 1})]
            nodes = len(ray.alive())
            ray.nodes[name] = start(name, "worker", *own, *only, f"--dashboard-agent-listen-port={free_port()}")
            # One after the other: two that start at once in one directory of Ray's take each other's names.
            wait_for(partial(ray.reaches, nodes + 1), f"{name} is up")

        start_head()
        for name in workers:
            start_worker(name)
        start("code", "code")
        start("web", "webserver", "--port", str(ports["web"]))
        api = Api(ports["web"])
        wait_for(lambda: _answers(api), "the webserver answers")
        start("daemon", "daemon")
        yield Cluster(api, ray, database, Path(short, "session_latest", "logs"), head, start_head, start_worker)


def _answers(api: Api) -> bool:
    try:
        found = api("{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }")
    except OSError:
        return False
    return bool(found["repositoriesOrError"].get("nodes"))


def launch(api: Api, keys: list[str]) -> str:
    """A backfill's id."""
    selection = {"assetSelection": [{"path": [asset]} for asset in ASSETS], "partitionNames": keys, "tags": []}
    launched = api(LAUNCH, params=selection)["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched
    return str(launched["backfillId"])


def makes_all(api: Api, backfill: str, keys: list[str], seconds: float) -> None:
    """Waits for a backfill's end and demands a successful run of every partition.

    Not its status: Dagster finds what has failed first and whether all runs have ended later, so that a backfill is
    ``COMPLETED_FAILED`` if in between its last run succeeds and is one that was run again (1.13.27).
    """

    def ended() -> bool:
        return api(STATUS, id=backfill)["partitionBackfillOrError"]["status"] not in ("REQUESTED", "COMPLETING")

    try:
        wait_for(ended, "the backfill ends", seconds)
    finally:
        runs = runs_of(api)
        print(*(f"{run['runId']} {run['partition']} {run['status']} {_failures(api, run['runId'])}" for run in runs))
    assert sorted(run["partition"] for run in runs if run["status"] == "SUCCESS") == keys


def _failures(api: Api, run: str) -> list[str]:
    events = api(FAILURES, run=run)["logsForRun"]["events"]
    return [event["message"] for event in events if event.get("__typename") == "RunFailureEvent"]


def by_status(api: Api) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for run in runs_of(api):
        found.setdefault(run["status"], []).append(run["runId"])
    return found


def verdicts_of(api: Api, keys: list[str]) -> list[tuple[str, bool, str, str]]:
    """Law, whether it passed, severity and sentence of the last check of each law on each partition."""
    found = []
    for law in LAWS:
        if law in ON_REQUEST:
            continue
        executions = api(CHECKS, asset={"path": [law.asset]}, check=law.name)["assetCheckExecutions"]
        last = {one["partition"]: one["evaluation"] for one in sorted(executions, key=lambda one: one["timestamp"])}
        assert sorted(last) == keys, law.name
        found += [(law.name, one["success"], one["severity"], one["description"]) for one in last.values()]
    return found


def test_a_backfill_outlives_a_node_and_a_server(
    bucket: UPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed(BIN.is_dir(), "the environment that scripts/scale/make-env makes")
    began = time.monotonic()

    def told(what: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)

    with ExitStack() as stack:
        (stays, _), (dies, victim) = (stack.enter_context(mock_server(tmp_path, DELAY_S)) for _ in range(2))
        config = write_config(tmp_path, [stays, dies])
        monkeypatch.chdir(tmp_path)

        keys = [f"d-{i:02}of{SHARDS}" for i in range(SHARDS)]
        made = stack.enter_context(cluster(tmp_path, config, bucket))
        told("the cluster is up")
        monkeypatch.setenv(STORAGE_VARIABLE, str(bucket))
        there = Project(load_config(config))

        def sealed() -> list[str]:
            return [key for key in keys if read_current(there.layout.generations(key)) is not None]

        def uploaded(key: str) -> int:
            found = find_unfinished(tmp_path / "nowhere", there.sharing(key))
            return found.outputs if found else 0

        backfill = launch(made.api, keys)

        def doomed() -> tuple[str, list[str]] | None:
            """A worker that generates, and its runs, once some partitions are sealed."""
            if len(sealed()) < 2:
                return None
            running = made.ray.running()
            partitions = {run["runId"]: run["partition"] for run in runs_of(made.api)}
            for name, ids in running.items():
                if any(uploaded(partitions[run]) for run in ids):
                    return name, ids
            return None

        node, on_it = wait_for(doomed, "a worker generates", 400)
        made.ray.nodes[node].die()
        ended = len(sealed())
        told(f"{node} was killed with {len(on_it)} runs; {ended} partitions were sealed")
        wait_for(lambda: len(sealed()) > ended, "the other worker goes on", 300)
        victim.send_signal(signal.SIGKILL)
        told(f"a server was killed; {len(sealed())} partitions were sealed")
        makes_all(made.api, backfill, keys, 600)
        told("the backfill has ended")
        runs = runs_of(made.api)

        # Dagster ran again what died with its node, by itself, and nothing else. What that was Ray says: a run may have
        # come to the node, or gone from it, at the moment when it was killed.
        lost = {run["runId"] for run in runs if run["status"] != "SUCCESS"}
        assert lost <= made.ray.lost()
        again = [run for run in runs if "dagster/parent_run_id" in run["tags"]]
        assert {run["tags"]["dagster/parent_run_id"] for run in again} == lost
        assert {run["status"] for run in runs} == {"SUCCESS", "FAILURE"}
        assert again
        assert most_at_once(runs) <= GENERATING

        # Nothing lost, nothing doubled; at most what was under way and not yet uploaded was asked for twice.
        assert sealed() == keys
        rows = pl.concat([scan_sealed(sealed_generations(there.layout, key)) for key in keys]).collect()
        assert rows["sample_id"].n_unique() == rows.height == ROWS
        assert rows["status"].unique().to_list() == ["generated"]
        written = [
            name for key in keys for name in names_in(there.layout.generations(key)) if name.endswith(".parquet")
        ]
        assert len(written) <= len(keys) + len(lost)  # a run may die between its sealed file and the pointer to it
        journals = [there.layout.shared_journal(key) for key in keys]
        assert all(name.startswith("lease") for place in journals if place for name in names_in(place))
        answered = asked(stays)
        told(f"{answered['again']} requests were sent again, {answered['most']} at once at most")
        assert answered["again"] <= len(lost) * 2 * (FLUSH_ROWS + RUNNING)
        assert answered["most"] <= RUNNING

        verdicts = verdicts_of(made.api, keys)
        assert [said for law, passed, severity, said in verdicts if not passed and severity == "ERROR"] == []
        told(f"{sum(passed for _, passed, *_ in verdicts)} checks passed, none failed")

        public = {
            "Ray's jobs": json.dumps(made.ray.get("/api/jobs/")).encode(),
            "Dagster's database": dump(made.postgres, PASSWORD),
            "the store": b"".join(files_below(bucket).values()),
            "Ray's logs": b"".join(path.read_bytes() for path in made.logs.rglob("*") if path.is_file()),
            "the services' logs": b"".join(path.read_bytes() for path in tmp_path.glob("*/log")),
        }
        secrets = [PASSWORD, TOKEN, *CREDENTIALS.values()]
        assert [(place, one) for place, text in public.items() for one in secrets if one.encode() in text] == []

        # One machine, one disk: the same corpus, file by file; of generations the rows, without who answered when.
        monkeypatch.delenv(STORAGE_VARIABLE)
        one = {**os.environ, CONFIG_VARIABLE: str(config), "DAGSTER_HOME": str(tmp_path / "one-home")}
        command = [str(BIN / "eagle3-assets"), "materialize", *keys]
        done = subprocess.run(command, env=one, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        alone, together = (told_of(project, undisturbed=False) for project in (Project(load_config(config)), there))
        assert alone.keys() == together.keys()
        assert [name for name, told_here in alone.items() if told_here != together[name]] == []
        told("one machine has made the same corpus")


def test_runs_that_are_lost_before_they_begin_are_run_again(
    bucket: UPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their node while they start, and with the head while they wait for room or are queued."""
    needed(BIN.is_dir(), "the environment that scripts/scale/make-env makes")
    began = time.monotonic()

    def told(what: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {what}", flush=True)

    with ExitStack() as stack:
        endpoint, _ = stack.enter_context(mock_server(tmp_path, DELAY_S))
        config = write_config(tmp_path, [endpoint], shards=5)
        monkeypatch.chdir(tmp_path)
        made = stack.enter_context(cluster(tmp_path, config, bucket, ["worker-a"], generating=3))
        told("the cluster is up")
        monkeypatch.setenv(STORAGE_VARIABLE, str(bucket))
        there = Project(load_config(config))
        keys = [f"d-{i:02}of05" for i in range(5)]
        backfill = launch(made.api, keys)

        def starts() -> list[str]:
            """Runs whose process is there and has not begun."""
            on_worker = {run for ids in made.ray.running().values() for run in ids}
            return sorted(on_worker & set(by_status(made.api).get("STARTING", [])))

        lost = wait_for(starts, "a run starts", 200)
        made.ray.nodes["worker-a"].die()
        told(f"a node was killed on which {len(lost)} runs started")
        wait_for(lambda: not made.ray.running(), "Ray says so")
        made.start_worker("worker-a")
        wait_for(lambda: set(lost) <= set(by_status(made.api).get("FAILURE", [])), "they are found", 200)

        def waits_for_room() -> bool:
            now = by_status(made.api)
            return len(now.get("STARTED", [])) == 2 and len(now.get("STARTING", [])) == 1

        wait_for(waits_for_room, "two runs are under way, and one waits for room", 200)
        made.head[-1].die()
        made.ray.nodes["worker-a"].die()  # a worker ends a minute after its head, with the runs on it
        told("the head was killed")
        wait_for(lambda: "Daemon threads shut down" in (tmp_path / "daemon" / "log").read_text(), "the daemon ends")
        before = by_status(made.api)
        assert before["STARTED"] and before["STARTING"]
        time.sleep(15)
        assert by_status(made.api) == before
        made.start_head()
        made.start_worker("worker-a")
        told("head and worker are back")

        makes_all(made.api, backfill, keys, 500)
        told("the backfill has ended")
        runs = runs_of(made.api)
        failed = {run["runId"] for run in runs if run["status"] == "FAILURE"}
        assert failed >= {*lost, *before["STARTED"], *before["STARTING"]}
        assert failed == {run["tags"].get("dagster/parent_run_id") for run in runs} - {None}
        rows = pl.concat([scan_sealed(sealed_generations(there.layout, key)) for key in keys]).collect()
        assert rows["sample_id"].n_unique() == rows.height == ROWS
