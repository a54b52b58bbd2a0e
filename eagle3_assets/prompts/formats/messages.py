"""Messages in their one normal form, and what makes a conversation of them.

What belongs here: roles, contents, calls and results, whatever format names them. Not here: where a format keeps them.
"""

import json
from typing import Any

from eagle3_assets.prompts.dialogue import Dialogue, Json, RefusedRowError
from eagle3_assets.prompts.formats.reasoning import separated
from eagle3_assets.prompts.formats.tools import tools
from eagle3_assets.prompts.formats.values import (
    first,
    from_text,
    kind,
    name,
    nothing_lost,
    only_one,
    require_json,
    says_nothing,
    text,
)
from eagle3_assets.strict_json import StrictJsonError, parse
from eagle3_assets.tokens.safe_text import quoted

ROLES = {
    "system": "system",
    "developer": "system",  # OpenAI's later name for it, which few templates know
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",  # from before there were several calls
}
IDS = ("id", "conversation_id", "uuid", "prompt_id")
MAX_ID = 500
"""Characters; every row, log line and journal record of a sample carries its id."""
SYSTEM = ("system", "system_prompt")
TOOLS = ("tools", "functions", "available_tools")
TEMPLATE = "chat_template_kwargs"
REASONING = ("reasoning_content", "reasoning", "thinking")
MEDIA = ("images", "image", "audios", "audio", "videos", "video", "image_url", "image_urls", "video_url", "audio_url")

_READ = {"role", "content", "tool_calls", "function_call", "name", "tool_call_id", *REASONING, *MEDIA}
_AS_TEXT = " (calls written into the content as text are not read)"
_NOTES = {
    # About a message, not part of what was said.
    *("id", "uuid", "message_id", "parent_id", "type", "model", "timestamp", "created", "created_at", "date", "time"),
    *("country", "language", "lang", "state", "header", "hashed_ip", "turn_identifier", "weight", "train", "loss"),
    *("source", "score", "rating", "labels", "tokens", "finish_reason", "stop_reason", "logprobs", "usage"),
    *("metadata", "meta", "index", "annotations", "openai_id", "system_fingerprint"),
}
_CALL = {"id", "type", "index", "function"}
_CALLED = {"name", "arguments", "parameters"}


def dialogue(row: Json, messages: list[Json]) -> Dialogue:
    """A dialogue of normal messages and of what stands beside them in the row: id, system prompt, tools.

    Reasoning in the assistant's content goes where every template looks for it. A system turn without text is none.

    Raises:
        RefusedRowError: the row holds media, two system prompts, an id that is none; no user speaks, or one says
            nothing; a tool's result stands where no call was.
    """
    no_media(row, "")
    if not any(message["role"] == "user" for message in messages):
        raise RefusedRowError("no user message: there is nothing to answer")
    messages, noted = separated(messages)
    open_calls = False
    for i, message in enumerate(messages):
        if message["role"] == "user" and not message["content"].strip():
            raise RefusedRowError(f"message {i + 1} is the user's and empty")
        if message["role"] == "tool" and not open_calls:
            raise RefusedRowError(f"message {i + 1} is a tool's result, and no call stands before it{_AS_TEXT}")
        open_calls = message["role"] == "tool" or "tool_calls" in message
    messages = [message for message in messages if message["role"] != "system" or message["content"].strip()]
    messages = [*_system(row, messages), *messages]
    declared = declared_tools(row)
    if declared is None and any("tool_calls" in message for message in messages):
        noted.append("the history has tool calls, and no tools are declared")
    return Dialogue(source_id(row), messages, declared, tuple(noted))


def declared_tools(row: Json) -> list[Json] | None:
    """The tools that a row declares, under whatever key; None without any.

    Raises:
        RefusedRowError: two keys declare different tools, or a key has tools that are no JSON.
    """
    template = template_arguments(row)
    if template.get("python_tools"):
        raise RefusedRowError(f"`{TEMPLATE}.python_tools` is there: only tools in JSON are read")
    found = {key: tools(row.get(key), key) for key in TOOLS}
    for key in ("tools", "xml_tools"):
        found[f"{TEMPLATE}.{key}"] = tools(template.get(key), f"{TEMPLATE}.{key}")
    declared: list[Json] | None = only_one(found, found)
    return declared


