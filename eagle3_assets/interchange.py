"""The interchange format ``raw_responses.jsonl``: outputs as ids, one JSON object a line, without loss both ways.

    {"sample_id": "c17-1-0", "output_ids": [9906, 163586], "completion_tokens": 2}

What a line must hold:
- ``sample_id`` (or ``id``): a string that is not blank; a whole number is taken as its digits.
- ``output_ids`` (or ``token_ids``): a list of whole numbers from 0 to 2**31 - 1. An empty list is read: whether it may
  be is for the laws.
- ``completion_tokens``: optional, a whole number in the same range; null or absent where the engine did not say.
- ``prompt_ids`` (or ``prompt_token_ids``): optional, a list like ``output_ids``; null is the same as absent.
- Any further keys are kept as they are. Of two names of one thing the first counts that is not null, and it is written
  under the first.

The file is UTF-8, with or without a byte order mark; lines end with LF or CRLF; blank lines are skipped. JSON is meant
strictly (``strict_json``): no NaN or Infinity, no key twice in an object, no nesting without end. Halves of surrogate
pairs are kept in further keys. A line that is not all of this is refused with its number and the reason, never
repaired, and the lines after it are read.

What belongs here: reading, writing, and what makes a line unreadable. Not here: whether ids are right for a target
(``tokens`` has the laws), parquet.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from eagle3_assets import strict_json
from eagle3_assets.strict_json import BYTE_ORDER_MARK, StrictJsonError
from eagle3_assets.tokens.columns import MAX_ID

MAX_LINE_BYTES = 64 << 20
"""A longer line is refused unread, so that a file without line ends cannot fill the memory."""

STORABLE = range(MAX_ID + 1)
"""Ids and counts of this format."""

NAME_KEYS = ("sample_id", "id")
OUTPUT_KEYS = ("output_ids", "token_ids")
PROMPT_KEYS = ("prompt_ids", "prompt_token_ids")
"""Names under which tools record the same, this format's own first."""

NAMED_KEYS = (NAME_KEYS[0], OUTPUT_KEYS[0], "completion_tokens", PROMPT_KEYS[0])


class InterchangeError(Exception):
    """A file cannot be opened, read or written as a whole, or a record is not one that a line could hold."""


@dataclass(frozen=True, slots=True)
class Record:
    """One output as ids."""

    sample_id: str
    output_ids: list[int]
    completion_tokens: int | None
    prompt_ids: list[int] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the line, as JSON values."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line that holds a record."""

    line: int
    """1-based, blank lines counted."""
    offset: int
    """Of the line's first byte: :func:`read_row_at` finds it again."""
    record: Record
    earlier_line: int | None = None
    """Line that holds the same sample id already; such a row is a record like any other, and a fault of the file."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A line that does not hold a record."""

    line: int
    sample_id: str | None
    """Where the line says it."""
    reason: str
    """Goes on from the line's number: ``is not JSON: ...``. May quote the line: make it safe before showing it."""


def read_rows(file: BinaryIO) -> Iterator[Row | Refusal]:
    """Reads a file line by line, in order, in memory that does not grow with the file but for the sample ids.

    Args:
        file: opened for reading bytes, at its beginning.

    Raises:
        InterchangeError: reading fails.
    """
    lines: dict[str, int] = {}
    for number, offset, line in numbered_lines(file):
        if isinstance(line, TooLong):
            yield Refusal(number, None, f"is longer than {MAX_LINE_BYTES >> 20} MiB")
        elif line.removeprefix(BYTE_ORDER_MARK).strip():
            row = _row(number, offset, line)
            if isinstance(row, Row):
                earlier = lines.setdefault(row.record.sample_id, number)
                if earlier != number:
                    row = Row(number, offset, row.record, earlier)
            yield row


def read_row_at(file: BinaryIO, line: int, offset: int) -> Row | Refusal:
    """Reads one line again, where :func:`read_rows` found it.

    Raises:
        InterchangeError: the file does not seek, or reading fails.
    """
    try:
        file.seek(offset)
        return _row(line, offset, file.readline(MAX_LINE_BYTES))
    except OSError as error:
        raise InterchangeError(f"line {line} cannot be read again: {error.strerror or error}") from error


def encode_record(record: Record) -> bytes:
    """One line, its line end included; ASCII only, so that no tool along the way can garble it.

    Raises:
        InterchangeError: the record is not one that the reader would take.
    """
    line: dict[str, Any] = {
        "sample_id": record.sample_id,
        "output_ids": record.output_ids,
        "completion_tokens": record.completion_tokens,
    }
    if record.prompt_ids is not None:
        line["prompt_ids"] = record.prompt_ids
    named = {*NAMED_KEYS, *(PROMPT_KEYS if record.prompt_ids is None else ())}
    shadowing = [key for key in record.extra if key in named]
    if shadowing:
        raise InterchangeError(f"record {record.sample_id!r}: {shadowing[0]!r} is no further key")
    if not isinstance(record.sample_id, str):
        raise InterchangeError(
            f"record {record.sample_id!r}: {LineFaultError.kind('sample_id', record.sample_id, 'a string')}"
        )
    try:
        _record_of(line)
        encoded = json.dumps(line | dict(record.extra), separators=(",", ":"), allow_nan=False).encode("ascii")
        strict_json.parse(encoded, lone_surrogates=True)
        return encoded + b"\n"
    except (LineFaultError, TypeError, ValueError, RecursionError) as error:
        raise InterchangeError(f"record {record.sample_id!r}: {error}") from None


