"""Plain prompts: a text, or an object with one in ``prompt``, ``text``, ``question``, ``query``, ...

A system prompt and tools may stand beside it. An answer in the row is not read, since the target gives its own. Texts
that are no prompt but a message of a conversation, or a whole one in a template's markup, are refused: answers would be
asked for as prompts.
"""

from string import punctuation, whitespace
from typing import Any

from eagle3_assets.prompts.dialogue import Dialogue, Json, RefusedRowError
from eagle3_assets.prompts.formats.markup import is_conversation
from eagle3_assets.prompts.formats.messages import dialogue, is_message_list, role_of
from eagle3_assets.prompts.formats.row_keys import Said
from eagle3_assets.prompts.formats.sharegpt import KEYS as KEYS_OF_TURNS
from eagle3_assets.prompts.formats.values import first, from_text, object_row, text
from eagle3_assets.tokens.safe_text import quoted

KEYS = ("prompt", "text", "question", "query", "problem", "input", "inputs")


def recognises(row: Any) -> bool:  # noqa: ANN401 - parsed JSON
    """Whether the row is text, or its keys are this format's."""
    return isinstance(row, str) or any(isinstance(row.get(key), str) for key in KEYS)


def read(row: Any) -> Dialogue:  # noqa: ANN401 - parsed JSON
    """Reads one row; see :func:`formats.read`."""
    row = {"prompt": row} if isinstance(row, str) else object_row(row, "prompt")
    found = [key for key in KEYS if row.get(key) is not None]
    if not found:
        raise RefusedRowError(f"no prompt: one of {', '.join(f'`{key}`' for key in KEYS)} must be text")
    prompt = text(row[found[0]], found[0])
    if not prompt.strip():
        raise RefusedRowError("the prompt is empty")
    _require_no_message(row)
    require_prompt(prompt)
    messages = [{"role": "user", "content": prompt}]
    for key in found[1:]:
        if row[key] != "" and not Said(messages).has(row[key]):
            raise RefusedRowError(f"`{found[0]}` and `{key}` are both there and differ")
    return dialogue(row, messages, found, one_prompt=True)


def require_prompt(said: str) -> None:
    """Refuses a text that is more than what one user says.

    Raises:
        RefusedRowError: it is a conversation in markup or as JSON, or nothing but punctuation.
    """
    if not said.strip(f"{punctuation}{whitespace}"):
        # OpenCodeReasoning has a dash where the question must be looked up elsewhere.
        raise RefusedRowError(f"the prompt is {quoted(said.strip(), 40)}, which stands for one that is not there")
    if is_message_list(said):
        raise RefusedRowError("the text is a list of messages as JSON, not a prompt: write it as `messages`")
    if _is_message(said):
        raise RefusedRowError("the text is a message as JSON, not a prompt: write it into the list `messages`")
    if is_conversation(said):
        raise RefusedRowError(
            f"the text is a conversation in markup ({quoted(said.lstrip(), 40)}), not a prompt: write it as `messages`"
        )


def _is_message(said: str) -> bool:
    """Whether a text is one message as JSON, or a row that holds messages."""
    try:
        found = from_text(said, "") if said.lstrip().startswith("{") else None
    except RefusedRowError:
        return False
    if not isinstance(found, dict):
        return False
    speaks = role_of(first(found, "role", "from")) is not None
    says = any(key in found for key in ("content", "value", "tool_calls"))
    return (speaks and says) or any(is_message_list(found.get(key)) for key in ("messages", *KEYS_OF_TURNS))


def _require_no_message(row: Json) -> None:
    role = row.get("role")
    if row.get("parent_id") is not None or role_of(role) is not None:
        key = "role" if role is not None else "parent_id"
        raise RefusedRowError(f"`{key}` is there: the text is a message of a conversation, not a prompt")
