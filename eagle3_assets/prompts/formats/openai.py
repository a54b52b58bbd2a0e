"""OpenAI's chat requests: ``{id?, messages, tools?}``.

``messages`` are ``{role, content, tool_calls?, tool_call_id?, name?, reasoning_content?}``, with OpenAI's roles or any
other spelling of them (``messages.SPELLINGS``); ``function_call`` is read as one call,
``reasoning`` and ``thinking`` as reasoning. A list in ``prompt`` or ``input`` is read as messages. In parquet,
``messages`` and ``tools`` may be JSON text or structs which Arrow filled with nulls. Most recent chat and tool datasets
have this shape (UltraChat, Tulu, SmolTalk, Nemotron, SWE-smith, and what servers log).
"""

from typing import Any

from eagle3_assets.prompts.dialogue import Dialogue, Json, RefusedRowError
from eagle3_assets.prompts.formats.messages import (
    TRAJECTORY,
    dialogue,
    history_and_answer,
    is_message_list,
    message,
    message_list,
    role_of,
    unread_of_turns,
)
from eagle3_assets.prompts.formats.values import object_row

KEYS = ("messages", "prompt")
"""A list in the second is read, a text is the first message once more, or something else."""
INPUT = "input"
"""Read where it is a list of messages and stands alone (Nemotron); a text is a prompt, or a part of one."""
_ASKED = ("instruction", "prompt", "text", "question", "query", "problem")
"""Texts that another format reads, and that a list of messages beside them may only be a part of."""


def recognises(row: Json) -> bool:
    """Whether the row's keys are this format's."""
    if row.get("messages") is not None or isinstance(row.get("prompt"), list):
        return True
    return is_message_list(row.get(INPUT)) and not any(isinstance(row.get(key), str) for key in _ASKED)


def read(row: Any) -> Dialogue:  # noqa: ANN401 - parsed JSON
    """Reads one row; see :func:`formats.read`."""
    row = object_row(row, "messages")
    key, turns = _turns(row)
    # Another conversation beside these messages is held against them by `formats.read`.
    other = ["conversations", "conversation"] if key == "messages" else []
    other += [TRAJECTORY] if key == "messages" and is_message_list(row.get(TRAJECTORY)) else []
    listed = [key for key in KEYS if isinstance(row.get(key), list)]
    notes = unread_of_turns(turns, key)
    return dialogue(row, _messages(key, turns), {key, *listed, *other}, notes=notes)


def normal_messages(row: Json) -> list[Json]:
    """The row's messages in their normal form."""
    return _messages(*_turns(row))


def _turns(row: Json) -> tuple[str, list[Any]]:
    """The key that the conversation is under, and its turns."""
    prompt, given = row.get("prompt"), row.get("messages")
    if isinstance(prompt, list) and isinstance(given, list) and given and given[: len(prompt)] != prompt:
        raise RefusedRowError("`prompt` and `messages` are both there and differ")
    key = "prompt" if given is None and isinstance(prompt, list) else "messages"
    if given is None and not prompt and is_message_list(row.get(INPUT)):
        key = INPUT
    return key, message_list(row.get(key), key)


def _messages(key: str, turns: list[Any]) -> list[Json]:
    return history_and_answer(turns, lambda turn, i: message(turn, f"{key}[{i}]"), _role)


def _role(turn: Any) -> str | None:  # noqa: ANN401 - parsed JSON
    return role_of(turn.get("role")) if isinstance(turn, dict) else None
