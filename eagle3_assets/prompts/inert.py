"""The same conversations with every text replaced by inert text: what is left is what the template itself writes.

What belongs here: replacing texts so that a template still takes the conversation, and which messages became nothing of
it. Not here: rendering, judging.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from eagle3_assets.tokens.codec import PLAIN

INERT = "inert"
"""Stands for every text; with the message's number for what it says: its content, and the names of its calls, each with
its own number too."""

_MARK = re.compile(rf"{INERT}_(\d+)")
_NAME = re.compile(rf"{INERT}_(\d+)_call_(\d+)")


def inert_rows(rows: pl.DataFrame, reasoning_end: str | None = None) -> pl.DataFrame:
    """Prompt rows of inert text, in the same order.

    Roles, the fields that are there, what is empty, and the structure of tools and arguments stay, since templates
    decide by them. Of tools and arguments names and single words stay too: they spell no structural token.

    Args:
        rows: columns ``sample_id``, ``messages`` and ``tools`` of ``contract.PROMPTS``.
        reasoning_end: the target's token. An assistant turn with it in its content has reasoning there: it comes back
            with reasoning of its own, as some templates take it out of the content themselves.
    """
    return rows.select(
        "sample_id",
        messages=pl.Series(
            [_json(_messages(json.loads(text), reasoning_end)) for text in rows["messages"]],
            dtype=pl.String,
        ),
        tools=pl.Series([_json(_inert(json.loads(text))) if text else None for text in rows["tools"]], dtype=pl.String),
    )


def unrendered(messages: str, text: str) -> list[str]:
    """The messages of which nothing is in a prompt, by number and role: ``message 0 (system)``.

    Those without content and calls are none: reasoning of earlier turns is left out by many templates. Of content
    beside calls the calls are enough: some templates have no place for it. Of calls the functions' names are looked
    for; a message of which some are not there is named as ``the name of a call of message 2 (assistant)``.

    Args:
        messages: of a row of :func:`inert_rows`.
        text: that they were rendered to.
    """
    found, names = set(_MARK.findall(text)), set(_NAME.findall(text))
    lost = []
    for number, message in enumerate(json.loads(messages)):
        said = f"message {number} ({message['role']})"
        calls = range(len(message.get("tool_calls", ())))
        if (message.get("content", "").strip() or calls) and str(number) not in found:
            lost.append(said)
        elif any((str(number), str(call)) not in names for call in calls):
            lost.append(f"the name of a call of {said}")
    return lost


def declared_tools(rows: pl.DataFrame) -> dict[str, tuple[str, ...]]:
    """The names of the tools that each prompt row declares, by sample id; empty for one without tools."""
    # Many samples share their tools: each list is read once.
    names = {text: _names(text) for text in rows["tools"].unique()}
    return {sample: names[text] for sample, text in rows.select("sample_id", "tools").iter_rows()}


def _names(tools: str | None) -> tuple[str, ...]:
    return tuple(tool["function"]["name"] for tool in json.loads(tools)) if tools else ()


def _messages(messages: list[dict[str, Any]], reasoning_end: str | None) -> list[dict[str, Any]]:
    ids: dict[str, str] = {}
    return [_message(message, f"{INERT}_{number}", ids, reasoning_end) for number, message in enumerate(messages)]


def _message(message: Mapping[str, Any], mark: str, ids: dict[str, str], reasoning_end: str | None) -> dict[str, Any]:
    inert: dict[str, Any] = {}
    for key, value in message.items():
        if key == "role":
            inert[key] = value
        elif key == "content":
            inert[key] = _prose(value, mark)
        elif key == "tool_calls":
            inert[key] = [_call(call, f"{mark}_call_{place}", ids) for place, call in enumerate(value)]
        else:
            inert[key] = _call_id(value, ids) if key == "tool_call_id" else _prose(value)
    folded = reasoning_end is not None and reasoning_end in message.get("content", "")
    if message["role"] == "assistant" and folded:
        inert.setdefault("reasoning_content", INERT)
    return inert


def _prose(text: str, inert: str = INERT) -> str:
    return inert if text.strip() else text


def _call_id(text: str, ids: dict[str, str]) -> str:
    """Another one for each of a conversation, as results are told by them; ``ids`` are those that there were so far.

    Of the same length where it has room for their number: some templates count. No letter stays, as ids name the tool.
    """
    if text not in ids:
        number = str(len(ids))
        masked = re.sub(r"\w", "x", text) if PLAIN.fullmatch(text) else INERT
        ids[text] = masked[: -len(number)] + number if masked.endswith("x" * len(number)) else masked + number
    return ids[text]


def _call(call: Mapping[str, Any], name: str, ids: dict[str, str]) -> dict[str, Any]:
    function = {"name": name, "arguments": _arguments(call["function"]["arguments"])}
    return {**call, "function": function} | ({"id": _call_id(call["id"], ids)} if "id" in call else {})


def _arguments(arguments: str | dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(arguments, dict):
        return _inert(arguments)
    try:
        return _json(_inert(json.loads(arguments)))
    except ValueError:
        return _prose(arguments)


def _inert(value: Any) -> Any:  # noqa: ANN401 - JSON
    """JSON whose texts, keys too, are inert but for single words."""
    if isinstance(value, dict):
        return {
            key if PLAIN.fullmatch(key) else f"{INERT}{number}": _inert(item)
            for number, (key, item) in enumerate(value.items())
        }
    if isinstance(value, list):
        return [_inert(item) for item in value]
    return INERT if isinstance(value, str) and not PLAIN.fullmatch(value) else value


def _json(value: Any) -> str:  # noqa: ANN401 - JSON
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
