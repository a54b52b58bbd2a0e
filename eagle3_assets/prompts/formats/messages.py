"""Messages in their one normal form, and what makes a conversation of them.

What belongs here: roles, contents, calls and results, whatever format names them. Not here: where a format keeps them.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from eagle3_assets.prompts.dialogue import Dialogue, Json, RefusedRowError
from eagle3_assets.prompts.formats.reasoning import separated
from eagle3_assets.prompts.formats.row_keys import HOLDERS, Said, held, holds_objects, unread
from eagle3_assets.prompts.formats.tools import names_declared_twice, rendered_tools, same_tools, tools
from eagle3_assets.prompts.formats.values import (
    first,
    from_text,
    from_text_or_python,
    kind,
    lost,
    name,
    nothing_lost,
    only_one,
    require_json,
    says_nothing,
    text,
)
from eagle3_assets.prompts.written_calls import is_react_step
from eagle3_assets.strict_json import StrictJsonError, parse
from eagle3_assets.tokens.safe_text import quoted

CALL = "call"
"""The role of an assistant's turn that is nothing but calls, as text."""
SPELLINGS = {
    "system": ("system", "developer"),  # OpenAI's later name for it, which few templates know
    "user": ("human", "user", "prompter"),
    "assistant": ("gpt", "assistant", "bot", "chatbot", "chatgpt", "bing", "bard", "claude", "model", "ai"),
    CALL: ("function_call", "function-call", "tool_call", "tool-call"),
    "tool": ("tool", "observation", "function", "function_response", "function-response", "tool_response", "ipython"),
}
"""How each role is spelled, in messages and in ShareGPT's turns alike; in capitals, too."""
_ROLES = {spelled: role for role, others in SPELLINGS.items() for spelled in others}
SPEAKS = {"role", "from"}
"""Keys of a message that say who speaks."""
TRAJECTORY = "trajectory"
"""An agent's conversation where it is a list of messages; SWE-agent's own files have steps in it."""
IDS = ("id", "conversation_id", "uuid", "prompt_id")
MAX_ID = 500
"""Characters; every row, log line and journal record of a sample carries its id."""
SYSTEM = ("system", "system_prompt", "system_message")
TOOLS = ("tools", "functions", "available_tools", "tools_json", "tool_list", "tool_definitions", "available_functions")
TEMPLATE = "chat_template_kwargs"
REASONING = ("reasoning_content", "reasoning", "thinking")
MEDIA = ("images", "image", "audios", "audio", "videos", "video", "image_url", "image_urls", "video_url", "audio_url")

_UUID_BYTES = 16
_DASHES = re.compile(r"[-\u2013\u2014]+")
"""Where a question is kept elsewhere (OpenCodeReasoning), sets made of it may say so in a message, too."""

_READ = {"role", "content", "tool_calls", "function_call", "name", "tool_call_id", "tool_call_ids", *REASONING, *MEDIA}
_READ_OF_ROWS = (*IDS, *SYSTEM, *TOOLS, *MEDIA, TEMPLATE)
_READ_OF_TEMPLATE = ("tools", "xml_tools", "python_tools", "custom_instructions")
_MODES = ("reasoning_effort",)
"""Of the template's arguments, those that are a mode although they are text: the config has its own for all rows."""
_AS_TEXT = " (calls written into the content as text are not read)"
_NOTES = {
    # About a message, not part of what was said.
    *("id", "uuid", "message_id", "parent_id", "type", "model", "timestamp", "created", "created_at", "date", "time"),
    *("country", "language", "lang", "state", "header", "hashed_ip", "turn_identifier", "weight", "train", "loss"),
    *("source", "score", "rating", "labels", "tokens", "finish_reason", "stop_reason", "logprobs", "usage"),
    *("metadata", "meta", "index", "annotations", "openai_id", "system_fingerprint", "cutoff_date", "mask"),
}
_AGENTS = {"agent", "message_type", "is_demo", "cache_control", "info"}
"""What trajectories of agents (SWE-agent) and distilled sets say of a message: no part of it either, and counted."""
_PART = {"type", "text", "cache_control", "annotations", "id", "index", *MEDIA}
_CALL = {"id", "type", "index", "function"}
_CALLED = {"name", "arguments", "parameters"}


