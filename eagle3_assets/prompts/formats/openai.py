"""OpenAI's chat requests: ``{id?, messages, tools?}``.

``messages`` are ``{role, content, tool_calls?, tool_call_id?, name?, reasoning_content?}``, with the roles system,
developer (read as system), user, assistant, tool and the older function; ``function_call`` is read as one call,
``reasoning`` and ``thinking`` as reasoning. A list in ``prompt`` is read as messages. In parquet, ``messages`` and
``tools`` may be JSON text or structs which Arrow filled with nulls. Most recent chat and tool datasets have this shape
(UltraChat, Tulu, SmolTalk, Nemotron, APIGen-MT, and what servers log).
"""

from typing import Any

from eagle3_assets.prompts.dialogue import Dialogue, Json, RefusedRowError
from eagle3_assets.prompts.formats.messages import dialogue, message, message_list
from eagle3_assets.prompts.formats.values import object_row


def recognises(row: Json) -> bool:
    """Whether the row's keys are this format's."""
    return row.get("messages") is not None or isinstance(row.get("prompt"), list)


def read(row: Any) -> Dialogue:  # noqa: ANN401 - parsed JSON
    """Reads one row; see :func:`formats.read`."""
    row = object_row(row, "messages")
    return dialogue(row, normal_messages(row))


def normal_messages(row: Json) -> list[Json]:
    """The row's messages in their normal form."""
    prompt, given = row.get("prompt"), row.get("messages")
    if isinstance(prompt, list) and isinstance(given, list) and given and given[: len(prompt)] != prompt:
        raise RefusedRowError("`prompt` and `messages` are both there and differ")
    key = "prompt" if row.get("messages") is None and isinstance(row.get("prompt"), list) else "messages"
    return [message(item, f"{key}[{i}]") for i, item in enumerate(message_list(row.get(key), key))]
