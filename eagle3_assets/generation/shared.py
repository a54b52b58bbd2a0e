"""A journal that another machine can go on with: a local one, uploaded in chunks to where the partition lies.

What belongs here: what is uploaded when, taking over what others uploaded. Not here: the journal itself (``journal``),
who may write (``lease``).

    <journals>/<term>-<number>.jsonl           a chunk: header, environment, and rows as the journal has them
    <journals>/lease-<term>.json               who writes
    <journals>/<name>.set-aside.jsonl          rows of another identity, which nothing reads again

A chunk never changes, and its name is its writer's own, since a term has one holder. Whoever opens the journal of a
partition first takes over the chunks' rows into its local file, each request once; all else works on that file. What it
has and the chunks have not, as after a crash on this machine, it uploads. Chunks go when a sealed file has their rows.

A row is acknowledged when ``append`` returns: from then on it survives the end of the process. With its machine, rows
are lost that came after the last upload: they are generated again.
"""

import logging
import math
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from upath import UPath

from eagle3_assets.files import create, delete, exists, names_in, publish, read_bytes, write_text
from eagle3_assets.generation.errors import JournalError
from eagle3_assets.generation.journal import (
    SET_ASIDE,
    Header,
    Journal,
    Row,
    Unfinished,
    decode,
    encode,
    encode_environment,
    environment_of,
    read_unfinished,
)
from eagle3_assets.generation.lease import Lease, newest_record
from eagle3_assets.tokens.batch import GENERATED

CHUNK_BYTES = 16 << 20
"""Bytes of rows that are uploaded even if they are few."""
MOST_WAITING = 4 * CHUNK_BYTES
"""Bytes that may wait for a slow store; then ``append`` waits too."""

RETRY_S = 5.0
"""Between a failed upload and the next one."""

LOOK_S = 1.0
"""Between looks whether an upload that is waited for may still go on."""

_LOOKS = 5
"""How often a journal is listed anew that its writer clears meanwhile."""

logger = logging.getLogger(__name__)

_CHUNK = re.compile(r"(\d{6,})-(\d{6,})\.jsonl")


@dataclass(frozen=True, slots=True)
class Sharing:
    """Where and how often a journal is uploaded, and when another machine may take it over."""

    place: UPath
    """Of this partition alone, on an object store."""
    rows: int = 500
    seconds: float = 30.0
    lease_seconds: float = 120.0


async def open_journal(directory: Path, sharing: Sharing | None) -> Journal:
    """The journal of a partition, held by this process; waits for a lease whose holder may be gone.

    Args:
        directory: of this partition alone, on a local file system.
        sharing: where it is uploaded; without, it is a local one alone.

    Raises:
        JournalError: another writer lives, or something cannot be read or written.
    """
    if sharing is None:
        return Journal(directory)
    journal = SharedJournal(directory, sharing)
    try:
        await journal.join()
    except BaseException:
        journal.close()
        raise
    return journal


def find_unfinished(directory: Path, sharing: Sharing | None) -> Unfinished | None:
    """What is unfinished of a partition, by whomever, read without changing anything: somebody may be writing it.

    Raises:
        JournalError: it cannot be read, or is not of this version.
    """
    if sharing is None:
        return read_unfinished(directory)
    try:
        for _ in range(_LOOKS - 1):
            # Chunks that go while they are read were sealed or discarded: what counts now is listed anew.
            with suppress(FileNotFoundError):
                return _found(directory, sharing.place)
        return _found(directory, sharing.place)
    except OSError as error:
        raise JournalError(f"{sharing.place}: cannot be read: {error}") from error


def _found(directory: Path, place: UPath) -> Unfinished | None:
    chunks = _chunks(place)
    header = _header(chunks)
    if header is None:
        return None
    local = read_unfinished(directory)
    found = local if local and local.header.id == header.id else Unfinished(header)
    for record in (record for chunk in chunks for record in _records(chunk, header.id)):
        if record["kind"] == "row":
            found.count(record)
    return found


