"""The draft vocabulary of a corpus: what counts is what training_samples takes, and everything else is named."""

import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import dagster as dg
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from eagle3_assets.build import build_defs
from eagle3_assets.cli import app
from eagle3_assets.config import load_config
from eagle3_assets.contract import DRAFT_VOCABULARY
from eagle3_assets.exports.vocabulary import FILES, Recount
from eagle3_assets.exports.vocabulary_laws import LAWS
from eagle3_assets.generation.sealed import read_identity
from eagle3_assets.jobs import CORPUS_JOB
from eagle3_assets.pages.coverage import coverage_chart, coverage_markdown, coverage_page
from eagle3_assets.project import Project
from eagle3_assets.storage.files import sealed_generations, write_parquet
from eagle3_assets.storage.layout import WHOLE
from eagle3_assets.target import LoadedTarget, load_target
from eagle3_assets.tokens.vocabulary import VocabularyError
from eagle3_assets.vocabularies import CorpusVocabulary, corpus_vocabulary, recount
from eagle3_assets_tests.conftest import SHARDS, damage, harm, made_by

D = 400


@pytest.fixture
def folder(corpus_folder: Path, tmp_path: Path) -> Path:
    """A copy of the corpus to be changed."""
    return shutil.copytree(corpus_folder, tmp_path / "copy")


def opened(folder: Path) -> tuple[Project, LoadedTarget]:
    project = Project(load_config(folder / "eagle3.yaml"))
    return project, load_target(project.config.target)


def chosen(folder: Path, size: int = D) -> CorpusVocabulary:
    return corpus_vocabulary(*opened(folder), size)


def trained(project: Project, *keys: str) -> Counter[int]:
    """Tokens with a loss, counted one by one."""
    frames = [pl.read_parquet(str(project.layout.asset_file("training_samples", key))) for key in keys]
    rows = pl.concat(frames).select("input_ids", "loss_mask").iter_rows()
    return Counter(i for ids, mask in rows for i, bit in zip(ids, mask, strict=True) if bit)


def states(made: CorpusVocabulary) -> dict[str, str]:
    return {one.partition: one.state for one in made.partitions}


def test_what_is_counted_is_what_training_samples_take(corpus_folder: Path) -> None:
    project, target = opened(corpus_folder)
    made = chosen(corpus_folder)
    counted = trained(project, *SHARDS)
    assert {i: int(n) for i, n in enumerate(made.vocabulary.counts) if n} == counted
    assert len(made.vocabulary.counts) == target.vocab_size
    assert made.record.partitions == {key: trained(project, key).total() for key in SHARDS}
    assert states(made) == dict.fromkeys(SHARDS, "counted") | {"talk": "missing", "talk-trial": "trial"}
    assert [name for name, _ in made.datasets] == ["calls"]
    again = recount(project, SHARDS, target.vocab_size)
    assert isinstance(again, Recount)
    assert np.array_equal(again.counts, made.vocabulary.counts)
    assert again.partitions == made.record.partitions
    table = made.table()
    assert table.schema == DRAFT_VOCABULARY
    [row] = table.filter(pl.col("dataset").is_null(), pl.col("draft_ids") == D).to_dicts()
    assert "chosen" in row["mark"]
    covered = set(made.vocabulary.ids.tolist())
    assert row["covered_tokens"] == sum(n for i, n in counted.items() if i in covered)


def test_samples_that_are_damaged_cannot_be_counted_again(folder: Path) -> None:
    project, target = opened(folder)
    samples = Path(str(project.layout.asset_file("training_samples", SHARDS[1])))
    damage(samples, "input_ids")
    again = recount(project, SHARDS, target.vocab_size)
    assert isinstance(again, str)
    assert again.startswith(f"{samples}: is damaged and cannot be read to its end (")


