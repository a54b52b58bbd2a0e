"""Which part of a rendered prompt each message became.

What belongs here: finding where in the text the template has done with a message. Not here: rendering (``render``),
ids.

A template is a program, so nothing but rendering tells. The text of the first messages alone is nearly always the
beginning of the whole text. Where it is not, the template treats a message by what follows it: reasoning of earlier
turns is left out, tool results in a row are put together. So the first messages are also rendered with a user's
message after them, whose own text is known and taken off again.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

from eagle3_assets.prompts.dialogue import Json

_USER: Json = {"role": "user", "content": "Hello"}


@dataclass(frozen=True, slots=True)
class TextPart:
    """What one message became: ``text[begin:end]`` of the prompt; empty where the template leaves it out."""

    begin: int
    end: int
    sure: bool
    """Whether rendering without the later messages gives exactly this beginning; else the end is where it departs."""


def message_parts(render: Callable[[list[Json]], str], messages: Sequence[Json], text: str) -> list[TextPart]:
    """The parts of a prompt, one for each message in their order; what is left is the generation prompt.

    What the template puts before the first message, such as declared tools, is in the first part.

    Args:
        render: gives the text of messages without a generation prompt; may raise whatever a template raises.
        messages: of the prompt, in the form that the template takes.
        text: that they were rendered to, generation prompt included.
    """
    turn = _user_turn(render)
    parts: list[TextPart] = []
    begin = 0
    for count in range(1, len(messages) + 1):
        known, whole = max(
            (_agreement(shown, text) for shown in _beginnings(render, messages, count, turn)), default=(0, False)
        )
        parts.append(TextPart(begin, max(begin, known), whole))
        begin = parts[-1].end
    return parts


def _beginnings(
    render: Callable[[list[Json]], str], messages: Sequence[Json], count: int, turn: str | None
) -> list[str]:
    """What the first messages are rendered to, with nothing and with a user's message after them."""
    found: list[str] = []
    with suppress(Exception):  # a template is data: that it refuses these messages says nothing of the prompt
        found.append(render([*messages[:count]]))
    if turn and count < len(messages):
        with suppress(Exception):
            followed = render([*messages[:count], _USER])
            found += [followed.removesuffix(turn)] if followed.endswith(turn) else []
    return found


def _user_turn(render: Callable[[list[Json]], str]) -> str | None:
    """The text of a later user's message, None where it cannot be told."""
    with suppress(Exception):
        one, two = render([_USER]), render([_USER, _USER])
        return two.removeprefix(one) if two.startswith(one) else None
    return None


def _agreement(shown: str, text: str) -> tuple[int, bool]:
    """How many characters of the text it begins with, and whether that is all of it."""
    if text.startswith(shown):
        return len(shown), True
    known = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(shown, text, strict=False)))
    return known, False
