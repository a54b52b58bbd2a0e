"""One file as rows, from its beginning to its end, in memory that does not grow with it.

What belongs here: cutting a file into rows, hashing it on the way. Not here: what kind of file it is (``kinds``),
parsing a row's meaning, which files there are.
"""

import hashlib
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import polars as pl

from eagle3_assets.frames import batches
from eagle3_assets.interchange import MAX_LINE_BYTES, InterchangeError, TooLong, numbered_lines
from eagle3_assets.kinds import LOOKED_AT, PARQUET, fault_of_content, fault_of_file, is_array
from eagle3_assets.packed import DAMAGED, unpacked
from eagle3_assets.prompts.dialogue import RefusedRowError
from eagle3_assets.prompts.sources.arrays import ArrayError, array_elements
from eagle3_assets.prompts.sources.changes import FileState
from eagle3_assets.prompts.sources.places import PromptSourceError, SourceFile
from eagle3_assets.strict_json import BYTE_ORDER_MARK, StrictJsonError, parse

_BITE = 1 << 20
_PARQUET_ROWS = 256
"""Rows of a parquet file that are held at once: a conversation may be long."""


@dataclass(frozen=True, slots=True)
class _ParquetRow:
    """A row of a parquet file, not made into Python objects yet: that is the dearest part of reading one."""

    batch: pl.DataFrame
    index: int


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One row, not parsed yet."""

    file: SourceFile
    number: int
    """1-based: the line, empty ones counted, the element of an array, or the row of a parquet file."""
    raw: bytes | TooLong | _ParquetRow

    def value(self) -> Any:  # noqa: ANN401 - any JSON value
        """The value.

        Raises:
            RefusedRowError: it is no strict JSON, or too long to be looked at.
            PromptSourceError: it is of a parquet file, and has a value of a type that cannot be read.
        """
        if isinstance(self.raw, TooLong):
            raise RefusedRowError(f"is longer than {MAX_LINE_BYTES >> 20} MiB")
        if isinstance(self.raw, _ParquetRow):
            try:
                row = _python_row(self.raw.batch, self.raw.index)
            except pl.exceptions.PolarsError as error:
                raise _parquet_fault(self.file.path, self.number, error) from None
            return {name: _without_nulls(value) for name, value in row.items()}
        try:
            return parse(self.raw)
        except StrictJsonError as error:
            raise RefusedRowError(str(error)) from None


class OpenSource:
    """A file of a source while it is read; a context manager.

    Raises:
        PromptSourceError: from every method where the file cannot be read, is damaged, or changes meanwhile.
    """

    def __init__(self, file: SourceFile) -> None:
        self.file = file
        self._sha256 = hashlib.sha256()

    def __enter__(self) -> Self:
        try:
            self._raw = self.file.path.open("rb", buffering=0)
            self._before = os.fstat(self._raw.fileno())
            self._hashed = io.BufferedReader(_Hashing(self._raw, self._sha256.update), _BITE)
        except OSError as error:
            raise self._unreadable(error) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._raw.close()

    @property
    def is_parquet(self) -> bool:
        """Whether it is, as told by its first bytes; to be asked before rows are read."""
        try:
            return self._hashed.peek(len(PARQUET)).startswith(PARQUET)
        except OSError as error:
            raise self._unreadable(error) from None

    @property
    def read_share(self) -> float:
        """How much of the file was read for the rows so far, above 0 and up to 1; not of parquet."""
        return self._hashed.tell() / max(1, self._before.st_size)

    def rows(self) -> Iterator[SourceRow]:
        """All rows but empty lines, in order."""
        try:
            start = self._hashed.peek(LOOKED_AT)
            self._refuse(fault_of_file(start, self.file.name))
            if self.is_parquet:
                yield from self._numbered(_parquet_rows(self.file.path))
                return
            content = unpacked(self._hashed, start[:4])
            start = content.peek(LOOKED_AT)  # type: ignore[attr-defined] # it is buffered
            self._refuse(fault_of_content(start, self.file.name))
            if is_array(start, self.file.name):
                yield from self._numbered(enumerate(array_elements(content), start=1))
            else:
                yield from self._numbered(_lines(content))
        except (ArrayError, InterchangeError, *DAMAGED) as error:
            raise PromptSourceError(f"{self.file.path}: is damaged: {error}") from None
        except OSError as error:
            raise self._unreadable(error) from None

    def state(self, format: str | None) -> FileState:  # noqa: A002 - the word for it
        """What to remember of the file, once no more rows are wanted; what was not read of it is hashed now."""
        try:
            while self._hashed.read(_BITE):
                pass
            after = os.fstat(self._raw.fileno())
            named = self.file.path.stat()  # parquet was opened by its name
        except OSError as error:
            raise self._unreadable(error) from None
        if (after.st_size, after.st_mtime_ns) != (self._before.st_size, self._before.st_mtime_ns):
            raise PromptSourceError(f"{self.file.path}: was written to while it was read; materialize prompts again")
        if (named.st_dev, named.st_ino) != (after.st_dev, after.st_ino):
            raise PromptSourceError(f"{self.file.path}: was replaced while it was read; materialize prompts again")
        return FileState(
            name=self.file.name,
            size=after.st_size,
            modified_ns=after.st_mtime_ns,
            sha256=self._sha256.hexdigest(),
            format=format,
        )

    def _refuse(self, fault: str | None) -> None:
        if fault:
            raise PromptSourceError(f"{self.file.path}: {fault}")

    def _numbered(self, rows: Iterator[tuple[int, bytes | TooLong | _ParquetRow]]) -> Iterator[SourceRow]:
        return (SourceRow(self.file, number, raw) for number, raw in rows)

    def _unreadable(self, error: OSError) -> PromptSourceError:
        return PromptSourceError(f"{self.file.path}: the dataset's source cannot be read: {error.strerror or error}")


class _Hashing(io.RawIOBase):
    """A file whose bytes are hashed as they are read."""

    def __init__(self, file: io.RawIOBase, update: Callable[[Any], None]) -> None:
        self._file, self._update = file, update

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a writable buffer
        count = self._file.readinto(buffer) or 0
        self._update(memoryview(buffer)[:count])
        return count


def _lines(content: BinaryIO) -> Iterator[tuple[int, bytes | TooLong]]:
    for number, _, line in numbered_lines(content):
        if isinstance(line, TooLong) or line.removeprefix(BYTE_ORDER_MARK).strip():
            yield number, line


def _parquet_rows(path: Path) -> Iterator[tuple[int, _ParquetRow]]:
    number = 0
    try:
        for batch in batches(pl.scan_parquet(path, glob=False), _PARQUET_ROWS):
            for index in range(len(batch)):
                number += 1
                yield number, _ParquetRow(batch, index)
    except pl.exceptions.PolarsError as error:
        raise _parquet_fault(path, number, error) from None


def _python_row(batch: pl.DataFrame, index: int) -> dict[str, Any]:
    """A row as Python values. Python's times end at microseconds: one that goes on is text, as ids may differ there."""
    row = batch.row(index, named=True)
    for name, type_ in batch.schema.items():
        if row[name] is None or not isinstance(type_, pl.Datetime) or type_.time_unit != "ns":
            continue
        time = batch.get_column(name).slice(index, 1)
        if time.dt.nanosecond()[0] % 1_000:
            clock = time.dt.convert_time_zone("UTC") if type_.time_zone else time
            row[name] = clock.dt.to_string(f"%Y-%m-%dT%H:%M:%S%.9f{'+00:00' if type_.time_zone else ''}")[0]
    return row


def _parquet_fault(path: Path, number: int, error: pl.exceptions.PolarsError) -> PromptSourceError:
    if isinstance(error, pl.exceptions.DuplicateError):
        return PromptSourceError(f"{path}: has two columns with one name ({error}); rename one of them")
    # Decimals of more than 38 digits, and what else polars has no type for.
    if isinstance(error, pl.exceptions.InvalidOperationError) or "Not yet supported" in str(error):
        return PromptSourceError(
            f"{path}: has a column of a type that cannot be read ({error}); leave it out or write it as another"
        )
    return PromptSourceError(f"{path}: is damaged after row {number:,}: {error}")


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - a value of a column
    """A value without the fields that are null: Arrow fills in those which other rows have. JSON text keeps its own."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
