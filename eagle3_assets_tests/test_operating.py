"""What docs/operations.md promises when something is killed: real processes, ended with SIGKILL."""

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eagle3_assets_tests.conftest import ProjectMaker, demo_rows
from eagle3_assets_tests.served import Api, served
from eagle3_assets_tests.test_backfill import LAUNCH

ASSETS = ("prompts", "tokenized_prompts", "raw_generations")
RUNS = "{ runsOrError { ... on Runs { results { runId status } } } }"
LOGS = """
query ($id: ID!) {
  logsForRun(runId: $id) { ... on EventConnection { events { __typename ... on MessageEvent { message } } } }
}
"""


def until(what: str, ask: Callable[[], Any], log: Path, seconds: float = 180) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := ask()):
        assert time.monotonic() < deadline, (what, log.read_text(encoding="utf-8")[-3000:])
        time.sleep(0.5)
    return found


def launch(api: Api) -> None:
    params = {"assetSelection": [{"path": [asset]} for asset in ASSETS], "partitionNames": ["d"], "tags": []}
    assert api(LAUNCH, params=params)["launchPartitionBackfill"]["__typename"] == "LaunchBackfillSuccess"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_that_is_killed_is_failed_and_the_next_one_goes_on(make_project: ProjectMaker, tmp_path: Path) -> None:
    (tmp_path / "prom").mkdir()
    # One prompt after the other, so that it takes long enough to be killed.
    engine = {"batch_size": 1, "threads": 1}
    project = make_project(demo_rows("reasoning", 40), engine=engine, metrics={"directory": "prom"})
    daemon, figures = tmp_path / "daemon.log", tmp_path / "prom" / "eagle3_d.prom"
    with served(tmp_path) as api:

        def runs() -> dict[str, str]:
            return {run["runId"]: run["status"] for run in api(RUNS)["runsOrError"]["results"]}

        def process(run: str) -> int | None:
            events = api(LOGS, id=run)["logsForRun"]["events"]
            found = re.search(r"Executing steps in process \(pid: (\d+)\)", str(events))
            return int(found[1]) if found else None

        launch(api)
        [first] = until("a run", runs, daemon)
        number = until("its process", lambda: process(first), daemon)
        until("figures", figures.exists, daemon)
        until("a row", lambda: list(project.layout.journals("d").glob("*.jsonl")), daemon)
        time.sleep(2)
        os.kill(number, signal.SIGKILL)
        until("a failed run", lambda: runs()[first] == "FAILURE", daemon)
        # The file stays as it was, which is what the rule about runs that are gone sees.
        running = re.compile(r"^eagle3_generation_running\{.*\} 1.0$", re.MULTILINE)
        assert running.search(figures.read_text(encoding="utf-8"))

        launch(api)
        second = until("another run", lambda: runs().keys() - {first}, daemon).pop()
        until("its end", lambda: runs()[second] in ("SUCCESS", "FAILURE"), daemon, 300)
        assert runs()[second] == "SUCCESS"
    said = figures.read_text(encoding="utf-8")
    assert not running.search(said)
    asked = re.search(r"^eagle3_generation_rows_done_total\{.*\} (\d+)", said, re.MULTILINE)
    assert asked and 0 < int(asked[1]) < 40
