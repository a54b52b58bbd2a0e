"""Judges one generation of the demo model: is it well formed, and is it what was asked for.

Belongs here: reading output ids, in plain Python, for the demo's own figures. Does not belong here: the laws of
token fidelity (`eagle3_assets.tokens`), which judge data of any target.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from eagle3_assets.demo.samples import Call, Turn

_CALL_ID = re.compile(r"functions\.(\w+):(\d+)")


class MalformedError(ValueError):
    """A generation which breaks the demo's format; its text says how."""


class Piece(NamedTuple):
    """A structural token, or a run of ordinary text between two of them."""

    structural: bool
    text: str


def read_turn(pieces: Sequence[Piece], *, thinking: bool, declared: Collection[str], first_call: int) -> Turn:
    """Reads a generation.

    Args:
        pieces: the generation, neighbouring ordinary tokens joined.
        thinking: whether the prompt ended inside `<think>`.
        declared: names of the declared tools.
        first_call: the number that the next call's id must have.

    Returns:
        What the model said.

    Raises:
        MalformedError: if it is not (reasoning and `</think>`,) an answer or calls or both, and the stop token.
    """
    rest = list(pieces)
    reasoning = ""
    if thinking:
        reasoning = _text(rest)
        if not reasoning.strip():
            raise MalformedError("empty reasoning")
        _expect(rest, "</think>")
    content = _text(rest)
    calls = _calls(rest, declared, first_call) if rest and rest[0].text == "<|tool_calls_section_begin|>" else ()
    if not content.strip() and not calls:
        raise MalformedError("neither answer nor calls")
    _expect(rest, "<|im_end|>")
    if rest:
        raise MalformedError("tokens after the stop token")
    return Turn(reasoning, content, calls)


def says_the_same(said: Turn, wanted: Turn) -> bool:
    """Compares calls where calls are wanted, and the answer where an answer is wanted."""
    if wanted.calls or said.calls:
        return [_plain(call) for call in said.calls] == [_plain(call) for call in wanted.calls]
    return said.content == wanted.content


def _plain(call: Call) -> tuple[str, Mapping[str, Any]]:
    return call.name, dict(call.arguments)


def _text(rest: list[Piece]) -> str:
    return rest.pop(0).text if rest and not rest[0].structural else ""


def _expect(rest: list[Piece], name: str) -> None:
    found = rest.pop(0) if rest else Piece(True, "the end")
    if found != Piece(True, name):
        raise MalformedError(f"{found.text!r} where {name} belongs")


def _calls(rest: list[Piece], declared: Collection[str], first_call: int) -> tuple[Call, ...]:
    _expect(rest, "<|tool_calls_section_begin|>")
    calls: list[Call] = []
    while rest and rest[0].text == "<|tool_call_begin|>":
        calls.append(_call(rest, declared, first_call + len(calls)))
    if not calls:
        raise MalformedError("a tool section without calls")
    _expect(rest, "<|tool_calls_section_end|>")
    return tuple(calls)


def _call(rest: list[Piece], declared: Collection[str], number: int) -> Call:
    _expect(rest, "<|tool_call_begin|>")
    call_id = _text(rest)
    _expect(rest, "<|tool_call_argument_begin|>")
    argument_text = _text(rest)
    _expect(rest, "<|tool_call_end|>")
    match = _CALL_ID.fullmatch(call_id)
    if match is None or int(match[2]) != number:
        raise MalformedError(f"call id {call_id!r}, expected number {number}")
    if match[1] not in declared:
        raise MalformedError(f"tool {match[1]!r} is not declared")
    try:
        arguments = json.loads(argument_text)
    except json.JSONDecodeError as error:
        raise MalformedError(f"arguments are not JSON: {argument_text!r}") from error
    if not isinstance(arguments, dict):
        raise MalformedError(f"arguments are no object: {argument_text!r}")
    return Call(match[1], arguments)
