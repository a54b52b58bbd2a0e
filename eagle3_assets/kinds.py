"""What kind of file somebody's file of rows is, told by how it begins and by its name.

What belongs here: telling what can be read, and saying of the rest what it is. Not here: reading, unpacking
(``packed``), what a command says to do about rows that are written in another way.
"""

import json
import re

from eagle3_assets.packed import packing
from eagle3_assets.strict_json import BYTE_ORDER_MARK

PARQUET = b"PAR1"
LOOKED_AT = 512
"""Bytes of a beginning that are asked for; more may be looked at."""

_PACKED_ENDING = r"(?:\.(?:gz|zst|zstd))?"
_NAMED_AS_LINES = re.compile(rf".*\.(?:jsonl|ndjson){_PACKED_ENDING}", re.IGNORECASE)
_NAMED_AS_TABLE = re.compile(rf".*\.(csv|tsv){_PACKED_ENDING}", re.IGNORECASE)
_NAMED_AS_BINARY = re.compile(r".*\.(parquet|gz|zst|zstd)", re.IGNORECASE)
_KIND_OF_ENDING = {"parquet": "parquet", "gz": "gzip", "zst": "zstandard", "zstd": "zstandard"}
_LFS_POINTER = b"version https://git-lfs"
_OTHERS = {
    b"BZh": "bzip2; pack it with gzip or zstandard instead",
    b"\xfd7zXZ": "xz; pack it with gzip or zstandard instead",
    b"PK\x03\x04": "a zip archive; unpack it",
    b"ARROW1": "an Arrow file; write it as Parquet",
    b"\xff\xff\xff\xff": "an Arrow stream; write it as Parquet",
    b"\xff\xfe": "UTF-16 text; write it as UTF-8",
    b"\xfe\xff": "UTF-16 text; write it as UTF-8",
    b"{\x00": "UTF-16 text; write it as UTF-8",
    b"[\x00": "UTF-16 text; write it as UTF-8",
    b"\x00{": "UTF-16 text; write it as UTF-8",
    b"\x00[": "UTF-16 text; write it as UTF-8",
}
_TAR, _TAR_AT = b"ustar", 257
_ROWS_PARTED_BY_CR = re.compile(rb"\}[ \t]*\r[ \t\r]*\{")
_ROWS_IN_A_LIST = re.compile(rb"\[\s*(?:$|[\[{\"\]])")
_LIST_OF_MESSAGES = re.compile(rb'\[\s*\{\s*"(?:role|from|content|value)"\s*:')
_GOES_ON = (b"{", b"[", b",", b":")
"""How a line ends that is not the end of its object."""


def fault_of_file(start: bytes, name: str) -> str | None:
    """Why a file as it lies on disk cannot be read, going on from its name; None where it may be.

    Args:
        start: how it begins.
        name: the file's.
    """
    found = "parquet" if start.startswith(PARQUET) else packing(start[:4])
    named = _NAMED_AS_BINARY.fullmatch(name)
    if pointer := fault_of_pointer(start):
        return pointer
    if named and found != _KIND_OF_ENDING[named[1].lower()]:
        said = f"does not begin as its name says ({found})" if found else "does not begin as its name says"
        return f"{said if start else 'is empty'}; was it fetched whole?"
    return None


def fault_of_pointer(start: bytes) -> str | None:
    """What is to be said where a file's place is held by what Git keeps of it."""
    return "is a Git LFS pointer, not the file; fetch it: git lfs pull" if start.startswith(_LFS_POINTER) else None


def fault_of_form(start: bytes, name: str) -> str | None:
    """Why what is in a file, once unpacked, is no text with rows of JSON; None where it may be."""
    other = next((what for magic, what in _OTHERS.items() if start.startswith(magic)), None)
    if start[_TAR_AT:].startswith(_TAR):
        other = "a tar archive; unpack it"
    elif packing(start[:4]):
        other = "packed twice; unpack it once"
    elif start.startswith(PARQUET):
        other = "a Parquet file that was packed once more; unpack it"
    elif table := _NAMED_AS_TABLE.fullmatch(name):
        other = f"{table[1].upper()}; write it as JSON lines or Parquet"
    elif _ROWS_PARTED_BY_CR.search(start):
        other = "text whose lines end with CR alone; write LF instead: tr '\\r' '\\n'"
    return f"is {other}" if other else None


def fault_of_content(start: bytes, name: str) -> str | None:
    """Why what is in a source's file, once unpacked, holds no rows that can be read; None where it may."""
    if other := fault_of_form(start, name):
        return other
    if _NAMED_AS_LINES.fullmatch(name):
        if begins_list_of_rows(start):
            if _LIST_OF_MESSAGES.match(_text(start)):
                return 'is a list of messages, not an object with one; write it as {"messages": [...]}'
            return "is a JSON array, not JSON lines; rename it to .json"
    elif is_spread(start):
        return (
            "is one JSON object over several lines, not rows; take its list of rows out of it, or name"
            " the files with a glob that leaves it out"
        )
    return None


def begins_list_of_rows(start: bytes) -> bool:
    """Whether text begins as a JSON array of rows does, and not as JSON lines of which the first is a list."""
    line, _, rest = _text(start).partition(b"\n")
    return bool(_ROWS_IN_A_LIST.match(line)) and not (rest.strip() and _is_json(line))


def is_spread(start: bytes) -> bool:
    """Whether text begins with a JSON object over several lines, as it is printed for people."""
    text = _text(start)
    line, ended, rest = text.partition(b"\n")
    if not (text.startswith(b"{") and ended and line.rstrip().endswith(_GOES_ON)) or _is_json(line):
        return False
    return not rest.lstrip().startswith(b"{") or not _is_json(rest.partition(b"\n")[0])


def is_array(start: bytes, name: str) -> bool:
    """Whether text is a JSON array; else it is JSON lines."""
    return _text(start).startswith(b"[") and not _NAMED_AS_LINES.fullmatch(name)


def _text(start: bytes) -> bytes:
    return start.removeprefix(BYTE_ORDER_MARK).lstrip()


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True
