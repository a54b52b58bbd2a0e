"""Foreign files read as frames in the contract's columns, a few rows at a time.

What belongs here: telling what kind of file it is, cutting into frames, naming what cannot be read. Not
here: what a line's keys mean (``rows``), judging.

The kind is told by the file's first bytes (``kinds``), not by its name: parquet, gzip, zstandard, else JSON lines as
they are.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import polars as pl

from eagle3_assets.audit.chat_dumps import Json, chat_turns
from eagle3_assets.audit.rows import (
    DENIED_OUTPUT,
    FOREIGN_ROWS,
    WITHOUT_OUTPUT,
    contract_row,
    sample_name,
)
from eagle3_assets.contract import RAW_GENERATIONS
from eagle3_assets.frames import batches
from eagle3_assets.interchange import (
    MAX_LINE_BYTES,
    NAME_KEYS,
    OUTPUT_KEYS,
    PROMPT_KEYS,
    InterchangeError,
    LineFaultError,
    Refusal,
    TooLong,
    json_object,
    numbered_lines,
)
from eagle3_assets.kinds import PARQUET, begins_list_of_rows, fault_of_form, fault_of_pointer, is_spread
from eagle3_assets.packed import DAMAGED, unpacked
from eagle3_assets.strict_json import BYTE_ORDER_MARK, ends_early
from eagle3_assets.tokens.batch import GENERATED
from eagle3_assets.tokens.laws.counts import CONTRADICTION

ROWS_AT_ONCE = 2_000
IDS_AT_ONCE = 1 << 20
"""Ids in a frame made of lines: outputs may be long."""
CHATS_AT_ONCE = 50
"""Chat completions that are held at once: each is kept whole until it has been looked at."""

_SLICES, _SLICE_ROWS = 8, 4 * ROWS_AT_ONCE
"""Parts, at most, in which a parquet file is read, and rows in each, at least. Polars holds what it unpacks
of a row group, which may be all of a file; but to pass over the parts before costs about an eighth of reading it."""

_LOOKED_AT = 1 << 20
"""Bytes of a beginning by which it is told what a file is: the first row may be long."""
_PARQUET_ENCRYPTED = b"PARE"
_INTEGERS = (pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32)
_RENAMED = {"prompt_tokens": "server_prompt_tokens"}


class AuditError(Exception):
    """A file cannot be read to its end, or holds nothing that could be judged; the text says what and where."""


@dataclass(slots=True)
class Part:
    """What was read of a file in one go."""

    frame: pl.DataFrame
    """Rows in the contract's columns; the columns are the same in all parts of a file."""
    lines: list[int] = field(default_factory=list)
    """Each row's 1-based line; in parquet its number among the rows."""
    refused: list[Refusal] = field(default_factory=list)
    chats: list[tuple[int, Json, list[Json]]] = field(default_factory=list)
    """Lines that are chat completions: number, object, the assistant's turns."""
    torn: str | None = None
    """Of the last part: where and why reading ended before the file did; None where all of it was read."""


def read_parts(path: Path) -> Iterator[Part]:
    """Reads a file from beginning to end, in memory that does not grow with it.

    Lines before a tear are whole, so they are read like any other; parquet is read whole or not at all.

    Raises:
        AuditError: the file cannot be read, or, as parquet, not to its end.
    """
    try:
        with path.open("rb", buffering=_LOOKED_AT) as file:
            start = file.peek(_LOOKED_AT)  # type: ignore[attr-defined] # it is buffered
            _require(path, fault_of_pointer(start))
            if start.startswith(PARQUET):
                _require_end(path, file)
                yield from _parquet_parts(path)
            else:
                content = unpacked(file, start[:4])
                _require_lines(path, content)
                yield from _line_parts(content)
    except OSError as error:
        raise AuditError(f"{path}: cannot be read: {error.strerror or error}") from None


def _require(path: Path, fault: str | None) -> None:
    if fault:
        raise AuditError(f"{path}: {fault}")


def _require_lines(path: Path, content: BinaryIO) -> None:
    """Refuses what is no JSON lines, by what it is, before its first line is called torn."""
    try:
        start = content.peek(_LOOKED_AT)  # type: ignore[attr-defined] # it is buffered
    except DAMAGED as error:
        raise AuditError(f"{path}: is damaged from its beginning on, so that nothing can be read: {error}") from None
    _require(path, fault_of_form(start, path.name))
    if begins_list_of_rows(start):
        _require(path, "is a JSON array, not JSON lines; write one row a line: jq -c '.[]'")
    if is_spread(start):
        _require(path, "is JSON over several lines, not one row a line; write it so: jq -c .")


