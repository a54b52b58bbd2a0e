"""The journal: where every finished row of an unfinished partition lies, one JSON object a line.

What belongs here: one writer's lock, appending, recovery after a crash, finding a row again. Not here: what a row holds
(``rows``), which rows are wanted (``plan``).

    {"kind": "header", "id": ..., "identity": {...}, "fresh": false}
    {"kind": "environment", "digest": ..., "environment": {...}}
    {"kind": "row", "request_key": ..., "status": ..., ...}

A row is acknowledged when ``append`` returns: from then on it survives the end of the process, however sudden. Against
a power failure it is safe after the next group commit. One begins 16 rows or one second later at most, in a thread
beside the work, since a disk takes a millisecond or ten for it; while it lasts, up to 256 rows may be without one.
"""

import errno
import json
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import msgspec
from pydantic import BaseModel, ConfigDict, ValidationError
from upath import UPath

from eagle3_assets.files import lock_file
from eagle3_assets.generation.errors import JournalError
from eagle3_assets.identity import Identity
from eagle3_assets.tokens.batch import FAILED, GENERATED

FILE = "journal.jsonl"
LOCK = "journal.lock"
SET_ASIDE = ".set-aside.jsonl"
SYNC_RECORDS = 16
SYNC_SECONDS = 1.0
MOST_UNSYNCED = 256
"""Rows that may wait for a slow disk; then ``append`` waits too."""

Row = dict[str, Any]

_IDS = ("prompt_ids", "output_ids")
"""Lists of integers."""


class Header(BaseModel):
    """The journal's first record."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    identity: Identity
    fresh: bool
    """Whether it makes a new file instead of extending the current one."""

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self:
        """The header that a record holds.

        Raises:
            pydantic.ValidationError: it is none that this version reads.
        """
        return cls.model_validate({name: value for name, value in record.items() if name != "kind"})

    def encoded(self) -> bytes:
        """Its record."""
        return encode({"kind": "header", **self.model_dump(mode="json")})


def encode_environment(name: str, environment: Mapping[str, Any]) -> bytes:
    """The record of an environment and its digest."""
    return encode({"kind": "environment", "digest": name, "environment": environment})


def environment_of(record: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Digest and content of the environment that a record holds."""
    return str(record.get("digest")), dict(record.get("environment") or {})


def encode(record: Mapping[str, Any]) -> bytes:
    """One record as one line of ASCII, so that any text survives, lone surrogates and line separators too.

    Ids are most of a row, and :mod:`msgspec` writes them twenty times faster than :mod:`json`, which keeps what is no
    plain JSON: a lone surrogate, a number that is none.
    """
    ids = {name: record[name] for name in _IDS if isinstance(record.get(name), list)}
    rest = {name: value for name, value in record.items() if name not in ids}
    line = [json.dumps(rest, separators=(",", ":")).encode("ascii")[:-1]]
    line += [b',"%b":%b' % (name.encode(), msgspec.json.encode(values)) for name, values in ids.items()]
    return b"".join(line) + b"}\n"


def decode(line: bytes) -> Row | None:
    """The record of a line with its newline, or None where it is none: cut off, or damaged."""
    if not line.endswith(b"\n"):
        return None
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return None
    if not isinstance(record, dict):
        return None
    match record.get("kind"):
        case "header" | "environment":
            return record
        case "row":
            return record if _is_key(record.get("request_key")) and isinstance(record.get("status"), str) else None
        case _:
            return None


@dataclass(slots=True)
class Unfinished:
    """What a journal holds at one moment."""

    header: Header
    status: dict[bytes, str] = field(default_factory=dict)
    """``generated`` or ``failed`` by request key."""
    outputs: int = 0
    output_tokens: int = 0

    def count(self, row: Row) -> None:
        """Takes a row into account, each request once."""
        key = bytes.fromhex(row["request_key"])
        if self.status.get(key) == GENERATED:
            return
        self.status[key] = row["status"]
        if row["status"] == GENERATED:
            self.outputs += 1
            self.output_tokens += len(row.get("output_ids") or ())


def read_unfinished(directory: Path) -> Unfinished | None:
    """Reads a journal without its lock and without changing it: another process may be writing it.

    A line that is no record is left out: whoever opens the journal to write settles that.

    Returns:
        None where nothing is unfinished.

    Raises:
        JournalError: it cannot be read, or begins with a header of another version.
    """
    path = directory / FILE
    found: Unfinished | None = None
    try:
        with path.open("rb") as file:
            for record in filter(None, map(decode, file)):
                if record["kind"] == "header":
                    found = Unfinished(Header.of(record))
                elif record["kind"] == "row" and found is not None:
                    found.count(record)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise JournalError(
            f"{path}: its header is not one that this version reads: {error.errors()[0]['msg']}"
        ) from None
    return found