class SharedJournal(Journal):
    """One partition's journal where its data lies on an object store; from :func:`open_journal`."""

    def __init__(self, directory: Path, sharing: Sharing) -> None:
        """Opens the local part; see :class:`Journal`."""
        self._place = sharing.place
        self._sharing = sharing
        self._lease: Lease | None = None
        self._number = 0
        self._upload: Future[None] | None = None
        self._uploading = (0, 0)
        """Where the upload under way begins in the file, and how many rows it has."""
        self._rows = 0
        """Rows since the last upload began."""
        self._uploaded_at = time.monotonic()
        self._failed_at = -math.inf
        """When an upload was found to have failed."""
        super().__init__(directory)
        self._uploaded = self._end
        """What lies before in the file needs no upload any more."""

    async def join(self) -> None:
        """Takes the lease, and what others uploaded.

        Raises:
            JournalError: another writer lives, or something cannot be read or written.
        """
        try:
            self._lease = await Lease.take(self._place, self._writer(), self._sharing.lease_seconds)
            self._take_over(self._lease)
        except OSError as error:
            raise JournalError(f"{self._place}: {error}") from error

    def append(self, row: Mapping[str, Any]) -> None:
        """Adds a row; see :meth:`Journal.append`."""
        self._rows += 1
        super().append(row)

    def sync_if_due(self) -> None:
        """Commits and uploads what is due.

        Raises:
            JournalError: as of :meth:`Journal.sync_if_due`; or another machine may write by now.
        """
        super().sync_if_due()
        self._held().require()
        waiting = self._end - self._uploaded
        if self._upload is not None:
            if not self._upload.done() and waiting < MOST_WAITING:
                return
            try:
                self._end_upload()
            except OSError as error:  # how long this may go on, the lease says
                logger.warning("%s: rows could not be uploaded, and will be again: %s", self._place, error)
                self._failed_at = time.monotonic()
        if time.monotonic() - self._failed_at < RETRY_S:
            return
        late = time.monotonic() - self._uploaded_at >= self._sharing.seconds
        if self._rows and (self._rows >= self._sharing.rows or waiting >= CHUNK_BYTES or late):
            self._begin_upload()

    def sync(self) -> None:
        """Commits and uploads everything, and waits for it.

        Raises:
            JournalError: the disk or the store reports an error, or another machine may write by now.
        """
        super().sync()
        if self._lease is None:
            return
        try:
            with suppress(OSError):  # it is tried once more
                self._end_upload()
            if self._uploaded < self._end:
                self._begin_upload()
                self._end_upload()
        except OSError as error:
            raise JournalError(
                f"{self._place}: rows could not be uploaded: {error}. They are in {self.path}: run again on this"
                " machine to keep them."
            ) from error

    def require_sole_writer(self) -> None:
        """Asks the store whether this process may still write; see :meth:`Journal.require_sole_writer`."""
        self._held().confirm()

    def discard(self) -> None:
        """Deletes the records, here and there: they are all in a sealed file."""
        self._held().confirm()
        with suppress(OSError):
            self._end_upload()
        super().discard()
        self._void()

    def set_aside(self) -> UPath:
        """Keeps the records in a file beside the chunks, which nothing reads again, and starts empty."""
        held = self._held()
        held.confirm()
        aside = super().set_aside()
        kept = self._place / aside.name.replace(SET_ASIDE, f"-{held.term:06d}{SET_ASIDE}")
        try:
            publish(Path(str(aside)), kept)
        except OSError as error:
            raise JournalError(f"{kept}: cannot be written: {error}. The rows are in {aside}.") from error
        self._void()
        return kept

    def close(self) -> None:
        """Commits and uploads, and lets lock and lease go. May be called twice."""
        lease = self._lease
        try:
            if lease is not None and self._file >= 0:
                lease.require()
                self.sync()
        finally:
            with suppress(JournalError, OSError):
                self._end_upload()  # it may still read the file
            self._lease = None
            if lease is not None:
                lease.release()
            super().close()

    def _held(self) -> Lease:
        if self._lease is None:
            raise ValueError("the journal was not joined, or is closed")
        return self._lease

    def _writer(self) -> str:
        """The name of the local directory on this machine: whoever has its lock knows its former holder to be gone."""
        place = UPath(self.path.with_name("writer"))
        name = read_bytes(place).decode("ascii", "replace").strip() if exists(place) else ""
        if not name:
            name = uuid.uuid4().hex
            write_text(place, name)
        # Not the directory alone: of one that machines share, or of a copy, the lock does not hold between them.
        return f"{name} on {_kernel()}"

    def _take_over(self, lease: Lease) -> None:
        chunks = _chunks(self._place)
        header = _header(chunks)
        if self.header is not None and (header is None or header.id != self.header.id):
            self._leave_local()
        if header is None:
            return
        mine = {key: self.status(key) for key in self._offsets}
        there: dict[bytes, str] = {}
        if self.header is None:
            self.header = header
            self._write(header.encoded())
        environment = self.environment
        for record in (record for chunk in chunks for record in _records(chunk, header.id)):
            if record["kind"] == "environment":
                environment = environment_of(record)
            elif record["kind"] == "row":
                key = bytes.fromhex(record["request_key"])
                if there.get(key) != GENERATED:
                    there[key] = record["status"]
                if self.status(key) not in (GENERATED, record["status"]):
                    if environment is not None and environment != self.environment:
                        self.note_environment(*environment)
                    offset = self._end
                    self._write(encode(record))
                    self._index(record, offset)
        super().sync()
        self._upload_rows(lease, [key for key, status in mine.items() if there.get(key) not in (GENERATED, status)])
        self._uploaded = self._end

    def _leave_local(self) -> None:
        """Leaves rows of a journal that another machine has sealed or set aside since: it has made the rest anew."""
        if len(self):
            aside = super().set_aside()
            logger.warning("%s: another machine went on without these rows; they are kept, and not read again", aside)
        else:
            super().discard()
        self._uploaded = self._end

    def _upload_rows(self, lease: Lease, keys: list[bytes]) -> None:
        part: list[bytes] = []
        for key in keys:
            part.append(encode({"kind": "row", **self.row(key)}))
            if sum(map(len, part)) >= CHUNK_BYTES or key == keys[-1]:
                self._send(lease, self._head() + b"".join(part))
                part = []

    def _head(self) -> bytes:
        """What makes a chunk whole by itself."""
        if self.header is None:
            raise ValueError("a chunk needs a header")
        return self.header.encoded() + (encode_environment(*self.environment) if self.environment else b"")

    def _begin_upload(self) -> None:
        lease = self._held()
        lease.require()
        start, self._uploaded = self._uploaded, self._end
        self._uploading, self._rows = (start, self._rows), 0
        self._uploaded_at = time.monotonic()
        self._upload = _beside(self._send_part, lease, self._head(), start, self._end)

    def _end_upload(self) -> None:
        """Waits for the upload under way while its chunk may still count: no longer, where a store hangs."""
        upload, self._upload = self._upload, None
        if upload is None:
            return
        try:
            while not wait([upload], LOOK_S).done:
                self._held().require()
            upload.result()
        except BaseException:
            start, rows = self._uploading
            self._uploaded, self._rows = start, self._rows + rows
            raise

    def _send_part(self, lease: Lease, head: bytes, start: int, end: int) -> None:
        parts = [head]
        while start < end and (part := os.pread(self._file, end - start, start)):
            parts.append(part)
            start += len(part)
        self._send(lease, b"".join(parts))

    def _send(self, lease: Lease, chunk: bytes) -> None:
        lease.require()
        self._number += 1
        # Where something has the name, it is this very chunk, and the answer to it was lost on its way.
        create(self._place / f"{lease.term:06d}-{self._number:06d}.jsonl", chunk)

    def _void(self) -> None:
        """Deletes all chunks. Where that fails they do no harm: their rows are sealed or set aside."""
        self._uploaded = self._rows = 0
        try:
            self._held().clear()
            for name in names_in(self._place):
                if _CHUNK.fullmatch(name):
                    delete(self._place / name)
        except OSError as error:
            logger.warning("%s: chunks that are not needed any more could not be deleted: %s", self._place, error)


