"""Verifying sees every change of every file of an export, and everything that its manifest says and is not so."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from upath import UPath

from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.verifying import read_index, verify
from eagle3_assets.identity import digest
from eagle3_assets_tests.exports.conftest import Made
from eagle3_assets_tests.exports.test_export import rehashed

FORMS = ("jsonl", "speculators", "lossy-conversations")


@pytest.fixture(scope="module")
def sound(made: Made, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An export of some formats, by name."""
    folder = tmp_path_factory.mktemp("sound")
    for form in FORMS:
        made.export(folder / form, format=form)
    return {form: folder / form for form in FORMS}


@pytest.fixture
def copied(sound: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    """Copies one of them to be changed."""

    def copy(form: str = "jsonl") -> Path:
        return shutil.copytree(sound[form], tmp_path / form)

    return copy


def faults(place: Path) -> tuple[str, ...]:
    return verify(UPath(place)).faults


def files(place: Path) -> Iterator[Path]:
    return (path for path in sorted(place.rglob("*")) if path.is_file() and path.name != "manifest.json")


def manifest_of(place: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((place / "manifest.json").read_text(encoding="utf-8"))
    return manifest


def say(place: Path, change: Callable[[dict[str, Any]], object], *, with_hash: bool) -> None:
    """Has the manifest say something else; with its own hash as somebody has who knows of that."""
    manifest = manifest_of(place)
    change(manifest)
    if with_hash:
        del manifest["sha256"]
        manifest["sha256"] = digest(manifest, length=64)
    (place / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


@pytest.mark.parametrize("form", FORMS)
def test_every_file_that_is_changed_or_gone_is_named(form: str, copied: Callable[[str], Path]) -> None:
    place = copied(form)
    assert faults(place) == ()
    names = [path.relative_to(place).as_posix() for path in files(place)]
    assert {"README.md", "index/d.parquet"} < set(names)
    for name in names:
        content = (place / name).read_bytes()
        (place / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert any(fault.startswith(f"{name}: is not the file that was written") for fault in faults(place)), name
        (place / name).unlink()
        assert any(fault.startswith(f"{name}: cannot be read") for fault in faults(place)), name
        (place / name).mkdir()
        assert f"{name}: is no file" in faults(place)
        (place / name).rmdir()
        os.mkfifo(place / name)
        assert f"{name}: is no file" in faults(place)
        (place / name).unlink()
        (place / name).write_bytes(content)
    assert faults(place) == ()


READ_BY_TRAINERS = [
    "train/.evil.jsonl",
    "train/sub/x.jsonl",
    "eval/.hidden/x.arrow",
    "index/x.parquet",
    "vocabulary/.x",
    "state.json",
    "dataset_info.json",
    "dataset_dict.json",
]


@pytest.mark.parametrize("name", READ_BY_TRAINERS)
def test_what_a_trainer_would_read_besides_is_a_fault(name: str, copied: Callable[..., Path]) -> None:
    place = copied()
    (place / name).parent.mkdir(exist_ok=True)
    (place / name).write_text("{}", encoding="utf-8")
    assert faults(place) == (f"{name}: is not in the manifest, and a trainer may read it",)


def test_a_folder_that_is_linked_into_a_side_is_a_fault(copied: Callable[..., Path], tmp_path: Path) -> None:
    place = copied()
    (place / "train" / "more").symlink_to(tmp_path)
    assert faults(place) == ("train/more: is not in the manifest, and a trainer may read it",)


def test_what_a_person_keeps_beside_it_is_named(copied: Callable[..., Path]) -> None:
    place = copied()
    (place / "train.jsonl").write_text("{}", encoding="utf-8")
    (place / "hidden_states").mkdir()
    (place / "hidden_states" / "0.pt").write_bytes(b"")
    (place / "train" / "empty").mkdir()
    found = verify(UPath(place))
    assert found.others == ("hidden_states", "train.jsonl")
    assert found.faults == ()


def _values(value: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every value is that is no object and no list."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inside is None:
        yield where
        return
    for key, item in inside:
        yield from _values(item, (*where, key))


def test_no_value_of_the_manifest_can_be_changed_unseen(copied: Callable[..., Path]) -> None:
    place = copied()
    manifest = manifest_of(place)
    places = list(_values(manifest))
    assert len(places) > 100
    for where in places:
        changed = json.loads(json.dumps(manifest))
        inner = changed
        for key in where[:-1]:
            inner = inner[key]
        value = inner[where[-1]]
        inner[where[-1]] = (
            not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else f"{value}x"
        )
        (place / "manifest.json").write_text(json.dumps(changed), encoding="utf-8")
        try:
            assert verify(UPath(place)).faults, where
        except ExportError as error:
            assert "manifest" in str(error) or "format" in str(error)


SAYS: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("lengths", lambda m: m["partitions"][0]["lengths"]["train"].update(longest=1), "train.longest: "),
    ("laws", lambda m: m["laws"][0].update(judged=1), "says other things of the laws than its files: rows_as_indexed"),
    ("no laws", lambda m: m.update(laws=[]), "says other things of the laws than its files"),
    ("weights", lambda m: m["target"].update(weights="x"), "and target.weights is x"),
    ("tokenizer", lambda m: m["target"].update(tokenizer_sha256="x"), "and target.tokenizer_sha256 is x"),
    ("profile", lambda m: m["target"].update(profile="x"), "vocabulary/vocabulary.json: profile is kimi"),
    ("fingerprint", lambda m: m["partitions"][0].update(fingerprint="x"), "the fingerprint of its identity is not x"),
    ("identity", lambda m: m["partitions"][0]["identity"].update(thinking=False), "fingerprint of its identity is not"),
    ("no identity", lambda m: m["partitions"][0]["identity"].pop("weights"), "d: is no identity of this version"),
    ("settings", lambda m: m["settings"].update(format="parquet"), "settings.format parquet"),
    ("lossy", lambda m: m.update(lossy=True), "lossy True"),
    ("draft size", lambda m: m["settings"].update(draft_vocab_size=99), "draft_vocab_size is "),
    ("side", lambda m: m["files"][0].update(split="eval"), "is no place of a file of d in eval"),
    ("no side", lambda m: m["files"][0].update(split="zz"), "is no place of a file of d in zz"),
    ("a partition's", lambda m: m["files"][0].update(partition="x"), "x: is in no entry of the manifest"),
    ("a file twice", lambda m: m["files"].append(m["files"][0]), "train/d-00000.jsonl twice"),
    ("a partition twice", lambda m: m["partitions"].append(m["partitions"][0]), "has d twice"),
    ("no vocabulary", lambda m: m.update(beside=[]), "lacks vocabulary/d2t.npy"),
    ("left out and there", lambda m: m.update(left_out={"d": "refused"}), "has d, and says that it was left out"),
    ("tokens", lambda m: m["files"][0].update(tokens=1), "the manifest says 1 and"),
    ("size", lambda m: m["files"][0].update(size_bytes=1), "is not the file that was written"),
]


@pytest.mark.parametrize(("change", "said"), [case[1:] for case in SAYS], ids=[case[0] for case in SAYS])
def test_what_the_files_contradict_is_found_where_the_manifests_hash_is_right(
    change: Callable[[dict[str, Any]], object], said: str, copied: Callable[..., Path]
) -> None:
    place = copied()
    say(place, change, with_hash=True)
    assert any(said in fault for fault in faults(place)), faults(place)


@pytest.mark.parametrize("size", [-1, 0, 10**15])
def test_a_vocabulary_of_no_possible_size_is_no_manifest(size: int, copied: Callable[..., Path]) -> None:
    place = copied()
    say(place, lambda manifest: manifest["target"].update(vocab_size=size), with_hash=True)
    with pytest.raises(ExportError, match=r"is no manifest \(target\.vocab_size: Input should be "):
        verify(UPath(place))


def test_a_name_that_no_file_can_have_is_named(copied: Callable[..., Path]) -> None:
    place = copied()
    long = f"index/{'x' * 300}.parquet"
    say(place, lambda manifest: manifest["partitions"][0]["index"].update(path=long), with_hash=True)
    assert f"{long}: cannot be read: File name too long" in faults(place)


def test_a_manifest_that_does_not_say_what_was_left_out_is_read(copied: Callable[..., Path]) -> None:
    place = copied()
    assert verify(UPath(place)).manifest.left_out == {}
    say(place, lambda manifest: manifest.pop("left_out"), with_hash=True)
    found = verify(UPath(place))
    assert (found.manifest.left_out, found.faults) == (None, ())


def test_a_manifest_of_another_version_says_what_to_do(made: Made, copied: Callable[..., Path]) -> None:
    place = copied()
    say(place, lambda manifest: manifest.update(version=1), with_hash=True)
    said = f"of version 1, and only version 2 is read here. Delete {place} and export again, as an export of another"
    with pytest.raises(ExportError, match=re.escape(said)):
        verify(UPath(place))
    with pytest.raises(ExportError, match=re.escape(said)):
        made.export(place)
    shutil.rmtree(place)
    made.export(place)
    place = copied("speculators")
    (place / "manifest.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(ExportError, match=r"is no manifest .*a list, no object"):
        verify(UPath(place))


def edit_index(place: Path, *columns: pl.Expr) -> None:
    path = place / "index" / "d.parquet"
    pl.read_parquet(path).with_columns(*columns).write_parquet(path)
    rehashed(place)


@pytest.mark.parametrize(
    ("column", "exported"),
    [
        ("sample_id", False),
        ("conversation_id", False),
        ("fate", False),
        ("row", True),
        ("sample_tokens", True),
        ("trained_tokens", True),
        ("masked_tail", True),
        ("ids_sha256", True),
    ],
)
@pytest.mark.parametrize("form", ["jsonl", "lossy-conversations"])
def test_an_index_that_lacks_something_is_damage(
    column: str, exported: bool, form: str, copied: Callable[[str], Path]
) -> None:
    place = copied(form)
    where = pl.col("file").is_not_null() if exported else pl.int_range(pl.len()) == 0
    edit_index(place, pl.when(~where).then(column).alias(column))
    assert any(fault.startswith("index/d.parquet: ") and f" rows have no {column}" in fault for fault in faults(place))
    with pytest.raises(ExportError, match=f"rows have no {column}; export again"):
        read_index(UPath(place), "d")


@pytest.mark.parametrize("column", ["sample_tokens", "trained_tokens"])
def test_lengths_in_the_index_are_those_of_the_rows(column: str, copied: Callable[..., Path]) -> None:
    place = copied()
    edit_index(place, pl.col(column) + 1)
    assert any("rows of other lengths than the index says" in fault for fault in faults(place))
    assert any("gives other lengths than manifest.json says" in fault for fault in faults(place))


def test_rows_of_text_are_those_of_the_index(copied: Callable[[str], Path]) -> None:
    place = copied("lossy-conversations")
    [path, *_] = sorted((place / "train").iterdir())
    rows = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(reversed(rows)), encoding="utf-8")
    rehashed(place)
    assert any(fault.startswith("rows_as_indexed: ") for fault in faults(place))
    path.write_text("".join(rows[1:]), encoding="utf-8")
    rehashed(place)
    assert any("rows, the index says" in fault for fault in faults(place))


def test_what_load_from_disk_reads_names_the_exports_files(copied: Callable[[str], Path]) -> None:
    place = copied("speculators")
    state = json.loads((place / "state.json").read_text(encoding="utf-8"))
    state["_data_files"].pop()
    (place / "state.json").write_text(json.dumps(state), encoding="utf-8")
    rehashed(place)
    assert "state.json: does not describe the files that manifest.json has" in faults(place)


def test_a_store_is_listed_to_its_depth(made: Made) -> None:
    place = UPath("memory://bucket/verified")
    made.export(place)
    (place / "train" / "sub" / ".x.jsonl").write_text("{}")
    assert verify(place).faults == ("train/sub/.x.jsonl: is not in the manifest, and a trainer may read it",)