def test_what_a_law_refuses_or_another_tokenizer_made_is_left_out_by_name(folder: Path) -> None:
    project, _ = opened(folder)
    harm(project, SHARDS[0], lambda rows: rows.with_columns(output_ids=pl.col("output_ids").list.reverse()))
    made = chosen(folder)
    assert states(made)[SHARDS[0]] == "refused"
    assert made.record.partitions.keys() == {SHARDS[1]}
    [refused] = [one for one in made.left_out if one.partition == SHARDS[0]]
    assert any("stored_as_captured" in why for why in refused.why)
    project.layout.generations("gone-00of02").mkdir()
    project, target = opened(folder)
    with pytest.raises(VocabularyError, match=r"no token is trained on.*; orphaned: gone-00of02") as caught:
        corpus_vocabulary(project, replace(target, tokenizer_sha256="f" * 64), D)
    assert f"{SHARDS[1]} (its ids are of another tokenizer than the target's, " in str(caught.value)


def _weighed(project: Project, key: str, weights: str) -> None:
    sealed = sealed_generations(project.layout, key)
    identity = read_identity(sealed.directory, sealed.pointer.fingerprint)
    made_by(project, key, identity.model_copy(update={"weights": weights}))


def test_partitions_of_two_targets_are_not_counted_together(folder: Path) -> None:
    project, _ = opened(folder)
    _weighed(project, SHARDS[0], "sha256:0")
    made = chosen(folder)
    assert states(made)[SHARDS[0]] == "refused"
    assert made.record.partitions.keys() == {SHARDS[1]}
    for number, key in enumerate(SHARDS):
        _weighed(project, key, f"path:/m@{number}")
    made = chosen(folder)
    assert made.record.partitions.keys() == {SHARDS[0]}
    [refused] = [one for one in made.left_out if one.state == "refused"]
    assert refused.why[0].startswith(f"it was made by other weights than {SHARDS[0]}, path:/m@1 and not path:/m@0; ")


def test_a_corpus_without_anything_is_named(folder: Path) -> None:
    shutil.rmtree(folder / "data" / "raw_generations")
    with pytest.raises(VocabularyError, match="missing: calls-00of02, calls-01of02, talk"):
        chosen(folder)
    result = CliRunner().invoke(app, ["vocabulary", "--config", str(folder / "eagle3.yaml")])
    assert result.exit_code == 2
    assert "no token is trained on" in result.stderr
    project, _ = opened(folder)
    job = build_defs(project).resolve_job_def(CORPUS_JOB)
    quick = job.get_subset(asset_selection={dg.AssetKey("draft_vocabulary")}, asset_check_selection=set())
    with dg.DagsterInstance.local_temp(str(folder / "home")) as instance:
        failed = quick.execute_in_process(instance=instance, raise_on_error=False)
    [failure] = [event for event in failed.all_events if event.is_step_failure]
    assert failure.step_failure_data.user_failure_data
    assert "missing: calls-00of02" in (failure.step_failure_data.user_failure_data.description or "")


