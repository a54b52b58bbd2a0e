"""Files that appear whole or not at all, on a store whose uploads break off midway too."""

import errno
import os
import stat
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from eagle3_assets.files import publish, write_text

PART = 100


@pytest.fixture
def store() -> UPath:
    """A place in an empty object store."""
    place = UPath("memory://eagle3-files/store")
    if place.exists():
        place.fs.rm(place.path, recursive=True)
    return place


def breaking_upload(self: Any, local: str, remote: str, **_: Any) -> None:
    """An upload in parts, as object stores have it: what was sent before the end is never seen."""
    parts = []
    with Path(local).open("rb") as file:
        while part := file.read(PART):
            parts.append(part)
            if len(parts) == 2:
                raise OSError(104, "Connection reset by peer")
    self.pipe_file(remote, b"".join(parts))


@pytest.mark.parametrize("place", ["store", "disk"])
def test_a_published_file_has_the_name_alone(place: str, store: UPath, tmp_path: Path) -> None:
    target = (store if place == "store" else UPath(tmp_path)) / "x.parquet"
    for content in (b"old", b"new" * 1_000):
        temporary = tmp_path / ".x.tmp"
        temporary.write_bytes(content)
        publish(temporary, target)
        assert target.read_bytes() == content
        assert not temporary.exists()


def test_an_upload_that_breaks_off_changes_nothing(
    store: UPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(store.fs), "put_file", breaking_upload)
    (store / "old.parquet").write_bytes(b"old")
    temporary = tmp_path / "x"
    temporary.write_bytes(b"n" * 5 * PART)
    for name in ("old.parquet", "new.parquet"):
        with pytest.raises(OSError, match="Connection reset"):
            publish(temporary, store / name)
    assert [(path.name, path.read_bytes()) for path in store.iterdir()] == [("old.parquet", b"old")]
    assert temporary.exists()


@pytest.mark.parametrize(("refusal", "goes_on"), [(errno.EINVAL, True), (errno.ENOTSUP, True), (errno.EIO, False)])
def test_a_directory_that_cannot_be_synced_is_no_failed_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int, goes_on: bool
) -> None:
    """As CIFS and some of FUSE refuse it, after the file has its name."""
    sync = os.fsync

    def fsync(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(refusal, os.strerror(refusal))
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    target = UPath(tmp_path) / "current.json"
    with nullcontext() if goes_on else pytest.raises(OSError, match="Input/output error"):
        write_text(target, "new")
    assert target.read_text(encoding="utf-8") == "new"


@pytest.mark.parametrize("place", ["store", "disk"])
def test_a_small_text_replaces_another(place: str, store: UPath, tmp_path: Path) -> None:
    target = (store if place == "store" else UPath(tmp_path)) / "current.json"
    for text in ("old", "néw"):
        write_text(target, text)
        assert target.read_text(encoding="utf-8") == text
    assert len(list(target.parent.iterdir())) == 1
