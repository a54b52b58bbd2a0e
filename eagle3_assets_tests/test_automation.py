"""The sensor asks for exactly the partitions whose generations are good and which have no samples or export yet."""

from pathlib import Path

import dagster as dg
import polars as pl
import pytest
from dagster._core.definitions.asset_daemon_cursor import AssetDaemonCursor

from eagle3_assets.automation import SENSOR
from eagle3_assets.build import build_defs
from eagle3_assets.jobs import PARTITION_JOB
from eagle3_assets.project import Project
from eagle3_assets.storage.files import sealed_generations, write_parquet
from eagle3_assets.tokens.laws import laws_of
from eagle3_assets_tests.conftest import demo_rows, write_jsonl, write_project

CARRIED = ("training_samples", "training_export")
GENERATED = ("prompts", "tokenized_prompts", "raw_generations")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    for name in ("good", "bad", "blocked", "new"):
        write_jsonl(tmp_path / f"{name}.jsonl", demo_rows("chat", 1))
    sampling = {"max_new_tokens": 60, "temperature": 0.0}
    datasets = [
        {"name": name, "source": f"{name}.jsonl", "sampling": sampling} for name in ("good", "bad", "blocked", "new")
    ]
    return write_project(tmp_path, [], datasets=datasets)


def make(project: Project, instance: dg.DagsterInstance, key: str, *assets: str) -> bool:
    job = build_defs(project).resolve_job_def(PARTITION_JOB)
    asked = [dg.AssetKey(asset) for asset in assets]
    return job.execute_in_process(
        instance=instance, partition_key=key, asset_selection=asked, raise_on_error=False
    ).success


def carry_on(project: Project, instance: dg.DagsterInstance, key: str) -> bool:
    """Samples and export in one run, as the daemon launches what is asked for of a partition."""
    job = build_defs(project).resolve_implicit_global_asset_job_def()
    asked = [dg.AssetKey(asset) for asset in CARRIED]
    return job.execute_in_process(
        instance=instance, partition_key=key, asset_selection=asked, raise_on_error=False
    ).success


@pytest.mark.slow
def test_good_partitions_are_carried_on_and_no_others(
    project: Project, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    defs = build_defs(project)
    sensor = defs.resolve_sensor_def(SENSOR)
    assert sensor.default_status == dg.DefaultSensorStatus.STOPPED

    cursor: AssetDaemonCursor | None = None

    def asked() -> dict[str, set[str | None]]:
        nonlocal cursor
        result = dg.evaluate_automation_conditions(defs, instance, cursor=cursor)
        cursor = result.cursor
        found = {name: set(result.get_requested_partitions(dg.AssetKey(name)) or ()) for name in CARRIED}
        return {name: keys for name, keys in found.items() if keys}

    assert make(project, instance, "good", *GENERATED)
    # Refused in its own run: nobody needs to ask again.
    assert make(project, instance, "bad", *GENERATED)
    sealed = sealed_generations(project.layout, "bad")
    rows = pl.read_parquet(str(sealed.path))
    write_parquet(rows.with_columns(output_ids=pl.col("output_ids").list.reverse()), sealed.path)
    assert not make(project, instance, "bad", "training_samples")
    # Its source has changed, and so a law about its prompts blocks.
    assert make(project, instance, "blocked", *GENERATED)
    write_jsonl(tmp_path / "blocked.jsonl", demo_rows("reasoning", 1))
    assert make(project, instance, "blocked", "prompts")
    laws = {dg.AssetCheckKey(dg.AssetKey(law.asset), law.name) for law in laws_of("tokenized_prompts")}
    judging = defs.resolve_job_def(PARTITION_JOB).get_subset(asset_selection=set(), asset_check_selection=laws)
    judged = judging.execute_in_process(
        instance=instance, partition_key="blocked", raise_on_error=False
    ).get_asset_check_evaluations()
    assert "prompts_accounted" in {check.check_name for check in judged if not check.passed}

    both = {"training_samples", "training_export"}
    assert asked() == {name: {"good"} for name in both}
    # Asked for once, whether or not anything comes of it; but an export has its chance when its samples are there.
    assert asked() == {}
    assert make(project, instance, "good", "training_samples")
    assert asked() == {"training_export": {"good"}}
    assert carry_on(project, instance, "good")
    assert project.layout.export("good").exists()
    assert asked() == {}
    # Generated anew, the refused one gets its chance; refused again, it has no export.
    assert make(project, instance, "bad", "raw_generations")
    assert asked() == {name: {"bad"} for name in both}
    assert not carry_on(project, instance, "bad")
    assert not project.layout.export("bad").exists()
    assert asked() == {}
    write_parquet(rows, sealed.path)
    assert make(project, instance, "bad", "raw_generations")
    assert asked() == {name: {"bad"} for name in both}
    assert carry_on(project, instance, "bad")
    assert project.layout.export("bad").exists()
    assert asked() == {}
