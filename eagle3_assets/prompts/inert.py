"""The same conversations with every text replaced by inert text: what is left is what the template itself writes.

What belongs here: replacing texts so that a template still takes the conversation. Not here: rendering, judging.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from eagle3_assets.tokens.codec import PLAIN

INERT = "inert"
"""Stands for every text."""


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
            [_json([_message(m, reasoning_end) for m in json.loads(text)]) for text in rows["messages"]],
            dtype=pl.String,
        ),
        tools=pl.Series([_json(_inert(json.loads(text))) if text else None for text in rows["tools"]], dtype=pl.String),
    )


def declared_tools(rows: pl.DataFrame) -> dict[str, tuple[str, ...]]:
    """The names of the tools that each prompt row declares, by sample id; empty for one without tools."""
    # Many samples share their tools: each list is read once.
    names = {text: _names(text) for text in rows["tools"].unique()}
    return {sample: names[text] for sample, text in rows.select("sample_id", "tools").iter_rows()}


def _names(tools: str | None) -> tuple[str, ...]:
    return tuple(tool["function"]["name"] for tool in json.loads(tools)) if tools else ()


def _message(message: Mapping[str, Any], reasoning_end: str | None) -> dict[str, Any]:
    inert = {key: _FIELDS.get(key, _prose)(value) for key, value in message.items()}
    folded = reasoning_end is not None and reasoning_end in message.get("content", "")
    if message["role"] == "assistant" and folded:
        inert.setdefault("reasoning_content", INERT)
    return inert


def _prose(text: str) -> str:
    return INERT if text.strip() else text


def _call_id(text: str) -> str:
    """Of the same length: some templates count. No letter stays, as ids name the tool."""
    return re.sub(r"\w", "x", text) if PLAIN.fullmatch(text) else INERT


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": INERT, "arguments": _arguments(call["function"]["arguments"])}
    return {**call, "function": function} | ({"id": _call_id(call["id"])} if "id" in call else {})


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


_FIELDS = {
    "role": lambda role: role,
    "tool_calls": lambda calls: [_call(call) for call in calls],
    "tool_call_id": _call_id,
}
