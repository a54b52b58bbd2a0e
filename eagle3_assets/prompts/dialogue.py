"""One conversation of a source in its normal form, whatever format it came in.

What belongs here: the normal form and the refusal of a row. Not here: reading formats (``formats``), which turn is
to be generated (``rows``), templates (``render``).
"""

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


class RefusedRowError(ValueError):
    """A source row that no prompt can be made of; the text says why, without the place."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """All turns of one source row, the assistant's included.

    A message is ``{role, content, reasoning_content?, tool_calls?, tool_call_id?, name?}``: the role is system, user,
    assistant or tool, the content always text, the empty one where the source has null beside calls. A call is
    ``{type, function: {name, arguments}, id?}``. A tool is ``{type, function: {name, description?, parameters, ...}}``.
    Keys of tools and arguments are in the order of the source, since templates print them so.
    """

    source_id: str | None
    """The source's own id; None without one."""
    messages: list[Json]
    tools: list[Json] | None
    """None without tools, never an empty list."""
    remarks: tuple[str, ...] = ()
    """What was left as it is although it looks like more, in words: reasoning whose markup is not whole."""
    unread: tuple[str, ...] = ()
    """Keys of the row that say something, are not read, and are not known to be about the row only."""
    stored: "StoredPrompt | None" = None
    """Of a row that is a prompt already; None where the turns to generate are chosen."""


@dataclass(frozen=True, slots=True)
class StoredPrompt:
    """What a row of our own prompts says of itself: its messages are the history of this turn."""

    turn: int
    """As in the source that it was made of, where a system prompt of the settings was no message."""
    sample_index: int
