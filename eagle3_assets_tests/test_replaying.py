"""Replay of real partitions of the demo: genuine outputs pass, each way of corrupting one is named at its index."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest
import yaml
from typer.testing import CliRunner

from eagle3_assets.build import build_defs
from eagle3_assets.checks.replay import OP
from eagle3_assets.cli import app
from eagle3_assets.config import Target, TransformersEngineSettings, load_config
from eagle3_assets.contract import RAW_GENERATIONS
from eagle3_assets.engines.base import Description, EngineError
from eagle3_assets.engines.create import create_engine
from eagle3_assets.engines.transformers import TransformersEngine
from eagle3_assets.generation.loop import RetryPolicy
from eagle3_assets.generation.sealed import scan_sealed
from eagle3_assets.jobs import PARTITION_JOB, REPLAY_JOB
from eagle3_assets.judging import render_rows
from eagle3_assets.project import Project
from eagle3_assets.replaying import calibrated, chosen_rows, replay, score_rows, with_scores
from eagle3_assets.running import HOME_VARIABLE
from eagle3_assets.storage.files import scan_parquet, sealed_generations, write_parquet
from eagle3_assets.target import LoadedTarget, load_target
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import judge_replay
from eagle3_assets_tests.conftest import DEMO, demo_rows, write_jsonl
from eagle3_assets_tests.generation.fake import FakeEngine

Row = dict[str, Any]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a config and what the pipeline made of it: greedy outputs in ``d``, sampled ones in ``s``."""
    folder = tmp_path_factory.mktemp("original")
    write_jsonl(folder / "prompts.jsonl", demo_rows("function_calling", 4))
    greedy = {"max_new_tokens": 160, "temperature": 0.0}
    sampled = {"max_new_tokens": 160, "temperature": 1.0, "top_p": 0.95, "top_k": 50, "min_p": 0.01}
    settings = {
        "target": {"model": "demo"},
        "engine": {"threads": 1, "logprob_share": 1.0},
        "storage": {"root": "data"},
        "datasets": [
            {"name": "d", "source": "prompts.jsonl", "sampling": greedy},
            {"name": "s", "source": "prompts.jsonl", "sampling": sampled, "samples_per_prompt": 2},
        ],
    }
    (folder / "eagle3.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    job = build_defs(Project(load_config(folder / "eagle3.yaml"))).resolve_job_def(PARTITION_JOB)
    assets = {dg.AssetKey(name) for name in ("prompts", "tokenized_prompts", "raw_generations")}
    part = job.get_subset(asset_selection=assets, asset_check_selection=set())
    with dg.DagsterInstance.ephemeral() as instance:
        for key in ("d", "s"):
            part.execute_in_process(instance=instance, partition_key=key)
    return folder


@pytest.fixture
def project(original: Path, tmp_path: Path) -> Project:
    """The same in the test's own folder, to be changed."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    return Project(load_config(tmp_path / "eagle3.yaml"))


@pytest.fixture(scope="module")
def target() -> LoadedTarget:
    return load_target(Target(model=str(DEMO / "model")))


def generated(project: Project, key: str = "d") -> pl.DataFrame:
    return scan_sealed(sealed_generations(project.layout, key)).collect()


def without_record(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(output_logprobs=pl.lit(None, RAW_GENERATIONS["output_logprobs"]))


def scored(rows: pl.DataFrame, model: Path = DEMO / "model") -> tuple[pl.DataFrame, float]:
    """The rows with a target's scores, and the tolerance."""

    async def run() -> tuple[pl.DataFrame, float]:
        engine = TransformersEngine(model, TransformersEngineSettings(threads=1, device="cpu"))
        await engine.start()
        try:
            tolerance = await calibrated(engine, rows, RetryPolicy())
            return with_scores(rows, await score_rows(engine, rows, RetryPolicy())), tolerance
        finally:
            await engine.close()

    return asyncio.run(run())


def judged(rows: pl.DataFrame, target: LoadedTarget, model: Path = DEMO / "model") -> dict[str, int]:
    """Where the law finds a fault, by sample."""
    with_values, tolerance = scored(rows, model)
    report = judge_replay([with_values], Context(target.profile, replay_tolerance=tolerance))
    assert report["replayed"].judged == len(rows)
    return dict(report.findings.select("sample_id", "index").rows())


def without(index: int) -> Callable[[Row], Row]:
    """Drops the output's token at an index, with its log-probability."""

    def drop(row: Row) -> Row:
        return {
            name: row[name][:index] + row[name][index + 1 :] if row[name] else None
            for name in ("output_ids", "output_logprobs")
        }

    return drop


def split(target: LoadedTarget, row: Row) -> tuple[int, Row]:
    """Writes one word in two tokens."""
    texts = {target.tokenizer.decode([i]): i for i in range(len(target.tokenizer))}
    for index, token in enumerate(row["output_ids"][1:-1], start=1):
        text = target.tokenizer.decode([token])
        for cut in range(1, len(text)):
            if text[:cut] in texts and text[cut:] in texts and token not in target.profile.structural_ids:
                ids = [
                    *row["output_ids"][:index],
                    texts[text[:cut]],
                    texts[text[cut:]],
                    *row["output_ids"][index + 1 :],
                ]
                return index, {"output_ids": ids, "output_logprobs": None}
    raise AssertionError("no token can be written as two")


def test_each_corruption_is_named_at_its_index(project: Project, target: LoadedTarget) -> None:
    rows = generated(project)
    genuine = rows.row(0, named=True)
    space = next(i for i, token in enumerate(genuine["output_ids"]) if target.tokenizer.decode([token]).isspace())
    middle, last = len(genuine["output_ids"]) // 2, len(genuine["output_ids"]) - 2
    word, halves = split(target, genuine)
    changes: dict[str, tuple[int, Row]] = {
        "first dropped": (0, without(0)(genuine)),
        "space dropped": (space, without(space)(genuine)),
        "middle dropped": (middle, without(middle)(genuine)),
        "last but one dropped": (last, without(last)(genuine)),
        "word in two tokens": (word, halves),
    }
    bad = [genuine | change | {"sample_id": name} for name, (_, change) in changes.items()]
    both = pl.concat([rows, pl.DataFrame(bad, schema=rows.schema)])
    for there in (both, without_record(both)):
        assert judged(there, target) == {name: index for name, (index, _) in changes.items()}


def test_a_wrong_template_and_another_model_are_noticed(project: Project, target: LoadedTarget, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    rows = generated(project)
    prompts = scan_parquet(project.layout.asset_file("prompts", "d"), asset="prompts").collect()
    without_tools = render_rows(target, prompts.with_columns(tools=pl.lit(None, pl.String)), thinking=True)
    assert len(judged(rows.with_columns(without_tools["prompt_ids"]), target)) == 4

    other = Path(shutil.copytree(DEMO / "model", tmp_path / "other"))
    draw = torch.Generator().manual_seed(0)
    weights = load_file(other / "model.safetensors")
    changed = {name: w * (1 + 0.05 * torch.randn(w.shape, generator=draw)) for name, w in weights.items()}
    save_file(changed, other / "model.safetensors", metadata={"format": "pt"})
    assert len(judged(rows, target, other)) == 4


def test_sampled_outputs_pass(project: Project, target: LoadedTarget) -> None:
    rows = generated(project, "s")
    assert len(rows) == 8
    assert judged(rows, target) == {}
    assert judged(without_record(rows), target) == {}


def test_the_rows_with_log_probabilities_come_first() -> None:
    empty: Row = dict.fromkeys(RAW_GENERATIONS)
    rows = [
        empty
        | {
            "sample_id": f"s{n}",
            "status": "failed" if n == 3 else "generated",
            "prompt_ids": [1],
            "output_ids": None if n == 3 else [2],
            "output_logprobs": [-0.5] if n in (5, 7) else None,
        }
        for n in range(20)
    ]
    frame = pl.DataFrame(rows, schema=RAW_GENERATIONS).lazy()
    few = chosen_rows(frame, 4)["sample_id"].to_list()
    assert len(few) == 4 and {"s5", "s7"} < set(few)
    assert few == chosen_rows(frame, 4)["sample_id"].to_list()
    assert len(chosen_rows(frame, 100)) == 19


@pytest.mark.slow
def test_from_the_terminal(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "home"))

    def invoke(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, [*arguments, "--config", str(tmp_path / "eagle3.yaml")])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout

    assert invoke("replay", "nobody")[0] == 2
    code, out = invoke("replay", "d-trial")
    assert code == 1
    assert "nothing is sealed; materialize raw_generations of d-trial first" in " ".join(out.split())
    code, out = invoke("replay", "d", "--samples", "3")
    assert (code, out) == (0, "ok d replayed: All 3 judged of 3 samples keep it.\n")

    sealed = sealed_generations(project.layout, "d")
    rows = scan_sealed(sealed).collect()
    ids = rows["output_ids"].to_list()
    victim, at = rows["sample_id"][2], len(ids[2]) // 2
    del ids[2][at]
    write_parquet(rows.with_columns(pl.Series("output_ids", ids, dtype=RAW_GENERATIONS["output_ids"])), sealed.path)
    code, out = invoke("replay", "d")
    assert code == 1
    assert f"warn d replayed: 1 of 4 samples break it (25.00%); first {victim}: from index {at} on:" in out
    assert "These tokens are not what this target emits" in out
    assert "eagle3-assets decode PARTITION --id SAMPLE --ids" in out


@pytest.mark.slow
def test_in_dagster_it_runs_alone_and_not_with_a_materialization(
    project: Project, instance: dg.DagsterInstance
) -> None:
    defs = build_defs(project)
    key = dg.AssetCheckKey(dg.AssetKey("raw_generations"), "replayed")
    everything = defs.resolve_implicit_global_asset_job_def()

    # What the UI launches where a person clicks Materialize: every check of the asset is among it.
    with_checks = everything.get_subset(asset_selection={key.asset_key}, asset_check_selection=None)
    assert OP in {node.name for node in with_checks.nodes}
    result = with_checks.execute_in_process(instance=instance, partition_key="d")
    assert result.success
    assert "replayed" not in {evaluation.check_name for evaluation in result.get_asset_check_evaluations()}

    job = defs.resolve_job_def(REPLAY_JOB)
    assert job.partitions_def is not None
    assert job.partitions_def.get_partition_keys() == list(project.partitions)
    config = {"ops": {OP: {"config": {"samples": 2}}}}
    result = job.execute_in_process(instance=instance, partition_key="d", run_config=config)
    [evaluation] = result.get_asset_check_evaluations()
    assert (evaluation.asset_check_key, evaluation.partition, evaluation.passed) == (key, "d", True)
    facts: Row = {name: value.value for name, value in evaluation.metadata.items()}
    assert (facts["scored"], facts["not_scored"], facts["same_weights"]) == (2, 0, True)
    assert facts["scored_by"] == facts["generated_by"]
    assert 0 < facts["tolerance"] < 0.01


def test_what_cannot_be_scored_is_counted_and_an_engine_that_cannot_score_says_so(
    project: Project, target: LoadedTarget
) -> None:
    sealed = sealed_generations(project.layout, "d")
    arguments = (project, project.partition("d"), target)
    with pytest.raises(EngineError, match="the engine transformers cannot score recorded outputs"):
        replay(*arguments, FakeEngine(), sealed)

    rows = scan_sealed(sealed).collect()
    ids = rows["output_ids"].to_list()
    ids[1][0] = 10**6
    write_parquet(rows.with_columns(pl.Series("output_ids", ids, dtype=RAW_GENERATIONS["output_ids"])), sealed.path)
    engine = create_engine(project.config.engine, Target(model=str(DEMO / "model")), project.layout.servers())
    found = replay(*arguments, engine, sealed)
    assert list(found.unscored) == [rows["sample_id"][1]]
    assert "id 1000000 is outside the target's vocabulary" in found.unscored[rows["sample_id"][1]]
    assert found.judged.report["replayed"].judged == 3
    assert isinstance(found.scored_by, Description)

    bad = pl.Series("output_ids", [[10**6]] * 4, dtype=RAW_GENERATIONS["output_ids"])
    write_parquet(rows.with_columns(bad), sealed.path)
    with pytest.raises(EngineError, match=r"none of 4 samples could be scored; first demo-.*outside the target's"):
        replay(
            *arguments, create_engine(project.config.engine, project.config.target, project.layout.servers()), sealed
        )
