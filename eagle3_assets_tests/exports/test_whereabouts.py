"""Where every source row and prompt went: by id, added up, and in the terminal with the export's commands."""

import json
import shutil
import weakref
from collections import Counter
from pathlib import Path
from typing import Any, Never

import dagster as dg
import polars as pl
import pytest
from typer.testing import CliRunner
from upath import UPath

from eagle3_assets.build import build_defs
from eagle3_assets.cli import app
from eagle3_assets.config import Export, load_config
from eagle3_assets.exporting import export
from eagle3_assets.exports.selection import place
from eagle3_assets.exports.verifying import verify
from eagle3_assets.generation.sealed import read_current, read_identity
from eagle3_assets.jobs import PARTITION_JOB
from eagle3_assets.project import Project
from eagle3_assets.target import load_target
from eagle3_assets.whereabouts import MEANINGS, refused_rows, whereabouts
from eagle3_assets_tests.conftest import SHARDS, damage, demo_rows, harm, made_by, write_project
from eagle3_assets_tests.exports.conftest import Made


def invoke(made: Made, *arguments: str) -> tuple[int, str, str]:
    config = Path(str(made.project.layout.root)).parent / "eagle3.yaml"
    options = [] if arguments[0] == "verify" else ["--config", str(config)]
    result = CliRunner().invoke(app, [*arguments, *options])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_every_prompt_is_found_and_the_totals_add_up(made: Made, tmp_path: Path) -> None:
    made.export(tmp_path)
    partition = made.project.partition("d")
    found = whereabouts(made.project, partition, made.target, UPath(tmp_path))
    assert found.faults == found.refusals == ()
    assert found.source is not None
    assert (found.source.rows, found.source.refused, found.source.used) == (15, 1, 14)
    assert found.used_rows == len(found.prompts) == sum(found.fates.values()) == 14
    fates = dict(found.prompts.select("sample_id", "fate").iter_rows())
    assert (fates[made.failed], fates[made.quarantined]) == ("failed", "quarantined")
    assert {"train", "eval", "refused_prompt"} < set(fates.values()) <= MEANINGS.keys()
    exported = {
        json.loads(line)["id"]
        for file in tmp_path.glob("*/*.jsonl")
        for line in file.read_text(encoding="utf-8").splitlines()
    }
    assert {name for name, fate in fates.items() if fate in ("train", "eval")} == exported
    [refused] = refused_rows(made.project, partition)
    assert refused.row == 15


def test_without_an_export_what_could_be_used_says_so(made: Made, tmp_path: Path) -> None:
    found = whereabouts(made.project, made.project.partition("d"), made.target, UPath(tmp_path))
    assert found.faults == ()
    assert found.fates.keys() == {"usable", "refused_prompt", "failed", "quarantined"}


def test_an_export_of_older_data_is_named(made: Made, tmp_path: Path) -> None:
    made.export(tmp_path)
    path = tmp_path / "index" / "d.parquet"
    index = pl.read_parquet(path)
    old = index.filter(pl.col("fate") == "train")["sample_id"][0]
    index.with_columns(ids_sha256=pl.when(pl.col("sample_id") == old).then(pl.lit("x")).otherwise("ids_sha256")).filter(
        pl.col("fate") != "failed"
    ).write_parquet(path)
    found = whereabouts(made.project, made.project.partition("d"), made.target, UPath(tmp_path))
    assert set(found.stale) == {old, made.failed}
    assert "the export is older than the data: 2 prompts ended otherwise" in found.faults[0]
    fates = dict(found.prompts.select("sample_id", "fate").iter_rows())
    assert (fates[old], fates[made.failed]) == ("usable", "failed")
    assert sum(found.fates.values()) == 14