class Journal:
    """One partition's journal, held by one writer. Use it as a context manager; not from several threads."""

    def __init__(self, directory: Path) -> None:
        """Takes the lock, cuts off what a crash left unfinished, and indexes the rest.

        Args:
            directory: of this partition alone, on a local file system; made where it is missing.

        Raises:
            JournalError: another writer lives, the directory cannot be written, or a record in the middle is damaged.
        """
        self.path = directory / FILE
        self.header: Header | None = None
        self.environment: tuple[str, dict[str, Any]] | None = None
        """Digest and content of the environment that the newest rows belong to."""
        self.torn_bytes = 0
        self._offsets: dict[bytes, int] = {}
        self._failed: set[bytes] = set()
        self._end = 0
        self._unsynced = 0
        self._synced_at = time.monotonic()
        self._committer = ThreadPoolExecutor(1, "journal")
        self._commit: Future[None] | None = None
        self._committing = 0
        """Rows that the commit under way is for."""
        self._reader: BinaryIO | None = None
        self._file = self._lock = -1
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(directory / LOCK)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            self._recover()
        except OSError as error:
            self.close()
            raise self._error("cannot be opened", error) from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes, whatever happened."""
        self.close()

    def __len__(self) -> int:
        """How many requests have a row."""
        return len(self._offsets)

    def status(self, key: bytes) -> str | None:
        """``generated`` or ``failed``, or None for a request without a row."""
        if key not in self._offsets:
            return None
        return FAILED if key in self._failed else GENERATED

    def generated(self) -> Iterator[bytes]:
        """The requests that have an output."""
        return (key for key in self._offsets if key not in self._failed)

    def row(self, key: bytes) -> Row:
        """A request's row, read from the file.

        Raises:
            KeyError: it has none.
            JournalError: the file cannot be read or changed under us.
        """
        offset = self._offsets[key]
        try:
            if self._reader is None:
                self._reader = self.path.open("rb")
            self._reader.seek(offset)
            record = decode(self._reader.readline())
        except OSError as error:
            raise self._error("cannot be read", error) from error
        if record is None or bytes.fromhex(record["request_key"]) != key:
            raise JournalError(
                f"{self.path}: the record at byte {offset} changed while it was in use; nothing was deleted"
            )
        del record["kind"]
        return record

    def begin(self, identity: Identity, *, fresh: bool) -> None:
        """Writes the header of an empty journal, and commits it."""
        self.header = Header(id=uuid.uuid4().hex, identity=identity, fresh=fresh)
        self._write(self.header.encoded())
        self.sync()

    def note_environment(self, name: str, environment: Mapping[str, Any]) -> None:
        """Says which environment the rows from here on belong to."""
        self.environment = (name, dict(environment))
        self._write(encode_environment(name, environment))
        self._unsynced += 1

    def append(self, row: Mapping[str, Any]) -> None:
        """Adds a row. It replaces an earlier failed row of the same request, never a generated one.

        Args:
            row: holds ``request_key`` (32 hex digits) and ``status`` (generated or failed).

        Raises:
            JournalError: the disk is full, read-only or broken. All rows before this one are kept.
        """
        offset = self._end
        self._write(encode({"kind": "row", **row}))
        self._index(row, offset)
        self._unsynced += 1
        self.sync_if_due()

    def sync_if_due(self) -> None:
        """Begins a commit where 16 rows or one second have passed since the last one began.

        Raises:
            JournalError: the disk reported an error at the commit before; its rows may not survive a power failure.
        """
        if self._commit is not None:
            if not self._commit.done() and self._unsynced + self._committing < MOST_UNSYNCED:
                return
            self._end_commit()
        late = time.monotonic() - self._synced_at >= SYNC_SECONDS
        if self._unsynced >= SYNC_RECORDS or (self._unsynced and late):
            self._begin_commit()

    def sync(self) -> None:
        """Commits to the disk, and waits for it.

        Raises:
            JournalError: the disk reports an error; rows since the last commit may not survive a power failure.
        """
        if self._commit is not None:
            self._end_commit()
        self._begin_commit()
        self._end_commit()

    def discard(self) -> None:
        """Deletes the records: they are all in a sealed file."""
        try:
            os.ftruncate(self._file, 0)
            os.lseek(self._file, 0, os.SEEK_SET)
        except OSError as error:
            raise self._error("cannot be emptied", error) from error
        self._forget()

    def require_sole_writer(self) -> None:
        """Makes sure, before what cannot be undone, that nobody else writes: the lock of a local file says so.

        Raises:
            JournalError: somebody else may write by now; never of a local journal.
        """

    def set_aside(self) -> Path | UPath:
        """Keeps the records in a file beside, which nothing reads again, and starts empty.

        Returns:
            that file.
        """
        name = self.header.identity.fingerprint if self.header else "journal"
        number = 1
        while (aside := self.path.with_name(f"{name}-{number}{SET_ASIDE}")).exists():
            number += 1
        try:
            self.sync()
            self.path.rename(aside)
            os.close(self._file)
            self._file = -1
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._error("cannot be set aside", error) from error
        self._forget()
        return aside

    def close(self) -> None:
        """Commits and lets the lock go. May be called twice."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        try:
            if self._file >= 0 and (self._unsynced or self._commit):
                self.sync()
        finally:
            self._committer.shutdown()
            for handle in (self._file, self._lock):
                if handle >= 0:
                    os.close(handle)
            self._file = self._lock = -1

    def _begin_commit(self) -> None:
        self._committing, self._unsynced = self._unsynced, 0
        self._synced_at = time.monotonic()
        self._commit = self._committer.submit(getattr(os, "fdatasync", os.fsync), self._file)

    def _end_commit(self) -> None:
        commit, self._commit, self._committing = self._commit, None, 0
        try:
            if commit is not None:
                commit.result()
        except OSError as error:
            raise self._error("cannot be committed to disk", error) from error

    def _forget(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._offsets.clear()
        self._failed.clear()
        self.header = self.environment = None
        self._end = self._unsynced = 0

    def _write(self, data: bytes) -> None:
        try:
            written = os.write(self._file, data)
            while written < len(data):  # a disk that fills up takes a part first and says so at the next write
                written += os.write(self._file, data[written:])
        except OSError as error:
            self._drop_part()
            raise self._error("cannot be written", error) from error
        self._end += len(data)

    def _drop_part(self) -> None:
        """Takes an unfinished record off the end. Where even that fails, the next opening does it."""
        try:
            os.ftruncate(self._file, self._end)
            os.lseek(self._file, self._end, os.SEEK_SET)
        except OSError:
            return

    def _recover(self) -> None:
        first_bad = bad = bad_bytes = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                record = decode(line)
                if record is None:
                    first_bad, bad, bad_bytes = first_bad or number, bad + 1, bad_bytes + len(line)
                # A crash can only spoil the end, and no more of it than may be without a commit. The header has a
                # commit of its own, so a file that begins with something else is not ours.
                foreign = self.header is None and number > 1
                if bad and (record is not None or bad > MOST_UNSYNCED or foreign):
                    raise JournalError(
                        f"{self.path}: line {first_bad} is damaged, and not by an unfinished write at the end. Nothing "
                        f"was changed. Remove the damaged lines to have their prompts asked again, or move the file "
                        f"away."
                    )
                if record is not None:
                    self._take(record, number)
                    self._end += len(line)
        self.torn_bytes = bad_bytes
        if bad_bytes:
            os.ftruncate(self._file, self._end)
            os.fsync(self._file)
        os.lseek(self._file, self._end, os.SEEK_SET)

    def _take(self, record: Row, number: int) -> None:
        match record["kind"]:
            case "header":
                try:
                    self.header = Header.of(record)
                except ValidationError as error:
                    raise JournalError(
                        f"{self.path}: line {number} is not a header that this version reads: "
                        f"{error.errors()[0]['msg']}. "
                        f"Nothing was changed. Finish it with the version that began it, or move the file away."
                    ) from None
            case "environment":
                self.environment = environment_of(record)
            case _:
                if self.header is None:
                    raise JournalError(f"{self.path}: line {number} is a row, but no header stands before it")
                self._index(record, self._end)

    def _index(self, row: Mapping[str, Any], offset: int) -> None:
        key = bytes.fromhex(row["request_key"])
        if self.status(key) == GENERATED:
            return
        self._offsets[key] = offset
        if row["status"] == FAILED:
            self._failed.add(key)
        else:
            self._failed.discard(key)

    def _error(self, what: str, error: OSError) -> JournalError:
        advice = {
            errno.ENOSPC: "The disk is full: make room, then run again to continue.",
            errno.EDQUOT: "Your quota is used up: make room, then run again to continue.",
            errno.EFBIG: "The file may not grow further (ulimit -f): raise the limit, then run again to continue.",
            errno.EROFS: "The file system is read-only: choose another directory for the journal.",
            errno.EACCES: "Permission is missing: choose another directory for the journal.",
            errno.ENOLCK: "The file system has no locks: choose a directory on a local disk.",
            errno.EOPNOTSUPP: "The file system has no locks: choose a directory on a local disk.",
        }.get(error.errno or 0, "")
        kept = f" The {len(self):,} finished rows in it are kept." if self._offsets else ""
        return JournalError(f"{self.path}: {what}: {error.strerror or error}. {advice}{kept}".rstrip())


def _locked(path: Path) -> int:
    try:
        return lock_file(path)
    except BlockingIOError as error:
        raise JournalError(
            f"{path}: this partition is being generated by {error.strerror}. Wait for it, or end it and run again: its "
            f"finished rows are kept."
        ) from None


def _is_key(value: object) -> bool:
    return isinstance(value, str) and len(value) == 32 and not set(value) - set("0123456789abcdef")
