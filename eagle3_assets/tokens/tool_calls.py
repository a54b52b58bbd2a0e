"""The whole tool calls of outputs, as text: what stands before each call's arguments, and the arguments.

What belongs here: finding calls by their markup and decoding the few ids inside. Not here: what is right about them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eagle3_assets.strict_json import StrictJsonError, parse
from eagle3_assets.tokens.columns import Marks, TokenColumn
from eagle3_assets.tokens.profile import TargetProfile, Tokenizer, ToolIds


@dataclass(frozen=True)
class Call:
    """One whole call; its texts are untrusted."""

    row: int
    """Of the column."""
    index: int
    """Of the id that begins the call."""
    head: str | None
    """What stands before the arguments; None where the markup has no id that begins them."""
    body: str
    """The arguments, or the whole call where the markup has no id that begins them."""
    body_index: int
    """Of the first id of the body."""
    profile: TargetProfile

    @cached_property
    def parts(self) -> dict[str, str]:
        """The call's ``name`` and, where its form has a counter, ``number``; empty where the form is another one."""
        if self.head is None:
            value = self.json
            name = value.get("name") if isinstance(value, dict) else None
            return {"name": name} if isinstance(name, str) else {}
        pattern = self.profile.tool_call_pattern
        match = None if pattern is None else pattern.fullmatch(self.head)
        return {} if match is None else match.groupdict()

    @cached_property
    def json(self) -> Any:  # noqa: ANN401 - any JSON value
        """The body as JSON; the :class:`StrictJsonError` itself where it is none."""
        try:
            return parse(self.body.encode("utf-8", "surrogatepass"))
        except StrictJsonError as error:
            return error


def whole_calls(outputs: TokenColumn, marks: Marks, profile: TargetProfile, tokenizer: Tokenizer) -> list[Call]:
    """Every call that begins, has a body and ends; what is cut off or out of order is left to the grammar.

    Args:
        outputs: rows of output ids.
        marks: every structural id in them.
        profile: of a target whose tool markup is described.
        tokenizer: decodes what stands inside a call, and nothing else.
    """
    tools = profile.tools
    assert tools is not None  # noqa: S101 - as the caller was told
    heads: dict[tuple[int, ...], str] = {}

    def decoded(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False))

    calls = []
    for row, begin, argument, end in _places(marks, tools):
        ids = outputs.row(row)[begin:end].tolist()
        if any(not 0 <= i < profile.vocab_size for i in ids):
            continue
        head = None
        if tools.argument_begin is not None:
            key = tuple(ids[1 : argument - begin])
            if key not in heads:  # a few names and counters, over and over
                heads[key] = decoded(list(key))
            head = heads[key]
        calls.append(Call(row, begin, head, decoded(ids[argument - begin + 1 :]), argument + 1, profile))
    return calls


def _places(marks: Marks, tools: ToolIds) -> Iterator[tuple[int, int, int, int]]:
    """Row, and index of the ids that begin the call, begin its arguments (or the call again) and end it."""
    inner = [tools.call_begin, *([] if tools.argument_begin is None else [tools.argument_begin]), tools.call_end]
    count = len(marks) - len(inner) + 1
    if count <= 0:
        return
    here = np.ones(count, np.bool_)
    for place, token_id in enumerate(inner):
        here &= marks.id[place : place + count] == token_id
        here &= marks.row[place : place + count] == marks.row[:count]
        if place:  # each part has ids
            here &= marks.index[place : place + count] > marks.index[place - 1 : place - 1 + count] + 1
    for first in np.flatnonzero(here).tolist():
        last = first + len(inner) - 1
        row, begin, argument, end = marks.row[first], marks.index[first], marks.index[last - 1], marks.index[last]
        yield int(row), int(begin), int(argument), int(end)
