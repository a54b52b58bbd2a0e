"""The main job on prompts that nobody here wrote: function-calling rows of the Berkeley benchmark's package."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from eagle3_assets.generation.sealed import scan_sealed
from eagle3_assets.running import materialize
from eagle3_assets.storage.files import sealed_generations
from eagle3_assets.tokens.laws import LAWS
from eagle3_assets_tests import bfcl
from eagle3_assets_tests.conftest import ProjectMaker

TAKEN = {"simple_python": 50, "live_multiple": 50}


def rows_of(data: Path) -> list[dict[str, Any]]:
    return [row for name, count in TAKEN.items() for row in bfcl.one_turn(data, name)[:count]]


@pytest.mark.slow
def test_every_row_ends_somewhere_with_a_reason_and_every_law_speaks(
    make_project: ProjectMaker, instance: dg.DagsterInstance
) -> None:
    rows = rows_of(bfcl.fetched())
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
