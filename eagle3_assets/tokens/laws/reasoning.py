"""Laws about reasoning: opened once, closed once, absent where it is off.

On ids alone: ordinary text can spell ``</think>``.
"""

import numpy as np

from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.columns import Marks
from eagle3_assets.tokens.laws.base import RowJudgement, RowLaw, find, needs_reasoning


def judge_reasoning_closed(batch: Batch) -> RowJudgement:
    """Counts end-of-reasoning ids where the output began in reasoning."""
    profile = batch.context.profile
    ends = _marks(batch, profile.reasoning_end)
    count, opened = ends.count(), batch.opened_reasoning
    tools = _marks(batch, profile.tools.opening) if profile.tools else None
    tool_start = np.full(len(batch), -1, np.int64) if tools is None else tools.first()
    label = profile.label(profile.reasoning_end) if profile.reasoning_end is not None else ""
    unclosed = opened & batch.ended & (count == 0)
    second = ends.nth(1)

    def twice(row: int) -> str:
        return f"{count[row]} times {label}, the second at index {second[row]}"

    def never(row: int) -> str:
        return f"reasoning is open and never closed: no {label} in {batch.output.lengths[row]} ids of a whole output"

    def implicit(row: int) -> str:
        return f"implicit end: reasoning ends with tool markup at index {tool_start[row]}, without {label}"

    found = (
        find(opened & (count > 1), twice, second),
        find(unclosed & (tool_start < 0), never, batch.output.lengths - 1),
        find(unclosed & (tool_start >= 0), implicit, tool_start, severity="warning"),
    )
    return RowJudgement(opened, found)


def judge_reasoning_not_reopened(batch: Batch) -> RowJudgement:
    """Looks for start-of-reasoning ids where the prompt already has one."""
    starts = _marks(batch, batch.context.profile.reasoning_start)
    opened, index = batch.prompt_opened_reasoning, starts.first()

    def detail(row: int) -> str:
        token = batch.context.profile.label(int(batch.output.row(row)[index[row]]))
        return f"{token} at index {index[row]}, though the prompt already opened reasoning"

    return RowJudgement(opened, (find(opened & (index >= 0), detail, index),))


def judge_reasoning_off(batch: Batch) -> RowJudgement:
    """Looks for reasoning ids where the prompt closed the reasoning."""
    profile = batch.context.profile
    marks = batch.output_marks.of(i for i in (profile.reasoning_start, profile.reasoning_end) if i is not None)
    closed, index = batch.prompt_closed_reasoning, marks.first()

    def detail(row: int) -> str:
        token = profile.label(int(batch.output.row(row)[index[row]]))
        return f"{token} at index {index[row]}, though the prompt closed reasoning"

    return RowJudgement(closed, (find(closed & (index >= 0), detail, index),))


def _marks(batch: Batch, token_id: int | None) -> Marks:
    return batch.output_marks.of(() if token_id is None else (token_id,))


REASONING_CLOSED = RowLaw(
    name="reasoning_closed",
    definition="Reasoning that the prompt or the first id opened is closed at most once, and in a whole output"
    " exactly once or"
    " by tool markup.",
    asset="raw_generations",
    effect="quarantine",
    lowerable=True,
    meaning="A parser removed or doubled the end of reasoning, and a drafter would never learn where the target stops"
    " thinking.",
    remedy="Generate through the raw endpoint without a reasoning parser; if this target does so itself, lower the"
    " law to warn.",
    causes=("kvcache-ai/ktransformers#1820", "vllm-project/vllm#32216"),
    judge=judge_reasoning_closed,
    columns=("prompt_ids", "output_ids"),
    nothing="no output begins in reasoning",
    unless=needs_reasoning,
    explained_by_echo=True,
)

REASONING_NOT_REOPENED = RowLaw(
    name="reasoning_not_reopened",
    definition="Where the prompt opened reasoning, the output has no start-of-reasoning id.",
    asset="raw_generations",
    effect="quarantine",
    lowerable=True,
    meaning="The start of reasoning was put there by software or the target lost its thread: not how it opens in"
    " service.",
    remedy="Check that nothing adds the start of reasoning to outputs and that prompt and template fit the target.",
    judge=judge_reasoning_not_reopened,
    columns=("prompt_ids", "output_ids"),
    nothing="no prompt opened reasoning",
    unless=needs_reasoning,
    explained_by_echo=True,
)

REASONING_OFF = RowLaw(
    name="reasoning_off",
    definition="Where the prompt closed reasoning, the output has no reasoning ids.",
    asset="raw_generations",
    effect="warn",
    meaning="The target reasons although it was told not to; a drafter learns it so, as it will meet it so.",
    remedy="Compare a few samples with the same prompts in service; if the target does it there, leave the data as it"
    " is.",
    judge=judge_reasoning_off,
    columns=("prompt_ids", "output_ids"),
    nothing="no prompt closed reasoning",
    unless=needs_reasoning,
    explained_by_echo=True,
)
