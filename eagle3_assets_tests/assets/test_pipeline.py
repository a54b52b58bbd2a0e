"""The whole pipeline on a real Dagster instance with the packaged target, and data broken by hand."""

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from eagle3_assets.assets.common import LINE
from eagle3_assets.build import build_defs
from eagle3_assets.cli.tables import remarks
from eagle3_assets.contract import (
    DECODED_PREVIEWS,
    LENGTH_STATISTICS,
    PROMPTS,
    RAW_GENERATIONS,
    TOKENIZED_PROMPTS,
    TRAINING_SAMPLES,
)
from eagle3_assets.generating import Wishes
from eagle3_assets.generation.progress import Progress
from eagle3_assets.generation.sealed import scan_sealed
from eagle3_assets.identity import canonical_json
from eagle3_assets.jobs import PARTITION_JOB
from eagle3_assets.project import Project
from eagle3_assets.resources import ProgressListener
from eagle3_assets.running import PartitionRun, materialize
from eagle3_assets.storage.files import scan_parquet, sealed_generations, write_parquet
from eagle3_assets.tokens.laws import LAWS
from eagle3_assets_tests.conftest import DEMO, ProjectMaker, demo_rows, write_jsonl

ASSETS = {
    "prompts": PROMPTS,
    "tokenized_prompts": TOKENIZED_PROMPTS,
    "decoded_previews": DECODED_PREVIEWS,
    "length_statistics": LENGTH_STATISTICS,
    "training_samples": TRAINING_SAMPLES,
}


def run(project: Project, instance: dg.DagsterInstance, key: str = "d", **wishes: bool) -> PartitionRun:
    [made] = materialize(project, [key], instance, wishes=Wishes(**wishes))
    return made


def run_some(
    project: Project,
    instance: dg.DagsterInstance,
    *assets: str,
    config: dict[str, Any] | None = None,
    key: str = "d",
    listener: ProgressListener | None = None,
) -> dg.ExecuteInProcessResult:
    """Some assets and their checks, as a person would select them in the UI."""
    job = build_defs(project, listener=listener).resolve_job_def(PARTITION_JOB)
    return job.execute_in_process(
        instance=instance,
        partition_key=key,
        asset_selection=[dg.AssetKey(a) for a in assets],
        raise_on_error=False,
        run_config={"ops": {"raw_generations": {"config": config}}} if config else None,
    )


def frame(project: Project, asset: str, key: str = "d") -> pl.DataFrame:
    return pl.read_parquet(str(project.layout.asset_file(asset, key)))


def raw(project: Project, key: str = "d") -> pl.DataFrame:
    return scan_sealed(sealed_generations(project.layout, key)).collect()


def statuses(run: PartitionRun) -> dict[str, str]:
    return {check.name: check.status for check in run.checks}