def template_arguments(row: Json) -> Json:
    """What a row gives to its template beside the messages (SmolTalk 2): tools and instructions may be there."""
    given = row.get(TEMPLATE)
    found = from_text(given, TEMPLATE) if given else None
    if not found:
        return {}
    if not isinstance(found, dict):
        raise RefusedRowError(f"`{TEMPLATE}` is {kind(found)}, not an object")
    return found


def source_id(row: Json) -> str | None:
    """The source's own id.

    Raises:
        RefusedRowError: it is neither printable text nor a whole number, or longer than :data:`MAX_ID`.
    """
    given = first(row, *IDS)
    if given is None:
        return None
    if isinstance(given, float) and given.is_integer() and abs(given) < 2**53:
        given = int(given)  # pandas makes whole numbers so where one is missing
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise RefusedRowError(f"`id` must be a string or a whole number, not {kind(given)}")
    found = str(given).strip()
    if not found or not found.isprintable():
        raise RefusedRowError(f"`id` must be printable text, not {quoted(found)}")
    if len(found) > MAX_ID:
        raise RefusedRowError(f"`id` has {len(found):,} characters, more than {MAX_ID}: {quoted(found)}")
    return found


def no_media(holder: Json, where: str) -> None:
    """Refuses images, audio and video beside the text."""
    for key in MEDIA:
        if not says_nothing(holder.get(key)):
            raise RefusedRowError(f"`{where}{key}` is there: only text is supported, no images, audio or video")


def message_list(value: Any, where: str) -> list[Any]:  # noqa: ANN401 - parsed JSON
    """The list of a row's turns, which may be JSON text."""
    if isinstance(value, str):
        value = from_text(value, where)
    if not isinstance(value, list) or not value:
        raise RefusedRowError(f"`{where}` must be a non-empty list, not {kind(value)}")
    return value


def message(given: Any, where: str) -> Json:  # noqa: ANN401 - parsed JSON
    """One message of OpenAI's shape in its normal form.

    Raises:
        RefusedRowError: with the key that is wrong and what is allowed there.
    """
    if not isinstance(given, dict):
        raise RefusedRowError(f"`{where}` is {kind(given)}, not an object")
    spelled = given.get("role")
    if not isinstance(spelled, str) or spelled not in ROLES:
        raise RefusedRowError(f"`{where}.role` is {quoted(spelled)}; known: {', '.join(ROLES)}")
    role = ROLES[spelled]
    no_media(given, f"{where}.")
    nothing_lost(given, _READ | _NOTES, where)
    calls = _calls(given, where)
    said = content(given.get("content"), f"{where}.content", result=role == "tool")
    if said is None and not calls:
        raise RefusedRowError(f"`{where}.content` is missing")
    normal: Json = {"role": role, "content": said or ""}
    reasoning = only_one(given, REASONING, f"{where}.")
    if reasoning is not None and text(reasoning, f"{where}.reasoning_content") is not None:
        if role == "assistant":
            normal["reasoning_content"] = reasoning
        elif reasoning:
            raise RefusedRowError(f"`{where}` has reasoning, which only the assistant does")
    if calls:
        if role != "assistant":
            raise RefusedRowError(f"`{where}` has tool calls, which only the assistant makes")
        normal["tool_calls"] = calls
    for key in ("name", "tool_call_id"):
        value = given.get(key)
        if value is not None and value != "":
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise RefusedRowError(f"`{where}.{key}` is {kind(value)}, not text")
            normal[key] = str(value)
    return normal


def content(value: Any, where: str, *, result: bool = False) -> str | None:  # noqa: ANN401 - parsed JSON
    """The text of a content: text, a list of text parts, or null.

    Args:
        value: as the source has it.
        where: its place, for messages.
        result: whether it is a tool's, which may be an object: it becomes JSON text, as a client would send it.

    Raises:
        RefusedRowError: a part is no text.
    """
    if value is None or isinstance(value, str):
        return value
    if result and isinstance(value, dict):
        require_json(value, where)
        return json.dumps(value, ensure_ascii=False)
    if not isinstance(value, list):
        raise RefusedRowError(f"`{where}` is {kind(value)}, not text")
    return "".join(_part(part, f"{where}[{i}]") for i, part in enumerate(value))


