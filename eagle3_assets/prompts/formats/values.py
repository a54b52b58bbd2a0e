"""Parsed JSON, looked at with words for people.

What belongs here: what a value is, JSON within JSON, values that only Arrow has. Not here: messages, tools.
"""

import math
from collections.abc import Iterable
from typing import Any

from eagle3_assets.prompts.dialogue import Json, RefusedRowError
from eagle3_assets.strict_json import StrictJsonError, parse
from eagle3_assets.tokens.safe_text import quoted, visible


def kind(value: Any) -> str:  # noqa: ANN401 - parsed JSON
    """What a value is, in words."""
    names = {type(None): "missing", bool: "true or false", int: "a number", float: "a number", str: "text"}
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return names.get(type(value)) or (
        "an object" if isinstance(value, dict) else f"a value of type {type(value).__name__}"
    )


def first(holder: Json, *keys: str) -> Any:  # noqa: ANN401 - parsed JSON
    """The value of the first key that has one."""
    return next((holder[key] for key in keys if holder.get(key) is not None), None)


def only_one(holder: Json, keys: Iterable[str], where: str = "") -> Any:  # noqa: ANN401 - parsed JSON
    """The value of several spellings of one key; None where none has one.

    Raises:
        RefusedRowError: two of them have values that differ: taking one would lose the other.
    """
    found = [key for key in keys if holder.get(key) is not None]
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

    Nulls of JSON text are the writer's own and stay. Those of a value that is there as such are dropped: Arrow fills in
    the fields which other rows have, and nothing tells the two apart.

    Raises:
        RefusedRowError: it is text and no JSON, or holds what no JSON can say.
    """
    if not isinstance(value, str):
        return plain(value, where)
    return parsed(value, where)


def parsed(value: str, where: str) -> Any:  # noqa: ANN401 - parsed JSON
    """JSON text as a value.

    Raises:
        RefusedRowError: it is no JSON.
    """
    try:
        return parse(value.encode("utf-8", "surrogatepass"))
    except StrictJsonError as error:
        raise RefusedRowError(f"`{where}` {visible(str(error))}") from None


def plain(value: Any, where: str) -> Any:  # noqa: ANN401 - parsed JSON
    """A value without the fields that are null.

    Raises:
        RefusedRowError: a value inside is none that JSON has: NaN, a date, bytes.
    """
    if isinstance(value, dict):
        return {key: plain(item, where) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [plain(item, where) for item in value]
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise RefusedRowError(f"`{where}` holds {quoted(value)}, which JSON cannot say")


def object_row(row: Any, key: str) -> Json:  # noqa: ANN401 - parsed JSON
    """The row, which must be an object."""
    if not isinstance(row, dict):
        raise RefusedRowError(f"the row is {kind(row)}, not an object with the key `{key}`")
    return row
