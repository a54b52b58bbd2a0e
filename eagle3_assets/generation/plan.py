"""What a run has to do: which rows are there, which are missing, and whether they may be put together.

What belongs here: accounting by request key, the consents to a new identity or environment. Not here: asking, writing.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from eagle3_assets.frames import batches
from eagle3_assets.generation.errors import EnvironmentChangedError, IdentityMismatchError, PromptsError, SealedError
from eagle3_assets.generation.journal import Journal
from eagle3_assets.generation.sealed import Sealed, read_environment, read_identity
from eagle3_assets.identity import Identity, differences, digest, request_key
from eagle3_assets.tokens.batch import FAILED, GENERATED, REFUSED

BATCH_ROWS = 500
"""Prompts in memory at once."""

_KEY = re.compile("[0-9a-f]{32}")
_PROMPT_COLUMNS = ("sample_id", "prompt_ids", "status", "reason")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One row of ``tokenized_prompts``, and its place there."""

    position: int
    sample_id: str
    prompt_ids: list[int] | None
    status: str
    reason: str | None


@dataclass(slots=True)
class PromptIndex:
    """Every prompt in order, by request key: about 100 bytes each, however long the prompts are."""

    keys: list[bytes] = field(default_factory=list)
    """Sixteen bytes each."""
    refused: bytearray = field(default_factory=bytearray)
    """1 where the prompt was refused before generation."""
    again: bytearray = field(default_factory=bytearray)
    """1 where its stored row is not wanted."""


@dataclass(slots=True)
class SealedIndex:
    """A sealed file's rows by request key."""

    rows: dict[bytes, int] = field(default_factory=dict)
    """Row number in the file."""
    status: list[str] = field(default_factory=list)
    """By row number."""

    def of(self, key: bytes) -> str | None:
        """The status of a request, or None where the file does not have it."""
        row = self.rows.get(key)
        return None if row is None else self.status[row]

    @property
    def generated(self) -> int:
        """How many rows hold an output."""
        return sum(status == GENERATED for status in self.status)


def iterate_prompts(prompts: pl.LazyFrame) -> Iterator[Prompt]:
    """Prompts in order, a few hundred in memory at a time."""
    position = 0
    for batch in batches(prompts.select(_PROMPT_COLUMNS), BATCH_ROWS):
        for sample_id, prompt_ids, status, reason in batch.iter_rows():
            yield Prompt(position, sample_id, prompt_ids, status, reason)
            position += 1


def index_prompts(prompts: pl.LazyFrame, identity: Identity, again: Collection[str] = ()) -> PromptIndex:
    """Reads all prompts once.

    Args:
        prompts: rows of ``contract.TOKENIZED_PROMPTS``.
        identity: of this run.
        again: ids of the samples whose stored rows are not wanted.

    Raises:
        PromptsError: a column is missing, a status is unknown, or a sample id stands there twice.
    """
    missing = [name for name in _PROMPT_COLUMNS if name not in prompts.collect_schema()]
    if missing:
        raise PromptsError(f"the prompts have no column {', '.join(missing)}; they must be rows of tokenized_prompts")
    index, fingerprint, seen = PromptIndex(), identity.fingerprint, set[str]()
    for prompt in iterate_prompts(prompts):
        where = f"prompt {prompt.position} (sample {prompt.sample_id!r})"
        if prompt.sample_id is None or prompt.sample_id in seen:
            raise PromptsError(
                f"{where}: its sample id is missing or stands there twice; no row could be accounted for"
            )
        if prompt.status not in ("ready", "refused"):
            raise PromptsError(f"{where}: its status is {prompt.status!r}, neither ready nor refused")
        seen.add(prompt.sample_id)
        index.keys.append(bytes.fromhex(prompt_key(prompt, fingerprint)))
        index.refused.append(prompt.status == "refused")
        index.again.append(prompt.sample_id in again)
    return index


def index_sealed(frame: pl.LazyFrame) -> SealedIndex:
    """Reads which requests a sealed file holds.

    Raises:
        SealedError: a row does not say which.
    """
    index = SealedIndex()
    for batch in batches(frame.select("request_key", "status"), 10_000):
        for key, status in batch.iter_rows():
            if key is None or not _KEY.fullmatch(key):
                raise SealedError(
                    f"row {len(index.status)} of the sealed generations has the request key {key!r}, which is none:"
                    " the file was changed. Restore it from a copy, or materialize raw_generations with regenerate."
                )
            index.rows[bytes.fromhex(key)] = len(index.status)
            index.status.append(status)
    return index


