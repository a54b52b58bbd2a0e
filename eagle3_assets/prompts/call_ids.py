"""Ids of the history's calls and results in the target's own form, which says the name of the function.

Kimi-K2's newer chat templates print a call's id where others print the function's name, and of a result the id alone:
``functions.get_weather:0``, numbered over the conversation. Other ids, or none, would leave the name out of the prompt;
numbers out of order let the target write calls that no parser takes (sgl-project/sglang#10603).

What belongs here: which call a result is of, and the ids that both get. Not here: which templates need this
(``template_forms``).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from eagle3_assets.prompts.dialogue import Json, RefusedRowError
from eagle3_assets.tokens.safe_text import quoted


def with_call_ids(messages: Sequence[Json], form: str) -> list[Json]:
    """The messages with ids in one form: those that there are, or ones counted over all calls from 0.

    Those that there are stay where every call's has the form for its own function, and their numbers rise. A result
    gets the id of its call: the one that its own id names; without such an id, of the calls that were made last and
    have no result the first, or the first of the function that its id or ``name`` says.

    Args:
        messages: in normal form; left as they are.
        form: as ``TargetProfile.tool_call_id``: ``functions.{name}:{number}``. Without ``{number}`` ids may be equal.

    Raises:
        RefusedRowError: a result is of none of the calls before it.
    """
    calls = _answered(messages, form)
    ids = dict(zip(((call.message, call.place) for call in calls), _ids(calls, form), strict=True))
    answers = {result: ids[call.message, call.place] for call in calls for result in call.results}
    made: list[Json] = []
    for number, message in enumerate(messages):
        if "tool_calls" in message:
            given = [{**call, "id": ids[number, place]} for place, call in enumerate(message["tool_calls"])]
            made.append({**message, "tool_calls": given})
        else:
            made.append({**message, "tool_call_id": answers[number]} if number in answers else message)
    return made


@dataclass(slots=True)
class _Call:
    message: int
    place: int
    """Among its message's calls."""
    name: str
    id: str | None
    results: list[int]
    """Numbers of the messages that are its results."""


def _answered(messages: Sequence[Json], form: str) -> list[_Call]:
    """All calls in their order, with their results."""
    calls: list[_Call] = []
    last, others_spoke = 0, False
    """The first of the calls that were made last: by assistant turns with nobody else's between them."""
    for number, message in enumerate(messages):
        others_spoke |= message["role"] != "assistant"
        if found := message.get("tool_calls"):
            last, others_spoke = len(calls) if others_spoke else last, False
            calls += [
                _Call(number, place, call["function"]["name"], call.get("id"), []) for place, call in enumerate(found)
            ]
        if message["role"] == "tool":
            _call_of(message, number, calls, last, form).results.append(number)
    return calls


def _call_of(result: Json, number: int, calls: Sequence[_Call], last: int, form: str) -> _Call:
    given = result.get("tool_call_id")
    # Ids may be used again in a later turn: the latest turn's call is meant, of several there the first one open.
    named = [*calls[last:], *reversed(calls[:last])]
    if given is not None and (same := [call for call in named if call.id == given]):
        waiting = [call for call in same if not call.results]
        return next((call for call in waiting if call.name == result.get("name")), (*waiting, *same)[0])
    waiting = [call for call in calls[last:] if not call.results and (given is None or call.id is None)]
    # Of a function that was called, it is no result of another's call.
    if function := _function(result, calls, form):
        waiting = [call for call in waiting if call.name == function]
    if not waiting:
        which = "has no id" if given is None else f"has the id {quoted(given)}"
        which += f" and is of {quoted(function)}" if function else ""
        raise RefusedRowError(
            f"a tool's result is of no call before it: message {number} {which}, and the chat template prints ids in"
            " place of functions' names; give each call an `id` and each result the `tool_call_id` of its call"
        )
    return waiting[0]


def _function(result: Json, calls: Sequence[_Call], form: str) -> str | None:
    """Of the functions that were called the one that a result says it is of; None where it says nothing of it."""
    given, name = result.get("tool_call_id", ""), result.get("name")
    known = dict.fromkeys(call.name for call in calls)
    by_id = (function for function in known if _number(given, function, form) is not None)
    return next(by_id, name if name in known else None)


def _ids(calls: Sequence[_Call], form: str) -> list[str]:
    given = [(call.id, _number(call.id or "", call.name, form)) for call in calls]
    kept = [(call_id, number) for call_id, number in given if call_id is not None and number is not None]
    if len(kept) == len(calls) and all(one < other for (_, one), (_, other) in pairwise(kept)):
        return [call_id for call_id, _ in kept]
    return [form.replace("{number}", str(place), 1).replace("{name}", call.name, 1) for place, call in enumerate(calls)]


def _number(given: str, name: str, form: str) -> int | None:
    """The number in an id that has the form for this name; None where it has not, or the form has no number."""
    if "{number}" not in form:
        return None
    pattern = re.escape(form).replace(r"\{number\}", r"(\d{1,9})", 1).replace(r"\{name\}", re.escape(name), 1)
    found = re.fullmatch(pattern, given, re.ASCII)
    return int(found[1]) if found else None
