"""Whole exports of real data: what is in the files, going on after an end, and what verifying one finds."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest
import yaml
from upath import UPath

from eagle3_assets.build import build_defs
from eagle3_assets.config import Export, load_config
from eagle3_assets.contract import TRAINING_SAMPLES
from eagle3_assets.exporting import export, fates_of
from eagle3_assets.exports.card import dataset_card
from eagle3_assets.exports.derived import untrainable
from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.formats import FORMATS
from eagle3_assets.exports.laws import LAWS
from eagle3_assets.exports.manifest import Manifest
from eagle3_assets.exports.verifying import read_index, verify
from eagle3_assets.exports.writing import UNFINISHED, sha256_of
from eagle3_assets.generation.sealed import read_identity
from eagle3_assets.identity import Identity, digest
from eagle3_assets.interchange import Row, read_rows
from eagle3_assets.jobs import EXPORT_JOB
from eagle3_assets.project import Project
from eagle3_assets.same_target import OneTarget
from eagle3_assets.storage.files import sealed_generations, write_parquet
from eagle3_assets.target import load_target
from eagle3_assets.tokens.verdict import Report
from eagle3_assets.training import Stored
from eagle3_assets_tests.conftest import SHARDS, damage, made_by
from eagle3_assets_tests.exports.conftest import Made


def index_of(place: Path) -> pl.DataFrame:
    index = read_index(UPath(place), "d")
    assert index is not None
    return index


def rows_of(place: Path) -> list[dict[str, Any]]:
    """All rows of a JSON lines export, read by nothing of ours."""
    files = sorted(place.glob("*/*.jsonl"))
    return [json.loads(row) for file in files for row in file.read_text(encoding="utf-8").splitlines()]


def test_every_prompt_has_a_fate_and_every_row_is_what_was_recorded(made: Made, tmp_path: Path) -> None:
    manifest = made.export(tmp_path)
    index = index_of(tmp_path)
    fates = Counter(index["fate"])
    assert {"train", "eval", "refused_prompt", "failed", "quarantined"} == fates.keys()
    assert fates == manifest.fates
    assert sum(fates.values()) == manifest.partitions[0].prompts == 14
    assert manifest.partitions[0].source_rows is not None
    assert manifest.partitions[0].source_rows["refused"] == 1
    reasons = dict(index.select("sample_id", "reason").iter_rows())
    assert reasons[made.failed] == "server: gone"
    assert reasons[made.quarantined].startswith("completion_count: ")
    raw = {row["sample_id"]: row for row in made.raw.iter_rows(named=True)}
    rows = rows_of(tmp_path)
    assert len(rows) == fates["train"] + fates["eval"] == sum(file.rows for file in manifest.files)
    for row in rows:
        recorded = raw[str(row["id"])]
        assert row["input_ids"] == recorded["prompt_ids"] + recorded["output_ids"]
        assert row["loss_mask"] == [0] * len(recorded["prompt_ids"]) + [1] * len(recorded["output_ids"])
        assert row["text"] == made.target.tokenizer.decode(row["input_ids"], skip_special_tokens=False)
        assert isinstance(row["metadata"], dict)
        assert row["metadata"]["ids_sha256"] == recorded["ids_sha256"]
    assert {one.law for one in manifest.laws if one.judged == len(rows)} == {law.name for law in LAWS} - {
        "within_max_length"
    }


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_verifies_and_its_card_says_what_it_is(form: str, made: Made, tmp_path: Path) -> None:
    manifest = made.export(tmp_path, format=form, max_length=400)
    found = verify(UPath(tmp_path))
    assert found.faults == ()
    assert found.manifest == manifest
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    front = yaml.safe_load(card.split("---")[1])
    assert ("lossy" in front["tags"]) == ("**Lossy.**" in card) == (form == "lossy-conversations")
    assert f"| train | `d` | {manifest.rows('train')} |" in card
    for config in front.get("configs", ()):
        for data in config["data_files"]:
            assert list(tmp_path.glob(data["path"]))
    if form != "lossy-conversations":
        assert all(one.violations == 0 and one.judged for one in found.laws if one.law != "rows_as_indexed")


def test_the_names_of_others_break_no_line_of_a_card(made: Made, tmp_path: Path) -> None:
    manifest = made.export(tmp_path)
    target = manifest.target.model_copy(update={"model": "m\n---\n# x [a](b)", "weights": "path:/m\n# x"})
    law = manifest.laws[0].model_copy(update={"violations": 1, "first": "sample a\n# x"})
    lines = dataset_card(manifest.model_copy(update={"target": target, "laws": (law,)})).splitlines()
    assert lines.count("---") == 2
    assert f"Target: `m↵---↵# x [a](b)`, profile `{target.profile}`," in lines
    assert not [line for line in lines if line.startswith("# x")]


def test_no_place_and_no_secret_is_in_an_export(made: Made, tmp_path: Path) -> None:
    made.export(tmp_path)
    for name in ("manifest.json", "README.md"):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert str(made.project.layout.root) not in text
        assert "/" + str(Path(made.target.settings.model).parent).strip("/") not in text


def test_raw_responses_are_the_interchange_format(made: Made, tmp_path: Path) -> None:
    made.export(tmp_path, format="raw-responses", eval_share=0)
    with (tmp_path / "train" / "d-00000.jsonl").open("rb") as file:
        records = [row.record for row in read_rows(file) if isinstance(row, Row)]
    raw = {row["sample_id"]: row for row in made.raw.iter_rows(named=True)}
    assert [(one.prompt_ids, one.output_ids) for one in records] == [
        (raw[one.sample_id]["prompt_ids"], raw[one.sample_id]["output_ids"]) for one in records
    ]


def test_messages_of_lossy_conversations_have_one_shape(made: Made, tmp_path: Path) -> None:
    """Arrow has one for all rows, and every tool has other arguments."""
    made.export(tmp_path, format="lossy-conversations")
    messages = [message for row in rows_of(tmp_path) for message in row["conversations"]]
    assert {tuple(message) for message in messages} == {
        ("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name")
    }
    assert {type(value) for message in messages for value in message.values()} == {str}
    calls = [call for message in messages if message["tool_calls"] for call in json.loads(message["tool_calls"])]
    assert len({tuple(call["function"]["arguments"]) for call in calls}) > 1


def test_a_masked_tail_is_in_the_file_and_drop_takes_them_out(made: Made, tmp_path: Path) -> None:
    cut = set(made.raw.filter(pl.col("finish_type") == "length")["sample_id"]) - {made.failed, made.quarantined}
    assert cut
    made.export(tmp_path / "mask", cut_off="mask", cut_off_tail=7)
    for row in rows_of(tmp_path / "mask"):
        mask = row["loss_mask"]
        assert mask[-8:] == ([1] + [0] * 7 if row["id"] in cut else [1] * 8)
    made.export(tmp_path / "drop", cut_off="drop")
    assert not {row["id"] for row in rows_of(tmp_path / "drop")} & cut
    assert index_of(tmp_path / "drop").filter(pl.col("fate") == "cut_off")["sample_id"].to_list() == sorted(cut)
    with pytest.raises(ExportError, match="raw-responses holds no loss mask"):
        made.export(tmp_path / "no", cut_off="mask", format="raw-responses")


def test_an_export_that_was_ended_goes_on_and_keeps_what_is_whole(made: Made, tmp_path: Path) -> None:
    whole = made.export(tmp_path / "whole", shard_rows=2)
    assert len(whole.files) > 3
    told: list[str] = []

    def end(line: str) -> None:
        told.append(line)
        if len(told) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made.export(tmp_path / "ended", end, shard_rows=2)
    assert not (tmp_path / "ended" / "manifest.json").exists()
    with pytest.raises(ExportError, match="or one that did not end"):
        verify(UPath(tmp_path / "ended"))
    first = tmp_path / "ended" / told[0].split(":")[0]
    second = tmp_path / "ended" / told[1].split(":")[0]
    before = first.stat().st_mtime_ns
    second.write_bytes(second.read_bytes()[:-5])
    told = ["", "", "", ""]
    assert made.export(tmp_path / "ended", told.append, shard_rows=2) == whole
    assert first.stat().st_mtime_ns == before
    kept = {line.split(":")[0] for line in told if "kept from before" in line}
    assert str(first.relative_to(tmp_path / "ended")) in kept
    assert str(second.relative_to(tmp_path / "ended")) not in kept
    assert verify(UPath(tmp_path / "ended")).faults == ()
    assert not (tmp_path / "ended" / UNFINISHED).exists()


def test_another_export_into_the_same_place_leaves_nothing_of_the_old_one(made: Made, tmp_path: Path) -> None:
    made.export(tmp_path, shard_rows=2)
    manifest = made.export(tmp_path, format="speculators")
    assert f"--train-data-ratio {manifest.train_ratio}`" in (tmp_path / "README.md").read_text(encoding="utf-8")
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == [
        "d-00000.arrow",
        "dataset_info.json",
        "state.json",
    ]
    assert verify(UPath(tmp_path)).faults == ()
    made.export(tmp_path, format="parquet")
    assert verify(UPath(tmp_path)).faults == ()
    everything = ["README.md", "eval", "index", "manifest.json", "train", "vocabulary"]
    assert sorted(path.name for path in tmp_path.iterdir()) == everything
    made.export(tmp_path, vocabulary=False)
    assert verify(UPath(tmp_path)).faults == ()
    assert not list((tmp_path / "vocabulary").iterdir())


def test_training_samples_of_other_data_are_not_exported(made: Made, tmp_path: Path) -> None:
    rows = pl.read_parquet(str(made.samples))
    other = made.copy(tmp_path / "project")
    place = tmp_path / "out"

    def exported(samples: pl.DataFrame) -> Manifest:
        write_parquet(samples, other.samples)
        return other.export(place)

    with pytest.raises(ExportError, match=r"d is behind, nothing is written\. .*materialize training_samples again"):
        exported(rows[1:])
    one_other = rf"{len(rows)} samples, 1 of them not as the outputs of now give them"
    for column, dtype in (("input_ids", pl.Int32), ("loss_mask", pl.UInt8)):
        lists = rows[column].to_list()
        lists[0][0] ^= 1
        with pytest.raises(ExportError, match=one_other):
            exported(rows.with_columns(pl.Series(column, lists, dtype=pl.List(dtype))))
    assert not place.exists()


def test_a_file_that_breaks_a_law_as_read_back_is_not_kept(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = FORMATS["jsonl"]

    def faulty(rows: pl.DataFrame, path: Path) -> None:
        form.write(rows.with_columns(pl.col("input_ids").list.reverse()), path)

    monkeypatch.setitem(FORMATS, "jsonl", replace(form, write=faulty))
    with pytest.raises(ExportError, match=r"mask_is_output: \d+ rows of .* are not those captured"):
        made.export(tmp_path / "out")
    assert not list((tmp_path / "out").glob("*/*.jsonl"))


def test_samples_that_are_replaced_while_they_are_exported_are_named(made: Made, tmp_path: Path) -> None:
    other = made.copy(tmp_path / "project")

    def replaced(said: str) -> None:
        if said.endswith("kept from before"):
            damage(Path(str(other.samples)), "input_ids")

    other.export(tmp_path / "out")
    next((tmp_path / "out" / "train").glob("*.jsonl")).unlink()
    with pytest.raises(ExportError, match=r"d: its training_samples can be read no more .*; were they replaced"):
        other.export(tmp_path / "out", tell=replaced)


@pytest.mark.parametrize("form", ["jsonl", "lossy-conversations"])
def test_training_samples_of_earlier_outputs_leave_an_export_as_it_is(form: str, made: Made, tmp_path: Path) -> None:
    manifest = made.export(tmp_path / "out", format=form)
    stale = made.copy(tmp_path / "project")
    hashes = pl.col("metadata").str.replace(r'"ids_sha256":"....', '"ids_sha256":"0000')
    write_parquet(pl.read_parquet(str(stale.samples)).with_columns(hashes), stale.samples)
    with pytest.raises(ExportError, match=r"samples, \d+ of them not as the outputs of now give them"):
        stale.export(tmp_path / "out", format=form)
    assert verify(UPath(tmp_path / "out")).manifest == manifest


def test_names_that_are_patterns_elsewhere_are_names_here(made: Made, tmp_path: Path) -> None:
    place = tmp_path / "a[1]*b?"
    made.export(place)
    made.export(place, format="speculators")
    made.export(place, format="parquet")
    assert verify(UPath(place)).faults == ()


def test_nothing_left_is_a_whole_export_without_rows(made: Made, tmp_path: Path) -> None:
    manifest = made.export(tmp_path, max_length=2)
    assert manifest.files == ()
    assert manifest.fates["too_long"]
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "within_max_length: not judged: there are no rows" in card.replace("\\_", "_")
    assert "no max_length was given" not in card.replace("\\_", "_")
    assert verify(UPath(tmp_path)).faults == ()


def test_a_partition_whose_outputs_all_break_a_law_is_exported_without_rows(made: Made, tmp_path: Path) -> None:
    """Its limit says that this is no reason to refuse it, and others beside it have rows."""
    made.copy(tmp_path / "project")
    path = tmp_path / "project" / "eagle3.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("quarantine_limit: 0.5", "quarantine_limit: 1.0"))
    other = replace(made, project=Project(load_config(path)))
    write_parquet(made.raw.with_columns(completion_tokens=pl.lit(1, pl.Int32)), other.sealed.path)
    write_parquet(pl.DataFrame(schema=TRAINING_SAMPLES), other.samples)
    manifest = other.export(tmp_path / "out")
    assert manifest.files == ()
    assert manifest.fates.keys() == {"refused_prompt", "failed", "quarantined"}
    assert verify(UPath(tmp_path / "out")).faults == ()
    write_parquet(pl.read_parquet(str(made.samples)), other.samples)
    with pytest.raises(ExportError, match="and 0 outputs can be used now; materialize training_samples again"):
        other.export(tmp_path / "out")


def test_an_export_lies_on_an_object_store_as_well(made: Made, tmp_path: Path) -> None:
    place = UPath("memory://bucket/export")
    manifest = made.export(place, format="speculators")
    assert manifest == made.export(tmp_path, format="speculators")
    assert verify(place).faults == ()
    assert made.export(place).files
    assert verify(place).faults == ()
    assert [path.name for path in (place / "train").iterdir()] == ["d-00000.jsonl"]


def test_what_does_not_belong_together_is_not_exported_together(made: Made, tmp_path: Path) -> None:
    both = [made.project.partition(key) for key in ("d", "d-trial")]
    with pytest.raises(ExportError, match="d-trial: a trial's conversations are its dataset's too"):
        export(made.project, made.target, both, UPath(tmp_path / "out"), Export())
    assert not (tmp_path / "out").exists()


def identity_of(made: Made) -> Identity:
    return read_identity(made.sealed.directory, made.sealed.pointer.fingerprint)


def of_another(made: Made, folder: Path, **changed: str) -> Made:
    """The same outputs as another target's, by record and rows."""
    other = made.copy(folder)
    made_by(other.project, "d", identity_of(made).model_copy(update=changed))
    return other


