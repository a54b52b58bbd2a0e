"""Plain prompts: a text, or an object with one in ``prompt``, ``text``, ``question``, ``query`` or ``problem``.

A system prompt and tools may stand beside it. An answer in the row is not read, since the target gives its own; what a
question needs to be understood (``context``, ``choices``, ...) is refused by name.
"""

from typing import Any

from eagle3_assets.prompts.dialogue import Dialogue, RefusedRowError
from eagle3_assets.prompts.formats.messages import dialogue
from eagle3_assets.prompts.formats.values import object_row, only_one, text

KEYS = ("prompt", "text", "question", "query", "problem")
NEEDED = ("context", "choices", "options", "passage", "documents", "document", "input", "history")


def recognises(row: Any) -> bool:  # noqa: ANN401 - parsed JSON
    """Whether the row is text, or its keys are this format's."""
    return isinstance(row, str) or any(isinstance(row.get(key), str) for key in KEYS)


def read(row: Any) -> Dialogue:  # noqa: ANN401 - parsed JSON
    """Reads one row; see :func:`formats.read`."""
    row = {"prompt": row} if isinstance(row, str) else object_row(row, "prompt")
    for key in NEEDED:
        if row.get(key):
            raise RefusedRowError(f"`{key}` is there, which a plain prompt would lose")
    prompt = only_one(row, KEYS)
    if prompt is None:
        raise RefusedRowError(f"no prompt: one of {', '.join(f'`{key}`' for key in KEYS)} must be text")
    if not text(prompt, "prompt").strip():
        raise RefusedRowError("the prompt is empty")
    return dialogue(row, [{"role": "user", "content": prompt}])
