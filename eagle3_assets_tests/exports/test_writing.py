"""The directory of an export: whose files are touched, what a killed export leaves, and who may write."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Never

import polars as pl
import pytest
from upath import UPath

from eagle3_assets.exports import locking
from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.formats import FORMATS
from eagle3_assets.exports.locking import LOCK
from eagle3_assets.exports.verifying import verify
from eagle3_assets.exports.writing import UNFINISHED, ExportDirectory
from eagle3_assets.storage.files import write_parquet
from eagle3_assets_tests.exports.conftest import Made

HASHED = {"size_bytes": 1, "sha256": "0"}


def everything(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def edit(path: Path, change: Callable[[Any], object]) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


@pytest.mark.parametrize(
    "path",
    [
        "../victim.txt",
        "train/../../victim.txt",
        "{root}/victim.txt",
        "/dev/zero",
        "notes.txt",
        "hidden_states/0.safetensors",
        "train/.hidden.jsonl",
        "train/a/b.jsonl",
        "train/a\0b",
        "train\\..\\victim.txt",
        "train",
        "manifest.json",
        "",
    ],
)
def test_a_path_out_of_an_export_is_neither_read_nor_deleted(path: str, made: Made, tmp_path: Path) -> None:
    place, path = tmp_path / "out", path.format(root=tmp_path)
    made.export(place)
    (tmp_path / "victim.txt").write_text("precious", encoding="utf-8")
    (place / "notes.txt").write_text("precious", encoding="utf-8")
    sound = (place / "manifest.json").read_text(encoding="utf-8")
    changes: list[Callable[[Any], object]] = [
        lambda value: value["beside"].append({"path": path, **HASHED}),
        lambda value: value["files"][0].update(path=path),
        lambda value: value["partitions"][0]["index"].update(path=path),
    ]
    for change in changes:
        edit(place / "manifest.json", change)
        before = everything(tmp_path)
        with pytest.raises(ExportError, match="is no path that an export has"):
            verify(UPath(place))
        with pytest.raises(ExportError, match="is no path that an export has"):
            made.export(place)
        assert everything(tmp_path) == before
        (place / "manifest.json").write_text(sound, encoding="utf-8")
    note = {"files": [], "others": [path]}
    (place / UNFINISHED).write_text(json.dumps(note), encoding="utf-8")
    with pytest.raises(ExportError, match="is no path that an export has"):
        made.export(place)
    assert (tmp_path / "victim.txt").read_text(encoding="utf-8") == "precious"


def test_what_is_no_file_is_not_read(made: Made, tmp_path: Path) -> None:
    made.export(tmp_path)
    data = tmp_path / "train" / "d-00000.jsonl"
    data.unlink()
    data.symlink_to("/dev/zero")
    assert "train/d-00000.jsonl: is no file" in verify(UPath(tmp_path)).faults
    with pytest.raises(ExportError, match=r"train/d-00000\.jsonl: is no file"):
        made.export(tmp_path)
    (tmp_path / "manifest.json").unlink()
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(ExportError, match=r"manifest\.json: is no file"):
        verify(UPath(tmp_path))


def test_an_export_of_links_verifies_as_the_hubs_cache_has_it(made: Made, tmp_path: Path) -> None:
    made.export(tmp_path / "out")
    for number, path in enumerate(path for path in (tmp_path / "out").rglob("*") if path.is_file()):
        path.symlink_to(path.rename(tmp_path / str(number)))
    assert verify(UPath(tmp_path / "out")).faults == ()
    made.export(tmp_path / "out")
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))


@pytest.mark.parametrize(
    "name", ["README.md", "state.json", ".env", "notes/a.txt", "train/mine.jsonl", ".writing-aaaaaaaa/a", "a.tmp"]
)
def test_a_directory_of_somebody_elses_is_left_alone(name: str, made: Made, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("precious", encoding="utf-8")
    with pytest.raises(ExportError, match="and no export; give an empty directory"):
        made.export(tmp_path, format="speculators")
    assert everything(tmp_path) == {name: b"precious"}


def test_files_beside_an_export_stay_and_are_never_replaced(made: Made, tmp_path: Path) -> None:
    made.export(tmp_path)
    for name in (".env", "notes.txt", ".notes.tmp.txt"):
        (tmp_path / name).write_text("precious", encoding="utf-8")
    made.export(tmp_path, shard_rows=2)
    (tmp_path / "state.json").write_text("precious", encoding="utf-8")
    before = everything(tmp_path)
    with pytest.raises(ExportError, match=r"holds state\.json, which is of no export"):
        made.export(tmp_path, format="speculators")
    assert everything(tmp_path) == before
    assert list(before.values()).count(b"precious") == 4


def test_what_came_while_it_was_written_is_not_deleted(made: Made, tmp_path: Path) -> None:
    mine = tmp_path / "train" / "mine.jsonl"
    with pytest.raises(ExportError, match=r"holds train/mine\.jsonl, which is of no export"):
        made.export(tmp_path, lambda _: mine.write_text("precious", encoding="utf-8"))
    assert mine.read_text(encoding="utf-8") == "precious"
    assert not (tmp_path / "manifest.json").exists()
    mine.unlink()
    made.export(tmp_path)
    assert verify(UPath(tmp_path)).faults == ()


def test_a_folder_that_leads_elsewhere_is_refused(made: Made, tmp_path: Path) -> None:
    made.export(tmp_path / "out")
    (tmp_path / "out" / "train").rename(tmp_path / "elsewhere")
    (tmp_path / "out" / "train").symlink_to(tmp_path / "elsewhere")
    before = everything(tmp_path)
    with pytest.raises(ExportError, match="holds train, which is no directory of its own"):
        made.export(tmp_path / "out", format="parquet")
    assert everything(tmp_path) == before


def test_a_place_that_can_be_no_directory_is_named_before_anything_is_judged(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged(*_: object) -> Never:
        raise AssertionError

    monkeypatch.setattr("eagle3_assets.exporting.usable", judged)
    (tmp_path / "file").write_text("precious", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "train").write_text("precious", encoding="utf-8")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "a").write_text("precious", encoding="utf-8")
    for name, said in (
        ("file", "is a file; give a directory"),
        ("file/below", "cannot be read: Not a directory"),
        ("link", "is a link to .*/nowhere, which is not there"),
        ("out", "holds train, which is no directory of its own"),
        ("taken", "holds a, and no export"),
    ):
        with pytest.raises(ExportError, match=said):
            made.export(tmp_path / name)
    assert set(everything(tmp_path).values()) == {b"precious"}
    assert not (tmp_path / "nowhere").exists()


def end(*_: object) -> Never:
    raise KeyboardInterrupt


@pytest.mark.parametrize("method", ["_clear", "done", "add_small", "finish", "kept"])
@pytest.mark.parametrize("before", [None, "speculators"])
def test_an_export_that_was_ended_anywhere_is_gone_on_with(
    method: str, before: str | None, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if before:
        made.export(tmp_path, format=before)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(ExportDirectory, method, end)
        made.export(tmp_path)
    manifest = made.export(tmp_path)
    found = verify(UPath(tmp_path))
    assert (found.faults, found.manifest) == ((), manifest)
    assert everything(tmp_path).keys() == {*manifest.paths, "manifest.json", "README.md"}


def test_a_full_disk_is_named_whoever_notices_it(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> Never:
        raise pl.exceptions.ComputeError("No space left on device (os error 28)\nand more")

    with monkeypatch.context() as patched:
        patched.setitem(FORMATS, "jsonl", replace(FORMATS["jsonl"], write=full))
        with pytest.raises(
            ExportError,
            match=r"written: .*No space left .*28\) \(is the disk full\?\); what is",
        ):
            made.export(tmp_path)
    assert made.export(tmp_path).files


def test_what_a_killed_export_was_writing_is_removed(made: Made, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        made.export(tmp_path, end)
    (tmp_path / ".writing-abcd_123").mkdir()
    for name in (".writing-abcd_123/d-00000.jsonl", ".manifest.json.tmp", "train/.state.json.tmp"):
        (tmp_path / name).write_text("{", encoding="utf-8")
    (tmp_path / ".env").write_text("precious", encoding="utf-8")
    manifest = made.export(tmp_path)
    assert everything(tmp_path).keys() == {*manifest.paths, "manifest.json", "README.md", ".env"}
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".writing-")]


def test_hidden_states_of_other_rows_are_not_kept_in_silence(made: Made, tmp_path: Path) -> None:
    made.export(tmp_path, format="speculators")
    (tmp_path / "hidden_states").mkdir()
    (tmp_path / "hidden_states" / "hs_0.safetensors").write_bytes(b"dear")
    made.export(tmp_path, format="speculators")
    before = everything(tmp_path)
    for max_length, shard_rows in ((250, 10_000), (None, 2)):
        with pytest.raises(ExportError, match="by their numbers, and the rows would be others; delete it, or"):
            made.export(tmp_path, format="speculators", max_length=max_length, shard_rows=shard_rows)
    assert everything(tmp_path) == before
    assert verify(UPath(tmp_path)).faults == ()


def test_one_export_at_a_time_writes_a_directory(made: Made, tmp_path: Path) -> None:
    said: list[str] = []

    def meanwhile(_: str) -> None:
        with pytest.raises(ExportError) as caught:
            made.export(tmp_path / "out", format="parquet")
        said.append(str(caught.value))

    made.export(tmp_path / "out", meanwhile)
    assert said
    assert f"out: process {os.getpid()} on " in said[0]
    assert "is exporting into it; wait for that one, or end it and export again" in said[0]
    assert verify(UPath(tmp_path / "out")).faults == ()
    assert not (tmp_path / "out" / LOCK).exists()


def test_a_killed_export_holds_nothing(made: Made, tmp_path: Path) -> None:
    holder = (
        "import sys, time; from upath import UPath; from eagle3_assets.exports.locking import only_writer\n"
        "with only_writer(UPath(sys.argv[1])): print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", holder, str(tmp_path / "out")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            with pytest.raises(ExportError, match=f"process {process.pid} on .* is exporting into it"):
                made.export(tmp_path / "out")
        finally:
            process.send_signal(signal.SIGKILL)
    assert (tmp_path / "out" / LOCK).exists()
    made.export(tmp_path / "out")
    assert not (tmp_path / "out" / LOCK).exists()


def test_one_export_at_a_time_writes_on_an_object_store(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locking, "LEASE_SECONDS", 1.0)
    place = UPath("memory://bucket/one-writer")
    said: list[str] = []

    def exported(tell: Callable[[str], object]) -> None:
        made.export(place, tell)

    def meanwhile(_: str) -> None:
        if not said:
            with pytest.raises(ExportError) as caught:
                exported(said.append)
            said.append(str(caught.value))

    exported(meanwhile)
    assert "is exporting into it; wait for that one, or end it and export again" in said[0]
    exported(str)
    assert verify(place).faults == ()


def test_an_export_that_lost_its_store_to_another_stops(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    place = UPath("memory://bucket/lost")

    def lost(_: str) -> None:
        monkeypatch.setattr("eagle3_assets.generation.lease._now", lambda: float("inf"))

    with pytest.raises(ExportError, match=r"has taken it over, or may have by now, .*; nothing more is written"):
        made.export(place, lost)
    monkeypatch.undo()
    assert not (place / "manifest.json").exists()


def test_a_refused_export_leaves_no_directory(made: Made, tmp_path: Path) -> None:
    stale = made.copy(tmp_path / "project")
    write_parquet(pl.read_parquet(str(stale.samples)).head(1), stale.samples)
    with pytest.raises(ExportError, match="materialize training_samples again"):
        stale.export(tmp_path / "a" / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["project"]
