"""Parsed JSON, looked at with words for people.

What belongs here: what a value is, JSON within JSON, values that only Arrow has. Not here: messages, tools.
"""

import math
from ast import literal_eval
from collections.abc import Container, Iterable
from typing import Any

from eagle3_assets.prompts.dialogue import Json, RefusedRowError
from eagle3_assets.strict_json import StrictJsonError, parse
from eagle3_assets.tokens.safe_text import quoted, visible


def kind(value: Any) -> str:  # noqa: ANN401 - parsed JSON
    """What a value is, in words."""
    names = {
        type(None): "missing",
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "text",
        bytes: "binary",
    }
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return names.get(type(value)) or (
        "an object" if isinstance(value, dict) else f"a value of type {type(value).__name__}"
    )


def first(holder: Json, *keys: str) -> Any:  # noqa: ANN401 - parsed JSON
    """The value of the first key that has one."""
    return next((holder[key] for key in keys if holder.get(key) is not None), None)


def only_one(holder: Json, keys: Iterable[str], where: str = "") -> Any:  # noqa: ANN401 - parsed JSON
    """The value of several spellings of one key; None where none has one. One that says something goes first.

    Raises:
        RefusedRowError: two of them say different things: taking one would lose the other.
    """
    there = [key for key in keys if holder.get(key) is not None]
    found = [key for key in there if not says_nothing(holder[key])] or there[:1]
    for key in found[1:]:
        if holder[key] != holder[found[0]]:
            raise RefusedRowError(f"`{where}{found[0]}` and `{where}{key}` are both there and differ")
    return holder[found[0]] if found else None


def text(value: Any, where: str) -> str:  # noqa: ANN401 - parsed JSON
    """The value, which must be text."""
    if not isinstance(value, str):
        raise RefusedRowError(f"`{where}` is {kind(value)}, not text")
    return value


def name(value: Any, where: str) -> str:  # noqa: ANN401 - parsed JSON
    """The value as the name of a tool or a call."""
    if not isinstance(value, str) or not value.strip():
        raise RefusedRowError(f"`{where}` must be a name, not {quoted(value) if value == '' else kind(value)}")
    return value


def from_text(value: Any, where: str) -> Any:  # noqa: ANN401 - parsed JSON
    """A value that may come as JSON text, as columns of parquet do.

    Raises:
        RefusedRowError: it is text and no JSON, or holds what no JSON can say.
    """
    if not isinstance(value, str):
        require_json(value, where)
        return value
    return parsed(value, where)


def from_text_or_python(value: Any, where: str) -> Any:  # noqa: ANN401 - parsed JSON
    """As :func:`from_text`; the text may also be a dict or a list as Python prints it, as ``str`` of one is.

    Raises:
        RefusedRowError: it is neither, or holds what no JSON can say.
    """
    try:
        return from_text(value, where)
    except RefusedRowError:
        if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
            raise
        try:
            found = literal_eval(value.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            found = None
        if found is None or not _has_names(found):
            raise
    require_json(found, where)
    return found


def _has_names(value: Any) -> bool:  # noqa: ANN401 - a Python literal
    """Whether all keys are text, as those of JSON are."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _has_names(item) for key, item in value.items())
    return all(map(_has_names, value)) if isinstance(value, list) else True


def parsed(value: str, where: str) -> Any:  # noqa: ANN401 - parsed JSON
    """JSON text as a value.

    Raises:
        RefusedRowError: it is no JSON.
    """
    try:
        return parse(value.encode("utf-8", "surrogatepass"))
    except StrictJsonError as error:
        raise RefusedRowError(f"`{where}` {visible(str(error))}") from None


def require_json(value: Any, where: str) -> None:  # noqa: ANN401 - parsed JSON, or a row of a parquet file
    """Refuses what JSON cannot say.

    Raises:
        RefusedRowError: a value inside is none that JSON has: NaN, a date, bytes.
    """
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            require_json(item, where)
    elif not (value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))):
        raise RefusedRowError(f"`{where}` holds {quoted(value)}, which JSON cannot say")


def says_nothing(value: Any) -> bool:  # noqa: ANN401 - parsed JSON
    """Whether a value is absent in all but name: null, empty, or lists and objects of nothing else."""
    if isinstance(value, dict | list):
        return all(says_nothing(item) for item in (value.values() if isinstance(value, dict) else value))
    return value is None or value == ""


def lost(holder: Json, known: Container[str]) -> list[str]:
    """Keys with content that are not read: a number or a switch says nothing; text, a list or an object might."""
    return [
        key
        for key, value in holder.items()
        if key not in known and isinstance(value, str | list | dict) and not says_nothing(value)
    ]


def nothing_lost(holder: Json, known: Container[str], where: str) -> None:
    """Refuses content under keys that are not read.

    Raises:
        RefusedRowError: there is some.
    """
    for key in lost(holder, known):
        raise RefusedRowError(
            f"`{where}` has {quoted(key)}, which is not known and would be lost: write it where it is read, or leave it"
            " out with the dataset's `ignore_keys`"
        )


def object_row(row: Any, key: str) -> Json:  # noqa: ANN401 - parsed JSON
    """The row, which must be an object."""
    if not isinstance(row, dict):
        raise RefusedRowError(f"the row is {kind(row)}, not an object with the key `{key}`")
    return row
