"""Our own ``prompts`` parquet: the columns of ``contract.PROMPTS``, messages and tools as JSON text.

The id is the row's ``conversation_id``: several turns of one conversation keep it in common. The messages are the
history of the row's own ``turn``; no other is generated.
"""

from dataclasses import replace
from typing import Any

from eagle3_assets.contract import PROMPTS
from eagle3_assets.prompts.dialogue import Dialogue, Json, RefusedRowError, StoredPrompt
from eagle3_assets.prompts.formats import openai
from eagle3_assets.prompts.formats.messages import dialogue
from eagle3_assets.prompts.formats.values import kind, object_row
from eagle3_assets.tokens.safe_text import quoted


def recognises(row: Json) -> bool:
    """Whether the row has the contract's columns."""
    return set(PROMPTS) <= set(row)


def read(row: Any) -> Dialogue:  # noqa: ANN401 - parsed JSON
    """Reads one row; see :func:`formats.read`."""
    row = object_row(row, "messages")
    beside = {key: value for key, value in row.items() if key not in PROMPTS}
    found = dialogue(
        {**beside, "id": row.get("conversation_id"), "tools": row.get("tools")}, openai.normal_messages(row), ()
    )
    if found.source_id is None:
        raise RefusedRowError("`conversation_id` is missing")
    if found.messages[-1]["role"] == "assistant":
        raise RefusedRowError("`messages` ends with an answer: it is no prompt")
    stored = StoredPrompt(_count(row, "turn"), _count(row, "sample_index"))
    own, made = row.get("sample_id"), f"{found.source_id}:{stored.turn}:{stored.sample_index}"
    if isinstance(own, str) and own != made:
        raise RefusedRowError(f"`sample_id` is {quoted(own)}, and by the row's other columns {quoted(made)}")
    return replace(found, stored=stored)


def _count(row: Json, key: str) -> int:
    value = row.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        found = value if isinstance(value, int | float) else kind(value)
        raise RefusedRowError(f"`{key}` must be a whole number from 0 to 2**31 - 1, not {found}")
    return value
