"""The main job on prompts that nobody here wrote: function-calling rows of the Berkeley benchmark's package."""

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from eagle3_assets.generation.sealed import scan_sealed
from eagle3_assets.running import materialize
from eagle3_assets.storage.files import sealed_generations
from eagle3_assets.tokens.laws import LAWS
from eagle3_assets_tests.conftest import ProjectMaker

PACKAGE = "bfcl-eval==2026.3.23"
TAKEN = {"BFCL_v4_simple_python.json": 50, "BFCL_v4_live_multiple.json": 50}


@pytest.fixture(scope="session")
def bfcl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's data folder; none of its code is run and none of its dependencies installed."""
    place = tmp_path_factory.mktemp("bfcl")
    arguments = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", str(place), PACKAGE]
    done = subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode and not os.environ.get("CI"):
        pytest.skip(f"{PACKAGE} cannot be had from the package registry: {done.stderr[-300:]}")
    assert not done.returncode, done.stderr
    return place / "bfcl_eval" / "data"


def as_openai(row: dict[str, Any]) -> dict[str, Any]:
    """The first turn of a benchmark row as a chat request."""
    tools = [{"type": "function", "function": function} for function in row["function"]]
    return {"id": row["id"], "messages": row["question"][0], "tools": tools}


def rows_of(data: Path) -> list[dict[str, Any]]:
    rows = []
    for name, count in TAKEN.items():
        with (data / name).open(encoding="utf-8") as file:
            rows += [as_openai(json.loads(line)) for line in islice(file, count)]
    return rows


def test_every_row_ends_somewhere_with_a_reason_and_every_law_speaks(
    bfcl: Path, make_project: ProjectMaker, instance: dg.DagsterInstance
) -> None:
    rows = rows_of(bfcl)
    assert len(rows) == 100
    # An unknown domain for a tiny model: what it says is poor and often cut off, which is no reason to refuse it here.
    project = make_project(
        rows,
        dataset={"sampling": {"max_new_tokens": 24, "temperature": 0.0}, "quarantine_limit": 1.0},
        engine={"batch_size": 32, "threads": 1, "logprob_share": 1.0},
    )
    [run] = materialize(project, ["d"], instance)
    assert not run.failures, run.failures
    assert {check.name for check in run.checks} == {law.name for law in LAWS} | {
        "source_rows_accounted",
        "source_unchanged",
    }
    checks = {check.name: check.status for check in run.checks}
    assert checks["source_rows_accounted"] == "passed"
    assert checks["conservation"] == "passed"
    for law in ("stored_as_captured", "server_saw_prompt", "completion_count", "ids_in_vocabulary", "stop_token_last"):
        assert checks[law] == "passed", law

    ends = scan_sealed(sealed_generations(project.layout, "d")).collect()
    assert sorted(ends["sample_id"]) == sorted(f"{row['id']}:{len(row['messages'])}:0" for row in rows)
    assert set(ends["status"]) <= {"generated", "failed", "refused_prompt"}
    without = ends.filter(pl.col("status") != "generated")
    assert without["reason"].null_count() == 0
    assert len(ends) - len(without) >= 50

    prompts = pl.read_parquet(str(project.layout.asset_file("prompts", "d")))
    texts = {
        row["sample_id"]: "".join(f["function"]["name"] for f in json.loads(row["tools"]))
        for row in prompts.iter_rows(named=True)
    }
    assert len(texts) == 100
    assert all(texts.values())
