"""Laws about what tool calls say and where they stand. Models write odd calls too, so none of them filters."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np

from eagle3_assets.strict_json import StrictJsonError
from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.columns import Ints, Mask
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.laws.base import Found, RowJudgement, RowLaw, find, needs_tokenizer, needs_tools
from eagle3_assets.tokens.safe_text import quoted, visible
from eagle3_assets.tokens.tool_calls import Call


def judge_tool_call_id(batch: Batch) -> RowJudgement:
    """Compares what stands before each call's arguments with the target's form."""
    form = str(batch.context.profile.tool_call_id).replace("{name}", "NAME").replace("{number}", "INDEX")
    return _judged(
        batch,
        batch.tool_calls,
        lambda call: None if call.parts else (call.index + 1, f"call id {_shown(call.head)} is not {form}"),
    )


def judge_tool_arguments_json(batch: Batch) -> RowJudgement:
    """Parses each call's arguments."""
    return _judged(batch, batch.tool_calls, _arguments_fault)


def judge_tool_declared(batch: Batch) -> RowJudgement:
    """Looks for calls of tools that the prompt does not declare."""
    names, faults = batch.declared_tools, batch.tool_faults
    calls = [call for call in batch.tool_calls if "name" in call.parts and names[call.row] is not None]

    def fault(call: Call) -> tuple[int, str] | None:
        known = names[call.row] or ()
        if call.parts["name"] in known:
            return None
        listed = ", ".join(visible(name) for name in known[:_SHOWN_TOOLS]) or "no tool"
        more = " and others" if len(known) > _SHOWN_TOOLS else ""
        return call.index, f"calls {_shown(call.parts['name'])}, the prompt declares {listed}{more}"

    unread = np.array([fault is not None for fault in faults], np.bool_)
    unread_rows = find(unread, lambda row: f"its tools cannot be read: {faults[row]}", severity="warning")
    judgement = _judged(batch, calls, fault)
    return replace(judgement, found=(*judgement.found, unread_rows))


def judge_tool_order(batch: Batch) -> RowJudgement:
    """Looks at what follows the tool markup, and at the counters of the calls."""
    after, again = _after_markup(batch)
    out_of_step = np.full(len(batch), -1, np.int64)
    counters: dict[int, str] = {}
    if _has_counters(batch.context) and batch.context.tokenizer is not None:
        for row, calls in groupby(batch.tool_calls, key=lambda call: call.row):
            for one, other in pairwise(calls):
                numbers = [int(call.parts.get("number", -1)) for call in (one, other)]
                if row not in counters and min(numbers) >= 0 and numbers[1] != numbers[0] + 1:
                    out_of_step[row] = other.index
                    counters[row] = f"call number {numbers[1]} follows number {numbers[0]}"

    def ids_follow(row: int) -> str:
        token = batch.context.profile.label(int(batch.output.row(row)[after[row]]))
        return f"{token} at index {after[row]} follows the tool markup"

    def second_section(row: int) -> str:
        return f"a second section of tool calls begins at index {again[row]}"

    found = (
        find(again >= 0, second_section, again),
        find((again < 0) & (after >= 0), ids_follow, after),
        find((again < 0) & (after < 0) & (out_of_step >= 0), lambda row: counters[row], out_of_step),
    )
    return RowJudgement(_has_markup(batch), found)


_SHOWN_TOOLS = 5


def _judged(batch: Batch, calls: Iterable[Call], fault: Callable[[Call], tuple[int, str] | None]) -> RowJudgement:
    """Rows with a call are judged; of each row the first call at fault is told."""
    judged = np.zeros(len(batch), np.bool_)
    faults: dict[int, tuple[int, str]] = {}
    for call in calls:
        judged[call.row] = True
        told = fault(call) if call.row not in faults else None
        if told is not None:
            faults[call.row] = told
    index = np.array([at for at, _ in faults.values()], np.int64)
    found = Found(np.array(list(faults), np.int64), index, [text for _, text in faults.values()], "error")
    return RowJudgement(judged, (found,))


def _arguments_fault(call: Call) -> tuple[int, str] | None:
    value = call.json
    if call.head is None and isinstance(value, dict):
        value = value.get("arguments")
    if isinstance(value, dict):
        return None
    if isinstance(value, StrictJsonError):
        return call.body_index, f"the call's JSON {visible(str(value))}"
    kind = {str: "a string", list: "a list", type(None): "null", bool: "true or false"}.get(type(value), "a number")
    twice = ": encoded twice" if isinstance(value, str) and value.lstrip().startswith("{") else ""
    return call.body_index, f"the arguments are {kind}, not an object{twice}"


def _has_markup(batch: Batch) -> Mask:
    tools = batch.context.profile.tools
    assert tools is not None  # noqa: S101 - the law's condition
    has: Mask = batch.output_marks.of([tools.closing]).count() > 0
    return has


