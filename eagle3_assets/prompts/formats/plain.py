"""Plain prompts: a text, or an object with one in ``prompt``, ``text``, ``question``, ``query`` or ``problem``.

A system prompt and tools may stand beside it. An answer in the row is not read, since the target gives its own; what a
question needs to be understood (``context``, ``choices``, ...) is refused by name, and so are texts that are no prompt
but a message of a conversation or a whole one in a template's markup: answers would be asked for as prompts.
"""

import re
from typing import Any

from eagle3_assets.prompts.dialogue import Dialogue, Json, RefusedRowError
from eagle3_assets.prompts.formats.messages import dialogue
from eagle3_assets.prompts.formats.sharegpt import ROLES
from eagle3_assets.prompts.formats.values import object_row, only_one, text
from eagle3_assets.tokens.safe_text import quoted

KEYS = ("prompt", "text", "question", "query", "problem")
NEEDED = ("context", "choices", "options", "passage", "documents", "document", "input", "history")
CONVERSATIONS = ("messages", "conversations", "conversation")
_TOKENS = re.compile(
    r"<\|im_start\|>|<\|start_header_id\|>|<start_of_turn>|<\|(?:user|system|assistant)\|>|(?:<s>\s*)?\[INST\]"
)
_ASKED = re.compile(r"(?:\A|###[ \t]*)(?:human|user|system|instruction):", re.IGNORECASE)
_ANSWERED = re.compile(r"(?:^|###[ \t]*)(?:assistant|gpt|response):", re.IGNORECASE | re.MULTILINE)


def recognises(row: Any) -> bool:  # noqa: ANN401 - parsed JSON
    """Whether the row is text, or its keys are this format's."""
    return isinstance(row, str) or any(isinstance(row.get(key), str) for key in KEYS)


def read(row: Any) -> Dialogue:  # noqa: ANN401 - parsed JSON
    """Reads one row; see :func:`formats.read`."""
    row = {"prompt": row} if isinstance(row, str) else object_row(row, "prompt")
    for key in (*NEEDED, *CONVERSATIONS):
        if row.get(key):
            raise RefusedRowError(f"`{key}` is there, which a plain prompt would lose")
    prompt = only_one(row, KEYS)
    if prompt is None:
        raise RefusedRowError(f"no prompt: one of {', '.join(f'`{key}`' for key in KEYS)} must be text")
    if not text(prompt, "prompt").strip():
        raise RefusedRowError("the prompt is empty")
    _no_part_of_a_conversation(row, prompt)
    return dialogue(row, [{"role": "user", "content": prompt}])


def _no_part_of_a_conversation(row: Json, prompt: str) -> None:
    role = row.get("role")
    if row.get("parent_id") is not None or (isinstance(role, str) and role.strip().lower() in ROLES):
        key = "role" if role is not None else "parent_id"
        raise RefusedRowError(f"`{key}` is there: the text is a message of a conversation, not a prompt")
    said = prompt.lstrip()
    asked = _ASKED.search(said)
    if _TOKENS.match(said) or (asked and _ANSWERED.search(said, asked.end())):
        raise RefusedRowError(f"the text is a conversation in markup ({quoted(said, 40)}), not a prompt")
