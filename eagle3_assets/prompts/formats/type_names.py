"""Types as Python, TypeScript, Java and Gemini write them, as JSON Schema says them.

What belongs here: one type's text. Not here: schemas around it (``tools``).

Read are names with what they hold (``List[int]``, ``Map<String, Integer>``, ``list of str``), lists by their ending
(``string[]``), choices (``Union[int, str]``, ``int | str``, ``int or str``), and words about leaving out
(``str, optional``). ``Optional[X]`` and ``X | None`` are X: whether a value may be left out is what ``required`` says.
"""

import re
from collections.abc import Sequence
from typing import Any

from eagle3_assets.prompts.dialogue import Json

_SPELLINGS = {
    "object": ("dict", "object", "hashmap", "map", "mapping", "hashtable", "record"),
    "array": ("list", "tuple", "array", "arraylist", "set", "frozenset", "sequence", "iterable"),
    "string": ("str", "string", "char", "text"),
    "integer": ("int", "integer", "long", "short", "byte"),
    "number": ("float", "double", "number", "decimal"),
    "boolean": ("bool", "boolean"),
    "null": ("none", "nonetype", "null"),
}
_NAMED = {spelled: right for right, others in _SPELLINGS.items() for spelled in others}
_ANY = "any"
"""JSON Schema says it by naming no type."""
_LEFT_OUT = re.compile(r"[\s,]*\(?\s*\b(?:optional|required)\s*\)?\s*\Z", re.IGNORECASE)
_TOKEN = re.compile(r"\s*(?:([A-Za-z_][\w.]*)|(\.\.\.|[\[\]<>,|]|\d+))")
_CLOSING = {"[": "]", "<": ">"}


class _UnknownTypeError(Exception):
    """The text is no type that is known."""


def type_of(value: Any) -> Json:  # noqa: ANN401 - parsed JSON
    """What a schema's ``type`` says, as the keys that JSON Schema says it by: mostly ``type`` alone.

    Empty for any type at all. A text that nobody knows stays what it is.
    """
    if isinstance(value, list):
        found = [type_of(item) for item in value if isinstance(item, str)]
        if len(found) < len(value) or {} in found:
            return {"type": value}
        return {"type": [item["type"] for item in found]} if all(map(_is_name, found)) else _one_of(found)
    if not isinstance(value, str):
        return {"type": value}
    text = _LEFT_OUT.sub("", value)
    if not text.strip():
        return {} if not value.strip() else {"type": value}
    try:
        return _Reader(text).whole()
    except _UnknownTypeError:
        return {"type": value}


def is_type(text: str) -> bool:
    """Whether a text names a type that is known."""
    try:
        _Reader(_LEFT_OUT.sub("", text)).whole()
    except _UnknownTypeError:
        return False
    return True


class _Reader:
    """Reads one type from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self._words: list[str] = []
        place = 0
        text = text.rstrip()
        while place < len(text):
            found = _TOKEN.match(text, place)
            if found is None:
                raise _UnknownTypeError
            self._words.append(found[1] or found[2])
            place = found.end()
        self._next = 0

    def whole(self) -> Json:
        found = self._choice()
        if self._next < len(self._words):
            raise _UnknownTypeError
        return found

    def _choice(self) -> Json:
        found = [self._listed()]
        while self._take("|") or self._take("or"):
            found.append(self._listed())
        return _one_of(_said(found)) if len(found) > 1 else found[0]

    def _listed(self) -> Json:
        """One type and how often ``[]`` says that it is a list of it."""
        found = self._named()
        while self._take("["):
            if self._word().isdigit():
                self._next += 1
            self._expect("]")
            found = _list_of(found)
        return found

    def _named(self) -> Json:
        name = self._word().lower().removeprefix("typing.").removeprefix("collections.abc.")
        self._next += 1
        right = _NAMED.get(name)
        if right == "array" and self._take("of"):
            return _list_of(self._plural())
        if name == _ANY:
            return {}
        if right in ("array", "object") or name in ("optional", "union"):
            return self._generic(name, right)
        if right is None:
            raise _UnknownTypeError
        return {"type": right}

    def _generic(self, name: str, right: str | None) -> Json:
        """A type that may say in brackets what it holds."""
        if self._words[self._next : self._next + 2] == ["[", "]"]:
            self._next += 2 if right == "array" else 0  # list[] is a list; dict[] is a list of them
            held: list[Json] = []
            more = False
        else:
            held, more = self._held()
        if more and (name != "tuple" or len(held) != 1):
            raise _UnknownTypeError
        if name == "tuple" and held and not more:
            return {"type": "array", "prefixItems": held, "minItems": len(held), "maxItems": len(held)}
        if right == "array":
            return _list_of(held[0] if len(held) == 1 else {})
        if right == "object":
            values = held[1] if len(held) == 2 else {}
            return {"type": "object", **({"additionalProperties": values} if values else {})}
        if not held:
            raise _UnknownTypeError
        return _one_of(_said(held))

    def _held(self) -> tuple[list[Json], bool]:
        """The types in brackets, none without any, and whether ``...`` says that the last goes on."""
        closing = _CLOSING.get(self._word())
        if closing is None:
            return [], False
        self._next += 1
        found, more = [], False
        while not self._take(closing):
            if more:
                raise _UnknownTypeError
            more = self._take("...")
            if not more:
                found.append(self._choice())
            if self._word() != closing:
                self._expect(",")
        return found, more

    def _plural(self) -> Json:
        """What a list is of, which people write as one or as several: ``list of strings``."""
        word = self._word().lower()
        if word.endswith("s") and word not in _NAMED:
            self._words[self._next] = word.removesuffix("s")
        return self._listed()

    def _word(self) -> str:
        return self._words[self._next] if self._next < len(self._words) else ""

    def _take(self, word: str) -> bool:
        there = self._word() == word
        self._next += there
        return there

    def _expect(self, word: str) -> None:
        if not self._take(word):
            raise _UnknownTypeError


def _list_of(items: Json) -> Json:
    return {"type": "array", **({"items": items} if items else {})}


def _said(choices: Sequence[Json]) -> list[Json]:
    """Those of several choices that are more than nothing at all."""
    return [choice for choice in choices if choice != {"type": "null"}] or [{"type": "null"}]


def _one_of(choices: Sequence[Json]) -> Json:
    """A choice of several types: by their names where names say all of them."""
    different = [choice for i, choice in enumerate(choices) if choice not in choices[:i]]
    if len(different) == 1:
        return different[0]
    if {} in different:
        return {}
    if all(map(_is_name, different)):
        return {"type": [choice["type"] for choice in different]}
    return {"anyOf": different}


def _is_name(choice: Json) -> bool:
    return set(choice) == {"type"} and isinstance(choice["type"], str)