def dialogue(
    row: Json,
    messages: list[Json],
    read: Collection[str],
    *,
    one_prompt: bool = False,
    notes: Sequence[str] = (),
) -> Dialogue:
    """A dialogue of normal messages and of what stands beside them in the row: id, system prompt, tools.

    Reasoning in the assistant's content goes where every template looks for it. A system turn without text is none.

    Args:
        row: of the source.
        messages: that were made of it.
        read: the keys of the row that they were made of.
        one_prompt: whether the prompt was put together of these fields, and is no conversation of its own.
        notes: what messages hold that was not read.

    Raises:
        RefusedRowError: the row holds media, two system prompts, an id that is none, something else that the target
            would have to see; no user speaks, or one says nothing; a tool's result stands where no call was.
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
    asked_for = [message["content"].strip() for message in messages if message["role"] == "user"]
    if all(_DASHES.fullmatch(said) for said in asked_for):
        raise RefusedRowError(f"the user says {quoted(asked_for[0], 40)}, which stands for a prompt that is not there")
    messages = [message for message in messages if message["role"] != "system" or message["content"].strip()]
    messages = [*_system(row, messages), *messages]
    messages, declared = _declared_once(messages, declared_tools(row))
    asked = messages[: answer_at([message["role"] for message in messages])]
    if declared is None and any("tool_calls" in message for message in messages):
        caller = "history" if any("tool_calls" in message for message in asked) else "answer"
        noted.append(f"the {caller} has tool calls, and no tools are declared")
    if twice := names_declared_twice(declared or ()):
        noted.append(f"several tools are named {', '.join(map(quoted, twice[:3]))}, and differ: all are declared")
    noted += [
        f"message {i}: `Action:` and `Action Input:` may be a call written as text, all of it stays in the content"
        for i, message in enumerate(asked, start=1)
        if message["role"] == "assistant" and is_react_step(message["content"])
    ][:1]
    if any(message["role"] == "system" and _lists_tools(message["content"]) for message in asked):
        again = "none are declared" if declared is None else "the template shows the declared ones once more"
        noted.append(f"the system prompt lists tools as text, and {again}")
    beside, remarks = unread(row, {*read, *_READ_OF_ROWS}, asked, one_prompt=one_prompt, has_tools=declared is not None)
    modes = (
        f"{TEMPLATE}.{key}"
        for key, value in template_arguments(row).items()
        if key not in _READ_OF_TEMPLATE and not says_nothing(value)
    )
    return Dialogue(source_id(row), messages, declared, (*noted, *remarks), (*notes, *modes, *beside))


def _declared_once(messages: list[Json], declared: list[Json] | None) -> tuple[list[Json], list[Json] | None]:
    """The messages without a system turn that is nothing but tools in a template's markup, and the tools.

    Raises:
        RefusedRowError: it declares others than the row does.
    """
    kept: list[Json] = []
    for message in messages:
        rendered = rendered_tools(message["content"]) if message["role"] == "system" else None
        if rendered is None:
            kept.append(message)
        elif declared is not None and not same_tools(rendered, declared):
            raise RefusedRowError(
                "the system turn declares tools in a template's markup, and the row declares others: leave one out with"
                " the dataset's `ignore_keys`"
            )
        else:
            declared = declared or rendered
    return kept, declared


def _lists_tools(said: str) -> bool:
    """Whether a system prompt declares tools in JSON, as Hermes' and ToolACE's do."""
    return '"parameters"' in said and '"name"' in said


def answer_at(roles: Sequence[str | None]) -> int:
    """Where the answer begins that ends a conversation: behind the last turn that is none of the assistant's."""
    return next((i for i in range(len(roles), 0, -1) if roles[i - 1] != "assistant"), 0)


def history_and_answer(
    turns: Sequence[Any], read: Callable[[Any, int], Json], role: Callable[[Any], str | None]
) -> list[Json]:
    """Turns as messages, of which the answer at the end may be anything: it is never part of a prompt.

    Args:
        turns: as the source has them.
        read: gives the message of a turn and its index, or refuses it.
        role: of a turn, in the normal form or :data:`CALL`; None where it has none that is known.
    """
    roles = [role(turn) for turn in turns]
    end = answer_at(["assistant" if spoken == CALL else spoken for spoken in roles])
    made = [read(turn, i) for i, turn in enumerate(turns[:end])]
    for i, turn in enumerate(turns[end:], start=end):
        try:
            made.append(read(turn, i))
        except RefusedRowError:
            made.append({"role": "assistant", "content": ""})
    return _with_their_calls(made, roles)


def _with_their_calls(made: Sequence[Json], roles: Sequence[str | None]) -> list[Json]:
    """Messages whose calls stand in turns of their own, joined with what the assistant said or called just before.

    They are one turn of a target, and a template would write several.
    """
    joined: list[Json] = []
    for message, role in zip(made, roles, strict=True):
        if role == CALL and joined and joined[-1]["role"] == "assistant" and "tool_calls" in message:
            calls = [*joined[-1].get("tool_calls", ()), *message["tool_calls"]]
            joined[-1] = {**joined[-1], "tool_calls": calls}
        else:
            joined.append(message)
    return joined


