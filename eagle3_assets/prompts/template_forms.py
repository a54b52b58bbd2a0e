"""The form in which a chat template takes tool calls of the history.

What belongs here: finding that form, and giving it. Not here: the normal form (``dialogue``), which ids calls get
(``call_ids``), rendering a partition.

Most templates take arguments as an object: some go through its items (Qwen3-Coder, GLM), some print it as JSON and
would print text in quotes a second time (Qwen2.5, Llama). DeepSeek's put text after text and fail on an object. Some
never look at ``tool_calls``: a history rendered by them would lose its calls, and nobody would know. Kimi-K2's newer
ones print a call's id and not the function's name, which is to be found in ids of the target's own form alone. One of
its first made ids of the functions' names itself, for calls only: results were printed with the source's.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from eagle3_assets.prompts.call_ids import with_call_ids
from eagle3_assets.prompts.dialogue import Json, RefusedRowError

Render = Callable[[list[Json], list[Json]], str]
"""Gives the prompt's text of messages and tools; may raise whatever a template raises."""

_TOOL, _OTHER_TOOL = "probe_tool", "probe_else"
_VALUE = "probe value"


class ArgumentForm(Enum):
    """How a template takes the arguments of earlier turns' calls."""

    OBJECT = "arguments as an object"
    TEXT = "arguments as JSON text"
    DROPPED = "calls are left out of the prompt"


@dataclass(frozen=True, slots=True)
class CallForm:
    """How a template takes the calls of earlier turns."""

    arguments: ArgumentForm
    named_by_id: bool
    """Whether it prints a call's id and not the function's name."""
    names_without_id: bool
    """Whether it prints the function's name of a call that has no id."""
    results_by_id_alone: bool
    """Whether it prints ids of results and none of calls."""

    def loses_results(self, call_id: str | None) -> bool:
        """Whether a target that has a form of ids is given results that are of no call.

        Where ids are but numbers of calls, what a template prints of them is what the target is given in service.
        """
        return self.results_by_id_alone and call_id is not None


def call_form(render: Render) -> CallForm:
    """Finds a template's form by rendering calls and looking for them.

    Returns:
        ``OBJECT`` also for a template that fails on every form: it shall say itself, row by row, what it lacks.
    """
    arguments = _argument_form(render)
    named, other, unlike, nameless, nameless_other, other_call, other_result = (
        _shown(render, _call(*call), arguments)
        for call in (
            (_TOOL, _ID, _ID),
            (_OTHER_TOOL, _ID, _ID),
            (_TOOL, _OTHER_ID, _OTHER_ID),
            (_TOOL, None, None),
            (_OTHER_TOOL, None, None),
            (_TOOL, _OTHER_ID, _ID),
            (_TOOL, _ID, _OTHER_ID),
        )
    )
    return CallForm(
        arguments,
        named_by_id=named is not None and named == other and unlike not in (None, named),
        names_without_id=nameless is not None and nameless != nameless_other,
        results_by_id_alone=named is not None and named == other_call and other_result not in (None, named),
    )


def has_calls(messages: list[Json]) -> bool:
    """Whether a history has calls or results, which templates take in different forms."""
    return any("tool_calls" in message or message["role"] == "tool" for message in messages)


def formed(messages: list[Json], form: CallForm, call_id: str | None) -> list[Json]:
    """Messages with their calls and results in the form of the template.

    Args:
        messages: in normal form.
        form: of the template.
        call_id: the form of ids that the target's profile has, which say the function's name; None without one.

    Raises:
        RefusedRowError: the template would leave out calls, or the name of a function, or a result is of no call.
    """
    if form.arguments is ArgumentForm.DROPPED and any("tool_calls" in message for message in messages):
        raise RefusedRowError("the chat template leaves out the tool calls of earlier turns")
    return [_given(message, form.arguments) for message in _identified(messages, form, call_id)]


def other_ids(messages: list[Json], form: CallForm, call_id: str | None) -> bool:
    """Whether a history gets other ids of calls or results than its source has, or is refused for want of them.

    Arguments as for :func:`formed`.
    """
    try:
        return _identified(messages, form, call_id) != messages
    except RefusedRowError:
        return True


def _identified(messages: list[Json], form: CallForm, call_id: str | None) -> list[Json]:
    if form.loses_results(call_id) and any(message["role"] == "tool" for message in messages):
        raise RefusedRowError(
            "the chat template prints the ids of tools' results and none of calls, so that nothing says which call a"
            " result is of: give one that prints both as target.chat_template"
        )
    if not form.named_by_id:
        return messages
    if call_id is not None:
        return with_call_ids(messages, call_id)
    calls = [call for message in messages for call in message.get("tool_calls", ())]
    if any("id" in call or not form.names_without_id for call in calls):
        raise RefusedRowError(
            "the chat template prints ids of calls in place of functions' names and the target's profile has no form of"
            " ids: set target.profile_overrides.tool_call_id to that of the target, as functions.{name}:{number}"
        )
    return messages


def _argument_form(render: Render) -> ArgumentForm:
    failed = 0
    for form in (ArgumentForm.OBJECT, ArgumentForm.TEXT):
        shown = _shown(render, _call(_TOOL, _ID, _ID), form)
        failed += shown is None
        # Printed as text within text, its quotes would be escaped.
        if shown is not None and _VALUE in shown and f'\\"{_VALUE}' not in shown:
            return form
    return ArgumentForm.OBJECT if failed == len(ArgumentForm) - 1 else ArgumentForm.DROPPED


def _shown(render: Render, messages: list[Json], form: ArgumentForm) -> str | None:
    """The text of a conversation; None where the template fails."""
    try:
        return render([_given(message, form) for message in messages], [_declared(_TOOL), _declared(_OTHER_TOOL)])
    except Exception:  # noqa: BLE001 - a template is data: that it fails is what is to be found out
        return None


def _given(message: Json, form: ArgumentForm) -> Json:
    if form is not ArgumentForm.TEXT or "tool_calls" not in message:
        return message
    return {
        **message,
        "tool_calls": [{**call, "function": _as_text(call["function"])} for call in message["tool_calls"]],
    }


def _as_text(function: Json) -> Json:
    given = function["arguments"]
    return function if isinstance(given, str) else {**function, "arguments": json.dumps(given, ensure_ascii=False)}


# Ids as Mistral's templates demand them.
_ID, _OTHER_ID = "call00001", "call00002"


def _call(name: str, call_id: str | None, result_id: str | None) -> list[Json]:
    """A conversation with a call and a result."""
    call = {"type": "function", "function": {"name": name, "arguments": {"value": _VALUE}}}
    result = {"role": "tool", "content": "Hello"}
    return [
        {"role": "user", "content": "Hello"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [call if call_id is None else {"id": call_id, **call}],
        },
        result if result_id is None else {**result, "tool_call_id": result_id},
    ]


def _declared(name: str) -> Json:
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": "Probes",
            # Cohere's templates fail on a parameter without a description.
            "parameters": {"type": "object", "properties": {"value": {"type": "string", "description": "Probed"}}},
        },
    }
