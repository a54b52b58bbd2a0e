"""A refused partition tells its reader on the asset's page what refuses it, and does not look done."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest
from typer.testing import CliRunner

from eagle3_assets.assets.refusals import refusal_metadata
from eagle3_assets.cli import app
from eagle3_assets.storage.files import sealed_generations, write_parquet
from eagle3_assets_tests.assets.test_pipeline import failures, run_some
from eagle3_assets_tests.conftest import ProjectMaker, demo_rows, write_jsonl
from eagle3_assets_tests.pages import hostile

GENERATED = ("prompts", "tokenized_prompts", "raw_generations")


def told(result: dg.ExecuteInProcessResult, instance: dg.DagsterInstance, asset: str) -> Mapping[str, Any]:
    """Metadata of an asset's failure, the same as of its last observation, which is of this run and partition."""
    [failed] = [event for event in result.all_events if event.is_step_failure]
    assert failed.step_key == asset
    data = failed.step_failure_data.user_failure_data
    assert data
    observed = instance.fetch_observations(dg.AssetKey(asset), limit=1).records[0]
    assert observed.run_id == result.run_id
    assert observed.asset_observation
    assert observed.asset_observation.partition == "d"
    assert observed.asset_observation.metadata == data.metadata
    return data.metadata


def test_a_refused_partition_says_what_a_reader_needs_and_is_not_done(
    make_project: ProjectMaker, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    project = make_project(demo_rows("chat", 3))
    assert run_some(project, instance, *GENERATED).success
    sealed = sealed_generations(project.layout, "d")
    rows = pl.read_parquet(str(sealed.path))
    hit = pl.col("sample_id") == rows["sample_id"][1]
    write_parquet(
        rows.with_columns(output_ids=pl.when(hit).then(pl.col("output_ids").list.reverse()).otherwise("output_ids")),
        sealed.path,
    )
    refused = run_some(project, instance, "training_samples")
    metadata = told(refused, instance, "training_samples")
    table = metadata["refused_by"].value.records
    laws = {record.data["law"]: record.data for record in table}
    assert laws["stored_as_captured"] == {
        "law": "stored_as_captured",
        "samples": 1,
        "of": 3,
        "first": rows["sample_id"][1],
    }
    assert metadata["rows_judged"].value == 3
    assert metadata["rows_quarantined"].value == 1
    assert "retry_broken" in metadata["what_to_do"].value.replace("\\", "")
    assert "1 of 3 samples break it" in metadata["why"].value
    assert metadata["state"].value == "refused: nothing is written"
    # The command is one that can be pasted.
    command = shlex.split(metadata["look"].value)
    assert command[0] == "eagle3-assets"
    shown = CliRunner().invoke(app, [*command[1:], "--config", str(tmp_path / "eagle3.yaml")])
    assert shown.exit_code == 0
    assert f"sample_id={rows['sample_id'][1]}" in shown.stdout

    key = dg.AssetKey("training_samples")
    assert instance.get_materialized_partitions(key) == set()
    assert instance.get_latest_materialization_event(key) is None


@pytest.mark.slow
def test_an_export_of_what_is_refused_by_now_says_the_same(
    make_project: ProjectMaker, instance: dg.DagsterInstance
) -> None:
    project = make_project(demo_rows("chat", 3))
    assert run_some(project, instance, *GENERATED, "training_samples").success
    sealed = sealed_generations(project.layout, "d")
    rows = pl.read_parquet(str(sealed.path))
    write_parquet(rows.with_columns(output_ids=pl.col("output_ids").list.reverse()), sealed.path)
    exported = told(run_some(project, instance, "training_export"), instance, "training_export")
    assert {record.data["samples"] for record in exported["refused_by"].value.records} == {3}
    assert instance.get_materialized_partitions(dg.AssetKey("training_export")) == set()


@pytest.mark.slow
def test_what_keeps_prompts_from_being_sent_is_told_alike(
    make_project: ProjectMaker, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    project = make_project(demo_rows("chat", 3))
    assert run_some(project, instance, "prompts", "tokenized_prompts").success
    write_jsonl(tmp_path / "prompts.jsonl", demo_rows("chat", 2))
    assert run_some(project, instance, "prompts").success
    result = run_some(project, instance, "raw_generations")
    assert failures(result)["raw_generations"].startswith("nothing is generated: prompts_accounted")
    metadata = told(result, instance, "raw_generations")
    assert [record.data["law"] for record in metadata["refused_by"].value.records] == [
        "prompts_accounted",
        "prompt_reproducible",
    ]
    assert metadata["look"].value == "eagle3-assets prompt d --ids --id demo-chat-02:2:0"


def test_laws_that_only_together_quarantine_too_much_are_all_named() -> None:
    outputs = {f"g{n}:1:0": (hostile.encoded(f"So {n}.</think>It is {n}.<|im_end|>"), "stop") for n in range(196)}
    outputs |= {
        f"cut{n}:1:0": (hostile.encoded(f"So {n}.</think>It is{' very' * n}<|im_end|>"), "length") for n in range(2)
    }
    outputs |= {f"open{n}:1:0": (hostile.encoded(f"Two{n}.</think>a</think>b<|im_end|>"), "stop") for n in range(2)}
    report = hostile.inspection(outputs).report
    assert report.refusals
    assert not any(verdict.refuses for verdict in report.verdicts)
    metadata = refusal_metadata("d", report.refusals, report)
    counted = {record.data["law"]: record.data["samples"] for record in metadata["refused_by"].value.records}
    assert counted["reasoning_closed"] == 2
    assert len(counted) > 1
    assert 0 not in counted.values()

    # The same where another law refuses besides: either reason has its laws.
    refusing = replace(report["stored_as_captured"], refuses=True, violations=1)
    both = replace(report, verdicts=tuple(refusing if v.law == refusing.law else v for v in report.verdicts))
    assert len(both.refusals) == len(report.refusals) + 1
    records = refusal_metadata("d", both.refusals, both)["refused_by"].value.records
    assert {record.data["law"] for record in records} == {*counted, "stored_as_captured"}


def test_a_law_that_only_quarantines_within_the_limit_is_not_named_as_the_reason() -> None:
    outputs = {f"g{n}:1:0": (hostile.encoded(f"So {n}.</think>It is {n}.<|im_end|>"), "stop") for n in range(199)}
    outputs["cut:1:0"] = (hostile.encoded("So.</think>It is.<|im_end|>"), "length")
    report = hostile.inspection(outputs).report
    assert report.quarantined
    assert not report.refusals
    metadata = refusal_metadata("d", ["prompts: 3 generated samples are no prompts of the source any more."], report)
    assert "no prompts of the source" in metadata["why"].value
    assert not {"refused_by", "what_to_do"} & set(metadata)
    assert metadata["look"] == "eagle3-assets decode d"


def test_no_command_names_a_row_without_id() -> None:
    outputs = {f"g{n}:1:0": (hostile.encoded(f"So {n}.</think>It is {n}.<|im_end|>"), "stop") for n in range(3)}
    report = hostile.inspection(outputs).report
    refusing = replace(report["stored_as_captured"], refuses=True, violations=1)
    finding = {"sample_id": None, "law": refusing.law.name, "severity": "error", "index": None, "detail": "x"}
    report = replace(
        report,
        verdicts=tuple(refusing if v.law == refusing.law else v for v in report.verdicts),
        findings=pl.DataFrame([finding], schema=report.findings.schema),
    )
    assert refusal_metadata("d", report.refusals, report)["look"] == "eagle3-assets decode d"