def test_the_asset_writes_what_trainers_read_and_its_checks_hold_it_against_the_samples(folder: Path) -> None:
    project, _ = opened(folder)
    defs = build_defs(project)
    with dg.DagsterInstance.local_temp(str(folder / "home")) as instance:
        # As --select '*' --partition X does it.
        asset = defs.resolve_assets_def("draft_vocabulary")
        nothing = dg.materialize([asset], instance=instance, tags={"dagster/partition": SHARDS[0]})
        assert nothing.success
        assert nothing.get_asset_materialization_events() == []

        wanted = {dg.AssetKey("draft_vocabulary")}
        job = defs.resolve_job_def(CORPUS_JOB).get_subset(asset_selection=wanted)
        result = job.execute_in_process(instance=instance)
        assert {c.check_name: c.passed for c in result.get_asset_check_evaluations()} == {
            law.name: True for law in LAWS
        }
        [metadata] = [one.metadata for one in result.asset_materializations_for_node("draft_vocabulary")]
        made = chosen(folder, project.config.export.draft_vocab_size)
        place = project.layout.vocabulary()
        assert all((place / name).exists() for name in FILES)
        assert pl.read_parquet(str(project.layout.asset_file("draft_vocabulary", WHOLE))).equals(made.table())
        page = project.layout.corpus_page("draft_vocabulary")
        assert page.read_text(encoding="utf-8") == coverage_page(made)
        assert list(metadata)[:3] == ["verdict", "coverage", "sizes"]
        assert len(str(metadata["coverage"].value)) < 1_000  # so that the UI shows it in place
        assert metadata["left_out"].value == "missing: talk; trial: talk-trial"

        # A vocabulary that is older than the samples is found, by the ids.
        path = project.layout.asset_file("training_samples", SHARDS[0])
        write_parquet(pl.read_parquet(str(path))[1:], path)
        keys = {dg.AssetCheckKey(dg.AssetKey("draft_vocabulary"), law.name) for law in LAWS}
        alone = defs.resolve_job_def(CORPUS_JOB).get_subset(asset_selection=set(), asset_check_selection=keys)
        checks = alone.execute_in_process(instance=instance)
        found = {c.check_name: c for c in checks.get_asset_check_evaluations()}
        assert {name for name, check in found.items() if not check.passed} == {
            "counts_are_trained_tokens",
            "record_agrees",
        }
        said = found["counts_are_trained_tokens"]
        assert said.severity == dg.AssetCheckSeverity.ERROR
        assert "have a loss" in (said.description or "")


def test_the_terminal_shows_and_writes_it(folder: Path, tmp_path: Path) -> None:
    config = ["--config", str(folder / "eagle3.yaml")]
    place = tmp_path / "vocabulary"
    page = ["--html", str(tmp_path / "page.html")]
    result = CliRunner().invoke(app, ["vocabulary", "--size", str(D), "--to", str(place), *page, *config])
    assert result.exit_code == 0, result.output
    assert "missing talk, not counted" in result.stdout
    assert f"{D} of " in result.stdout
    assert sorted(path.name for path in place.iterdir()) == sorted(FILES)
    assert len(np.load(place / "d2t.npy")) == D
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == coverage_page(chosen(folder))
    project, _ = opened(folder)
    harm(project, SHARDS[0], lambda rows: rows.with_columns(output_ids=pl.col("output_ids").list.reverse()))
    result = CliRunner().invoke(app, ["vocabulary", *config])
    assert result.exit_code == 1
    assert f"refused {SHARDS[0]}: " in result.stdout


def test_commands_of_their_own_process_have_what_the_files_need(corpus_folder: Path, tmp_path: Path) -> None:
    config = ["--config", str(corpus_folder / "eagle3.yaml"), "--to"]
    for command, to in ((["vocabulary"], tmp_path / "v"), (["export", SHARDS[0]], tmp_path / "e" / "vocabulary")):
        place = to if command == ["vocabulary"] else to.parent
        arguments = [sys.executable, "-m", "eagle3_assets.cli", *command, *config, str(place)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        assert sorted(path.name for path in to.iterdir()) == sorted(FILES)


def test_pictures_stay_small_and_their_curves_rise(corpus_folder: Path) -> None:
    made = chosen(corpus_folder)
    many = replace(made, datasets=tuple((f"d{n}", made.vocabulary.counts) for n in range(6)))
    assert len(coverage_markdown(many)) < 1_500
    chart = coverage_chart(made.vocabulary, many.datasets, 900, 190)
    assert [curve.name for curve in chart.curves] == [*(f"d{n}" for n in range(6)), "all"]
    for curve in chart.curves:
        heights = [y for _, y in curve.points]
        assert heights == sorted(heights, reverse=True)
        assert curve.points[-1] == (900, 0)
    assert "<script" not in coverage_page(many)
