"""Files that appear whole or not at all, on a local disk and on an object store: the one place that tells them apart.

What belongs here: reading, writing, listing, locking and deleting by path; temporary names, fsync, rename, upload. Not
here: what the files mean.

An object store has no directories, no rename and no append; a PUT appears whole, and so does an upload in parts when it
is completed. What its client library raises comes out of here as an :class:`OSError`, as a disk's faults do.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, cast

from upath import UPath

from eagle3_assets.config.addresses import without_secrets

STDIN = Path("/dev/stdin")
"""The file that standard input is."""

ZSTD_LEVEL = 3
"""Of every parquet file: higher levels cost much time and save little."""

CONNECT_S, ANSWER_S = 20.0, 60.0
"""Seconds after which an attempt to reach Google's store has failed; its client makes six of them."""
WRITE_S, SLOWEST = 300.0, 100_000.0
"""Seconds that a store may take for a write, and bytes a second that it must take beside."""

_LOCAL_PROTOCOLS = ("", "file", "local")
_PIECE = 8 << 20
"""Bytes that are copied at a time."""


def place_of(text: str) -> UPath:
    """The place that a path or an object store's URL names.

    A store's client keeps no listings: another machine may write there at any time.
    """
    if "://" not in text:
        return UPath(Path(text).absolute())
    if not text.startswith(("gs://", "gcs://")):
        return UPath(text, use_listings_cache=False)
    from aiohttp import ClientTimeout  # only here, since loading the definitions shall stay cheap

    # The clients of the other stores give a server up by themselves that takes a request and never answers.
    patience = ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=ANSWER_S)
    return UPath(text, use_listings_cache=False, requests_timeout=patience)


def local_path(path: UPath) -> Path | None:
    """The same place as a plain path, or None where it is no local one."""
    return Path(path.path) if path.protocol in _LOCAL_PROTOCOLS else None


def exists(path: UPath) -> bool:
    """Whether there is a file, or a directory with anything in it.

    Raises:
        OSError: that cannot be found out.
    """
    with _as_os_errors():
        return path.exists()


def size_of(path: UPath) -> int:
    """Bytes of a file.

    Raises:
        FileNotFoundError: there is none.
        OSError: that cannot be found out.
    """
    with _as_os_errors():
        return int(path.fs.size(path.path) or 0) if local_path(path) is None else path.stat().st_size


def names_in(directory: UPath) -> list[str]:
    """The names in a directory, in order; none where there is no such directory.

    Raises:
        OSError: it cannot be listed.
    """
    place = local_path(directory)
    try:
        if place is not None:
            return sorted(entry.name for entry in place.iterdir())
        with _as_os_errors():
            entries = [entry.rstrip("/") for entry in directory.fs.ls(directory.path, detail=False)]
    except FileNotFoundError:
        return []
    # A store's console may have made an object that stands for the directory itself.
    return sorted(entry.rpartition("/")[2] for entry in entries if entry != directory.path.rstrip("/"))


def paths_below(directory: UPath) -> list[str]:
    """The files below a directory at any depth, relative to it, in order; hidden ones and links are among them.

    Links are not followed. None where there is no such directory.

    Raises:
        OSError: it cannot be listed.
    """
    place = local_path(directory)
    try:
        if place is not None:
            return sorted(_walked(place))
        with _as_os_errors():
            found = directory.fs.find(directory.path)
    except FileNotFoundError:
        return []
    root = directory.path.strip("/") + "/"
    return sorted(path.strip("/").removeprefix(root) for path in found if not path.endswith("/"))


def _walked(place: Path) -> Iterator[str]:
    def fail(error: OSError) -> None:
        raise error

    for folder, folders, names in os.walk(place, onerror=fail):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        yield from (Path(folder, name).relative_to(place).as_posix() for name in (*names, *links))


@contextmanager
def reading(path: UPath) -> Iterator[BinaryIO]:
    """A file to read in pieces.

    Raises:
        OSError: there is none, or it cannot be read, now or later.
    """
    with _as_os_errors(), path.open("rb") as file:
        yield file


def read_bytes(path: UPath) -> bytes:
    """All of a file.

    Raises:
        OSError: there is none, or it cannot be read.
    """
    with _as_os_errors():
        place = local_path(path)
        # Not `open`, which asks for the size first: the file may be replaced by one of another size in between.
        return cast(bytes, path.fs.cat_file(path.path)) if place is None else place.read_bytes()


