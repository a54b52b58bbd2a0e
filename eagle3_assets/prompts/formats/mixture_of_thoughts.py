"""Mixture-of-Thoughts (open-r1): ``{messages, num_tokens, source}``.

Messages are OpenAI's; the assistant's content is ``<think>...</think>`` and the answer. It is read as ``openai`` is.
"""

from eagle3_assets.prompts.dialogue import Json
from eagle3_assets.prompts.formats import openai


def recognises(row: Json) -> bool:
    """Whether the row's keys are this format's."""
    return openai.recognises(row) and row.get("num_tokens") is not None
