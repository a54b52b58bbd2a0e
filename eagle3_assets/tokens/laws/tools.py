"""The grammar of native tool-call markup, on ids alone."""

from dataclasses import dataclass

import numpy as np

from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.columns import Ints, Marks, Mask
from eagle3_assets.tokens.laws.base import RowJudgement, RowLaw, find, needs_tools
from eagle3_assets.tokens.profile import ToolIds

_OUTSIDE = 0


@dataclass(frozen=True)
class _Grammar:
    """Which structural id may follow which, and whether ordinary ids must, may or must not lie between.

    The markup ``section (call id argument args end)+ section_end`` holds no nesting, so that every pair of neighbours
    being right is the whole of being right. States: 0 outside the markup, then 1, 2, ... the markup's ids in its order;
    ``adjacent`` and ``apart`` are bool ``[from, to]``: allowed without and with ordinary ids between.
    """

    states: dict[int, int]
    adjacent: Mask
    apart: Mask
    closed: Mask

    @classmethod
    def of(cls, tools: ToolIds) -> "_Grammar":
        states = {token_id: state for state, token_id in enumerate(tools.all, 1)}
        size = len(states) + 1
        adjacent, apart = np.zeros((2, size, size), np.bool_)
        call, end = states[tools.call_begin], states[tools.call_end]
        opening, closing = states[tools.opening], states[tools.closing]
        inside = call if tools.argument_begin is None else states[tools.argument_begin]
        apart[call, inside] = call != inside  # the call's id
        apart[inside, end] = True  # the arguments
        if opening != call:
            adjacent[opening, call] = adjacent[end, call] = True
        if closing != end:
            adjacent[end, closing] = True
        if tools.text_between and opening != call:
            apart[end, [call, closing]] = True
        for outside in (_OUTSIDE, closing):
            adjacent[outside, [_OUTSIDE, opening]] = apart[outside, [_OUTSIDE, opening]] = True
        closed = np.zeros(size, np.bool_)
        closed[[_OUTSIDE, closing]] = True
        return cls(states, adjacent, apart, closed)


def judge_tool_grammar(batch: Batch) -> RowJudgement:
    """Follows each output's markup from id to id, and sees whether it is closed at the end."""
    tools = batch.context.profile.tools
    assert tools is not None  # noqa: S101 - the law's condition
    grammar = _Grammar.of(tools)
    marks = batch.output_marks.where(_in_rows_with(batch.output_marks, tools))
    state = _states(marks, grammar)
    index = _first_misplaced(batch, marks, state, grammar)
    last_of_row = np.diff(marks.row, append=marks.rows) != 0
    open_at = marks.where(last_of_row & ~grammar.closed[state] & ~batch.cut_off[marks.row]).last()
    label = batch.context.profile.label

    def misplaced(row: int) -> str:
        at = int(index[row])
        earlier = (marks.row == row) & (marks.index < at)
        follows = label(int(marks.id[earlier][-1])) if earlier.any() else "no markup"
        return f"{label(int(batch.output.row(row)[at]))} at index {at} cannot stand there, after {follows}"

    def left_open(row: int) -> str:
        at = int(open_at[row])
        return f"{label(int(batch.output.row(row)[at]))} at index {at} is left open though the output was not cut off"

    found = (find(index >= 0, misplaced, index), find((index < 0) & (open_at >= 0), left_open, open_at))
    return RowJudgement(np.ones(len(batch), np.bool_), found)


def _in_rows_with(marks: Marks, tools: ToolIds) -> Mask:
    """Occurrences in rows that have markup at all; most rows have none."""
    has = np.zeros(marks.rows, np.bool_)
    has[marks.of(tools.all).row] = True
    return has[marks.row]


def _states(marks: Marks, grammar: _Grammar) -> Ints:
    state = np.full(len(marks), _OUTSIDE, np.int64)
    for token_id, number in grammar.states.items():
        state[marks.id == token_id] = number
    return state


def _first_misplaced(batch: Batch, marks: Marks, state: Ints, grammar: _Grammar) -> Ints:
    """Index of each output's first id that cannot stand where it does, -1 where there is none."""
    first_of_row = np.diff(marks.row, prepend=-1) != 0
    before = np.where(first_of_row, _OUTSIDE, np.roll(state, 1))
    next_index = np.where(first_of_row, 0, np.roll(marks.index, 1) + 1)
    ids_between = marks.index > next_index
    takes_ids = np.asarray(np.any(grammar.apart, axis=1))
    wrong: Mask = ~np.where(ids_between, grammar.apart[before, state], grammar.adjacent[before, state])
    # Ordinary ids after an id which takes none are the offence, not the structural id that comes after them.
    at = np.where(ids_between & ~takes_ids[before], next_index, marks.index)
    inside = Marks(marks.row[wrong], at[wrong], marks.id[wrong], marks.rows).first()
    ids_follow = marks.index < batch.output.lengths[marks.row] - 1
    last_of_row = np.diff(marks.row, append=marks.rows) != 0
    trailing = marks.where(last_of_row & ids_follow & ~takes_ids[state]).last()
    return np.where(inside >= 0, inside, np.where(trailing >= 0, trailing + 1, -1))


TOOL_GRAMMAR = RowLaw(
    name="tool_grammar",
    definition="Tool-call markup is well formed on ids: a section of one or more whole calls, open only where the"
    " output was"
    " cut off.",
    asset="raw_generations",
    effect="warn",
    meaning="Either the target writes broken calls, which a drafter must learn as they are, or software changed its"
    " markup.",
    remedy="Look at the samples; if the markup was changed on the way, generate through the raw endpoint without a"
    " tool parser.",
    causes=("vllm-project/vllm#32216",),
    judge=judge_tool_grammar,
    columns=("output_ids",),
    nothing="there is no generated row",
    unless=needs_tools,
    explained_by_echo=True,
)
