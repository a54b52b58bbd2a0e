"""Mixture-of-Thoughts (open-r1): ``{messages, num_tokens, source}``.

Messages are OpenAI's; the assistant's content is ``<think>...</think>`` and the answer. The reasoning goes into
``reasoning_content``, where every template looks for it; left in the content, it would be lost or come twice.
"""

from typing import Any

from eagle3_assets.prompts.dialogue import Dialogue, Json
from eagle3_assets.prompts.formats import openai
from eagle3_assets.prompts.formats.messages import dialogue
from eagle3_assets.prompts.formats.reasoning import separated
from eagle3_assets.prompts.formats.values import object_row


def recognises(row: Json) -> bool:
    """Whether the row's keys are this format's."""
    return openai.recognises(row) and row.get("num_tokens") is not None


def read(row: Any) -> Dialogue:  # noqa: ANN401 - parsed JSON
    """Reads one row; see :func:`formats.read`."""
    row = object_row(row, "messages")
    messages, remarks = separated(openai.normal_messages(row))
    return dialogue(row, messages, remarks=remarks)