def unread_of_turns(turns: Sequence[Any], where: str, read: Collection[str] = ()) -> tuple[str, ...]:
    """The keys of turns that are not read although they say something, and are not known to be about a turn."""
    known = {*_READ, *_NOTES, *read}
    found = dict.fromkeys(
        key
        for turn in turns
        if isinstance(turn, dict)
        for key, value in turn.items()
        if key not in known and not says_nothing(value)
    )
    return tuple(f"{where}[].{key}" for key in found)


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
    for holder in HOLDERS:
        given = (held(row, holder) or {}).get("tools")
        # Others have the names of tools there that were used.
        found[f"{holder}.tools"] = tools(given, f"{holder}.tools") if holds_objects(given) else None
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
    for key in lost(found, (*_READ_OF_TEMPLATE, *_MODES)):
        raise RefusedRowError(
            f"`{TEMPLATE}.{key}` is there, and a row's own arguments of the template are not read, only its tools and"
            " custom_instructions: leave it out with the dataset's `ignore_keys` (`target.template_arguments` is for"
            " all rows)"
        )
    return found


def source_id(row: Json) -> str | None:
    """The source's own id. Parquet has decimals, dates, and bytes, of which sixteen that are no text are a UUID.

    Raises:
        RefusedRowError: it is neither printable text nor a whole number, or longer than :data:`MAX_ID`.
    """
    given = first(row, *IDS)
    if given is None:
        return None
    if isinstance(given, float) and given.is_integer() and abs(given) < 2**53:
        given = int(given)  # pandas makes whole numbers so where one is missing
    if isinstance(given, Decimal) and given.is_finite():
        given = int(given) if given == given.to_integral_value() else str(given)
    if isinstance(given, bytes):
        given = _text_of(given)
    if isinstance(given, datetime) and given.tzinfo is not None:
        given = given.astimezone(UTC)  # a machine's own table of time zones shall not name a row
    if isinstance(given, date):
        given = given.isoformat()
    if isinstance(given, float) and math.isnan(given):
        raise RefusedRowError(
            "`id` is NaN, which is not a number but pandas' word for one that is missing: write null there, or leave"
            " the ids out with the dataset's `ignore_keys`; a row without one gets an id by its content"
        )
    if isinstance(given, bool) or not isinstance(given, str | int):
        found = repr(given) if isinstance(given, float) else kind(given)
        raise RefusedRowError(f"`id` must be a string or a whole number, not {found}")
    found = str(given).strip()
    if not found or not found.isprintable():
        raise RefusedRowError(f"`id` must be printable text, not {quoted(found)}")
    if len(found) > MAX_ID:
        raise RefusedRowError(f"`id` has {len(found):,} characters, more than {MAX_ID}: {quoted(found)}")
    return found


def _text_of(binary: bytes) -> str:
    try:
        written = binary.decode()
    except UnicodeDecodeError:
        written = ""
    if written.isprintable() and written.strip():
        return written
    return str(UUID(bytes=binary)) if len(binary) == _UUID_BYTES else binary.hex()


def no_media(holder: Json, where: str) -> None:
    """Refuses images, audio and video beside the text."""
    for key in MEDIA:
        if not says_nothing(holder.get(key)):
            raise RefusedRowError(f"`{where}{key}` is there: only text is supported, no images, audio or video")


def role_of(spelled: Any) -> str | None:  # noqa: ANN401 - parsed JSON
    """The role that a spelling stands for, in the normal form or :data:`CALL`; None for none that is known."""
    return _ROLES.get(spelled.strip().lower()) if isinstance(spelled, str) else None


def unknown_role(spelled: Any, where: str) -> RefusedRowError:  # noqa: ANN401 - parsed JSON
    """Why a turn is refused whose role is none."""
    found = "missing" if spelled is None else quoted(spelled)
    return RefusedRowError(f"`{where}` is {found}; known: {', '.join(_ROLES)}")


def message_list(value: Any, where: str) -> list[Any]:  # noqa: ANN401 - parsed JSON
    """The list of a row's turns, which may be JSON text."""
    if isinstance(value, str):
        value = from_text(value, where)
    if not isinstance(value, list) or not value:
        raise RefusedRowError(f"`{where}` must be a non-empty list, not {kind(value)}")
    return value


def is_message_list(value: Any) -> bool:  # noqa: ANN401 - parsed JSON
    """Whether a value is a list of messages, which may be JSON text: its first item says who speaks."""
    if isinstance(value, str):
        try:
            value = from_text(value, "") if value.lstrip().startswith("[") else None
        except RefusedRowError:
            return False
    first_turn = value[0] if isinstance(value, list) and value else None
    return isinstance(first_turn, dict) and bool(SPEAKS & first_turn.keys())