def _line_parts(file: BinaryIO) -> Iterator[Part]:
    gathered, number, torn = _Gathered(), 0, None
    try:
        for number, _, line in numbered_lines(file):
            if isinstance(line, TooLong):
                gathered.refused.append(Refusal(number, None, f"is longer than {MAX_LINE_BYTES >> 20} MiB"))
            elif line.removeprefix(BYTE_ORDER_MARK).strip():
                if ends_early(line):
                    torn = (
                        f"the file ends in the middle of line {number:,}: a copy or a writer was cut off, and that line"
                        " and what came after it are lost"
                    )
                    break
                try:
                    gathered.add(number, json_object(line, non_finite=True))
                except LineFaultError as fault:
                    gathered.refused.append(Refusal(number, fault.sample_id, str(fault)))
            if gathered.full:
                yield gathered.part()
                gathered = _Gathered()
    except (InterchangeError, *DAMAGED) as error:
        torn = f"the file is damaged after line {number:,}, so that the rest cannot be read: {error}"
    last = gathered.part()
    last.torn = torn
    yield last


class _Gathered:
    """Objects on their way into a frame."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.lines: list[int] = []
        self.refused: list[Refusal] = []
        self.chats: list[tuple[int, Json, list[Json]]] = []
        self._ids = 0

    def add(self, number: int, line: Json) -> None:
        try:
            row = contract_row(line)
        except LineFaultError as fault:
            turns = None if any(line.get(key) is not None for key in (*OUTPUT_KEYS, "loss_mask")) else chat_turns(line)
            if turns is None:
                self.refused.append(Refusal(number, fault.sample_id, str(fault)))
            else:
                self.chats.append((number, line, turns))
                self.refused.append(Refusal(number, _named(line), "is a chat completion: text without token ids"))
            return
        self.rows.append(row)
        self.lines.append(number)
        self._ids += len(row["output_ids"]) + len(row["prompt_ids"] or ())

    @property
    def full(self) -> bool:
        rows = len(self.rows) + len(self.refused)
        return rows >= ROWS_AT_ONCE or self._ids >= IDS_AT_ONCE or len(self.chats) >= CHATS_AT_ONCE

    def part(self) -> Part:
        columns = {name: [row[name] for row in self.rows] for name in FOREIGN_ROWS}
        return Part(pl.DataFrame(columns, schema=FOREIGN_ROWS), self.lines, self.refused, self.chats)


def _named(line: Json) -> str | None:
    try:
        return sample_name(line)
    except LineFaultError:
        return None


def _require_end(path: Path, file: BinaryIO) -> None:
    """Tells a parquet file that was cut off from one that is damaged in another way."""
    if not file.seekable():
        raise AuditError(f"{path}: is a Parquet file in a pipe, and is read from its end: write it to a file first")
    file.seek(-min(len(PARQUET), file.seek(0, os.SEEK_END)), os.SEEK_END)
    if file.read() not in (PARQUET, _PARQUET_ENCRYPTED):
        raise AuditError(
            f"{path}: is torn: a parquet file ends with the list of what lies where in it, and this one has lost its"
            " end, so that none of it can be read. Copy it again, or write it again"
        )


def _parquet_parts(path: Path) -> Iterator[Part]:
    with _readable(path):
        stored = pl.scan_parquet(path)
        schema = stored.collect_schema()
    columns = _fitting(schema)
    if columns is not None:
        yield from _fitting_parts(path, stored.select(**_as_lines_say(columns)))
        return
    # Other tools' columns hold objects or other types: row by row through the same mapping as a line.
    number, gathered = 0, _Gathered()
    with _readable(path):
        for batch in _sliced(path, stored):
            for row in batch.iter_rows(named=True):
                number += 1
                gathered.add(number, row)
                if gathered.full:
                    yield gathered.part()
                    gathered = _Gathered()
    yield gathered.part()


def _sliced(path: Path, frame: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """The rows in order, a few at a time, of a file that is opened anew for each part of it."""
    before = _identity(path)
    rows = frame.select(pl.len()).collect().item()
    step = max(_SLICE_ROWS, -(-rows // _SLICES))
    for start in range(0, rows, step):
        yield from batches(frame.slice(start, step), ROWS_AT_ONCE)
        if _identity(path) != before:
            raise AuditError(f"{path}: was written to or replaced while it was read; audit it again")


def _identity(path: Path) -> tuple[int, ...]:
    state = path.stat()
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns


def _fitting_parts(path: Path, frame: pl.LazyFrame) -> Iterator[Part]:
    read = 0
    with _readable(path):
        for batch in _sliced(path, frame):
            numbers = list(range(read + 1, read + len(batch) + 1))
            read += len(batch)
            names = batch["sample_id"]
            named = names.is_not_null() & (names.str.strip_chars() != "")
            has_ids = batch["output_ids"].is_not_null()
            if "status" in batch.columns:  # a row without an output says so, and is no fault of the file
                has_ids |= (batch["status"] != GENERATED).fill_null(value=False)
            kept = named & has_ids
            refused = [
                Refusal(numbers[row], None, "has no sample_id (or id)" if names[row] is None else "sample_id is blank")
                if not named[row]
                else Refusal(numbers[row], names[row], "output_ids is null, not a list of token ids")
                for row in (~kept).arg_true()
            ]
            yield Part(batch.filter(kept), [numbers[row] for row in kept.arg_true()], refused)


def _as_lines_say(columns: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
    """All that lines can say of a row, absent columns as nulls, and the same as :func:`contract_row` of each.

    A row that holds an output has one, whatever other tools mean by its ``status``.
    """
    absent = {name: pl.lit(None, dtype) for name, dtype in FOREIGN_ROWS.items() if name not in columns}
    said = absent | columns
    said["ids_sha256"] = pl.when(said["prompt_ids"].is_not_null()).then(said["ids_sha256"])
    if "status" in columns:
        status, has_output = columns["status"].cast(pl.String), columns["output_ids"].is_not_null()
        denied = has_output & status.is_in(WITHOUT_OUTPUT)
        said["status"] = pl.when(has_output).then(pl.lit(GENERATED)).otherwise(status)
        said[CONTRADICTION] = pl.when(denied).then(pl.format(DENIED_OUTPUT, status)).otherwise(said[CONTRADICTION])
    return said


def _fitting(schema: pl.Schema) -> dict[str, pl.Expr] | None:
    """Contract columns and the stored ones that they are, by name; None where any has to be mapped row by row."""
    names = [key for key in NAME_KEYS if key in schema]
    if not names or not all(_fits("sample_id", schema[key]) for key in names):
        return None
    found = {"sample_id": pl.coalesce(pl.col(key).cast(pl.String) for key in names)}
    for new, keys in (("output_ids", OUTPUT_KEYS), ("prompt_ids", PROMPT_KEYS)):
        present = [key for key in keys if key in schema]
        if new == "prompt_ids" and not present:
            continue
        if len(present) != 1 or not _fits(new, schema[present[0]]):
            return None
        found[new] = pl.col(present[0])
    for name, dtype in schema.items():
        new = _RENAMED.get(name, name)
        if name in (*NAME_KEYS, *OUTPUT_KEYS, *PROMPT_KEYS) or new not in _COLUMNS:
            if name in _MAPPED:
                return None
            continue
        if new in found or not _fits(new, dtype):
            return None
        found[new] = pl.col(name)
    return found


_COLUMNS = {**FOREIGN_ROWS, **RAW_GENERATIONS}
_MAPPED = {
    "finish_reason",
    "input_ids",
    "loss_mask",
    "meta_info",
    "output_token_logprobs",
    "sampling_params",
    "usage",
    "weight_versions",
}
"""What a line may say in a form that is no column of the contract."""


def _fits(name: str, dtype: pl.DataType) -> bool:
    wanted = _COLUMNS[name]
    if dtype == pl.Null:
        return name not in ("sample_id", "output_ids")
    if isinstance(wanted, pl.List):
        inner = getattr(dtype, "inner", None)
        kinds = (pl.Float32, pl.Float64) if wanted.inner in (pl.Float32, pl.Float64) else _INTEGERS
        return isinstance(dtype, pl.List) and inner in kinds
    if wanted in (pl.Int32, pl.Int64):
        return dtype in _INTEGERS
    if wanted == pl.String:
        return dtype == pl.String or (name == "sample_id" and dtype in _INTEGERS)
    return dtype == wanted


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        raise AuditError(f"{path}: cannot be read as parquet: {error}") from None
