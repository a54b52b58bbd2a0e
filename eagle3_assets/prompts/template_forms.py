"""The form in which a chat template takes tool calls of the history.

What belongs here: finding that form, and giving it. Not here: the normal form (``dialogue``), rendering a partition.

Most templates take arguments as an object: some go through its items (Qwen3-Coder, GLM), some print it as JSON and
would print text in quotes a second time (Qwen2.5, Llama). DeepSeek's put text after text and fail on an object. Some
never look at ``tool_calls``: a history rendered by them would lose its calls, and nobody would know.
"""

import json
from collections.abc import Callable
from enum import Enum

from eagle3_assets.prompts.dialogue import Json

_TOOL = "probe_tool"
_VALUE = "probe value"


class CallForm(Enum):
    """How a template takes the calls of earlier turns."""

    OBJECT = "arguments as an object"
    TEXT = "arguments as JSON text"
    DROPPED = "calls are left out of the prompt"


def call_form(render: Callable[[list[Json], list[Json]], str]) -> CallForm:
    """Finds a template's form by rendering a call and looking for it.

    Args:
        render: gives the prompt's text of messages and tools; may raise whatever a template raises.

    Returns:
        ``OBJECT`` also for a template that fails on every form: it shall say itself, row by row, what it lacks.
    """
    failed = 0
    for form in (CallForm.OBJECT, CallForm.TEXT):
        try:
            shown = render([_given(message, form) for message in _PROBE], [_DECLARED])
        except Exception:  # noqa: BLE001 - a template is data: that it fails is what is to be found out
            failed += 1
            continue
        # Printed as text within text, its quotes would be escaped.
        if _VALUE in shown and f'\\"{_VALUE}' not in shown:
            return form
    return CallForm.OBJECT if failed == len(CallForm) - 1 else CallForm.DROPPED


def formed(messages: list[Json], form: CallForm) -> list[Json]:
    """Messages with their calls in the form of the template."""
    return [_given(message, form) for message in messages]


def _given(message: Json, form: CallForm) -> Json:
    if form is not CallForm.TEXT or "tool_calls" not in message:
        return message
    return {
        **message,
        "tool_calls": [{**call, "function": _as_text(call["function"])} for call in message["tool_calls"]],
    }


def _as_text(function: Json) -> Json:
    given = function["arguments"]
    return function if isinstance(given, str) else {**function, "arguments": json.dumps(given, ensure_ascii=False)}


# An id as Mistral's templates demand it.
_PROBE: list[Json] = [
    {"role": "user", "content": "Hello"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "call00001", "type": "function", "function": {"name": _TOOL, "arguments": {"value": _VALUE}}}
        ],
    },
    {"role": "tool", "tool_call_id": "call00001", "content": "Hello"},
]
_DECLARED: Json = {
    "type": "function",
    "function": {
        "name": _TOOL,
        "description": "Probes",
        "parameters": {"type": "object", "properties": {"value": {"type": "string"}}},
    },
}
