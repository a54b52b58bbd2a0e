"""Laws about reasoning: opened once, closed once, absent where it is off.

On ids alone: ordinary text can spell ``</think>``.
"""

import numpy as np

from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.laws.base import RowJudgement, RowLaw, find, needs_reasoning


def judge_reasoning_closed(batch: Batch) -> RowJudgement:
    """Follows reasoning from where it begins to where it ends, by what the prompt's end says and the target does."""
    profile, lengths = batch.context.profile, batch.output.lengths
    ends, start = batch.reasoning_ends, batch.reasoning_starts.first()
    tool_start = batch.output_marks.of([profile.tools.opening] if profile.tools else []).first()
    opening, closing = (
        profile.label(i) if i is not None else "" for i in (profile.reasoning_start, profile.reasoning_end)
    )
    count, end, second, last_end = ends.count(), ends.first(), ends.nth(1), ends.last()
    # Where no reasoning is expected, another law tells what stands further on.
    begun = batch.opened_reasoning | ((start >= 0) & ~batch.reasoning_off)
    opened_at = np.where(batch.prompt_opened_reasoning, -1, start)
    by_target = batch.target_opens_reasoning & (lengths > 0)

    doubled = count > 1
    unopened = by_target & (count == 1) & ((start < 0) | (start > end))
    unclosed = begun & batch.ended & (last_end <= opened_at) & ~doubled & ~unopened
    by_tools = tool_start > opened_at
    unusual = by_target & (start != 0) & ~doubled & ~unopened & ~unclosed

    def twice(row: int) -> str:
        return f"{count[row]} times {closing}, the second at index {second[row]}"

    def without_start(row: int) -> str:
        return f"{closing} at index {end[row]} ends reasoning that nothing opened: no {opening} stands before it"

    def never(row: int) -> str:
        where = f" from index {opened_at[row]} on" if opened_at[row] > 0 else ""
        return f"reasoning is open{where} and never closed: no {closing} in {lengths[row]} ids of a whole output"

    def implicit(row: int) -> str:
        return f"implicit end: reasoning ends with tool markup at index {tool_start[row]}, without {closing}"

    def other_habit(row: int) -> str:
        found = f"it comes at index {start[row]}" if start[row] > 0 else "there is none"
        return f"the target opens its reasoning with {opening} as the first id, and here {found}"

    found = (
        find(doubled, twice, second),
        find(unopened, without_start, end),
        find(unclosed & ~by_tools, never, np.where(opened_at > 0, opened_at, lengths - 1)),
        find(unclosed & by_tools, implicit, tool_start, severity="warning"),
        find(unusual, other_habit, np.maximum(start, 0), severity="warning"),
    )
    return RowJudgement(begun | by_target | doubled, found)


def judge_reasoning_not_reopened(batch: Batch) -> RowJudgement:
    """Looks for start-of-reasoning ids where the prompt, or the output itself, already has one."""
    starts = batch.reasoning_starts
    by_prompt, first = batch.prompt_opened_reasoning, starts.first()
    index = np.where(by_prompt, first, starts.nth(1))

    def detail(row: int) -> str:
        token = batch.context.profile.label(int(batch.output.row(row)[index[row]]))
        opener = (
            "the prompt already opened reasoning" if by_prompt[row] else f"one stands at index {first[row]} already"
        )
        return f"{token} at index {index[row]}, though {opener}"

    return RowJudgement(by_prompt | (first >= 0), (find(index >= 0, detail, index),))


def judge_reasoning_off(batch: Batch) -> RowJudgement:
    """Looks for reasoning ids where the prompt closed the reasoning, or the target is known not to reason."""
    profile = batch.context.profile
    off, closed = batch.reasoning_off, batch.prompt_closed_reasoning
    start, end = batch.reasoning_starts.first(), batch.reasoning_ends.first()
    index = np.where((start < 0) | ((end >= 0) & (end < start)), end, start)

    def detail(row: int) -> str:
        token = profile.label(int(batch.output.row(row)[index[row]]))
        why = "the prompt closed reasoning" if closed[row] else f"targets of the profile {profile.name!r} do not reason"
        return f"{token} at index {index[row]}, though {why}"

    return RowJudgement(off, (find(off & (index >= 0), detail, index),))


REASONING_CLOSED = RowLaw(
    name="reasoning_closed",
    definition="Reasoning is closed at most once; opened by the prompt or in the output, in a whole output exactly once"
    " or by tool markup. A target that opens it itself closes nothing that it did not open; where it does not open it"
    " with the first id, that is a remark.",
    asset="raw_generations",
    effect="quarantine",
    lowerable=True,
    meaning="A parser removed or doubled a mark of reasoning, and a drafter would never learn where the target begins"
    " and stops thinking.",
    remedy="Generate through the raw endpoint without a reasoning parser; if this target does so itself, lower the"
    " law to warn.",
    causes=("kvcache-ai/ktransformers#1820", "vllm-project/vllm#32216"),
    judge=judge_reasoning_closed,
    columns=("prompt_ids", "output_ids"),
    nothing="no prompt or output has reasoning",
    unless=needs_reasoning,
    explained_by_echo=True,
)

REASONING_NOT_REOPENED = RowLaw(
    name="reasoning_not_reopened",
    definition="Where the prompt opened reasoning, the output has no start-of-reasoning id, elsewhere at most one.",
    asset="raw_generations",
    effect="quarantine",
    lowerable=True,
    meaning="The start of reasoning was put there by software or the target lost its thread: not how it opens in"
    " service.",
    remedy="Check that nothing adds the start of reasoning to outputs and that prompt and template fit the target.",
    judge=judge_reasoning_not_reopened,
    columns=("prompt_ids", "output_ids"),
    nothing="no prompt or output opened reasoning",
    unless=needs_reasoning,
    explained_by_echo=True,
)

REASONING_OFF = RowLaw(
    name="reasoning_off",
    definition="Where the prompt closed reasoning, or the target does not reason, the output has no reasoning ids.",
    asset="raw_generations",
    effect="warn",
    meaning="The target reasons although it was told not to, or is not known to; a drafter learns it so, as it will"
    " meet it so.",
    remedy="Compare a few samples with the same prompts in service; if the target does it there, leave the data as it"
    " is.",
    judge=judge_reasoning_off,
    columns=("prompt_ids", "output_ids"),
    nothing="reasoning is off for no prompt",
    unless=needs_reasoning,
    explained_by_echo=True,
)
