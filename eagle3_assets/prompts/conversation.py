"""One conversation up to the assistant turn that shall be generated.

What belongs here: cutting a dialogue before that turn, its id, its JSON. Not here: formats, files.
"""

import json
from dataclasses import dataclass
from typing import Any

from eagle3_assets.identity import digest
from eagle3_assets.prompts.dialogue import Dialogue, Json, RefusedRowError
from eagle3_assets.prompts.formats import read

__all__ = ["Conversation", "Dialogue", "Json", "RefusedRowError", "from_openai"]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The messages before the assistant turn that shall be generated."""

    conversation_id: str
    messages: list[Json]
    tools: list[Json] | None

    @property
    def turn(self) -> int:
        """Index among the messages of the turn to be generated."""
        return len(self.messages)

    def messages_json(self) -> str:
        """The messages as JSON text."""
        return _json(self.messages)

    def tools_json(self) -> str | None:
        """The tools as JSON text, null without tools."""
        return _json(self.tools) if self.tools else None


def from_openai(row: Any) -> Conversation:  # noqa: ANN401 - parsed JSON
    """A row ``{id?, messages, tools?}`` in the shape of OpenAI's chat requests.

    The last turns of the assistant, if the row ends with them, are what shall be generated anew: they are left out.

    Raises:
        RefusedRowError: with the key that is wrong and what is allowed there.
    """
    dialogue = read("openai", row)
    messages = list(dialogue.messages)
    while messages[-1]["role"] == "assistant":
        messages.pop()
    if not any(message["role"] == "user" for message in messages):
        raise RefusedRowError("no user message before the turn to generate")
    return Conversation(dialogue.source_id or digest([messages, dialogue.tools]), messages, dialogue.tools)


def _json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """JSON with its keys in the order of the source: templates print tools and arguments in the order they come in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