@contextmanager
def local_copy(path: UPath, scratch: Path | None = None) -> Iterator[Path]:
    """The file on a local disk for as long as the context lasts: itself, or a copy.

    Args:
        path: of the file.
        scratch: local directory for the copy; without one, the system's.

    Raises:
        OSError: it cannot be read.
    """
    place = local_path(path)
    if place is not None:
        yield place
        return
    with TemporaryDirectory(dir=scratch, prefix="eagle3-") as folder:
        copy = Path(folder) / path.name
        with reading(path) as source, copy.open("wb") as sink:
            shutil.copyfileobj(source, sink, _PIECE)
        yield copy


def make_directory(path: UPath) -> None:
    """Makes a local directory and its parents where they are missing; an object store needs none.

    Raises:
        OSError: it cannot be made.
    """
    place = local_path(path)
    if place is not None:
        place.mkdir(parents=True, exist_ok=True)


def delete(path: UPath) -> None:
    """Deletes a file, if there is one.

    Raises:
        OSError: it cannot be deleted.
    """
    with _as_os_errors(), suppress(FileNotFoundError):
        place = local_path(path)
        if place is None:
            path.fs.rm_file(path.path)
        else:
            place.unlink()


def lock_file(path: Path) -> int:
    """An open, locked local file that names its holder; the kernel frees it with the process, however that ends.

    Raises:
        BlockingIOError: another process has it, which ``strerror`` names.
        OSError: it cannot be opened, or its file system has no locks.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except BlockingIOError as error:
        holder = os.pread(handle, 200, 0).decode("utf-8", "replace").strip() or "an unknown process"
        os.close(handle)
        raise BlockingIOError(error.errno, holder) from None
    except OSError:
        os.close(handle)
        raise
    return handle


def sync_directory(directory: Path) -> None:
    """Makes renames and new names in a directory outlive a power failure, where its file system knows how.

    Some that are mounted over a network or from user space refuse it; the names are there all the same.
    """
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
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
        with _as_os_errors():
            # Not `open`: its file is closed, and so committed, on an error too.
            target.fs.put_file(str(temporary), target.path, timeout=_patience(temporary.stat().st_size))
        temporary.unlink()
        return
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(place)
    sync_directory(place.parent)


def publish_new(temporary: Path, target: UPath) -> None:
    """Gives a finished local file a name that nothing may have yet, and makes sure that it arrived.

    On a local disk that nothing has the name is the caller's to know. On an object store the upload is refused where
    something has it, and the object is read back.

    Args:
        temporary: the finished file; gone afterwards.
        target: its place.

    Raises:
        FileExistsError: something has the name.
        OSError: it could not be written, or is not what was sent.
    """
    if local_path(target) is not None:
        publish(temporary, target)
        return
    with _as_os_errors():
        target.fs.put_file(str(temporary), target.path, mode="create", timeout=_patience(temporary.stat().st_size))
    if _sha256(target) != _sha256(UPath(temporary)):
        raise OSError(f"{target}: reads back as something else than was sent")
    temporary.unlink()


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
        with _as_os_errors():
            target.fs.pipe_file(target.path, content, timeout=_patience(len(content)))
        return
    temporary = place.with_name(f".{place.name}.tmp")
    temporary.write_bytes(content)
    publish(temporary, target)


def create(target: UPath, content: bytes) -> bool:
    """Makes a small object where there is none, which of several at once only one does.

    Args:
        target: on an object store.
        content: of the object.

    Returns:
        False where something has the name. An upload whose answer was lost may say so of itself.

    Raises:
        OSError: it could not be written.
    """
    try:
        with _as_os_errors():
            target.fs.pipe_file(target.path, content, mode="create", timeout=_patience(len(content)))
    except FileExistsError:
        return False
    return True


def _patience(size: int) -> float:
    """Seconds for so many bytes to be written to a store; S3's client waits for ever for one that hangs."""
    return WRITE_S + size / SLOWEST


def _sha256(path: UPath) -> bytes:
    with reading(path) as file:
        digest = hashlib.sha256()
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.digest()


@contextmanager
def _as_os_errors() -> Iterator[None]:
    """Client libraries of object stores have errors of their own for what is no fault of the program."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if type(error).__module__ == "builtins":
            raise
        raise OSError(without_secrets(f"{type(error).__name__}: {error}")) from error
