"""A backfill as the UI launches it: webserver and daemon are real processes, everything goes through GraphQL."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from eagle3_assets.config import CONFIG_VARIABLE
from eagle3_assets.running import INSTANCE_YAML
from eagle3_assets.tokens.laws import LAWS
from eagle3_assets_tests.conftest import ProjectMaker, demo_rows

ASSETS = (
    "prompts",
    "tokenized_prompts",
    "raw_generations",
    "decoded_previews",
    "length_statistics",
    "training_samples",
)

LAUNCH = """
mutation ($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""
STATUS = """
query ($id: String!) {
  partitionBackfillOrError(backfillId: $id) {
    ... on PartitionBackfill { status error { message } }
  }
}
"""
CHECKS = """
query ($asset: AssetKeyInput!, $check: String!) {
  assetCheckExecutions(assetKey: $asset, checkName: $check, limit: 10) {
    partition status evaluation { success description metadataEntries { label ... on TextMetadataEntry { text } } }
  }
}
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(arguments: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    """A process in a group of its own, ended with all that it started."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class Api:
    """The webserver's GraphQL."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"

    def __call__(self, query: str, **variables: Any) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - a loopback address
            f"{self.base}/graphql",
            data=json.dumps({"query": query, "variables": variables}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310
            answer = json.load(reply)
        assert "errors" not in answer, answer["errors"]
        return dict(answer["data"])

    def wait_until_up(self, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                self("{ version }")
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)


@pytest.fixture
def api(make_project: ProjectMaker, tmp_path: Path) -> Iterator[Api]:
    make_project(demo_rows("function_calling", 6), dataset={"shards": 2})
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE_YAML, encoding="utf-8")
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        CONFIG_VARIABLE: str(tmp_path / "eagle3.yaml"),
        "OMP_NUM_THREADS": "1",
    }
    module = ["-m", "eagle3_assets.definitions"]
    port = free_port()
    with ExitStack() as stack:
        stack.enter_context(
            running(
                ["dagster_webserver", "--host", "127.0.0.1", "--port", str(port), *module],
                environment,
                tmp_path / "web.log",
            )
        )
        made = Api(port)
        made.wait_until_up()
        # Two processes that make a new instance at the same moment trip over each other's database.
        stack.enter_context(running(["dagster._daemon", "run", *module], environment, tmp_path / "daemon.log"))
        yield made


def test_a_backfill_of_two_partitions_and_its_checks(api: Api, tmp_path: Path) -> None:
    keys = ["d-00of02", "d-01of02"]
    launched = api(
        LAUNCH, params={"assetSelection": [{"path": [asset]} for asset in ASSETS], "partitionNames": keys, "tags": []}
    )["launchPartitionBackfill"]
    assert launched["__typename"] == "LaunchBackfillSuccess", launched

    deadline = time.monotonic() + 240
    while True:
        backfill = api(STATUS, id=launched["backfillId"])["partitionBackfillOrError"]
        if backfill["status"] not in ("REQUESTED", "COMPLETING"):
            break
        assert time.monotonic() < deadline, (tmp_path / "daemon.log").read_text(encoding="utf-8")[-3000:]
        time.sleep(1)
    assert backfill["status"] == "COMPLETED_SUCCESS", backfill

    for law in LAWS:
        executions = api(CHECKS, asset={"path": [law.asset]}, check=law.name)["assetCheckExecutions"]
        assert sorted(e["partition"] for e in executions) == keys, law.name
        for execution in executions:
            evaluation = execution["evaluation"]
            status = {entry["label"]: entry.get("text") for entry in evaluation["metadataEntries"]}["status"]
            # What could not be judged is never shown as passed.
            assert status in ("passed", "warned", "failed", "not_judged")
            assert evaluation["success"] == (status == "passed")
            assert evaluation["description"]
