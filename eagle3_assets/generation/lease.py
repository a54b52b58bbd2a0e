"""A lease: which machine may write a partition on an object store, where no kernel holds a lock.

What belongs here: taking it, renewing it, noticing its loss. Not here: what is written under it (``shared``).

    lease-000007.json     {"holder": ..., "token": ..., "seconds": 120, "renewal": 3, "released": false, ...}

The greatest number counts: its *term*. A term is begun by writing an object that is not there yet, which of several at
once only one can do; from then on its holder alone rewrites it, to say that it lives. Older ones are deleted by the
newest holder, the newest never is: so no term begins twice.

Clocks are not compared between machines, nor with the store's. Whoever wants a lease that is held watches it, and takes
it when it did not change for as long as its holder said, by the watcher's own clock. The holder takes itself to have
lost it a tenth earlier, counted from before its last renewal was sent. So two never both hold it, if clocks run at the
same speed to within a tenth, and if what a holder sends arrives within that tenth of the time. What arrives later still
does no harm that lasts: names are a term's own, and sealing looks again just before it swaps the pointer.
"""

import asyncio
import logging
import os
import re
import socket
import threading
import time
import uuid
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError
from upath import UPath

from eagle3_assets.files import create, delete, names_in, read_bytes, write_text
from eagle3_assets.generation.errors import HeldError, JournalError

RENEWALS = 6
"""Renewals in the time after which a lease is taken to be nobody's."""
KEPT_SHARE = 0.9
"""Share of that time after which a holder that could not renew it stops."""
LOOK_S = 1.0
"""Between looks whether a lease lasts whose last renewal is waited for."""

logger = logging.getLogger(__name__)

_NAME = re.compile(r"lease-(\d{6,})\.json")
# Counts what a machine sleeps, too: who slept through a lease has lost it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LeaseRecord(BaseModel):
    """The content of a term's object."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    holder: str
    """For people: process and machine."""
    writer: str
    """Names the local directory in which the holder works, and whose lock it has."""
    token: str
    """Tells this term's object from any other."""
    seconds: float
    """Without a change for so long it is nobody's."""
    renewal: int = 0
    released: bool = False
    cleared: int = 0
    """What terms up to this one wrote is void: it is sealed, or set aside."""


def newest_record(directory: UPath) -> LeaseRecord | None:
    """The record of the term that counts; None where there never was one.

    Raises:
        JournalError: it is no record that this version reads.
        OSError: the store cannot be read.
    """
    while term := _newest_term(directory):
        record = _read(directory, term)
        if record is not None:  # else a newer one came meanwhile, and this one was deleted
            return record
    return None