def message(given: Any, where: str, spoken: str = "content") -> Json:  # noqa: ANN401 - parsed JSON
    """One message of OpenAI's shape in its normal form.

    Args:
        given: the message.
        where: its place, for refusals.
        spoken: what the row calls its ``content``, for them, too.

    Raises:
        RefusedRowError: with the key that is wrong and what is allowed there.
    """
    if not isinstance(given, dict):
        raise RefusedRowError(f"`{where}` is {kind(given)}, not an object")
    role = role_of(given.get("role"))
    if role is None:
        raise unknown_role(given.get("role"), f"{where}.role")
    no_media(given, f"{where}.")
    calls = _calls(given, where)
    if role == CALL:
        if calls:
            raise RefusedRowError(f"`{where}` has `tool_calls` beside a call in its text")
        role, calls = "assistant", _called(given.get("content"), f"{where}.{spoken}")
        given = {**given, "content": None}
    said = content(given.get("content"), f"{where}.{spoken}", result=role == "tool")
    if said is None and not calls:
        raise RefusedRowError(f"`{where}.{spoken}` is missing")
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
    for key, value in (("name", given.get("name")), ("tool_call_id", _answered_call(given, where))):
        if value is not None and value != "":
            normal[key] = _text_or_number(value, f"{where}.{key}")
    _nothing_unsaid(given, normal, where, spoken)
    return normal


def _text_or_number(value: Any, where: str) -> str:  # noqa: ANN401 - parsed JSON
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise RefusedRowError(f"`{where}` is {kind(value)}, not text")
    return str(value)


def _answered_call(given: Json, where: str) -> Any:  # noqa: ANN401 - parsed JSON
    """The id of the call that a result is of; SWE-agent has a list of them."""
    several = given.get("tool_call_ids")
    if says_nothing(several):
        return given.get("tool_call_id")
    if not isinstance(several, list) or len(several) != 1:
        raise RefusedRowError(f"`{where}.tool_call_ids` must be a list of one id: a result is of one call")
    return only_one({**given, "tool_call_ids": several[0]}, ("tool_call_id", "tool_call_ids"), f"{where}.")


def _nothing_unsaid(given: Json, normal: Json, where: str, spoken: str) -> None:
    """Refuses text under other keys that the message itself has not.

    SWE-agent writes a message's ``thought`` and ``action`` beside it once more; a call is an action in other words.
    """
    said = Said([normal])
    for key in lost(given, _READ | _NOTES | _AGENTS):
        if said.has(given[key]) or (key == "action" and "tool_calls" in normal):
            continue
        ways = {
            "thought": f"as `reasoning_content` or in `{spoken}`",
            "action": f"as `tool_calls` or in `{spoken}`",
            "tools": "into the row's `tools`",  # GLM has them in the system turn
        }
        raise RefusedRowError(
            f"`{where}` has {quoted(key)}, which is not known and would be lost: write it"
            f" {ways.get(key, f'into `{spoken}`')}, or leave it out with the dataset's `ignore_keys`"
        )


def content(value: Any, where: str, *, result: bool = False) -> str | None:  # noqa: ANN401 - parsed JSON
    """The text of a content: text, a list of text parts, or null.

    Args:
        value: as the source has it.
        where: its place, for messages.
        result: whether it is a tool's, which may be any JSON: it becomes text, as a client would send it.

    Raises:
        RefusedRowError: a part is no text.
    """
    if value is None or isinstance(value, str):
        return value
    if result and not (isinstance(value, list) and _are_parts(value)):
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
        normal["id"] = _text_or_number(given["id"], f"{where}.id")
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
    key = next((key for key, said in spelled.items() if said), "system")
    if given is None or not text(given, key).strip():
        return []
    spoken = [message["content"] for message in messages if message["role"] == "system"]
    if spoken and spoken != [given]:
        raise RefusedRowError(f"`{key}` is there, and a system turn that says something else")
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


def _called(value: Any, where: str) -> list[Json]:  # noqa: ANN401 - parsed JSON
    """The calls of a turn that is nothing else: one, or a list of them."""
    written = from_text_or_python(value, where) if value else None
    if written is None or written == []:
        raise RefusedRowError(f"`{where}` is missing: there is no call in it")
    if isinstance(written, list):
        return [call(item, f"{where}[{i}]") for i, item in enumerate(written)]
    return [call(written, where)]


def _are_parts(items: list[Any]) -> bool:
    """Whether a result is a list of parts: one says its type, or all are a text and nothing else, as posts are not."""
    said = [
        {key for key, value in item.items() if value is not None} if isinstance(item, dict) else set() for item in items
    ]
    return any("type" in keys for keys in said) or all(keys == {"text"} for keys in said)


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
    nothing_lost(part, _PART, where)
    return said