def _after_markup(batch: Batch) -> tuple[Ints, Ints]:
    """Index of the first id after each output's last markup that is no stop id, and of a second section; or -1."""
    tools, marks = batch.context.profile.tools, batch.output_marks
    assert tools is not None  # noqa: S101 - the law's condition
    first_end, last_end = (getattr(marks.of([tools.closing]), which)() for which in ("first", "last"))
    begins = marks.of([tools.opening])
    later = begins.where((first_end[begins.row] >= 0) & (begins.index > first_end[begins.row]))
    again = later.first() if tools.section_begin is not None else np.full(len(batch), -1, np.int64)
    next_id = batch.output.at(last_end + 1)
    follows = (last_end >= 0) & (last_end + 1 < batch.output.lengths) & (later.last() < last_end)
    follows &= ~np.isin(next_id, list(batch.context.all_stop_ids))
    return np.where(follows, last_end + 1, -1), again


def _shown(text: str | None) -> str:
    return visible(quoted(text))


def _needs_tool_texts(context: Context) -> str | None:
    return needs_tools(context) or needs_tokenizer(context)


def _needs_call_form(context: Context) -> str | None:
    lacking = f"the profile {context.profile.name!r} describes no form of a call's id"
    return _needs_tool_texts(context) or (lacking if context.profile.tool_call_id is None else None)


def _needs_json(context: Context) -> str | None:
    profile, lacking = context.profile, _needs_tool_texts(context)
    if lacking is not None or profile.tools is None:
        return lacking
    if not profile.tools.json_arguments:
        return f"the profile {profile.name!r} has arguments within other text"
    if profile.tools.argument_begin is None and not profile.tool_call_json:
        return f"the profile {profile.name!r} does not say that calls are JSON"
    return None


def _needs_declared_names(context: Context) -> str | None:
    profile = context.profile
    named = profile.tool_call_json if profile.tools and profile.tools.argument_begin is None else profile.tool_call_id
    lacking = None if named else f"the profile {profile.name!r} does not describe where a call names its tool"
    return _needs_tool_texts(context) or lacking


def _has_counters(context: Context) -> bool:
    return context.profile.tool_call_id is not None and "{number}" in context.profile.tool_call_id


def _unread_counters(context: Context) -> str | None:
    lacking = needs_tokenizer(context) if _has_counters(context) else None
    return None if lacking is None else f"{lacking}: the calls' counters are not read"


TOOL_CALL_ID = RowLaw(
    name="tool_call_id",
    definition="What stands before a call's arguments has the target's own form.",
    asset="raw_generations",
    effect="warn",
    meaning="Either the target slips, which a drafter must learn as it is, or its history held ids of another form"
    " and it follows them.",
    remedy="Look at the samples' prompts: tool calls in the history must have ids in the target's own form; then"
    " tokenize and generate again.",
    causes=("vllm-project/vllm#46344", "vybestack/llxprt-code#713"),
    judge=judge_tool_call_id,
    columns=("output_ids",),
    nothing="no output has a whole tool call",
    unless=_needs_call_form,
    explained_by_echo=True,
)

TOOL_ARGUMENTS_JSON = RowLaw(
    name="tool_arguments_json",
    definition="A call's arguments are one JSON object, read strictly.",
    asset="raw_generations",
    effect="warn",
    meaning="The target writes calls that no parser takes; a drafter must learn it as it is, but many of them point at"
    " damage.",
    remedy="Look at the samples: arguments that were encoded twice in the history teach the target to do so; give them"
    " to the template as objects.",
    causes=("MoonshotAI/Kimi-K2#26",),
    judge=judge_tool_arguments_json,
    columns=("output_ids",),
    nothing="no output has a whole tool call",
    unless=_needs_json,
    explained_by_echo=True,
)

TOOL_DECLARED = RowLaw(
    name="tool_declared",
    definition="A call names a tool that the sample's prompt declares.",
    asset="raw_generations",
    effect="warn",
    meaning="The target calls what it was not given: often the chat template dropped the tools, and outputs are not"
    " those of service.",
    remedy="Look whether the decoded prompts hold the tools' names; choose a chat template that renders tools.",
    judge=judge_tool_declared,
    columns=("output_ids",),
    nothing="no output of a sample whose tools are known has a whole tool call",
    unless=_needs_declared_names,
    explained_by_echo=True,
)

TOOL_ORDER = RowLaw(
    name="tool_order",
    definition="Tool markup ends an output: nothing but a stop id follows it, there is one section, and its calls are"
    " counted one by one.",
    asset="raw_generations",
    effect="warn",
    meaning="Text after tool calls is lost by the parsers of most servers; a drafter must learn it if the target"
    " writes it.",
    remedy="Look at the samples; if many go on after their calls, compare the prompts with those of service.",
    judge=judge_tool_order,
    columns=("output_ids",),
    nothing="no output has a whole tool call",
    unless=needs_tools,
    partly=_unread_counters,
    explained_by_echo=True,
)
