"""Files that appear whole or not at all, on a local disk and on an object store.

What belongs here: temporary names, fsync, rename, upload. Not here: what the files mean.
"""

import os
from pathlib import Path

from upath import UPath

ZSTD_LEVEL = 3
"""Of every parquet file: higher levels cost much time and save little."""

_LOCAL_PROTOCOLS = ("", "file", "local")


def local_path(path: UPath) -> Path | None:
    """The same place as a plain path, or None where it is no local one."""
    return Path(path.path) if path.protocol in _LOCAL_PROTOCOLS else None


def sync_directory(directory: Path) -> None:
    """Makes renames and new names in a directory outlive a power failure."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def publish(temporary: Path, target: UPath) -> None:
    """Gives a finished local file its name, replacing what had it.

    Locally an fsync and a rename; the temporary file must then be on the same file system. On an object store an
    upload, which appears only when it is complete.

    Args:
        temporary: the finished file; gone afterwards.
        target: its place.

    Raises:
        OSError: it could not be written; what was at ``target`` before is still there.
    """
    place = local_path(target)
    if place is None:
        # Not `open`: its file is closed, and so committed, on an error too.
        target.fs.put_file(str(temporary), target.path)
        temporary.unlink()
        return
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(place)
    sync_directory(place.parent)


def write_text(target: UPath, text: str) -> None:
    """Writes a small file of text as UTF-8; see :func:`write_bytes`."""
    write_bytes(target, text.encode())


def write_bytes(target: UPath, content: bytes) -> None:
    """Writes a small file so that a reader sees the old or the new content, never a part.

    Raises:
        OSError: it could not be written; the old content is still there.
    """
    place = local_path(target)
    if place is None:
        target.fs.pipe_file(target.path, content)
        return
    temporary = place.with_name(f".{place.name}.tmp")
    temporary.write_bytes(content)
    publish(temporary, target)
