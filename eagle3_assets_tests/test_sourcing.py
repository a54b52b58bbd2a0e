"""The record beside the prompts, and the checks that read it, on a real Dagster instance."""

import json
import os
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from eagle3_assets.build import build_defs
from eagle3_assets.jobs import PARTITION_JOB
from eagle3_assets.project import Project
from eagle3_assets.prompts.rows import PromptSourceError, read_partition
from eagle3_assets.sourcing import current_prompts, source_changes, stored_record
from eagle3_assets_tests.conftest import ProjectMaker, demo_rows, write_jsonl


@pytest.fixture
def quick() -> dg.DagsterInstance:
    return dg.DagsterInstance.ephemeral()


def make(project: Project, instance: dg.DagsterInstance, key: str = "d") -> dg.ExecuteInProcessResult:
    job = build_defs(project).resolve_job_def(PARTITION_JOB)
    return job.execute_in_process(
        instance=instance, partition_key=key, asset_selection=[dg.AssetKey("prompts")], raise_on_error=False
    )


def check(project: Project, instance: dg.DagsterInstance, key: str = "d") -> dict[str, dg.AssetCheckEvaluation]:
    """The checks alone, as on another day."""
    keys = {dg.AssetCheckKey(dg.AssetKey("prompts"), name) for name in ("source_rows_accounted", "source_unchanged")}
    job = build_defs(project).resolve_job_def(PARTITION_JOB)
    result = job.get_subset(asset_selection=set(), asset_check_selection=keys).execute_in_process(
        instance=instance, partition_key=key
    )
    return {one.check_name: one for one in result.get_asset_check_evaluations()}


def metadata(result: dg.ExecuteInProcessResult) -> dict[str, Any]:
    [event] = result.asset_materializations_for_node("prompts")
    return {name: value.value for name, value in event.metadata.items()}


def test_every_refused_row_is_in_a_file_and_the_first_are_shown(
    make_project: ProjectMaker, quick: dg.DagsterInstance
) -> None:
    good = demo_rows("chat", 3)
    rows: list[Any] = [good[0], *["{<b>\u202e"] * 30, good[1], {**good[1], "id": "again"}, good[2], good[0]]
    project = make_project(rows, dataset={"refused_limit": 0.9, "skip": 1})
    shown = metadata(make(project, quick))
    figures = ("source_rows", "skipped", "refused", "used", "equal_prompts", "in_other_partitions")
    assert [shown[name] for name in figures] == [35, 1, 30, 4, 1, 0]
    lines = project.layout.refused_rows("d").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["row"] for line in lines] == list(range(2, 32))
    assert json.loads(lines[0]) == {
        "source": "prompts.jsonl",
        "row": 2,
        "conversation_id": None,
        "reason": "is not JSON: Expecting property name enclosed in double quotes at column 2",
    }
    results = check(project, quick)
    assert {name: one.passed for name, one in results.items()} == {
        "source_rows_accounted": True,
        "source_unchanged": True,
    }
    said = results["source_rows_accounted"].description or ""
    assert "35 rows read: 4 used, 30 refused, 1 skipped; first prompts.jsonl:2: is not JSON" in said


def test_keys_that_are_not_read_are_in_the_accounts(make_project: ProjectMaker, quick: dg.DagsterInstance) -> None:
    good = demo_rows("chat", 3)
    project = make_project([{**good[0], "intent": "x"}, {**good[1], "intent": "y", "own|key": 1}, good[2]])
    [table] = [metadata(make(project, quick))["unread_keys"]]
    assert [record.data for record in table.records] == [{"key": "intent", "rows": 2}, {"key": "own|key", "rows": 1}]
    partition = project.partition("d")
    assert current_prompts(project, partition).unread_keys == {"intent": 2, "own|key": 1}


