"""ShareGPT's conversations: ``{id?, conversations: [{from, value}], system?, tools?}``.

``from`` is spelled in many ways (human, gpt, chatgpt, bing, bard, observation, ...), and may be ``role`` with
``content``. A turn ``function_call`` is the assistant's: its value is JSON, ``{name, arguments}`` or a list of these
for parallel calls, as LLaMA-Factory has it. The dumps of ShareGPT itself, OpenHermes, SlimOrca and most sets made for
LLaMA-Factory or Axolotl have this shape. A ``trajectory`` of an agent (Nebius' SWE-agent and OpenHands sets, of roles
with text, or with content and tool calls) is a conversation, too.
"""

from typing import Any

from eagle3_assets.prompts.dialogue import Dialogue, Json, RefusedRowError
from eagle3_assets.prompts.formats.messages import (
    CALL,
    TRAJECTORY,
    dialogue,
    history_and_answer,
    is_message_list,
    message,
    message_list,
    role_of,
    unknown_role,
    unread_of_turns,
)
from eagle3_assets.prompts.formats.values import first, kind, object_row, only_one

KEYS = ("conversations", "conversation")
_SPEAKER = ("from", "role", "user")
_SPOKEN = ("from", "user", "value", "text")
"""Of a turn, beside the keys of OpenAI's messages."""
_SYSTEM = ("system_prompt",)
"""Where a trajectory's system turn has its text."""


def recognises(row: Json) -> bool:
    """Whether the row's keys are this format's."""
    return any(row.get(key) is not None for key in KEYS) or is_message_list(row.get(TRAJECTORY))


def read(row: Any) -> Dialogue:  # noqa: ANN401 - parsed JSON
    """Reads one row; see :func:`formats.read`."""
    row = object_row(row, KEYS[0])
    key, turns = _turns(row)
    notes = unread_of_turns(turns, key, (*_SPOKEN, *_SYSTEM))
    # Messages and a trajectory beside them are held against them by `formats.read`.
    beside = ["messages", *([TRAJECTORY] if is_message_list(row.get(TRAJECTORY)) else [])]
    return dialogue(row, normal_messages(row), {*KEYS, key, *beside}, notes=notes)


def normal_messages(row: Json) -> list[Json]:
    """The row's turns as messages in their normal form."""

    def role(turn: Any) -> str | None:  # noqa: ANN401 - parsed JSON
        return role_of(first(turn, *_SPEAKER)) if isinstance(turn, dict) else None

    key, turns = _turns(row)
    return history_and_answer(turns, lambda turn, i: _message(turn, f"{key}[{i}]"), role)


def _turns(row: Json) -> tuple[str, list[Any]]:
    """The key that the conversation is under, and its turns."""
    given = only_one(row, KEYS)
    if given is None and is_message_list(row.get(TRAJECTORY)):
        return TRAJECTORY, message_list(row[TRAJECTORY], TRAJECTORY)
    key = next((key for key in KEYS if row.get(key)), KEYS[0])
    return key, message_list(given, key)


def _message(turn: Any, where: str) -> Json:  # noqa: ANN401 - parsed JSON
    if not isinstance(turn, dict):
        raise RefusedRowError(f"`{where}` is {kind(turn)}, not an object with `from` and `value`")
    spelled = only_one(turn, _SPEAKER, f"{where}.")
    role = role_of(spelled)
    if role is None:
        raise unknown_role(spelled, f"{where}.{next((key for key in _SPEAKER if turn.get(key) is not None), 'from')}")
    said = ("value", "content", "text", *(_SYSTEM if role == "system" else ()))
    value = only_one(turn, said, f"{where}.")
    # A refusal names the key that the row has.
    spelled = next((key for key in said if turn.get(key) is not None), "value" if "from" in turn else "content")
    others = {key: item for key, item in turn.items() if key not in (*_SPOKEN, *said)}
    return message({**others, "role": "tool_call" if role == CALL else role, "content": value}, where, spelled)
