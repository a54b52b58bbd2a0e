r"""Glaive function calling v2: ``{system, chat}``, both text.

The system text announces functions and lists them as JSON objects; they become tools, and the announcement goes with
them, since the target's template makes its own. The chat is turns that begin with ``USER:``, ``ASSISTANT:`` or
``FUNCTION RESPONSE:`` after a blank line or ``<|endoftext|>``. A call is
``<functioncall> {"name": ..., "arguments": '{...}'}``: its arguments stand in single quotes, with ``\'`` for one
inside. What is no JSON even so is refused, never guessed at.
"""

import json
import re
from operator import itemgetter
from typing import Any

from eagle3_assets.prompts.dialogue import Dialogue, Json, RefusedRowError
from eagle3_assets.prompts.formats.messages import arguments, call, dialogue, history_and_answer
from eagle3_assets.prompts.formats.values import object_row, parsed, text
from eagle3_assets.tokens.safe_text import quoted

END = "<|endoftext|>"
CALL, CALL_END = "<functioncall>", "</functioncall>"
_MARK = re.compile(r"^(USER|ASSISTANT|FUNCTION RESPONSE):", re.MULTILINE)
_BLANK_LINE = re.compile(r"\n\r?\n\Z")
_ROLES = {"USER": "user", "ASSISTANT": "assistant", "FUNCTION RESPONSE": "tool"}
_ANNOUNCED = r"(?:,? with|,? (?:and )?you have) access to the following functions\. Use them if required\s*-?\s*"
_ANNOUNCES = re.compile(r"access to the following (?:functions|tools)\b", re.IGNORECASE)
_ANNOUNCEMENT = re.compile(rf"{_ANNOUNCED}\Z")
_FUNCTION = re.compile(r"(?:^[ \t]*|(?<=Use them if required)[ \t]*-?[ \t]*)(?=[\[{])", re.MULTILINE)
"""Where the functions begin: on a line of their own, or on that of their announcement."""
_QUOTED_ARGUMENTS = re.compile(
    r"""(\{\s*"name"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*"arguments"\s*:\s*)'(.*)'\s*\}""", re.DOTALL
)


def recognises(row: Json) -> bool:
    """Whether the row's keys are this format's."""
    return isinstance(row.get("chat"), str)


def read(row: Any) -> Dialogue:  # noqa: ANN401 - parsed JSON
    """Reads one row; see :func:`formats.read`."""
    row = object_row(row, "chat")
    messages = _turns(text(row.get("chat"), "chat"))
    system, functions = _system(text(row.get("system") or "", "system"))
    if functions and row.get("tools"):
        raise RefusedRowError("`system` lists functions, and `tools` is there, too")
    if not functions and not row.get("tools") and _ANNOUNCES.search(system):
        raise RefusedRowError(
            "`system` announces functions, and there is none that can be read: write them as JSON objects on lines of"
            " their own, or into `tools`"
        )
    beside = {key: value for key, value in row.items() if key not in ("system", "tools")}
    return dialogue({**beside, "system": system, "tools": functions or row.get("tools")}, messages, ("chat",))


def _system(given: str) -> tuple[str, list[Any]]:
    """What the system text says besides functions, and these."""
    said = given.strip().removeprefix("SYSTEM:").strip()
    start = _FUNCTION.search(said)
    if start is None:
        return said, []
    functions, rest = [], said[start.end() :]
    while rest:
        try:
            _, end = json.JSONDecoder().raw_decode(rest)
        except (ValueError, RecursionError):
            raise RefusedRowError(f"`system` lists a function that is no JSON: {quoted(rest)}") from None
        found = parsed(rest[:end], "system")
        functions += found if isinstance(found, list) else [found]
        rest = rest[end:].lstrip().removeprefix(",").lstrip()
    return _ANNOUNCEMENT.sub(".", said[: start.start()].rstrip()), functions


def _turns(chat: str) -> list[Json]:
    marks = list(_MARK.finditer(chat))
    if not marks or chat[: marks[0].start()].strip():
        raise RefusedRowError("`chat` does not begin with USER:, ASSISTANT: or FUNCTION RESPONSE:")
    ends = [mark.start() for mark in marks[1:]] + [len(chat)]
    turns = [(_ROLES[mark.group(1)], chat[mark.end() : end]) for mark, end in zip(marks, ends, strict=True)]

    def message(turn: tuple[str, str], i: int) -> Json:
        return _message(*turn, where=f"turn {i + 1} of `chat`", last=i + 1 == len(turns))

    return history_and_answer(turns, message, itemgetter(0))


def _message(role: str, segment: str, *, where: str, last: bool) -> Json:
    said = segment.rstrip()
    if not last and not said.endswith(END) and not _BLANK_LINE.search(segment):
        raise RefusedRowError(f"{where} is followed by a role's name on its next line: is it text or a turn?")
    said = said.removesuffix(END).rstrip().removeprefix(" ")
    if END in said:
        raise RefusedRowError(f"{where} has {END} inside")
    return _assistant(said, where) if role == "assistant" else {"role": role, "content": said}


def _assistant(said: str, where: str) -> Json:
    content, *calls = said.split(CALL)
    if not calls:
        return {"role": "assistant", "content": content}
    return {"role": "assistant", "content": content.rstrip(), "tool_calls": [_call(item, where) for item in calls]}


def _call(given: str, where: str) -> Json:
    written = given.strip().removesuffix(CALL_END).strip()
    found = _QUOTED_ARGUMENTS.fullmatch(written)
    if found is None:
        return call(_json(written, where), f"{where}, call")
    inner = found[2].replace("\\'", "'")
    made = call(_json(f"{found[1]}{{}}}}", where), f"{where}, call")
    made["function"]["arguments"] = arguments(inner.strip(), where)
    if isinstance(made["function"]["arguments"], str):
        raise RefusedRowError(f"{where}: the arguments of its call are no JSON object: {quoted(inner)}")
    return made


def _json(given: str, where: str) -> Any:  # noqa: ANN401 - parsed JSON
    try:
        return parsed(given, "call")
    except RefusedRowError as error:
        raise RefusedRowError(f"{where}: {error}: {quoted(given)}") from None
