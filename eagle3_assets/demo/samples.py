"""What a demo training sample is: a conversation, and the turn that the model shall learn to give.

Belongs here: the shapes that every conversation maker returns. Does not belong here: any wording.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Message = dict[str, Any]
ToolSchema = dict[str, Any]
Kind = Literal["function_calling", "reasoning", "chat"]


@dataclass(frozen=True)
class Call:
    """One tool call.

    Attributes:
        name: the function's name, without the `functions.` prefix.
        arguments: the argument object.
    """

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Turn:
    """The assistant turn to learn.

    Attributes:
        reasoning: what goes between `<think>` and `</think>`; left out of the render when thinking is off.
        content: the answer, empty where the turn only calls tools.
        calls: the tool calls, in order.
    """

    reasoning: str
    content: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Sample:
    """A conversation with the turn that answers it.

    Attributes:
        kind: the family of conversations it belongs to.
        messages: the history in the OpenAI shape; its last message is the one to answer.
        tools: declared tools in the OpenAI shape, empty for none.
        turn: the right answer.
    """

    kind: Kind
    messages: list[Message]
    turn: Turn
    tools: list[ToolSchema] = field(default_factory=list)

    def text_key(self) -> str:
        """Returns what a person said in this conversation, which is what makes two conversations the same."""
        return spoken_text(self.messages)


def spoken_text(messages: list[Message]) -> str:
    """Joins the system and user texts of a conversation.

    Args:
        messages: messages in the OpenAI shape.

    Returns:
        The texts, one a line, in order.
    """
    return "\n".join(str(m["content"]) for m in messages if m["role"] in {"system", "user"})


def assistant_message(turn: Turn, first_call: int, *, reasoning: bool = True) -> Message:
    """Turns a `Turn` into a message for the chat template.

    Args:
        turn: the turn.
        first_call: how many calls the conversation has made before; the ids count on from there.
        reasoning: whether to keep the turn's reasoning.

    Returns:
        A message with `content`, and `reasoning_content` and `tool_calls` where there are any.
    """
    message: Message = {"role": "assistant", "content": turn.content}
    if reasoning and turn.reasoning:
        message["reasoning_content"] = turn.reasoning
    if turn.calls:
        message["tool_calls"] = [
            {
                "id": f"functions.{call.name}:{first_call + index}",
                "type": "function",
                "function": {"name": call.name, "arguments": dict(call.arguments)},
            }
            for index, call in enumerate(turn.calls)
        ]
    return message


def calls_made(messages: list[Message]) -> int:
    """Counts the tool calls in a history."""
    return sum(len(m.get("tool_calls") or ()) for m in messages)
