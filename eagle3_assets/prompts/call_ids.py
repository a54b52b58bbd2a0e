"""Ids of the history's calls and results in the target's own form, which says the name of the function.

Kimi-K2's newer chat templates print a call's id where others print the function's name, and of a result the id alone:
``functions.get_weather:0``, numbered over the conversation. Other ids, or none, would leave the name out of the prompt.

What belongs here: which call a result is of, and the ids that both get. Not here: which templates need this
(``template_forms``).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from eagle3_assets.prompts.dialogue import Json, RefusedRowError
from eagle3_assets.tokens.safe_text import quoted


def with_call_ids(messages: Sequence[Json], form: str) -> list[Json]:
    """The messages with ids in one form: those that have it already, each for its own function, stay.

    The others get the number of their place among all calls, from 0, or the next one that is free. A result gets the id
    of its call: the one that its own id names; without such an id, of the calls that were made last and have no result
    the first, by name where it has one.

    Args:
        messages: in normal form; left as they are.
        form: as ``TargetProfile.tool_call_id``: ``functions.{name}:{number}``. Without ``{number}`` ids may be equal.

    Raises:
        RefusedRowError: a result is of none of the calls before it.
    """
    calls = _answered(messages)
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


def _answered(messages: Sequence[Json]) -> list[_Call]:
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
            _call_of(message, number, calls, last).results.append(number)
    return calls


def _call_of(result: Json, number: int, calls: Sequence[_Call], last: int) -> _Call:
    given = result.get("tool_call_id")
    # Ids may be used again in a later turn: the latest turn's call is meant, of several there the first one open.
    named = [*calls[last:], *reversed(calls[:last])]
    if given is not None and (same := [call for call in named if call.id == given]):
        return next((call for call in same if not call.results), same[0])
    waiting = [call for call in calls[last:] if not call.results and (given is None or call.id is None)]
    if not waiting:
        which = "has no id" if given is None else f"has the id {quoted(given)}"
        raise RefusedRowError(
            f"a tool's result is of no call before it: message {number} {which}, and the chat template prints ids in"
            " place of functions' names; give each call an `id` and each result the `tool_call_id` of its call"
        )
    return next((call for call in waiting if call.name == result.get("name")), waiting[0])


def _ids(calls: Sequence[_Call], form: str) -> list[str]:
    kept: dict[str, int] = {}
    """The ids that stay, with the first call that has them."""
    for place, call in enumerate(calls):
        if call.id is not None and _has_form(call.id, call.name, form):
            kept.setdefault(call.id, place)
    ids: list[str] = []
    number = 0
    for place, call in enumerate(calls):
        if call.id is not None and kept.get(call.id) == place:
            ids.append(call.id)
            continue
        number = max(number, place)
        while "{number}" in form and _id(form, call.name, number) in kept:
            number += 1
        ids.append(_id(form, call.name, number))
        number += 1
    return ids


def _id(form: str, name: str, number: int) -> str:
    return form.replace("{number}", str(number), 1).replace("{name}", name, 1)


def _has_form(given: str, name: str, form: str) -> bool:
    """Whether an id has the form for this name, with any number."""
    pattern = re.escape(form).replace(r"\{number\}", r"\d{1,9}", 1).replace(r"\{name\}", re.escape(name), 1)
    return re.fullmatch(pattern, given, re.ASCII) is not None
