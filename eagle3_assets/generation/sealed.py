"""What a finished partition looks like on disk, and how it is found and read.

    <fingerprint>-<n>.parquet           rows of contract.RAW_GENERATIONS in prompt order
    <fingerprint>.identity.json         the identity of that name
    <digest>.environment.json           engine, versions and flags, named in each row
    current.json                        which parquet file counts, swapped atomically

What belongs here: names, the pointer, the records beside it, reading. Not here: writing the parquet (``sealing``).
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json
from upath import UPath

from eagle3_assets.contract import RAW_GENERATIONS
from eagle3_assets.files import (
    exists,
    local_copy,
    local_path,
    make_directory,
    names_in,
    read_bytes,
    size_of,
    write_text,
)
from eagle3_assets.generation.errors import SealedError
from eagle3_assets.identity import Identity, canonical_json, digest

CURRENT = "current.json"


class Pointer(BaseModel):
    """The content of ``current.json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str = Field(pattern=r"^[0-9a-f]+-[0-9]+\.parquet$")
    fingerprint: str
    """Of the identity; ``<fingerprint>.identity.json`` holds it whole."""
    rows: int = Field(ge=0)
    size_bytes: int = Field(ge=0)
    generated: int = Field(ge=0)
    failed: int = Field(ge=0)
    refused: int = Field(ge=0)
    environment: str | None
    """Digest of the environment of the newest rows; None where nothing was ever asked."""
    journal: str | None
    """Id of the journal that was sealed into it, so that a left-over one is known."""
    sealed_at: str
    """UTC, ISO 8601."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A partition's current file."""

    directory: UPath
    pointer: Pointer

    @property
    def path(self) -> UPath:
        """The parquet file."""
        return self.directory / self.pointer.file

    @property
    def rows(self) -> int:
        """One for each prompt, whatever became of it."""
        return self.pointer.rows


def read_current(directory: UPath) -> Sealed | None:
    """Finds the file that counts and checks that it is there and whole as far as its footer tells.

    Args:
        directory: the partition's.

    Returns:
        None where the partition was never sealed.

    Raises:
        SealedError: the pointer or its file is damaged or missing. Nothing is changed or deleted.
    """
    directory = UPath(directory)
    place = directory / CURRENT
    try:
        content = read_bytes(place)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SealedError(f"{place}: cannot be read: {error.strerror or error}") from error
    try:
        pointer = Pointer.model_validate(from_json(content))
    except (ValidationError, ValueError) as error:
        raise SealedError(
            f"{place}: is not a pointer to a sealed file ({_first_line(error)}). Restore it from a backup, or delete "
            f"it to start this partition anew; the parquet files beside it are not touched."
        ) from None
    sealed = Sealed(directory, pointer)
    _check_file(sealed)
    return sealed


def scan_sealed(sealed: Sealed) -> pl.LazyFrame:
    """The rows of a sealed file, in prompt order, with the columns of ``contract.RAW_GENERATIONS``.

    A local file is read lazily; one on an object store is fetched first and held in memory, compressed, while it is
    used.

    Raises:
        SealedError: the file is gone or is not such a parquet file.
    """
    place = local_path(sealed.path)
    try:
        frame = pl.scan_parquet(read_bytes(sealed.path) if place is None else place, glob=False)
        schema = frame.collect_schema()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _damaged(sealed, _first_line(error)) from error
    if schema != RAW_GENERATIONS:
        wrong = sorted(
            name for name in RAW_GENERATIONS.keys() | schema.keys() if RAW_GENERATIONS.get(name) != schema.get(name)
        )
        raise _damaged(sealed, f"its columns differ from this version's raw_generations: {', '.join(wrong) or 'order'}")
    return frame


@contextmanager
def fetched(sealed: Sealed, scratch: Path) -> Iterator[Sealed]:
    """The same file on a local disk for as long as the context lasts, so that it is read in slices.

    Args:
        sealed: on a local disk it is given back as it is.
        scratch: local directory for the copy.
    """
    with local_copy(sealed.path, scratch) as place:
        yield Sealed(UPath(place.parent), sealed.pointer)


def read_identity(directory: UPath, fingerprint: str) -> Identity:
    """The identity which a fingerprint names.

    Raises:
        SealedError: its record is missing or damaged.
    """
    place = UPath(directory) / f"{fingerprint}.identity.json"
    try:
        identity = Identity.model_validate(from_json(read_bytes(place)))
    except (OSError, ValidationError, ValueError) as error:
        raise SealedError(f"{place}: the record of the identity is missing or damaged: {_first_line(error)}") from None
    if identity.fingerprint != fingerprint:
        raise SealedError(f"{place}: holds the identity {identity.fingerprint}, not the one in its name")
    return identity


def write_identity(directory: UPath, identity: Identity) -> None:
    """Puts the identity's record beside its files, unless it is there."""
    place = directory / f"{identity.fingerprint}.identity.json"
    if not exists(place):
        write_text(place, identity.model_dump_json(indent=1))


def read_environment(directory: UPath, name: str) -> dict[str, Any] | None:
    """The environment of a digest, or None where its record is missing or damaged (it decides no token)."""
    try:
        value = from_json(read_bytes(UPath(directory) / f"{name}.environment.json"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_environment(directory: UPath, environment: Mapping[str, Any]) -> str:
    """Puts the environment's record beside the files, unless it is there, and returns its digest.

    Raises:
        SealedError: the directory cannot be written.
    """
    name = digest(environment)
    place = directory / f"{name}.environment.json"
    try:
        make_directory(directory)
        if not exists(place):
            write_text(place, canonical_json(environment))
    except OSError as error:
        raise SealedError(f"{directory}: cannot be written: {error}. Nothing was generated.") from error
    return name


def next_file(directory: UPath, fingerprint: str) -> str:
    """A name for a new parquet file that no file has, not even one that no pointer names."""
    pattern = re.compile(rf"{fingerprint}-(\d+)\.parquet")
    taken = [int(found[1]) for name in names_in(directory) if (found := pattern.fullmatch(name))]
    return f"{fingerprint}-{max(taken, default=0) + 1}.parquet"


def _check_file(sealed: Sealed) -> None:
    """Whether the file can be read and has all rows. Whether its rows are as captured is for the laws to say."""
    try:
        size = size_of(sealed.path)
    except FileNotFoundError:
        raise _damaged(sealed, "it is not there") from None
    except OSError as error:
        raise SealedError(f"{sealed.path}: cannot be read: {error}") from error
    if local_path(sealed.path) is None:
        # Counting its rows would fetch it whole.
        if size != sealed.pointer.size_bytes:
            raise _damaged(sealed, f"it has {size:,} bytes, the pointer says {sealed.pointer.size_bytes:,}")
        return
    try:
        rows = int(scan_sealed(sealed).select(pl.len()).collect().item())
    except pl.exceptions.PolarsError as error:
        raise _damaged(sealed, _first_line(error)) from error
    if rows != sealed.rows:
        raise _damaged(sealed, f"it has {rows:,} rows, the pointer says {sealed.rows:,}")


def _damaged(sealed: Sealed, why: str) -> SealedError:
    with suppress(OSError, ValueError):
        if Pointer.model_validate(from_json(read_bytes(sealed.directory / CURRENT))) != sealed.pointer:
            return SealedError(f"{sealed.path}: another run replaced this file while it was read; run again")
    return SealedError(
        f"{sealed.path}: {CURRENT} names this file, but {why}. Restore it from a backup; or delete {CURRENT} to start "
        f"this partition anew. Nothing was changed."
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
