"""Our own ``prompts`` parquet: the columns of ``contract.PROMPTS``, messages and tools as JSON text.

The id is the row's ``conversation_id``: several turns of one conversation keep it in common.
"""

from typing import Any

from eagle3_assets.contract import PROMPTS
from eagle3_assets.prompts.dialogue import Dialogue, Json
from eagle3_assets.prompts.formats import openai
from eagle3_assets.prompts.formats.messages import dialogue
from eagle3_assets.prompts.formats.values import object_row


def recognises(row: Json) -> bool:
    """Whether the row has the contract's columns."""
    return set(PROMPTS) <= set(row)


def read(row: Any) -> Dialogue:  # noqa: ANN401 - parsed JSON
    """Reads one row; see :func:`formats.read`."""
    row = object_row(row, "messages")
    return dialogue({"id": row.get("conversation_id"), "tools": row.get("tools")}, openai.normal_messages(row))