def _beside(function: Callable[..., None], *arguments: object) -> Future[None]:
    """Calls a function in a thread that does not hold up the end of the process, as an executor's would."""
    future: Future[None] = Future()

    def call() -> None:
        try:
            function(*arguments)
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=call, name="chunks", daemon=True).start()
    return future


def _kernel() -> str:
    """What tells the running kernel, whose locks vouch for one writer, from any other; else the machine's name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


def _chunks(place: UPath) -> list[UPath]:
    """The chunks that count, in the order in which they were written."""
    lease = newest_record(place)
    cleared = lease.cleared if lease else 0
    found = sorted(
        (int(match[1]), int(match[2]), name) for name in names_in(place) if (match := _CHUNK.fullmatch(name))
    )
    return [place / name for term, _, name in found if term > cleared]


def _header(chunks: list[UPath]) -> Header | None:
    """The header of the journal that the newest chunk is of."""
    return next((_read_header(record, chunk) for chunk in chunks[-1:] for record in _lines(chunk)), None)


def _read_header(record: Row, chunk: UPath) -> Header:
    try:
        return Header.of(record)
    except ValidationError as error:
        raise JournalError(
            f"{chunk}: its header is not one that this version reads: {error.errors()[0]['msg']}. Nothing was changed."
            " Finish the partition with the version that began it."
        ) from None


def _records(chunk: UPath, journal: str) -> Iterator[Row]:
    """The records of a chunk; none where it is of another journal."""
    for number, record in enumerate(_lines(chunk)):
        if number == 0 and _read_header(record, chunk).id != journal:
            return
        if record["kind"] != "header":
            yield record


def _lines(chunk: UPath) -> Iterator[Row]:
    for number, line in enumerate(BytesIO(read_bytes(chunk)), start=1):
        record = decode(line)
        if record is None or (number == 1 and record["kind"] != "header"):
            raise JournalError(
                f"{chunk}: line {number} is damaged. Nothing was changed. Restore the object, or delete it to have its"
                " prompts asked again."
            )
        yield record