def test_more_refused_than_the_limit_warn_and_nothing_usable_is_an_error(
    make_project: ProjectMaker, quick: dg.DagsterInstance
) -> None:
    project = make_project([*demo_rows("chat", 3), "{"], dataset={"refused_limit": 0.2})
    make(project, quick)
    result = check(project, quick)["source_rows_accounted"]
    assert (result.passed, result.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert "25.00% refused is more than refused_limit (20.00%)" in (result.description or "")
    project = make_project(demo_rows("chat", 3), dataset={"skip": 7})
    make(project, quick)
    said = check(project, quick)["source_rows_accounted"].description or ""
    assert "3 skipped; `skip` leaves out every row" in said.replace("\\", "")
    project = make_project(["{", "{"], dataset={"refused_limit": 1.0})
    make(project, quick)
    result = check(project, quick)["source_rows_accounted"]
    assert (result.passed, result.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "no row is usable" in (result.description or "")


def test_what_is_stored_is_held_against_the_source_as_it_is_now(
    make_project: ProjectMaker, quick: dg.DagsterInstance, tmp_path: Path
) -> None:
    project = make_project(demo_rows("chat", 4))
    make(project, quick)
    path = tmp_path / "prompts.jsonl"
    assert check(project, quick)["source_unchanged"].passed

    os.utime(path, (1, 1))  # another time, the same content
    assert check(project, quick)["source_unchanged"].passed

    write_jsonl(path, demo_rows("chat", 5))
    result = check(project, quick)["source_unchanged"]
    assert not result.passed
    assert "prompts.jsonl has another content" in (result.description or "")

    other = make_project(demo_rows("chat", 4), dataset={"turns": "all", "max_prompt_tokens": 9})
    said = check(other, quick)["source_unchanged"].description or ""
    assert "turns was 'last' and is 'all'" in said.replace("\\", "")
    assert "max_prompt_tokens" not in said  # it decides no prompt


def test_what_comes_behind_the_limit_is_no_change(
    make_project: ProjectMaker, quick: dg.DagsterInstance, tmp_path: Path
) -> None:
    (tmp_path / "set").mkdir()
    write_jsonl(tmp_path / "set" / "b.jsonl", demo_rows("chat", 4))
    for limit, unchanged in ((4, True), (5, False)):
        project = make_project([], dataset={"source": "set", "limit": limit})
        make(project, quick)
        write_jsonl(tmp_path / "set" / "c.jsonl", demo_rows("chat", 4))
        assert check(project, quick)["source_unchanged"].passed == unchanged
        (tmp_path / "set" / "c.jsonl").unlink()


def test_a_record_of_other_prompts_is_not_believed(make_project: ProjectMaker, quick: dg.DagsterInstance) -> None:
    project = make_project(demo_rows("chat", 4))
    make(project, quick)
    file = project.layout.asset_file("prompts", "d")
    pl.read_parquet(str(file)).head(3).write_parquet(str(file))
    results = check(project, quick)
    assert not any(one.passed for one in results.values())
    assert "is of other prompts" in (results["source_rows_accounted"].description or "")
    project.layout.source_record("d").unlink()
    assert "is not there" in (check(project, quick)["source_rows_accounted"].description or "")


def test_unchanged_prompts_are_taken_from_storage_and_not_read_again(
    make_project: ProjectMaker, quick: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    project = make_project([*demo_rows("chat", 4), "{"])
    make(project, quick)
    partition = project.partition("d")
    read = current_prompts(project, project.partition("d-trial"))  # not stored
    assert read.accounts.used == 2

    def never(*_: object) -> None:
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr("eagle3_assets.sourcing.read_partition", never)
        stored = current_prompts(project, partition)
    write_jsonl(tmp_path / "prompts.jsonl", [*demo_rows("chat", 5), "{"])
    record = stored_record(project, partition)
    assert record and source_changes(project, partition, record) == ["prompts.jsonl has another content"]
    again = current_prompts(project, partition)
    assert (len(stored.rows), stored.accounts.refused, len(again.rows)) == (4, 1, 5)
    assert stored.rows.equals(again.rows.head(4))


def test_a_source_that_changed_since_its_rows_were_indexed_is_read_as_it_is_now(
    make_project: ProjectMaker, quick: dg.DagsterInstance, tmp_path: Path
) -> None:
    rows = [{"id": f"c{i}", "messages": [{"role": "user", "content": f"What is {i}?"}]} for i in range(10, 50)]
    project = make_project([*rows, "{"], dataset={"shards": 2})
    path = tmp_path / "prompts.jsonl"
    before = path.stat()
    keys = list(project.partitions)
    make(project, quick, keys[0])
    # As large as before, and with the same time: whose rows they are shows only when they were read.
    write_jsonl(path, ["{", *reversed(rows)])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    shown = metadata(make(project, quick, keys[1]))
    expected = read_partition(project.partition(keys[1]), 20)
    assert 0 < shown["used"] < 40
    assert [shown[name] for name in ("source_rows", "used", "refused", "in_other_partitions")] == [
        41,
        expected.accounts.used,
        1,
        expected.accounts.elsewhere,
    ]
    stored = pl.read_parquet(str(project.layout.asset_file("prompts", keys[1])))
    assert stored.equals(expected.rows)
    refused = project.layout.refused_rows(keys[1]).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["row"] for line in refused] == [1]


def test_a_source_that_cannot_be_read_leaves_everything_as_it_was(
    make_project: ProjectMaker, quick: dg.DagsterInstance, tmp_path: Path
) -> None:
    project = make_project([*demo_rows("chat", 4), "{"])
    make(project, quick)
    folder = Path(str(project.layout.root)) / "prompts"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (tmp_path / "prompts.jsonl").unlink()
    result = make(project, quick)
    [failure] = [event for event in result.all_events if event.is_step_failure and event.step_key == "prompts"]
    assert failure.step_failure_data.user_failure_data
    said = failure.step_failure_data.user_failure_data.description or ""
    assert "prompts.jsonl: the dataset's source cannot be read: No such file" in said
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    with pytest.raises(PromptSourceError):
        current_prompts(project, project.partition("d"))


def test_a_prompt_over_the_datasets_limit_is_refused_with_its_length(
    make_project: ProjectMaker, quick: dg.DagsterInstance
) -> None:
    rows = [
        {"id": "short", "messages": [{"role": "user", "content": "Hi"}]},
        {"id": "long", "messages": [{"role": "user", "content": "word " * 200}]},
    ]
    project = make_project(rows, dataset={"max_prompt_tokens": 100})
    job = build_defs(project).resolve_job_def(PARTITION_JOB)
    job.execute_in_process(
        instance=quick,
        partition_key="d",
        asset_selection=[dg.AssetKey("prompts"), dg.AssetKey("tokenized_prompts")],
        raise_on_error=False,
    )
    made = pl.read_parquet(str(project.layout.asset_file("tokenized_prompts", "d")))
    assert made["status"].to_list() == ["ready", "refused"]
    length = made["prompt_tokens"][1]
    assert made["reason"][1] == f"too long: {length} tokens are more than max_prompt_tokens, 100"
    assert len(made["prompt_ids"][1]) == length
