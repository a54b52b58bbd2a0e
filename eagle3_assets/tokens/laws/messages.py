"""The grammar of outputs that are made of messages with channels, on ids alone."""

from dataclasses import dataclass

import numpy as np

from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.columns import Ints, Marks, Mask, TokenColumn
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.laws.base import RowJudgement, RowLaw, find
from eagle3_assets.tokens.profile import MessageIds

_START, _BEGIN, _CHANNEL, _FORMAT, _BODY, _END = range(6)
"""What an id of the markup is; the first is the output's beginning, which stands in a header. All ends are one."""

_ADJACENT: Mask = np.zeros((6, 6), np.bool_)
_APART: Mask = np.zeros((6, 6), np.bool_)
# In a header stands the role or a recipient, after `channel` its name, after `format` what the body is written in.
_ADJACENT[_START, _CHANNEL] = _APART[_START, _CHANNEL] = True
_APART[_BEGIN, _CHANNEL] = True
_APART[_CHANNEL, [_FORMAT, _BODY]] = True
_APART[_FORMAT, _BODY] = True
_ADJACENT[_BODY, _END] = _APART[_BODY, _END] = True
_ADJACENT[_END, _BEGIN] = True


@dataclass(frozen=True)
class _Walk:
    """Every id of the markup in a batch, what it is, what stands before it, and the channel that it belongs to."""

    marks: Marks
    state: Ints
    before: Ints
    ids_between: Mask
    channel: Ints
    """Number of the channel named last in the row, -1 before any, or where the name is none of the profile's."""


def judge_message_grammar(batch: Batch) -> RowJudgement:
    """Follows each output's markup from id to id; what comes after an id that ends the output is another law's."""
    messages = batch.context.profile.messages
    assert messages is not None  # noqa: S101 - the law's condition
    judged = _begins_in_header(batch)
    walk = _walk(batch, messages, judged)
    marks, label = walk.marks, batch.context.profile.label
    names = list(messages.channels)
    misplaced = ~np.where(walk.ids_between, _APART[walk.before, walk.state], _ADJACENT[walk.before, walk.state])
    unnamed = (walk.state == _CHANNEL) & (walk.channel < 0)
    stranger = (walk.state == _BEGIN) & ~_followed_by(batch.output, marks, messages.role)
    allowed = {token: [names.index(name) for name in of] for token, of in messages.ends.items()}
    wrong_end = np.zeros(len(marks), np.bool_)
    for token, numbers in allowed.items():
        wrong_end |= (marks.id == token) & (walk.channel >= 0) & ~np.isin(walk.channel, numbers)
    # A header that the output's end cuts off may lack what would have followed.
    last_of_row = np.diff(marks.row, append=marks.rows) != 0
    cut = last_of_row & batch.cut_off[marks.row]
    faults = misplaced | ((unnamed | stranger) & ~cut) | wrong_end
    index = marks.where(faults).first()
    final = np.isin(marks.id, [token for token in messages.ends if token in batch.context.all_stop_ids])
    open_at = marks.where(last_of_row & ~final & batch.ended[marks.row]).last()
    without = judged & batch.ended & (marks.count() == 0)

    def fault(row: int) -> str:
        [mark] = np.flatnonzero((marks.row == row) & (marks.index == index[row])).tolist()
        said = f"{label(int(marks.id[mark]))} at index {marks.index[mark]}"
        if misplaced[mark]:
            place = "the output's beginning" if walk.before[mark] == _START else label(int(marks.id[mark - 1]))
            return f"{said} cannot stand there, after {place}{' and other ids' if walk.ids_between[mark] else ''}"
        if wrong_end[mark]:
            fitting = " or ".join(sorted(messages.ends[int(marks.id[mark])]))
            return f"{said} ends a message of the channel {names[walk.channel[mark]]!r}, not of {fitting}"
        if unnamed[mark]:
            return f"{said} names none of the channels {', '.join(names)}"
        return f"{said} begins a message of another role than the target's"

    def left_open(row: int) -> str:
        at = int(open_at[row])
        return f"{label(int(batch.output.row(row)[at]))} at index {at} is left open though the output was not cut off"

    def no_message(row: int) -> str:  # noqa: ARG001 - the form of a detail
        return "there is no message, though the output was not cut off"

    found = (
        find(index >= 0, fault, index),
        find((index < 0) & (open_at >= 0), left_open, open_at),
        find(without, no_message),
    )
    return RowJudgement(judged, found)


def _begins_in_header(batch: Batch) -> Mask:
    """Rows whose output goes on where the prompt's suffix ends; an unknown prompt is taken to end with it."""
    rows = ~batch.present("prompt_ids")
    for suffix in batch.context.profile.suffixes.values():
        rows |= batch.prompt.ends_with(suffix)
    return rows & (batch.output.lengths > 0)


def _walk(batch: Batch, messages: MessageIds, judged: Mask) -> _Walk:
    marks = batch.output_marks.of(messages.all)
    marks = marks.where(judged[marks.row])
    # What comes after an id at which the output ends is told by the law about that.
    stops = batch.output_marks.of(batch.context.all_stop_ids).first()
    marks = marks.where((stops[marks.row] < 0) | (marks.index <= stops[marks.row]))
    state = np.full(len(marks), _END, np.int64)
    for number, token in ((_BEGIN, messages.begin), (_CHANNEL, messages.channel), (_BODY, messages.body)):
        state[marks.id == token] = number
    if messages.format is not None:
        state[marks.id == messages.format] = _FORMAT
    first_of_row = np.diff(marks.row, prepend=-1) != 0
    before = np.where(first_of_row, _START, np.roll(state, 1))
    next_index = np.where(first_of_row, 0, np.roll(marks.index, 1) + 1)
    named = np.full(len(marks), -1, np.int64)
    for number, name in enumerate(messages.channels.values()):
        named[_followed_by(batch.output, marks, name)] = number
    # The channel of a mark is that of the last channel id at or before it in the row.
    latest = np.maximum.accumulate(np.where((state == _CHANNEL) | first_of_row, np.arange(len(marks)), 0))
    channel = np.where(state[latest] == _CHANNEL, named[latest], -1) if len(marks) else named
    return _Walk(marks, state, before, marks.index > next_index, channel)


def _followed_by(column: TokenColumn, marks: Marks, ids: tuple[int, ...]) -> Mask:
    """Whether these ids stand right after each mark."""
    same = np.ones(len(marks), np.bool_)
    for step, wanted in enumerate(ids, start=1):
        place = marks.index + step
        inside = place < column.lengths[marks.row]
        position = np.where(inside, column.offsets[marks.row] + place, 0)
        same &= inside & (column.values[position] == wanted if len(column.values) else False)
    return same


def _needs_messages(context: Context) -> str | None:
    if context.profile.messages is None:
        return f"the profile {context.profile.name!r} describes no messages within outputs"
    return None


MESSAGE_GRAMMAR = RowLaw(
    name="message_grammar",
    definition="An output is made of whole messages, each with a channel before its body and an end that belongs to its"
    " channel; open only where the output was cut off.",
    asset="raw_generations",
    effect="warn",
    meaning="Either the target writes broken messages, which a drafter must learn as they are, or software took some of"
    " them or of their markup away.",
    remedy="Look at the samples; if channels or markup are missing in many, generate through the raw endpoint without a"
    " parser of messages.",
    judge=judge_message_grammar,
    columns=("output_ids",),
    nothing="no output goes on where a prompt of the profile ends",
    unless=_needs_messages,
    explained_by_echo=True,
)