def test_the_commands(made: Made, tmp_path: Path) -> None:
    place = str(tmp_path / "out")
    code, out, err = invoke(made, "export", "d", "--to", place, "--eval-share", "0.55", "--max-length", "250")
    assert code == 0, err
    assert "train/d-00000.jsonl: " in err
    assert "quarantined" in out
    code, out, err = invoke(made, "verify", place)
    assert (code, err) == (0, "")
    assert "law mask_is_output: all" in out
    assert out.endswith("The export is as it was made.\n")

    code, out, err = invoke(made, "whereabouts", "d", "--export", place)
    assert code == 0, err
    lines = [line.split("\t") for line in out.splitlines() if "\t" in line]
    counts = Counter(fate for fate, *_ in lines)
    assert counts.pop("refused_row") == 1
    assert counts.total() == 14
    assert {"train", "eval", "too_long", "failed", "quarantined", "refused_prompt"} == counts.keys()
    assert ["failed", "d", made.failed, "server: gone"] in lines
    code, out, _ = invoke(made, "whereabouts", "d", "--export", place, "--id", made.quarantined)
    assert out.startswith(f"quarantined\td\t{made.quarantined}\tcompletion_count: ")
    assert len(out.splitlines()) == 1
    code, out, _ = invoke(made, "whereabouts", "d", "--export", place, "--totals")
    assert "\t" not in out
    assert invoke(made, "whereabouts", "d", "--id", "nobody")[0] == 2

    data = tmp_path / "out" / "train" / "d-00000.jsonl"
    data.write_bytes(data.read_bytes() + b"\n")
    code, _, err = invoke(made, "verify", place)
    assert code == 1
    assert "train/d-00000.jsonl: is not the file that was written" in err
    assert invoke(made, "verify", str(tmp_path))[0] == 2


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--format", "csv"), 2, "--format: Input should be 'jsonl', 'speculators'"),
        (("--eval-share", "1"), 2, "--eval-share: "),
        (("--max-length", "2"), 1, "no sample is left to train on"),
        (("--max-length", "3000000000"), 2, "--max-length: Input should be less than 2147483648"),
        (("--eval-share", "0.999999"), 1, "train on: all 11 exported rows are held out; give a smaller"),
        (("--to", ""), 2, "no place is named"),
        (("--to", "x" * 300), 2, "xxx: cannot be read: File name too long"),
        (("--push", ""), 2, "is no name of a dataset of the Hub"),
        (("--push", "no//name"), 2, "'no//name': is no name of a dataset of the Hub"),
    ],
)
def test_what_the_export_command_refuses(
    options: tuple[str, ...], code: int, said: str, made: Made, tmp_path: Path
) -> None:
    given, _, err = invoke(made, "export", "d", "--to", str(tmp_path / "out"), *options)
    assert given == code
    assert said in " ".join(err.split())
    assert (tmp_path / "out").exists() == (code == 1)


@pytest.mark.parametrize("limit", ["draft_vocab_size", "cut_off_tail", "shard_rows", "max_length"])
def test_the_greatest_limits_are_taken(limit: str, made: Made, tmp_path: Path) -> None:
    assert made.export(tmp_path, cut_off="mask", **{limit: 2**31 - 1}).files  # type: ignore[arg-type] # by name


def test_an_interrupted_command_says_what_it_kept(made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_: object, **__: object) -> Never:
        raise KeyboardInterrupt

    monkeypatch.setattr("eagle3_assets.exporting.export", interrupted)
    code, _, err = invoke(made, "export", "d", "--to", str(tmp_path / "out"))
    assert code == 130
    assert err.endswith("\ninterrupted; files that are complete are kept, and the next export goes on from them\n")
    monkeypatch.setattr("eagle3_assets.whereabouts.whereabouts", interrupted)
    code, _, err = invoke(made, "whereabouts", "d")
    assert code == 130
    assert err.endswith("\ninterrupted\n")


def test_an_export_that_is_not_there_is_not_looked_into(made: Made, tmp_path: Path) -> None:
    code, out, err = invoke(made, "whereabouts", "d", "--export", str(tmp_path / "typo"))
    assert (code, out) == (2, "")
    assert "typo: holds no manifest.json: it is no export" in err
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert invoke(made, "verify", str(tmp_path / "file"))[0] == 2
    assert invoke(made, "verify", "")[0] == 2
    made.export(tmp_path / "out")
    manifest = (tmp_path / "out" / "manifest.json").read_text(encoding="utf-8")
    other = manifest.replace('"partition": "d"', '"partition": "other"')
    (tmp_path / "out" / "manifest.json").write_text(other, encoding="utf-8")
    code, out, err = invoke(made, "whereabouts", "d", "--export", str(tmp_path / "out"))
    assert "out: is an export without d" in err
    assert "usable\t" in out


def test_a_partition_that_was_not_made_is_named(made: Made, tmp_path: Path) -> None:
    code, _, err = invoke(made, "export", "d-trial", "--to", str(tmp_path / "out"))
    assert code == 2
    assert "materialize" in err
    assert not (tmp_path / "out").exists()