def test_what_another_target_made_is_not_exported_as_the_targets(made: Made, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(ExportError, match=f"d is refused, .* its ids are of another tokenizer .*, {'f' * 16}; name"):
        of_another(made, tmp_path / "tokenizer", tokenizer="f" * 64).export(out)
    with pytest.raises(
        ExportError, match=r"d is refused, .* it was made by other weights, or another config\.json, th"
    ):
        of_another(made, tmp_path / "weights", weights="sha256:0").export(out)
    # Of a server's weights it is known alone whether they are the same.
    (tmp_path / "model.safetensors").symlink_to("gone")
    here = made.target.settings.model_copy(update={"model": str(tmp_path)})
    why = OneTarget(replace(made.target, settings=here)).refusal(identity_of(made))
    said = f"cannot be said: {tmp_path}/model.safetensors: No such file or directory"
    assert why == f"whether the target's weights made it {said}"
    one_target = OneTarget(made.target)
    first, other = (identity_of(made).model_copy(update={"weights": weights}) for weights in ("path:/m@1", "path:/m@2"))
    assert one_target.refusal(other) is None
    assert one_target.refusal(first) is None
    one_target.let_in("a", first)
    one_target.let_in("b", first)
    assert one_target.refusal(first) is None
    assert str(one_target.refusal(other)).startswith(
        "it was made by other weights than a, path:/m@2 and not path:/m@1; put partitions of one target alone together"
    )
    assert not (tmp_path / "out").exists()


def test_others_are_not_held_against_a_partition_that_could_not_be_read(
    corpus_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(corpus_folder, tmp_path / "copy")
    project = Project(load_config(folder / "eagle3.yaml"))
    for number, key in enumerate(SHARDS):
        sealed = sealed_generations(project.layout, key)
        identity = read_identity(sealed.directory, sealed.pointer.fingerprint)
        made_by(project, key, identity.model_copy(update={"weights": f"path:/m@{number}"}))
    read: list[Report] = []

    def once_unreadable(stored: Stored, report: Report) -> pl.DataFrame:
        read.append(report)
        if len(read) == 1:
            raise pl.exceptions.ComputeError("replaced while it was read")
        return fates_of(stored, report)

    monkeypatch.setattr("eagle3_assets.exporting.fates_of", once_unreadable)
    target, partitions = load_target(project.config.target), [project.partition(key) for key in SHARDS]
    exported = export(project, target, partitions, UPath(tmp_path / "out"), Export(), leave_out=True)
    assert exported.manifest.left_out == {SHARDS[0]: "unreadable"}
    assert [one.partition for one in exported.manifest.partitions] == [SHARDS[1]]


def test_the_card_has_the_fates_in_their_order(made: Made, tmp_path: Path) -> None:
    manifest = made.export(tmp_path)
    first = manifest.partitions[0].model_copy(update={"fates": {"too_long": 2, "train": 1}})
    other = manifest.partitions[0].model_copy(update={"fates": {"eval": 3, "failed": 1, "train": 1}})
    both = manifest.model_copy(update={"partitions": (first, other)})
    assert list(both.fates.items()) == [("train", 2), ("eval", 3), ("failed", 1), ("too_long", 2)]
    card = dataset_card(both).splitlines()
    told = [line.split(" | ")[0] for line in card[card.index("| | prompts | |") + 2 :][:4]]
    assert told == ["| train", "| eval", "| failed", "| too_long"]


@pytest.mark.parametrize("change", [{"max_length": 2}, {"eval_share": 0.999999}])
def test_the_asset_fails_where_the_command_does_for_nothing_to_train_on(
    change: dict[str, float], made: Made, tmp_path: Path
) -> None:
    other = made.copy(tmp_path / "project")
    path = tmp_path / "project" / "eagle3.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    path.write_text(yaml.safe_dump({**config, "export": change}), encoding="utf-8")
    project = Project(load_config(path))
    job = build_defs(project).resolve_job_def(EXPORT_JOB)
    with dg.DagsterInstance.ephemeral() as instance:
        done = job.execute_in_process(instance=instance, partition_key="d", raise_on_error=False)
    [failure] = [event for event in done.all_events if event.is_step_failure]
    assert failure.step_failure_data.user_failure_data
    said = failure.step_failure_data.user_failure_data.description or ""
    why = untrainable(other.export(tmp_path / "out", **change))  # type: ignore[arg-type] # by name
    assert why
    assert said == f"{project.layout.export('d')}: is whole, and {why}"
    assert verify(project.layout.export("d")).faults == ()


def test_the_asset_makes_the_same_export(made: Made) -> None:
    place = made.project.layout.export("d")
    found = verify(place)
    assert found.faults == ()
    assert found.manifest.format == "jsonl"
    assert found.manifest.settings == made.project.config.export


def _data(place: Path) -> Path:
    return place / "train" / "d-00000.jsonl"


def rehashed(place: Path) -> None:
    """As somebody would who changes a file and the manifest with it."""
    manifest = json.loads((place / "manifest.json").read_text(encoding="utf-8"))
    for file in [*manifest["files"], *manifest["beside"], *(one["index"] for one in manifest["partitions"])]:
        if (place / file["path"]).exists():
            file.update(sha256_of(UPath(place / file["path"])).model_dump(exclude={"path"}))
    del manifest["sha256"]
    manifest["sha256"] = digest(manifest, length=64)
    (place / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def _edit_rows(place: Path, edit: Callable[[list[dict[str, object]]], object]) -> None:
    rows = [json.loads(line) for line in _data(place).read_text(encoding="utf-8").splitlines()]
    edit(rows)
    _data(place).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    rehashed(place)


def _edit_index(place: Path, edit: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    path = place / "index" / "d.parquet"
    write_parquet(edit(pl.read_parquet(path)), UPath(path))
    rehashed(place)


def _overwrite(place: Path, text: str) -> None:
    _data(place).write_text(text, encoding="utf-8")
    rehashed(place)


def _bump(rows: list[dict[str, object]]) -> None:
    ids = rows[0]["input_ids"]
    assert isinstance(ids, list)
    ids[-1] += 1


EXPORTED = pl.col("file").is_not_null()

DAMAGES: list[tuple[str, Callable[[Path], object], str]] = [
    ("one byte", lambda at: _data(at).write_bytes(_data(at).read_bytes()[:-2] + b" \n"), "is not the file that was"),
    ("file gone", lambda at: _data(at).unlink(), "train/d-00000.jsonl: cannot be read"),
    ("file more", lambda at: shutil.copy(_data(at), at / "train" / "x.jsonl"), "train/x.jsonl: is not in the manifest"),
    ("index gone", lambda at: (at / "index" / "d.parquet").unlink(), "index/d.parquet: cannot be read"),
    ("another id", lambda at: _edit_rows(at, _bump), "mask_is_output: 1 row"),
    ("rows swapped", lambda at: _edit_rows(at, list.reverse), "rows_as_indexed: "),
    ("row lost", lambda at: _edit_rows(at, list.pop), "rows, the index says"),
    ("row twice", lambda at: _edit_rows(at, lambda rows: rows.append(rows[0])), "rows, the index says"),
    ("no JSON", lambda at: _overwrite(at, "{\n"), "train/d-00000.jsonl: cannot be read back"),
    (
        "prompt lost",
        lambda at: _edit_index(at, lambda index: index.filter(pl.col("fate") != "failed")),
        "conservation: prompts ended as",
    ),
    ("prompt twice", lambda at: _edit_index(at, lambda index: pl.concat([index, index[:1]])), "are there twice"),
    (
        "other fate",
        lambda at: _edit_index(
            at, lambda index: index.with_columns(fate=pl.when(EXPORTED).then(pl.lit("failed")).otherwise("fate"))
        ),
        "exported without a file, or not and have one",
    ),
    (
        "other place",
        lambda at: _edit_index(at, lambda index: index.with_columns(row=pl.col("row") + 1)),
        "its rows are not those of the index",
    ),
]


@pytest.mark.parametrize(("damage", "said"), [case[1:] for case in DAMAGES], ids=[case[0] for case in DAMAGES])
def test_verifying_names_the_damage(
    damage: Callable[[Path], object], said: str, made: Made, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sound = tmp_path_factory.getbasetemp() / "sound-export"
    if not sound.exists():
        made.export(sound)
        assert verify(UPath(sound)).faults == ()
    place = tmp_path / "damaged"
    shutil.copytree(sound, place)
    damage(place)
    faults = verify(UPath(place)).faults
    assert any(said in fault for fault in faults), faults