class Lease:
    """A term that is held. Its methods may be called from several threads."""

    def __init__(self, directory: UPath, term: int, record: LeaseRecord, since: float) -> None:
        """Begins to renew a term that was won; for :meth:`take`."""
        self.directory = directory
        self.term = term
        self._record = record
        self._lock = threading.Lock()
        self._until = since + KEPT_SHARE * record.seconds
        self._taken_by: str | None = None
        self._ended = threading.Event()
        self._renewer = threading.Thread(target=self._keep_renewing, name="lease", daemon=True)
        self._renewer.start()

    @classmethod
    async def take(cls, directory: UPath, writer: str, seconds: float) -> Self:
        """Takes the lease, after watching out for its holder where it has one.

        Args:
            directory: on an object store, of this partition alone.
            writer: name of a local directory whose lock the caller has; its former holder is certainly gone.
            seconds: without a renewal for so long, others may take it.

        Raises:
            HeldError: another writer lives, or was faster.
            JournalError: the store does not keep two writers apart.
            OSError: the store cannot be read or written.
        """
        cleared = 0
        while term := _newest_term(directory):
            before = _read(directory, term)
            if before is not None and not before.released and before.writer != writer:
                before = await _silent(directory, term)
            if before is not None:
                cleared = before.cleared
                break
        since, place = _now(), _place(directory, term + 1)
        record = LeaseRecord(
            holder=f"process {os.getpid()} on {socket.gethostname()}",
            writer=writer,
            token=uuid.uuid4().hex,
            seconds=seconds,
            cleared=cleared,
        )
        content = record.model_dump_json().encode()
        if not create(place, content) and not _is(directory, term + 1, record):
            raise _held(directory, _read(directory, term + 1))
        if create(place, content):
            raise JournalError(
                f"{directory}: this store writes an object although it was told to write it only if there is none, so"
                f" that two writers cannot be kept apart. Use another store; docs/storage.md says what it must do."
            )
        newest = _newest_term(directory)
        if newest != term + 1:  # its number was free because it came and went while this process was held up
            delete(place)
            raise _held(directory, _read(directory, newest))
        for old in _terms(directory):
            if old <= term:
                delete(_place(directory, old))
        return cls(directory, term + 1, record, since)

    @property
    def cleared(self) -> int:
        """The term up to which all that was written is void."""
        return self._record.cleared

    def require(self) -> None:
        """Makes sure, without asking the store, that nobody else may write.

        Raises:
            JournalError: another machine has taken it over, or may have by now.
        """
        if self._taken_by is not None:
            raise JournalError(
                f"{self.directory}: {self._taken_by} has taken this partition over, since this process was silent for"
                f" {self._record.seconds:g} s. It stops; what it uploaded is there for the other."
            )
        if _now() > self._until:
            raise JournalError(
                f"{self.directory}: the store could not be reached for {KEPT_SHARE * self._record.seconds:g} s, so that"
                " another machine may take this partition over. This process stops: run again when that is mended."
            )

    def confirm(self) -> None:
        """The same, and asks the store.

        Raises:
            JournalError: as of :meth:`require`, or the store cannot be asked.
        """
        self.require()
        try:
            self._renew()
        except OSError as error:
            raise JournalError(f"{self.directory}: the lease cannot be confirmed: {error}") from error
        self.require()

    def clear(self) -> None:
        """Says that what former terms wrote is void, even if it arrives only now.

        Raises:
            OSError: it cannot be written.
        """
        self._write(cleared=self.term - 1)

    def release(self) -> None:
        """Ends it, so that the next one need not wait. May be called twice."""
        if self._ended.is_set():
            return
        self._ended.set()
        # Not for longer than the lease lasts: a store that hangs may hold a renewal up.
        while self._renewer.is_alive() and _now() <= self._until:
            self._renewer.join(LOOK_S)
        try:
            self.require()
            self._write(released=True)
        except (JournalError, OSError) as error:
            logger.warning("%s: the lease is left to run out: %s", self.directory, error)

    def _keep_renewing(self) -> None:
        while not self._ended.wait(self._record.seconds / RENEWALS) and self._taken_by is None and _now() < self._until:
            try:
                self._renew()
            except (JournalError, OSError) as error:
                logger.warning("%s: the lease could not be renewed: %s", self.directory, error)

    def _renew(self) -> None:
        since = _now()
        newest = _newest_term(self.directory)
        if newest > self.term:
            other = _read(self.directory, newest)
            self._taken_by = other.holder if other else "another process"
            return
        self._write(renewal=self._record.renewal + 1)
        self._until = max(self._until, since + KEPT_SHARE * self._record.seconds)

    def _write(self, **changes: object) -> None:
        with self._lock:
            record = self._record.model_copy(update=changes)
            write_text(_place(self.directory, self.term), record.model_dump_json())
            self._record = record


async def _silent(directory: UPath, term: int) -> LeaseRecord | None:
    """Watches a held lease: the record that stayed as it is for as long as it says. None where it changed hands.

    Raises:
        HeldError: its holder lives.
    """
    first = _read(directory, term)
    since = _now()
    if first is not None:
        logger.info("%s: %s holds the lease; waiting up to %g s for it", directory, first.holder, first.seconds)
    while first is not None and _now() <= since + first.seconds:
        await asyncio.sleep(min(first.seconds / (4 * RENEWALS), 5.0))
        now = _read(directory, term)
        if now is None or now.released:
            return None
        if now != first:
            raise _held(directory, now)
    return first


def _held(directory: UPath, record: LeaseRecord | None) -> HeldError:
    holder = record.holder if record else "another process"
    return HeldError(
        f"{directory}: this partition is being generated by {holder}. Wait for it, or end it and run again: its"
        " uploaded rows are kept.",
        holder,
    )


def _terms(directory: UPath) -> list[int]:
    return [int(found[1]) for name in names_in(directory) if (found := _NAME.fullmatch(name))]


def _newest_term(directory: UPath) -> int:
    return max(_terms(directory), default=0)


def _place(directory: UPath, term: int) -> UPath:
    return directory / f"lease-{term:06d}.json"


def _read(directory: UPath, term: int) -> LeaseRecord | None:
    place = _place(directory, term)
    try:
        return LeaseRecord.model_validate_json(read_bytes(place))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise JournalError(f"{place}: is no lease that this version reads: {error.errors()[0]['msg']}") from None


def _is(directory: UPath, term: int, record: LeaseRecord) -> bool:
    """Whether a term is ours although the store said no: the answer to what we sent first was lost on its way."""
    there = _read(directory, term)
    return there is not None and there.token == record.token


def _now() -> float:
    return time.clock_gettime(_CLOCK)