def settle_base(
    journal: Journal, current: Sealed | None, identity: Identity, *, regenerate: bool
) -> tuple[Sealed | None, list[str]]:
    """Decides what a run builds on, and gives a journal of something else its place.

    Args:
        journal: as found; afterwards empty, or one that belongs to this run.
        current: the partition's sealed file.
        identity: of this run.
        regenerate: consent to a new file beside the current one.

    Returns:
        the sealed file to extend (None to begin from nothing), and files that were set aside.

    Raises:
        IdentityMismatchError: what is there has another identity, and there was no consent.
    """
    aside: list[str] = []
    if journal.header and current and journal.header.id == current.pointer.journal:
        journal.discard()  # sealed already; the process ended before it could be deleted
    if journal.header:
        ours = journal.header.identity == identity
        if not ours and not regenerate:
            raise _mismatch(str(journal.path), "unfinished rows", journal.header.identity, identity)
        if not ours or (regenerate and not journal.header.fresh):
            aside.append(str(journal.set_aside()))
        elif journal.header.fresh:
            return None, aside  # goes on with a new file that was consented to before
    if current is None or regenerate:
        return None, aside
    if current.pointer.fingerprint != identity.fingerprint:
        theirs = read_identity(current.directory, current.pointer.fingerprint)
        raise _mismatch(str(current.path), "rows", theirs, identity)
    return current, aside


def missing_prompts(prompts: PromptIndex, sealed: SealedIndex, journal: Journal, *, retry_failed: bool) -> bytearray:
    """Which prompts this run has to bring to an end: 1 at their position."""
    done = {GENERATED} if retry_failed else {GENERATED, FAILED}
    return bytearray(
        not refused
        and journal.status(key) not in ({GENERATED} if again else done)
        and (again or sealed.of(key) not in done)
        for key, refused, again in zip(prompts.keys, prompts.refused, prompts.again, strict=True)
    )


def failed_before(prompts: PromptIndex, sealed: SealedIndex, journal: Journal, missing: Sequence[int]) -> int:
    """How many of the rows that are not missing have failed in an earlier run, and are left at that."""
    return sum(
        not refused and not asked and GENERATED not in (journal.status(key), sealed.of(key))
        for key, refused, asked in zip(prompts.keys, prompts.refused, missing, strict=True)
    )


def is_sealed_already(prompts: PromptIndex, sealed: SealedIndex) -> bool:
    """Whether a sealed file has exactly these prompts, in this order, refused where they are refused."""
    return len(sealed.status) == len(prompts.keys) and all(
        sealed.rows.get(key) == row and bool(refused) == (sealed.status[row] == REFUSED)
        for row, (key, refused) in enumerate(zip(prompts.keys, prompts.refused, strict=True))
    )


def environment_changes(journal: Journal, base: Sealed | None, now: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """How the environment differs from that of the newest rows there; empty where it does not.

    Args:
        journal: of this run.
        base: the sealed file that the run extends.
        now: the engine's environment.
        name: its digest.
    """
    if journal.environment is not None:
        before, record = journal.environment
    elif base is not None and base.pointer.environment is not None:
        before = base.pointer.environment
        record = read_environment(base.directory, before) or {"record": "missing"}
    else:
        return ()
    if before == name:
        return ()
    return tuple(differences(record, now))


def require_environment(changes: tuple[str, ...], kept: int, *, accept: bool) -> None:
    """Stops a run that would extend rows of another environment.

    Raises:
        EnvironmentChangedError: it would, and there was no consent.
    """
    if changes and kept and not accept:
        raise EnvironmentChangedError(
            f"{kept:,} rows of this partition were generated in another environment:\n"
            + "".join(f"  {line}\n" for line in changes)
            + "Tokens may differ between the two. Go back to the former one, or set accept_environment to continue; "
            "each row records its own."
        )


def prompt_key(prompt: Prompt, fingerprint: str) -> str:
    """The name of a prompt's request, 32 hex digits; see :func:`identity.request_key`."""
    try:
        return request_key(prompt.sample_id, prompt.prompt_ids or (), fingerprint)
    except (OverflowError, TypeError):  # no 32-bit integers: the row will fail, but it needs a name to be accounted for
        return digest([prompt.sample_id, prompt.prompt_ids, fingerprint], length=32)


def _mismatch(where: str, what: str, theirs: Identity, ours: Identity) -> IdentityMismatchError:
    return IdentityMismatchError(
        f"{where} holds {what} of another identity than this run's:\n"
        + "".join(f"  {line}\n" for line in theirs.differences(ours))
        + "Two identities are never mixed in one partition. Go back to the former settings to continue it, or set "
        "regenerate to begin a new file; what is there is kept beside."
    )
