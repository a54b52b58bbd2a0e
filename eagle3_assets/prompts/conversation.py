"""One conversation as a chat template takes it: what is accepted, and its one normal form.

What belongs here: checking and normalising messages and tools. Not here: files, ids of rows, templates.
"""

from dataclasses import dataclass
from typing import Any

from eagle3_assets.tokens.safe_text import quoted

ROLES = ("system", "user", "assistant", "tool")
Json = dict[str, Any]


class RefusedRowError(ValueError):
    """A source row that no prompt can be made of; the text says why, without the place."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """One row of a source in normal form, with all of its turns."""

    source_id: str | None
    """The source's own id; None without one."""
    messages: list[Json]
    tools: list[Json] | None


def from_openai(row: Any) -> Dialogue:  # noqa: ANN401 - parsed JSON
    """A row ``{id?, messages, tools?}`` in the shape of OpenAI's chat requests.

    Null fields are dropped, since a null and an absent field are the same thing and templates differ on nulls.

    Raises:
        RefusedRowError: with the key that is wrong and what is allowed there.
    """
    if not isinstance(row, dict):
        raise RefusedRowError(f"the row is {_kind(row)}, not an object with the key `messages`")
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RefusedRowError(f"`messages` must be a non-empty list, not {_kind(messages)}")
    normal = [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]
    return Dialogue(_source_id(row), normal, _tools(row.get("tools")))


def _source_id(row: Json) -> str | None:
    given = _first(row, "id", "conversation_id")
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise RefusedRowError(f"`id` must be a string or a whole number, not {_kind(given)}")
    text = str(given).strip()
    if not text or not text.isprintable():
        raise RefusedRowError(f"`id` must be printable text, not {quoted(text)}")
    return text


def _message(message: Any, where: str) -> Json:  # noqa: ANN401 - parsed JSON
    if not isinstance(message, dict):
        raise RefusedRowError(f"`{where}` is {_kind(message)}, not an object")
    role = message.get("role")
    if role not in ROLES:
        raise RefusedRowError(f"`{where}.role` is {quoted(role)}; known: {', '.join(ROLES)}")
    normal: Json = {"role": role}
    calls = message.get("tool_calls")
    content = _content(message.get("content"), f"{where}.content")
    if content is not None:
        normal["content"] = content
    elif not calls:
        raise RefusedRowError(f"`{where}.content` is missing")
    reasoning = _first(message, "reasoning_content", "reasoning")
    if reasoning is not None:
        if not isinstance(reasoning, str):
            raise RefusedRowError(f"`{where}.reasoning_content` is {_kind(reasoning)}, not text")
        normal["reasoning_content"] = reasoning
    if calls:
        if not isinstance(calls, list):
            raise RefusedRowError(f"`{where}.tool_calls` is {_kind(calls)}, not a list")
        normal["tool_calls"] = [_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]
    for key in ("name", "tool_call_id"):
        if message.get(key) is not None:
            normal[key] = str(message[key])
    return normal


def _content(content: Any, where: str) -> str | None:  # noqa: ANN401 - parsed JSON
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RefusedRowError(f"`{where}` is {_kind(content)}, not text")
    texts = []
    for i, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, dict) else _kind(part)
            raise RefusedRowError(f"`{where}[{i}]` is a part of type {quoted(kind)}; only text parts are supported")
        texts.append(part["text"])
    return "".join(texts)


def _call(call: Any, where: str) -> Json:  # noqa: ANN401 - parsed JSON
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RefusedRowError(f"`{where}` must be an object with `function.name`")
    arguments = function.get("arguments", {})
    if not isinstance(arguments, str | dict):
        raise RefusedRowError(f"`{where}.function.arguments` is {_kind(arguments)}, not an object or JSON text")
    normal: Json = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
    if call.get("id") is not None:
        normal["id"] = str(call["id"])
    return normal


def _tools(tools: Any) -> list[Json] | None:  # noqa: ANN401 - parsed JSON
    if tools is None:
        return None
    if not isinstance(tools, list):
        raise RefusedRowError(f"`tools` is {_kind(tools)}, not a list")
    return [_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools)] or None


def _tool(tool: Any, where: str) -> Json:  # noqa: ANN401 - parsed JSON
    function = tool.get("function") if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise RefusedRowError(f"`{where}` must be {{type: function, function: {{name, description, parameters}}}}")
    return {"type": "function", "function": _without_nulls(function)}


def _first(holder: Json, *keys: str) -> Any:  # noqa: ANN401 - parsed JSON
    """The value of the first key that has one."""
    return next((holder[key] for key in keys if holder.get(key) is not None), None)


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - parsed JSON
    """Without the fields that are null: Arrow fills in those which other rows have."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _kind(value: Any) -> str:  # noqa: ANN401 - parsed JSON
    names = {type(None): "missing", bool: "true or false", int: "a number", float: "a number", str: "text"}
    return names.get(type(value)) or (
        "an empty list" if value == [] else "a list" if isinstance(value, list) else "an object"
    )
