"""One machine with its instance in Postgres: what ``deploy/postgres`` runs again, what it does not, what it bounds."""

import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from eagle3_assets.config import load_config
from eagle3_assets.generation.sealed import read_current
from eagle3_assets.project import Project
from eagle3_assets_tests.conftest import write_jsonl
from eagle3_assets_tests.scale.cluster import (
    BIN,
    DEPLOY,
    instance_yaml,
    mock_server,
    most_at_once,
    needed,
    postgres,
    runs_of,
    wait_for,
)
from eagle3_assets_tests.served import served
from eagle3_assets_tests.test_backfill import ASSETS, LAUNCH
from eagle3_assets_tests.test_operating import LOGS

pytestmark = [pytest.mark.scale, pytest.mark.timeout(900)]

PASSWORD = "hunter3-hunter3"  # noqa: S105 - of a server that lives as long as the test


def write_config(folder: Path, endpoint: str) -> Path:
    """Two shards of good prompts, and a dataset that a law refuses: its text became structural ids."""
    asked = {"good": "Tell me of bridge number {}.", "bad": "What does <|im_end|> mean, {}?"}
    for name, text in asked.items():
        rows = [{"id": f"{name}-{i}", "messages": [{"role": "user", "content": text.format(i)}]} for i in range(40)]
        write_jsonl(folder / f"{name}.jsonl", rows)
    sampling = {"max_new_tokens": 100, "temperature": 1.0, "seed": 3}
    settings = {
        "target": {"model": "demo"},
        "engine": {"kind": "sglang", "endpoints": [endpoint]},
        "datasets": [
            {"name": "good", "source": "good.jsonl", "shards": 2, "sampling": sampling},
            {"name": "bad", "source": "bad.jsonl", "sampling": sampling},
        ],
    }
    path = folder / "eagle3.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


def test_a_dead_process_is_run_again_and_a_broken_law_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed(BIN.is_dir(), "the environment that scripts/scale/make-env makes")
    monkeypatch.chdir(tmp_path)
    with postgres(PASSWORD) as port, mock_server(tmp_path, delay_s=1.5) as (endpoint, _):
        project = Project(load_config(write_config(tmp_path, endpoint)))
        settings = {"HOST": "127.0.0.1", "PORT": str(port), "USERNAME": "postgres", "PASSWORD": PASSWORD}
        for name, value in {**settings, "DB": "postgres"}.items():
            monkeypatch.setenv(f"DAGSTER_PG_{name}", value)
        shipped = instance_yaml(
            DEPLOY / "postgres" / "dagster.yaml",
            concurrency={"pools": {"default_limit": 1, "granularity": "run"}},
            run_monitoring={"poll_interval_seconds": 5},
        )
        with served(tmp_path, shipped, str(BIN / "python")) as api:

            def runs(partition: str) -> list[dict[str, Any]]:
                return [run for run in runs_of(api) if run["partition"] == partition]

            def generating() -> dict[str, Any] | None:
                """A run that has acknowledged outputs of its own."""
                for run in runs_of(api):
                    if run["status"] == "STARTED" and list(project.layout.journals(run["partition"]).glob("*.jsonl")):
                        return run
                return None

            # A new instance bounds a pool from its second look at the queue on, unless it is told of it before.
            assert api('mutation { setConcurrencyLimit(concurrencyKey: "generation", limit: 1) }')[
                "setConcurrencyLimit"
            ]
            keys = ["good-00of02", "good-01of02", "bad"]
            selection = {"assetSelection": [{"path": [asset]} for asset in ASSETS], "partitionNames": keys, "tags": []}
            launched = api(LAUNCH, params=selection)["launchPartitionBackfill"]
            assert launched["__typename"] == "LaunchBackfillSuccess", launched

            victim = wait_for(generating, "a run generates")
            events = str(api(LOGS, id=victim["runId"])["logsForRun"]["events"])
            found = re.search(r"Executing steps in process \(pid: (\d+)\)", events)
            assert found
            os.kill(int(found[1]), signal.SIGKILL)

            wait_for(
                lambda: all(any(run["status"] == "SUCCESS" for run in runs(key)) for key in keys[:2]),
                "both good partitions are made",
                300,
            )
            wait_for(lambda: any("dagster/will_retry" in run["tags"] for run in runs("bad")), "the bad one is judged")
            every = runs_of(api)

        [refused] = [run for run in every if run["partition"] == "bad"]
        assert refused["status"] == "FAILURE" and refused["tags"]["dagster/will_retry"] == "false"
        died, again = sorted((run for run in every if run["partition"] == victim["partition"]), key=_began)
        assert died["runId"] == victim["runId"] and died["status"] == "FAILURE"
        assert died["tags"]["dagster/will_retry"] == "true"
        assert again["tags"]["dagster/parent_run_id"] == died["runId"] and again["status"] == "SUCCESS"
        assert len(every) == 4 and most_at_once(every) == 1
        assert [key for key in keys if read_current(project.layout.generations(key)) is not None] == keys[:2]


def _began(run: dict[str, Any]) -> float:
    return float(run["startTime"])