def test_all_leaves_out_what_cannot_be_exported_by_name(corpus_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(corpus_folder, tmp_path / "copy")
    project = Project(load_config(folder / "eagle3.yaml"))
    options = ("--to", str(tmp_path / "out"), "--eval-share", "0", "--config", str(folder / "eagle3.yaml"))

    def exported(*arguments: str) -> tuple[int, list[str], str]:
        result = CliRunner().invoke(app, ["export", *arguments, *options])
        return result.exit_code, [" ".join(line.split()) for line in result.stdout.splitlines()], result.stderr

    code, out, err = exported("--all")
    assert (code, out[-1]) == (0, "missing talk, not exported"), err
    manifest = verify(UPath(tmp_path / "out")).manifest
    assert {one.partition for one in manifest.partitions} == set(SHARDS)
    assert manifest.left_out == {"talk": "missing"}

    project.layout.asset_file("training_samples", SHARDS[1]).unlink()
    code, out, _ = exported("--all")
    assert code == 1
    behind = f"behind {SHARDS[1]}: training_samples is not made yet; materialize training_samples"
    assert out[-2:] == [behind, "missing talk, not exported"]
    harm(project, SHARDS[0], lambda rows: rows.with_columns(output_ids=pl.col("output_ids").list.reverse()))
    before = (tmp_path / "out" / "manifest.json").read_bytes()
    code, _, err = exported("--all")
    assert code == 2
    assert f"no partition can be exported: refused: {SHARDS[0]} (" in err
    code, _, err = exported(SHARDS[0])
    assert code == 2
    assert f"{SHARDS[0]} is refused, nothing is written. " in err
    assert "stored_as_captured: " in err
    assert (tmp_path / "out" / "manifest.json").read_bytes() == before


def test_what_all_leaves_out_is_in_the_export_no_more(corpus_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(corpus_folder, tmp_path / "copy")
    project = Project(load_config(folder / "eagle3.yaml"))
    options = ("--to", str(tmp_path / "out"), "--eval-share", "0", "--config", str(folder / "eagle3.yaml"))
    assert CliRunner().invoke(app, ["export", "--all", *options]).exit_code == 0
    harm(project, SHARDS[0], lambda rows: rows.with_columns(output_ids=pl.col("output_ids").list.reverse()))
    project.layout.generations("talk").mkdir()
    (Path(str(project.layout.generations("talk"))) / "current.json").write_text("{", encoding="utf-8")
    result = CliRunner().invoke(app, ["export", "--all", *options])
    assert result.exit_code == 1, result.stderr
    told = dict(line.split(": ", 1) for line in result.stdout.splitlines() if ": " in line)
    assert "stored_as_captured: " in told[f"refused {SHARDS[0]}"]
    assert "Restore it from a backup" in told["unreadable talk"]
    found = verify(UPath(tmp_path / "out"))
    assert found.faults == ()
    assert [one.partition for one in found.manifest.partitions] == [SHARDS[1]]
    assert found.manifest.left_out == {SHARDS[0]: "refused", "talk": "unreadable"}
    said = f"{SHARDS[0]} (refused), talk (unreadable)"
    verified = CliRunner().invoke(app, ["verify", str(tmp_path / "out")])
    assert f"left out when it was exported: {said}\n" in verified.stdout
    assert said.replace(SHARDS[0], f"`{SHARDS[0]}`").replace("talk", "`talk`") in (
        tmp_path / "out" / "README.md"
    ).read_text(encoding="utf-8")
    assert not list((tmp_path / "out").rglob(f"{SHARDS[0]}*"))


@pytest.mark.parametrize("column", ["input_ids", "loss_mask"])
def test_damage_to_one_column_of_samples_is_found_before_anything_is_written(
    column: str, corpus_folder: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(corpus_folder, tmp_path / "copy")
    project = Project(load_config(folder / "eagle3.yaml"))
    samples = Path(str(project.layout.asset_file("training_samples", SHARDS[1])))
    damage(samples, column)
    assert pl.read_parquet(samples, columns=["id", "metadata"]).height

    def exported(*arguments: str) -> tuple[int, str, str]:
        options = ("--to", str(tmp_path / "out"), "--eval-share", "0", "--config", str(folder / "eagle3.yaml"))
        result = CliRunner().invoke(app, ["export", *arguments, *options])
        return result.exit_code, result.stdout, result.stderr

    damaged = f"{samples}: is damaged and cannot be read to its end ("
    code, _, err = exported(SHARDS[1])
    assert (code, damaged in err, (tmp_path / "out").exists()) == (2, True, False), err
    code, out, err = exported("--all")
    assert (code, f"unreadable {SHARDS[1]}: {damaged}" in out) == (1, True), err
    assert [one.partition for one in verify(UPath(tmp_path / "out")).manifest.partitions] == [SHARDS[0]]


def test_no_more_than_one_partition_is_held(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(load_config(corpus_folder / "eagle3.yaml"))
    held: list[weakref.ref[pl.DataFrame]] = []
    alive: list[int] = []

    def placed(*arguments: Any) -> pl.DataFrame:
        index = place(*arguments)
        held.append(weakref.ref(index))
        alive.append(sum(one() is not None for one in held))
        return index

    monkeypatch.setattr("eagle3_assets.exporting.place", placed)
    partitions = [project.partition(key) for key in SHARDS]
    settings = Export(eval_share=0, vocabulary=False)

    def written(_: str) -> None:
        alive.append(sum(one() is not None for one in held))

    export(project, load_target(project.config.target), partitions, UPath(tmp_path / "out"), settings, written)
    assert alive == [1, 1, 0, 0]


def test_a_refused_partition_has_no_usable_output(made: Made, tmp_path: Path) -> None:
    other = made.copy(tmp_path / "project")
    other.export(tmp_path / "out", eval_share=0)
    broken = pl.col("sample_id").is_in([made.failed, made.quarantined]).not_() & pl.col("output_ids").is_not_null()
    first = pl.read_parquet(str(other.sealed.path)).filter(broken)["sample_id"][0]
    reverse = pl.when(pl.col("sample_id") == first).then(pl.col("output_ids").list.reverse()).otherwise("output_ids")
    harm(other.project, "d", lambda rows: rows.with_columns(output_ids=reverse))
    code, out, err = invoke(other, "whereabouts", "d", "--export", str(tmp_path / "out"))
    assert code == 1
    assert "the export is older than the data" in err
    lines = [line.split("\t") for line in out.splitlines() if "\t" in line]
    fates = Counter(fate for fate, *_ in lines)
    assert not fates.keys() & {"usable", "train", "eval"}
    assert fates["refused_partition"] == 10
    assert all(why.startswith("stored_as_captured: ") for fate, _, _, why in lines if fate == "refused_partition")
    assert "d is refused as training data: stored_as_captured: " in err
    assert "breaks no law by itself; its partition is refused" in out
    shutil.rmtree(Path(str(other.project.layout.export("d"))))
    assert invoke(other, "whereabouts", "d", "--totals")[0] == 0


def test_what_another_target_made_is_not_called_usable(made: Made, tmp_path: Path) -> None:
    other = made.copy(tmp_path / "project")
    identity = read_identity(other.sealed.directory, other.sealed.pointer.fingerprint)
    made_by(other.project, "d", identity.model_copy(update={"weights": f"sha256:{'0' * 64}"}))
    shutil.rmtree(Path(str(other.project.layout.export("d"))), ignore_errors=True)
    code, out, err = invoke(other, "whereabouts", "d")
    assert code == 0
    lines = [line.split("\t") for line in out.splitlines() if "\t" in line]
    assert {why[:29] for fate, _, _, why in lines if fate == "refused_partition"} == {"it was made by other weights,"}
    assert "usable" not in {fate for fate, *_ in lines}
    assert "d is refused as training data: it was made by other weights," in err


def test_damaged_generations_are_named_and_not_traced(made: Made, tmp_path: Path) -> None:
    other = made.copy(tmp_path / "project")
    path = Path(str(other.sealed.path))
    damage(path)
    code, _, err = invoke(other, "whereabouts", "d")
    assert (code, err.splitlines()[-1][: len(str(path)) + 12]) == (2, f"{path}: is damaged")


def test_a_row_that_the_source_reading_refused_is_found_by_its_id_and_its_place(tmp_path: Path) -> None:
    rows = demo_rows("function_calling", 3)
    project = write_project(
        tmp_path, [rows[0], {"id": "mu\u3164te", "messages": []}, rows[1], {**rows[2], "id": rows[0]["id"]}]
    )
    defs = build_defs(project)
    chain = ["prompts", "tokenized_prompts", "raw_generations"]
    job = defs.resolve_job_def(PARTITION_JOB)
    keys = [dg.AssetKey(name) for name in chain]
    with dg.DagsterInstance.ephemeral() as instance:
        assert job.execute_in_process(instance=instance, partition_key="d", asset_selection=keys).success

    def shown(name: str) -> list[list[str]]:
        options = ["--config", str(tmp_path / "eagle3.yaml")]
        result = CliRunner().invoke(app, ["whereabouts", "d", "--id", name, *options])
        assert result.exit_code == (0 if result.stdout else 2), result.stderr
        return [line.split("\t") for line in result.stdout.splitlines()]

    [[fate, key, place, why]] = shown("mu\u3164te")
    assert shown("mu<U+3164>te") == [[fate, key, place, why]]
    assert (fate, key, place) == ("refused_row", "d", "prompts.jsonl:2")
    assert shown("prompts.jsonl:2") == [[fate, key, place, why]]
    assert [line[0] for line in shown(rows[0]["id"])] == ["refused_row", "usable"]
    assert shown("prompts.jsonl:3") == []


def test_a_partition_that_a_law_about_prompts_blocks_is_named_with_the_law(tmp_path: Path) -> None:
    rows = [{"id": n, "messages": [{"role": "user", "content": "Hello" + "<|im_end|>" * n}]} for n in range(2)]
    project = write_project(tmp_path, rows)

    def shown(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(app, ["whereabouts", *arguments, "--config", str(tmp_path / "eagle3.yaml")])
        return result.exit_code, result.output

    assert "there is no such file; materialize prompts" in shown("d")[1]
    with dg.DagsterInstance.ephemeral() as instance:
        job = build_defs(project).resolve_job_def(PARTITION_JOB)
        assets = [dg.AssetKey("prompts"), dg.AssetKey("tokenized_prompts")]
        job.execute_in_process(instance=instance, partition_key="d", asset_selection=assets, raise_on_error=False)
    law = "prompt_injection: 1 of 2 samples break it (50.00%)"
    code, said = shown("d")
    assert code == 2
    assert f"\nd: nothing is generated of it: {law}" in said
    code, said = shown("--all")
    assert code == 2
    assert f"missing d: {law}" in said and "nothing is generated yet" in said


def test_one_command_says_where_every_prompt_of_a_corpus_went(corpus_folder: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(corpus_folder, tmp_path / "copy")
    project = Project(load_config(folder / "eagle3.yaml"))

    def shown(*arguments: str) -> tuple[int, list[list[str]], str]:
        result = CliRunner().invoke(app, ["whereabouts", *arguments, "--config", str(folder / "eagle3.yaml")])
        return result.exit_code, [line.split("\t") for line in result.stdout.splitlines()], result.stderr

    code, lines, err = shown("--all")
    assert code == 0, err
    prompts = {
        (key, name)
        for key in SHARDS
        for name in pl.read_parquet(str(project.layout.asset_file("prompts", key)))["sample_id"]
    }
    told = [tuple(line[1:3]) for line in lines if len(line) == 4 and line[0] != "refused_row"]
    assert len(told) == len(prompts)
    assert set(told) == prompts
    text = [" ".join(line[0].replace("│", " ").split()) for line in lines if len(line) == 1]
    assert any("prompts of 2 partitions" in line.replace("┃", " ") for line in text)
    assert f"all {len(prompts)}" in text
    assert text[-1] == "missing talk, not generated"
    name = next(name for key, name in prompts if key == SHARDS[1])
    code, lines, _ = shown("--all", "--id", name)
    assert [line[1:3] for line in lines[:-1]] == [[SHARDS[1], name]]
    assert shown(SHARDS[0][: SHARDS[0].rindex("-")], "--totals")[0] == 0

    damage(Path(str(project.layout.generations(SHARDS[0]))) / _sealed_name(project))
    code, lines, _ = shown("--all", "--totals")
    assert code == 1
    assert any(line[0].startswith(f"unreadable {SHARDS[0]}: ") for line in lines)
    assert shown()[0] == 2


def _sealed_name(project: Project) -> str:
    current = read_current(project.layout.generations(SHARDS[0]))
    assert current
    return current.path.name