def write_records(records: Iterable[Record], path: Path) -> int:
    """Writes a file as the records come; it is there whole or not at all.

    Returns:
        The number of records.

    Raises:
        InterchangeError: a record is not one that the reader would take, or the file cannot be written; what stood at
            ``path`` is unchanged.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            for record in records:
                file.write(encode_record(record))
                count += 1
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise InterchangeError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return count


class TooLong:
    """Stands for a line whose bytes were not kept."""


class LineFaultError(ValueError):
    """Why a line is no record, and ``sample_id`` where the line says it. May quote the line, as a refusal may."""

    sample_id: str | None = None

    @classmethod
    def kind(cls, place: str, value: object, wanted: str) -> "LineFaultError":
        """That a value is not of the kind that belongs there."""
        return cls(f"{place} is {shown(value)}, not {wanted}")


def numbered_lines(file: BinaryIO) -> Iterator[tuple[int, int, bytes | TooLong]]:
    """Number (1-based), offset and bytes of every line, blank ones too, none of them longer than ``MAX_LINE_BYTES``.

    Raises:
        InterchangeError: reading fails.
    """
    number = offset = 0
    try:
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            start, offset = offset, offset + len(line)
            if len(line) <= MAX_LINE_BYTES:
                yield number, start, line
                continue
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_LINE_BYTES)
                offset += len(line)
            yield number, start, TooLong()
    except OSError as error:
        raise InterchangeError(f"reading failed after line {number}: {error.strerror or error}") from error


def _row(number: int, offset: int, line: bytes) -> Row | Refusal:
    try:
        return Row(number, offset, _record_of(json_object(line)))
    except LineFaultError as fault:
        return Refusal(number, fault.sample_id, str(fault))


def json_object(line: bytes, *, non_finite: bool = False) -> dict[str, Any]:
    """The JSON object that a line is.

    Args:
        line: its bytes.
        non_finite: whether NaN and infinities are read; see :func:`strict_json.parse`.

    Raises:
        LineFaultError: it is none.
    """
    try:
        # Half a surrogate pair may stand in a text, which is not ours to judge.
        value = strict_json.parse(line, lone_surrogates=True, non_finite=non_finite)
    except StrictJsonError as error:
        raise LineFaultError(str(error)) from None
    if not isinstance(value, dict):
        raise LineFaultError(f"is not a JSON object but {shown(value)}")
    return value


def _record_of(line: Mapping[str, Any]) -> Record:
    name, output, prompt = (_said_as(keys, line) for keys in (NAME_KEYS, OUTPUT_KEYS, PROMPT_KEYS))
    if name not in line:
        raise LineFaultError(f"has no {' (or '.join(NAME_KEYS)})")
    sample_id = name_of(name, line[name])
    try:
        if output not in line:
            raise LineFaultError(f"has no {' (or '.join(OUTPUT_KEYS)})")
        count = line.get("completion_tokens")
        if count is not None:
            check_number("completion_tokens", count)
        check_ids(output, line[output])
        prompt_ids = line.get(prompt)
        if prompt_ids is not None:
            check_ids(prompt, prompt_ids)
    except LineFaultError as fault:
        fault.sample_id = sample_id
        raise
    extra = {k: v for k, v in line.items() if k not in (*NAMED_KEYS, name, output, prompt)}
    return Record(sample_id, line[output], count, prompt_ids, extra)


def _said_as(keys: Sequence[str], line: Mapping[str, Any]) -> str:
    """The first of these names under which a line says something, else the first that it has, else the first."""
    present = [key for key in keys if key in line]
    return next((key for key in present if line[key] is not None), (*present, *keys)[0])


def name_of(key: str, value: object) -> str:
    """A sample's name: a string that is not blank, or the digits of a whole number.

    Raises:
        LineFaultError: it is neither.
    """
    value = strict_json.whole(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise LineFaultError.kind(key, value, "a string")
    if not value.strip():
        raise LineFaultError(f"{key} is {'blank' if value else 'empty'}")
    if not strict_json.is_text(value):
        raise LineFaultError(f"{key} holds half of a surrogate pair, which is no text")
    return value


def check_ids(key: str, ids: object, allowed: range = STORABLE) -> None:
    """Checks a list of ids.

    Raises:
        LineFaultError: it is no list of whole numbers in that range.
    """
    if not isinstance(ids, list):
        raise LineFaultError.kind(key, ids, "a list of token ids")
    # All of it runs in C: a line may hold a hundred thousand ids.
    if not ids or (set(map(type, ids)) == {int} and min(ids) in allowed and max(ids) in allowed):
        return
    for index, value in enumerate(ids):
        check_number(f"{key}[{index}]", value, allowed)


def check_number(place: str, value: object, allowed: range = STORABLE) -> None:
    """Checks one whole number.

    Raises:
        LineFaultError: it is none, or not in that range.
    """
    if type(value) is not int:  # bool is an int to isinstance
        raise LineFaultError.kind(place, value, "a whole number")
    if value not in allowed:
        raise LineFaultError.kind(place, value, f"between {allowed.start} and {allowed.stop - 1}")


def shown(value: object) -> str:
    """A JSON value in a message, cut if it is long."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value) if value is None or isinstance(value, bool | int | float | str) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:37]}..."