def call(given: Any, where: str) -> Json:  # noqa: ANN401 - parsed JSON
    """One tool call in its normal form, from OpenAI's shape or the bare ``{name, arguments}``."""
    if not isinstance(given, dict):
        raise RefusedRowError(f"`{where}` is {kind(given)}, not an object with `function.name`")
    if given.get("type") not in (None, "function"):
        raise RefusedRowError(f"`{where}.type` is {quoted(given['type'])}; only calls of functions are supported")
    bare = says_nothing(given.get("function"))
    function = given if bare else given["function"]
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RefusedRowError(f"`{where}` must be an object with `function.name`")
    nothing_lost(given, _CALL | _CALLED if bare else _CALL, where)
    if not bare:
        nothing_lost(function, _CALLED, f"{where}.function")
    normal: Json = {
        "type": "function",
        "function": {
            "name": name(function["name"], f"{where}.function.name"),
            "arguments": arguments(
                only_one(function, ("arguments", "parameters"), f"{where}.function."), f"{where}.function.arguments"
            ),
        },
    }
    if given.get("id") not in (None, ""):
        normal["id"] = str(given["id"])
    return normal


def arguments(value: Any, where: str) -> Json | str:  # noqa: ANN401 - parsed JSON
    """The arguments of a call: an object wherever they are one.

    Servers give templates an object, too: several (Qwen3-Coder, GLM) go through its items, and others (Qwen2.5, Llama)
    would print text in quotes a second time. What is text and no object stays as it is: a model wrote it. Templates
    that can only print text get it back as text (``prompts.template_forms``).
    """
    if value is None or value == "":
        return {}
    if isinstance(value, dict):
        require_json(value, where)
        return value
    if not isinstance(value, str):
        raise RefusedRowError(f"`{where}` is {kind(value)}, not an object or JSON text")
    try:
        read = parse(value.encode("utf-8", "surrogatepass"))
    except StrictJsonError:
        return value
    return read if isinstance(read, dict) else value


def _system(row: Json, messages: list[Json]) -> list[Json]:
    instructions = f"{TEMPLATE}.custom_instructions"
    spelled = {key: row.get(key) for key in SYSTEM} | {instructions: template_arguments(row).get("custom_instructions")}
    given = only_one({key: said for key, said in spelled.items() if said}, spelled)
    if given is None or not text(given, "system").strip():
        return []
    spoken = [message["content"] for message in messages if message["role"] == "system"]
    if spoken and spoken != [given]:
        raise RefusedRowError("`system` is there, and a system turn that says something else")
    return [] if spoken else [{"role": "system", "content": given}]


def _calls(given: Json, where: str) -> list[Json]:
    calls, legacy = given.get("tool_calls"), given.get("function_call")
    if says_nothing(legacy):  # Arrow has it in each message, where one has it
        legacy = None
    if calls and legacy:
        raise RefusedRowError(f"`{where}` has both `tool_calls` and `function_call`")
    if legacy:
        return [call(from_text(legacy, f"{where}.function_call"), f"{where}.function_call")]
    if isinstance(calls, str):
        calls = from_text(calls, f"{where}.tool_calls") if calls else None
    if not calls:
        return []
    if not isinstance(calls, list):
        raise RefusedRowError(f"`{where}.tool_calls` is {kind(calls)}, not a list")
    return [call(item, f"{where}.tool_calls[{i}]") for i, item in enumerate(calls)]


def _part(part: Any, where: str) -> str:  # noqa: ANN401 - parsed JSON
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise RefusedRowError(f"`{where}` is {kind(part)}, not a text part")
    given = part.get("type") or ("text" if "text" in part else None)
    said = part.get("text")
    if given is None:
        raise RefusedRowError(
            f"`{where}` is an object without `type` and `text`; a list of content has text parts only"
        )
    if given not in ("text", "input_text", "output_text") or not isinstance(said, str):
        raise RefusedRowError(f"`{where}` is a part of type {quoted(given)}; only text parts are supported")
    no_media(part, f"{where}.")
    return said