def failures(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    return {
        event.step_key or "": event.step_failure_data.user_failure_data.description or ""
        for event in result.all_events
        if event.is_step_failure and event.step_failure_data.user_failure_data
    }


def test_every_asset_is_made_and_every_law_has_a_result(
    make_project: ProjectMaker, instance: dg.DagsterInstance
) -> None:
    project = make_project()
    made = run(project, instance)
    assert made.good, made
    assert set(statuses(made)) == {law.name for law in LAWS} | {"source_rows_accounted", "source_unchanged"}
    for asset, schema in ASSETS.items():
        assert frame(project, asset).schema == schema, asset
    page = project.layout.page("d").read_text(encoding="utf-8")
    assert "4 of 4 outputs" in page
    # The page has the verdicts of the checks, those about tools that prompts declare too.
    on_page = dict(re.findall(r'data-law="([^"]+)" data-status="([^"]+)"', page))
    unjudged = {law for law, status in statuses(made).items() if status == "not_judged"}
    assert {law for law, status in on_page.items() if status == "not_judged"} == unjudged & on_page.keys()
    event = instance.get_latest_materialization_event(dg.AssetKey("decoded_previews"))
    assert event and event.asset_materialization
    assert event.asset_materialization.metadata["page"].value == str(project.layout.page("d"))
    assert event.asset_materialization.metadata["page_bytes"].value == len(page.encode())
    rows = raw(project)
    assert rows.schema == RAW_GENERATIONS
    assert rows["status"].to_list() == ["generated"] * 4
    samples = frame(project, "training_samples")
    for sample, row in zip(samples.iter_rows(named=True), rows.iter_rows(named=True), strict=True):
        assert sample["input_ids"] == row["prompt_ids"] + row["output_ids"]
        assert sample["loss_mask"] == [0] * len(row["prompt_ids"]) + [1] * len(row["output_ids"])
        assert json.loads(sample["metadata"])["source_row"] == int(sample["id"].split(":")[0][-2:]) + 1


def test_materializing_again_generates_nothing_twice(make_project: ProjectMaker, instance: dg.DagsterInstance) -> None:
    project = make_project()
    run(project, instance)
    before, file = raw(project), sealed_generations(project.layout, "d").path
    again = run(project, instance)
    assert again.good
    assert sealed_generations(project.layout, "d").path == file
    assert raw(project).equals(before)
    event = instance.get_latest_materialization_event(dg.AssetKey("raw_generations"))
    assert event and event.asset_materialization
    assert event.asset_materialization.metadata["generated_in_this_run"].value == 0
    assert event.asset_materialization.metadata["kept_from_before"].value == 4


@pytest.mark.slow
def test_more_rows_in_the_source_are_generated_and_the_old_ones_kept(
    make_project: ProjectMaker, instance: dg.DagsterInstance
) -> None:
    run(make_project(demo_rows("function_calling", 3)), instance)
    project = make_project(demo_rows("function_calling", 5))
    assert run(project, instance).good
    assert raw(project)["sample_id"].to_list() == frame(project, "prompts")["sample_id"].to_list()
    event = instance.get_latest_materialization_event(dg.AssetKey("raw_generations"))
    assert event and event.asset_materialization
    assert event.asset_materialization.metadata["generated_in_this_run"].value == 2


def test_one_changed_id_is_named_refused_and_hides_nothing(
    make_project: ProjectMaker, instance: dg.DagsterInstance
) -> None:
    project = make_project()
    run(project, instance)
    rows, path = raw(project), sealed_generations(project.layout, "d").path
    victim = rows["sample_id"][2]
    ids = rows["output_ids"].to_list()
    ids[2][5] = ids[2][5] + 1 if ids[2][5] > 300 else 301  # an ordinary id of the demo's vocabulary
    write_parquet(rows.with_columns(pl.Series("output_ids", ids, dtype=pl.List(pl.Int32))), path)

    training_before = frame(project, "training_samples")
    result = run_some(project, instance, "decoded_previews", "length_statistics", "training_samples")
    said = failures(result)
    assert set(said) == {"training_samples"}
    assert "stored_as_captured" in said["training_samples"]
    assert victim in said["training_samples"]
    assert {e.asset_key.path[-1] for e in result.get_asset_materialization_events() if e.asset_key} == {
        "decoded_previews",
        "length_statistics",
    }
    assert frame(project, "training_samples").equals(training_before)

    again = run(project, instance)
    assert statuses(again)["stored_as_captured"] == "failed"
    assert [name for name, status in statuses(again).items() if status == "failed"] == ["stored_as_captured"]
    [check] = [check for check in again.checks if check.name == "stored_as_captured"]
    assert victim in check.said


@pytest.mark.slow
def test_outputs_of_other_prompts_are_refused_until_generated_again(
    make_project: ProjectMaker, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    run(make_project(), instance)
    template = (DEMO / "model" / "chat_template.jinja").read_text(encoding="utf-8")
    (tmp_path / "other.jinja").write_text(template.replace("tool_declare", "tools"), encoding="utf-8")
    project = make_project(target={"model": "demo", "chat_template": "other.jinja"})

    said = failures(run_some(project, instance, "tokenized_prompts", "training_samples"))
    assert set(said) == {"training_samples"}
    assert "prompt_as_generated" in said["training_samples"]

    refused = run(project, instance)
    assert any("chat_template" in failure and "regenerate" in failure for failure in refused.failures), refused.failures

    old = sealed_generations(project.layout, "d").path
    assert run(project, instance, regenerate=True).good
    assert sealed_generations(project.layout, "d").path != old
    assert old.exists()


def test_a_broken_structural_token_blocks_generation(
    make_project: ProjectMaker, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    model = shutil.copytree(DEMO / "model", tmp_path / "broken")
    tokenizer = json.loads((model / "tokenizer.json").read_text(encoding="utf-8"))
    # In the vocabulary by name, and yet no text ever becomes it: as ordinary text it falls into pieces.
    [end] = [token for token in tokenizer["added_tokens"] if token["content"] == "</think>"]
    tokenizer["added_tokens"].remove(end)
    tokenizer["model"]["vocab"]["</think>"] = end["id"]
    (model / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    project = make_project(target={"model": "broken"})
    made = run(project, instance)
    assert statuses(made)["tokenizer_canary"] == "failed"
    assert not any(check.asset == "raw_generations" for check in made.checks)
    assert not project.layout.generations("d").exists()
    # In a later run Dagster counts the prompts as materialized; the asset looks for itself.
    said = failures(run_some(project, instance, "raw_generations"))
    assert "tokenizer_canary" in said["raw_generations"]
    assert not project.layout.generations("d").exists()


def test_trial_sampling_is_for_trials_alone(make_project: ProjectMaker, instance: dg.DagsterInstance) -> None:
    project = make_project()
    run_some(project, instance, "prompts", "tokenized_prompts")
    said = failures(run_some(project, instance, "raw_generations", config={"trial_sampling": {"max_new_tokens": 5}}))
    assert "d, which is no trial" in said["raw_generations"]
    assert "d-trial" in said["raw_generations"]

    assert run(project, instance, "d-trial").good
    assert len(raw(project, "d-trial")) == 2
    tried = run_some(
        project, instance, "raw_generations", config={"trial_sampling": {"max_new_tokens": 5}}, key="d-trial"
    )
    assert tried.success
    assert raw(project, "d-trial")["completion_tokens"].max() == 5

    wrong = run_some(
        project, instance, "raw_generations", config={"trial_sampling": {"temperature": -1.0}}, key="d-trial"
    )
    assert "temperature" in failures(wrong)["raw_generations"]


def test_bad_lines_and_prompts_without_room_are_accounted_for(
    make_project: ProjectMaker, instance: dg.DagsterInstance
) -> None:
    good = demo_rows("chat", 2)
    long = {"id": "long", "messages": [{"role": "user", "content": "a very long word " * 2000}]}
    project = make_project([good[0], "{broken", long, good[1]])
    made = run(project, instance)
    checks = {check.name: check for check in made.checks}
    assert checks["source_rows_accounted"].status == "warned"
    assert "prompts.jsonl:2: is not JSON" in checks["source_rows_accounted"].said
    assert checks["conservation"].status == "passed"
    rows = raw(project)
    assert rows["status"].to_list() == ["generated", "refused_prompt", "generated"]
    assert "leave no room in the target's context" in rows["reason"][1]


@pytest.mark.slow
def test_a_source_that_changed_is_noticed(
    make_project: ProjectMaker, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    project = make_project()
    run(project, instance)
    write_jsonl(tmp_path / "prompts.jsonl", demo_rows("function_calling", 3))
    defs = build_defs(project)
    job = defs.resolve_job_def(PARTITION_JOB)
    key = dg.AssetCheckKey(dg.AssetKey("prompts"), "source_unchanged")
    result = job.get_subset(asset_selection=set(), asset_check_selection={key}).execute_in_process(
        instance=instance, partition_key="d"
    )
    [evaluation] = result.get_asset_check_evaluations()
    assert not evaluation.passed
    assert "The source has changed" in (evaluation.description or "")
    assert "prompts.jsonl has another content" in (evaluation.description or "")


@pytest.mark.slow
def test_a_template_that_refuses_everything_is_not_called_good(
    make_project: ProjectMaker, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    (tmp_path / "strict.jinja").write_text("{{ raise_exception('never') }}", encoding="utf-8")
    made = run(make_project(target={"model": "demo", "chat_template": "strict.jinja"}), instance)
    assert not made.good
    assert not any(check.status == "passed" for check in made.checks if check.asset == "raw_generations")
    [failure] = made.failures
    assert failure.startswith("raw_generations: nothing is generated: ")
    reason = "commonest reason, 4 of 4: the chat template refused it: TemplateError: never"
    assert remarks([made])[-1].plain == f"d: {reason}"


@pytest.mark.slow
def test_samples_whose_conversation_is_gone_are_refused(
    make_project: ProjectMaker, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    project = make_project()
    run(project, instance)
    write_jsonl(tmp_path / "prompts.jsonl", demo_rows("function_calling", 3))
    said = failures(run_some(project, instance, "prompts", "training_samples"))
    assert "no prompts of the source any more" in said["training_samples"]
    # Nor is anything generated for prompts that are not the source's.
    said = failures(run_some(project, instance, "raw_generations"))
    assert "prompts_accounted" in said["raw_generations"]


def test_prompts_that_the_template_refuses_now_are_not_sent(
    make_project: ProjectMaker, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    run_some(make_project(), instance, "prompts", "tokenized_prompts")
    (tmp_path / "strict.jinja").write_text("{{ raise_exception('never') }}", encoding="utf-8")
    project = make_project(target={"model": "demo", "chat_template": "strict.jinja"})
    said = failures(run_some(project, instance, "raw_generations"))
    assert "prompt_reproducible" in said["raw_generations"]


def test_the_first_prompt_is_read_in_place(make_project: ProjectMaker, instance: dg.DagsterInstance) -> None:
    result = run_some(make_project(), instance, "prompts", "tokenized_prompts")
    [made] = [e for e in result.get_asset_materialization_events() if e.step_key == "tokenized_prompts"]
    shown = str(made.materialization.metadata["first_prompt"].value)
    assert "<|im_user|>" in shown
    assert max(map(len, shown.splitlines())) <= LINE


def test_a_damaged_page_of_the_sealed_file_is_one_clear_failure(
    make_project: ProjectMaker, instance: dg.DagsterInstance
) -> None:
    project = make_project()
    run(project, instance)
    path = Path(str(sealed_generations(project.layout, "d").path))
    data = bytearray(path.read_bytes())
    data[4:2000] = b"\xff" * 1996
    path.write_bytes(bytes(data))
    said = failures(run_some(project, instance, "decoded_previews", "training_samples"))
    assert set(said) == {"decoded_previews", "training_samples"}
    assert all("Restore it from a copy" in text for text in said.values()), said


@pytest.mark.slow
def test_failed_prompts_are_asked_again_when_told(make_project: ProjectMaker, instance: dg.DagsterInstance) -> None:
    project = make_project()
    run(project, instance)
    rows, path = raw(project), sealed_generations(project.layout, "d").path
    failed = pl.col("sample_id") == rows["sample_id"][1]
    harmed = rows.with_columns(
        status=pl.when(failed).then(pl.lit("failed")).otherwise("status"),
        reason=pl.when(failed).then(pl.lit("the server was gone")).otherwise("reason"),
        output_ids=pl.when(~failed).then("output_ids"),
    )
    write_parquet(harmed, path)
    refused = run(project, instance)
    assert statuses(refused)["conservation"] == "failed"
    assert (refused.generated, refused.kept) == (0, 4)
    again = run(project, instance, retry_failed=True)
    assert again.good, again
    assert (again.generated, again.kept) == (1, 3)
    assert raw(project)["output_ids"].to_list() == rows["output_ids"].to_list()


@pytest.mark.slow
def test_a_broken_row_alone_is_asked_again_when_told(make_project: ProjectMaker, instance: dg.DagsterInstance) -> None:
    project = make_project()
    run(project, instance)
    rows, path = raw(project), sealed_generations(project.layout, "d").path
    hit = pl.col("sample_id") == rows["sample_id"][2]
    changed = pl.when(hit).then(pl.col("output_ids").list.reverse()).otherwise("output_ids")
    write_parquet(rows.with_columns(output_ids=changed), path)
    refused = run(project, instance)
    assert statuses(refused)["stored_as_captured"] == "failed"
    mended = run(project, instance, retry_broken=True)
    assert mended.good, mended
    assert (mended.generated, mended.kept) == (1, 3)
    assert raw(project)["output_ids"].to_list() == rows["output_ids"].to_list()


@pytest.mark.slow
def test_the_whole_pipeline_on_an_object_store(make_project: ProjectMaker, instance: dg.DagsterInstance) -> None:
    project = make_project(demo_rows("chat", 2), storage={"root": "memory://bucket/eagle3"})
    assert run(project, instance).good
    samples = scan_parquet(project.layout.asset_file("training_samples", "d"), asset="training_samples").collect()
    assert len(samples) == 2
    assert run(project, instance).kept == 2


@pytest.mark.slow
def test_a_source_id_is_shown_as_text(make_project: ProjectMaker, instance: dg.DagsterInstance) -> None:
    row = {**demo_rows("chat", 1)[0], "id": "![x](http://evil/p.png) [click](http://evil)"}
    assert run(make_project([row]), instance).good
    event = instance.get_latest_materialization_event(dg.AssetKey("decoded_previews"))
    assert event and event.asset_materialization
    shown = str(event.asset_materialization.metadata["preview_1"].value)
    assert shown.startswith("`![x](http://evil/p.png) [click](http://evil):1:0`")


def test_records_that_are_gone_from_every_row_are_no_pass(
    make_project: ProjectMaker, instance: dg.DagsterInstance
) -> None:
    project = make_project(demo_rows("chat", 2))
    run(project, instance)
    rows, path = raw(project), sealed_generations(project.layout, "d").path
    for column, law, said in (
        ("ids_sha256", "stored_as_captured", "its hash is not recorded"),
        ("completion_tokens", "completion_count", "completion_tokens is not recorded"),
        ("finish_type", "finish_known", "finish_type is not recorded"),
        ("sampling", "sampling_recorded", "its sampling parameters are not recorded"),
        ("identity", "sampling_recorded", "its identity is not recorded, the file's is "),
        ("request_key", "sampling_recorded", "its request key is not recorded"),
    ):
        write_parquet(rows.with_columns(pl.lit(None, rows.schema[column]).alias(column)), path)
        refused = failures(run_some(project, instance, "training_samples"))["training_samples"]
        assert f"{law}: 2 of 2 samples break it" in refused
        assert said in refused


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"identity": "0" * 16}, "its identity is 0000000000000000, the file's is "),
        ({"sampling": {"temperature": 0.5}}, "not that of the file's identity: temperature is 0.5, not 0.0"),
    ],
)
def test_a_row_of_another_request_is_noticed(
    make_project: ProjectMaker, instance: dg.DagsterInstance, changes: dict[str, Any], said: str
) -> None:
    project = make_project(demo_rows("chat", 3))
    run(project, instance)
    rows, path = raw(project), sealed_generations(project.layout, "d").path
    second = rows["sample_id"][1]
    if isinstance(changes.get("sampling"), dict):
        changes = {"sampling": canonical_json(json.loads(rows["sampling"][1]) | changes["sampling"])}
    hit = pl.col("sample_id") == second
    write_parquet(rows.with_columns(**{k: pl.when(hit).then(pl.lit(v)).otherwise(k) for k, v in changes.items()}), path)
    checks = {check.name: check for check in run(project, instance).checks}
    assert checks["sampling_recorded"].status == "failed"
    assert f"{second}: " in checks["sampling_recorded"].said
    assert said in checks["sampling_recorded"].said


def test_a_row_without_its_ids_hides_no_other(make_project: ProjectMaker, instance: dg.DagsterInstance) -> None:
    project = make_project()
    run(project, instance)
    rows, path = raw(project), sealed_generations(project.layout, "d").path
    first = pl.col("sample_id") == rows["sample_id"][0]
    write_parquet(rows.with_columns(output_ids=pl.when(~first).then("output_ids")), path)
    result = run_some(project, instance, "decoded_previews", "length_statistics", "training_samples")
    assert set(failures(result)) == {"training_samples"}
    assert frame(project, "length_statistics")["samples"][0] == 3


def test_a_shard_without_rows_is_no_failure(make_project: ProjectMaker, instance: dg.DagsterInstance) -> None:
    project = make_project(demo_rows("chat", 1), dataset={"shards": 3})
    keys = [key for key in project.partitions if "trial" not in key]
    made = list(materialize(project, keys, instance))
    assert not [failure for one in made for failure in one.failures]
    assert sorted(one.generated or 0 for one in made) == [0, 0, 1]


def test_prompts_that_change_while_a_run_generates_cost_nothing(
    make_project: ProjectMaker, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eagle3_assets.generation import loop, sealing

    project = make_project()
    run_some(project, instance, "prompts", "tokenized_prompts")
    tokenized = project.layout.asset_file("tokenized_prompts", "d")
    whole, seal = frame(project, "tokenized_prompts"), sealing.seal

    def seal_other_prompts(*arguments: Any, **named: Any) -> Any:
        write_parquet(whole.head(2), tokenized)
        return seal(*arguments, **named)

    monkeypatch.setattr(loop, "seal", seal_other_prompts)
    said = failures(run_some(project, instance, "raw_generations"))
    assert "changed while this run generated" in said["raw_generations"]
    monkeypatch.undo()
    write_parquet(whole, tokenized)
    made = run(project, instance)
    assert made.good, made
    assert (made.generated, made.kept) == (0, 4)


def test_an_interrupted_run_starts_no_other(make_project: ProjectMaker, instance: dg.DagsterInstance) -> None:
    def interrupt(partition: str, now: Progress) -> None:
        assert partition == "d"
        if now.done:
            os.kill(os.getpid(), signal.SIGINT)

    project = make_project(engine={"batch_size": 1, "threads": 1})
    runs = materialize(project, ["d", "d-trial"], instance, listener=ProgressListener(interrupt))
    with pytest.raises(KeyboardInterrupt):
        list(runs)
    assert not project.layout.generations("d-trial").exists()
    made = run(project, instance)
    assert made.good, made
    assert made.kept


def test_an_empty_source_makes_empty_frames_and_an_error(
    make_project: ProjectMaker, instance: dg.DagsterInstance
) -> None:
    made = run(make_project([]), instance)
    checks = {check.name: check for check in made.checks}
    assert checks["source_rows_accounted"].status == "failed"
    assert not made.good
    assert "passed" not in {c.status for c in made.checks if c.name in ("stop_token_last", "completion_count")}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"model": "nowhere"}, "there is no directory"),
        ({"model": "."}, "config.json: cannot be read: No such file"),
        ({"model": "demo", "tokenizer": "nowhere"}, "target.tokenizer: there is no directory"),
        (
            {"model": "demo", "profile": "chatml"},
            "target.profile: profile 'chatml': the tokenizer has no token '<|im_start|>'",
        ),
        ({"model": "demo", "chat_template": "nowhere.jinja"}, "target.chat_template: there is no file"),
    ],
)
def test_a_wrong_target_is_one_clear_failure(
    make_project: ProjectMaker, instance: dg.DagsterInstance, target: dict[str, str], said: str
) -> None:
    made = run(make_project(target=target), instance)
    assert not made.good
    assert [failure for failure in made.failures if said in failure], made.failures


def test_a_storage_that_takes_nothing_is_one_clear_failure(
    make_project: ProjectMaker, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("a file where the folder should be", encoding="utf-8")
    made = run(make_project(), instance)
    [failure] = made.failures
    assert "cannot be written" in failure
    assert "prompts" in failure


def test_a_stop_id_that_the_target_does_not_have_is_sent_to_nobody(
    make_project: ProjectMaker, instance: dg.DagsterInstance
) -> None:
    made = run(make_project(dataset={"sampling": {"stop_token_ids": [5, 2048]}}), instance)
    assert "sampling.stop_token_ids: 2048 is no id of the target, whose vocabulary has 2,048" in "".join(made.failures)
    assert made.generated is None


def test_a_long_rendering_says_how_far_it_is(
    make_project: ProjectMaker, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eagle3_assets.assets.tokenized_prompts.TOLD_EVERY_S", 0.0)
    rows = [{"id": n, "messages": [{"role": "user", "content": "Hello"}]} for n in range(2_500)]
    seen: list[tuple[str, str, int, int]] = []
    listener = ProgressListener(tell_prompts=lambda *now: seen.append(now))
    result = run_some(make_project(rows), instance, "prompts", "tokenized_prompts", listener=listener)
    assert result.success
    rendered = [("d", "rendered", 2_000, 2_500), ("d", "rendered", 2_500, 2_500)]
    judged = [("d", "judged", 2_000, 2_500), ("d", "judged", 2_500, 2_500)]
    assert seen == [*rendered, *judged]
    said = [entry.user_message for entry in instance.all_logs(result.run_id)]
    told = [line for line in said if line.startswith("rendered ")]
    assert told == ["rendered 2,000 of 2,500 prompts", "rendered 2,500 of 2,500 prompts"]
