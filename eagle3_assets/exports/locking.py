"""Who writes an export: one process at a time.

What belongs here: taking the directory and letting it go. Not here: what is written there (``writing``).

On a local disk the kernel keeps a lock, and frees it with the process; on an object store it is a lease, which is
nobody's when its holder has been silent for a while.
"""

import asyncio
import errno
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from upath import UPath

from eagle3_assets.exports.errors import ExportError
from eagle3_assets.files import local_path, lock_file
from eagle3_assets.generation.errors import HeldError, JournalError
from eagle3_assets.generation.lease import Lease

LOCK = ".export.lock"
"""Of a local directory, gone when the export has ended; one that a killed process left is nobody's."""
LEASE = ".export-lease"
"""Of an object store, where the last holder's record stays."""

LEASE_SECONDS = 120.0

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


@contextmanager
def only_writer(place: UPath) -> Iterator[Callable[[], None]]:
    """Keeps every other export out of a directory, which is made where it is missing, as long as the context lasts.

    Yields:
        what says, by an :class:`ExportError`, when this is the only writer no more.

    Raises:
        ExportError: another process writes there, or it cannot be made, reached or locked.
    """
    local = local_path(place)
    with _on_store(place) if local is None else _on_disk(local) as require:
        yield require


@contextmanager
def _on_disk(place: Path) -> Iterator[Callable[[], None]]:
    made = [folder for folder in (place, *place.parents) if not folder.exists()]
    handle = -1
    try:
        place.mkdir(parents=True, exist_ok=True)
        # Who had it has deleted it before it let go: what was opened may be no longer what has the name.
        while handle < 0 or not _has_its_name(handle, place / LOCK):
            if handle >= 0:
                os.close(handle)
            handle = lock_file(place / LOCK)
    except BlockingIOError as error:
        raise _held(place, error.strerror) from None
    except OSError as error:
        advice = "; its file system has no locks: export to a local disk" if error.errno in _NO_LOCKS else ""
        raise ExportError(f"{place}: cannot be written: {error.strerror or error}{advice}") from None
    try:
        yield lambda: None
    finally:
        with suppress(OSError):
            (place / LOCK).unlink()
        os.close(handle)
        with suppress(OSError):  # it is in use now
            for folder in made:
                folder.rmdir()


def _has_its_name(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


@contextmanager
def _on_store(place: UPath) -> Iterator[Callable[[], None]]:
    try:
        lease = asyncio.run(Lease.take(place / LEASE, uuid.uuid4().hex, LEASE_SECONDS))
    except HeldError as error:
        raise _held(place, error.holder) from None
    except JournalError as error:
        raise ExportError(str(error)) from None
    except OSError as error:
        raise ExportError(f"{place}: cannot be written: {error.strerror or error}") from None

    def require() -> None:
        try:
            lease.require()
        except JournalError:
            raise ExportError(
                f"{place}: another process has taken it over, or may have by now, since this one did not reach the"
                " store for a while; nothing more is written: export again"
            ) from None

    try:
        yield require
    finally:
        lease.release()


def _held(place: UPath | Path, holder: object) -> ExportError:
    return ExportError(f"{place}: {holder} is exporting into it; wait for that one, or end it and export again")
