"""JSON meant strictly: one line of a foreign file is one value, or is refused with the reason.

What belongs here: what JSON leaves open and Python reads anyway. Not here: what a value must look like.
"""

import json
import math
import re
from collections import Counter
from typing import Any, NoReturn

from eagle3_assets.tokens.safe_text import quoted

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

MAX_DEPTH = 200
"""Lists and objects inside one another; what reads a value with a function that calls itself must not run out."""

_GOES_ON = "Extra data"
"""What Python says where more follows a value."""

EXACT = 2**53
"""Whole numbers below are what a float says they are."""

_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


class StrictJsonError(ValueError):
    """Why a line is no value; goes on from the line's number. May quote the line: make it safe before showing it."""


def parse(line: bytes, *, lone_surrogates: bool = False, non_finite: bool = False) -> Any:  # noqa: ANN401 - any JSON value
    """Reads one value.

    Args:
        line: UTF-8, with or without a byte order mark.
        lone_surrogates: whether halves of surrogate pairs are kept. They are legal in JSON and in Python, and in no
            UTF-8 file, tokenizer or parquet.
        non_finite: whether NaN, Infinity and numbers beyond every float are read as such floats. Python writes them,
            and parquet holds them.

    Raises:
        StrictJsonError: it is not UTF-8 or not JSON; it holds NaN, Infinity, a number that nothing can hold, a key
            twice in one object, half of a surrogate pair; or it is nested too deeply.
    """
    line = line.removeprefix(BYTE_ORDER_MARK).rstrip(b"\r\n")  # so that a column is one of this line
    try:
        value = json.loads(
            line.decode("utf-8"),
            object_pairs_hook=_unique_keys,
            parse_constant=float if non_finite else _no_constant,
            parse_float=float if non_finite else _finite,
        )
    except StrictJsonError:
        raise
    except UnicodeDecodeError as error:
        raise StrictJsonError(f"is not UTF-8: byte {error.start + 1} of the line") from None
    except json.JSONDecodeError as error:
        if error.msg == _GOES_ON:
            raise StrictJsonError(
                f"goes on after its JSON value, at column {error.colno}: a line holds one row (jq -c . writes it so)"
            ) from None
        raise StrictJsonError(f"is not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:  # Python's own limit, which keeps a long number from taking minutes
        raise StrictJsonError("holds a whole number of thousands of digits") from None
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH:
        _require_shallow(value)
    # Bytes that are UTF-8 hold none; only an escape can name one.
    if not lone_surrogates and _SURROGATE_ESCAPE.search(line):
        _require_text(value)
    return value


def ends_early(line: bytes) -> bool:
    """Whether a file's last line was cut off: it has no line end and does not begin with a whole value."""
    if line.endswith(b"\n"):
        return False
    try:
        json.loads(line.removeprefix(BYTE_ORDER_MARK).decode("utf-8"))
    except json.JSONDecodeError as error:
        return error.msg != _GOES_ON
    except UnicodeDecodeError:
        return True
    except (ValueError, RecursionError):  # it may well be whole; why nothing can read it is another matter
        return False
    return False


def whole(value: Any) -> Any:  # noqa: ANN401 - a JSON value
    """A value, whole numbers that were written as floats as such: tables do so where another row has no value.

    NaN, with which tables fill a place without a value, is None.
    """
    if not isinstance(value, float):
        return value
    if math.isnan(value):
        return None
    return int(value) if value.is_integer() and abs(value) < EXACT else value


def is_text(text: str) -> bool:
    """Whether a string can be written as UTF-8: it holds no half of a surrogate pair."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def storable(text: str) -> str:
    """Text that UTF-8 can hold: surrogate pairs joined, lone surrogates replaced."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _require_shallow(value: object) -> None:
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, dict | list)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise _too_deep()
        level = [item for holder in level for item in (holder.values() if isinstance(holder, dict) else holder)]


def _require_text(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise StrictJsonError("holds half of a surrogate pair, which is no text") from None


def _too_deep() -> StrictJsonError:
    return StrictJsonError(f"is nested too deeply: more than {MAX_DEPTH} lists and objects inside one another")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        doubled = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        raise StrictJsonError(f"has the key {quoted(doubled)} twice in one object")
    return value


def _no_constant(text: str) -> NoReturn:
    raise StrictJsonError(f"is not JSON: {text} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise StrictJsonError(f"holds a number that no float can hold: {text[:40]}")
    return value
