"""A batch of rows as laws see it: id columns, and facts that several laws share, each computed once.

What belongs here: facts of single rows. Not here: what is right or wrong about them, facts of a whole partition.
"""

from collections.abc import Mapping
from functools import cached_property

import numpy as np
import polars as pl

from eagle3_assets.tokens.columns import NO_ID, Ids, Ints, Marks, Mask, TokenColumn, filled, nulls, where
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.profile_spec import Habit
from eagle3_assets.tokens.sampling_record import read_samplings
from eagle3_assets.tokens.tool_calls import Call, whole_calls
from eagle3_assets.tokens.tool_names import read_tool_names

STOPPED = ("stop", "tool_calls", "function_call")
"""Finish types which mean that the target ended its output: SGLang's, and OpenAI's other words for it, new and old."""
CUT_OFF = "length"
"""Finish type of an output that a cap ended."""

_UNSAID, _OPENED, _CLOSED = 0, 1, 2
_HABITS: Mapping[Habit, int] = {"opens": 3, "never": 4}
"""What a prompt's end says of reasoning: nothing, that it is opened or closed, or that the target does as it does."""

_ID_BITS = 31
"""Bits of an id beside its row's number."""

GENERATED, FAILED, REFUSED = "generated", "failed", "refused_prompt"
"""The terminal states of a prompt."""


class Batch:
    """Rows that laws judge.

    Every array fact has one element for each row. A column that the frame lacks reads as all null.

    Attributes:
        frame: the rows, columns as in the data contract; some may be missing.
        context: what the rows are judged against.
    """

    def __init__(self, frame: pl.DataFrame, context: Context) -> None:
        self.frame = frame
        self.context = context

    def __len__(self) -> int:
        return len(self.frame)

    def has(self, column: str) -> bool:
        """Whether the frame has the column."""
        return column in self.frame.columns

    def column(self, name: str, dtype: pl.DataType | type[pl.DataType]) -> pl.Series:
        """A column, or as many nulls where the frame lacks it."""
        if self.has(name):
            column = self.frame[name]
            return column.cast(dtype) if column.dtype == pl.Null else column
        return pl.Series(name, [None], dtype=dtype).new_from_index(0, len(self))

    def numbers(self, name: str) -> Ints:
        """An integer column as int64, -1 for null; such columns hold counts, which are not negative."""
        numbers = self.column(name, pl.Int64).cast(pl.Int64)
        return filled(numbers, -1)

    def present(self, name: str) -> Mask:
        """Where the column has a value."""
        return ~nulls(self.frame[name]) if self.has(name) else np.zeros(len(self), np.bool_)

    @cached_property
    def generated(self) -> Mask:
        """Which rows hold an output; without a column ``status`` all of them."""
        if not self.has("status"):
            return np.ones(len(self), np.bool_)
        return where(self.column("status", pl.String).cast(pl.String) == GENERATED)

    @cached_property
    def sample_ids(self) -> list[str]:
        """The rows' names; a null one reads as empty."""
        names = self.frame["sample_id"]
        return (names.fill_null("") if names.null_count() else names).to_list()

    @cached_property
    def prompt(self) -> TokenColumn:
        """Prompt ids as sent."""
        return TokenColumn.from_series(self.column("prompt_ids", pl.Null))

    @cached_property
    def output(self) -> TokenColumn:
        """Output ids."""
        return TokenColumn.from_series(self.column("output_ids", pl.Null))

    @cached_property
    def prompt_hashes(self) -> list[int]:
        """A hash of each row's prompt ids."""
        return self.prompt.hashes()

    @cached_property
    def output_hashes(self) -> list[int]:
        """A hash of each row's output ids."""
        return self.output.hashes()

    @cached_property
    def prompt_special(self) -> Marks:
        """Every structural or reserved id in the prompts."""
        return self.prompt.marks(self._special_ids)

    @cached_property
    def output_special(self) -> Marks:
        """Every structural or reserved id in the outputs."""
        return self.output.marks(self._special_ids)

    @cached_property
    def prompt_no_token(self) -> Marks:
        """Every id in the prompts that no token has: none at all, or one past the tokenizer's last."""
        return self.prompt.outside(0, self.context.profile.end_of_tokens)

    @cached_property
    def output_no_token(self) -> Marks:
        """Every id in the outputs that no token has."""
        return self.output.outside(0, self.context.profile.end_of_tokens)

    @cached_property
    def output_marks(self) -> Marks:
        """Every structural id in the outputs: few, so laws about them are cheap."""
        special, reserved = self.output_special, self.context.profile.reserved_ids - self.context.all_stop_ids
        return special.where(~np.isin(special.id, list(reserved))) if reserved else special

    @cached_property
    def tool_calls(self) -> list[Call]:
        """The whole tool calls in the outputs, decoded; for a context that has a tokenizer and tool markup."""
        tokenizer = self.context.tokenizer
        assert tokenizer is not None  # noqa: S101 - the condition of the laws that ask
        return whole_calls(self.output, self.output_marks, self.context.profile, tokenizer)

    @cached_property
    def declared_tools(self) -> list[tuple[str, ...] | None]:
        """Names of the tools that each row's prompt declares, None where that is not known.

        The context's word where it has one, else the row's own column ``tools``.
        """
        known = self.context.declared_tools
        if known is not None:
            return [known.get(sample) for sample in self.sample_ids]
        return [None if names is None else tuple(names) for names in self._recorded_tools["names"].to_list()]

    @cached_property
    def tool_faults(self) -> list[str | None]:
        """Why what a row says of its tools names none; None where it does, or where it says nothing."""
        if self.context.declared_tools is not None:
            return [None] * len(self)
        return self._recorded_tools["fault"].to_list()

    @cached_property
    def output_texts(self) -> list[str | None]:
        """The outputs decoded, structural tokens in them; see :meth:`Codec.texts`. All None without a tokenizer."""
        codec = self.context.codec
        return codec.texts(self.output) if codec is not None else [None] * len(self)

    @cached_property
    def stopped(self) -> Mask:
        """Where the engine says that the target ended its output."""
        return self._finished(*STOPPED)

    @cached_property
    def cut_off(self) -> Mask:
        """Where the engine says that a cap ended the output."""
        return self._finished(CUT_OFF)

    @cached_property
    def ended(self) -> Mask:
        """Where the output is whole: the engine says so, or, where it says nothing, the last id is a stop id."""
        return self.stopped | (~self.present("finish_type") & self.at_stop)

    @cached_property
    def samplings(self) -> pl.DataFrame:
        """Facts of each row's recorded sampling; see :func:`read_samplings`."""
        return read_samplings(self.column("sampling", pl.String))

    @cached_property
    def at_stop(self) -> Mask:
        """Where the output's last id is a stop id, of the target's or of the row's own."""
        last = self.output.last
        return np.isin(last, list(self.context.all_stop_ids)) | self.own_stop(np.arange(len(self)), last)

    @cached_property
    def at_recorded_stop(self) -> Mask:
        """Where the output's last id is one at which the engine was to stop."""
        last = self.output.last
        of_target = np.isin(last, list(self.context.recorded_stop_ids)) & ~self.ignores_eos
        return of_target | self.own_stop(np.arange(len(self)), last)

    @cached_property
    def ignores_eos(self) -> Mask:
        """Where the request took the target's own stop ids out of the stop set."""
        if self.context.stop_token_ids is not None:
            return np.zeros(len(self), np.bool_)
        return self.samplings["ignore_eos"].fill_null(value=False).to_numpy()

    @cached_property
    def own_stop_ids(self) -> frozenset[int]:
        """Stop ids that single rows record and the target does not have."""
        return frozenset((self._own_stops & (1 << _ID_BITS) - 1).tolist()) - self.context.all_stop_ids

    def own_stop(self, rows: Ints, ids: Ids) -> Mask:
        """Whether each of ``ids`` is a stop id that the row beside it records."""
        if not len(self._own_stops):
            return np.zeros(len(ids), np.bool_)
        inside = (ids >= 0) & (ids < 1 << _ID_BITS)
        return inside & np.isin((rows << _ID_BITS) | np.where(inside, ids, 0), self._own_stops)

    def own_stops_of(self, row: int) -> frozenset[int]:
        """The stop ids that one row records."""
        own = self._own_stops[self._own_stops >> _ID_BITS == row]
        return frozenset((own & (1 << _ID_BITS) - 1).tolist())

    @cached_property
    def _own_stops(self) -> Ints:
        """Row number and id, in one number, of every stop id that a row records.

        None where the file says them, or where no row's set says more or less than the target's.
        """
        if self.context.stop_token_ids is not None:
            return np.empty(0, np.int64)
        stops = self.samplings.select("stop_token_ids").with_row_index("row").drop_nulls().explode("stop_token_ids")
        stops = stops.drop_nulls()
        if not self.ignores_eos.any() and np.isin(stops["stop_token_ids"], list(self.context.all_stop_ids)).all():
            return np.empty(0, np.int64)
        keys: Ints = (stops["row"].cast(pl.Int64).to_numpy() << _ID_BITS) | stops["stop_token_ids"].to_numpy()
        return keys

    @cached_property
    def max_new_tokens(self) -> Ints:
        """Cap of the request in tokens, -1 where it is not recorded."""
        return filled(self.samplings["max_new_tokens"], -1)

    @cached_property
    def echo(self) -> Ints:
        """How many ids of the prompt's tail stand in front of the output beyond those that were counted; 0 for none."""
        counted = self.numbers("completion_tokens")
        surplus = np.where(counted >= 0, self.output.lengths - counted, 0)
        surplus = np.where((surplus > 0) & (surplus <= self.prompt.lengths), surplus, 0)
        same = self.output.same_slice(np.zeros_like(surplus), self.prompt, self.prompt.lengths - surplus, surplus)
        return np.where(same, surplus, 0)

    @cached_property
    def prompt_opened_reasoning(self) -> Mask:
        """Where the prompt ends inside reasoning, so that the output begins in it."""
        opened: Mask = self._prompt_reasoning == _OPENED
        return opened

    @cached_property
    def prompt_closed_reasoning(self) -> Mask:
        """Where the prompt ends with reasoning opened and closed, so that the output shall have none."""
        closed: Mask = self._prompt_reasoning == _CLOSED
        return closed

    @cached_property
    def target_opens_reasoning(self) -> Mask:
        """Where the prompt leaves it to the target to open reasoning, and its profile says that it does."""
        opens: Mask = self._prompt_reasoning == _HABITS["opens"]
        return opens

    @cached_property
    def reasoning_off(self) -> Mask:
        """Where no reasoning is expected: the prompt closed it, or the profile says that the target has none."""
        never: Mask = self._prompt_reasoning == _HABITS["never"]
        return self.prompt_closed_reasoning | never

    @cached_property
    def reasoning_starts(self) -> Marks:
        """Every start-of-reasoning id in the outputs."""
        return self._marks_of(self.context.profile.reasoning_start)

    @cached_property
    def reasoning_ends(self) -> Marks:
        """Every end-of-reasoning id in the outputs."""
        return self._marks_of(self.context.profile.reasoning_end)

    @cached_property
    def opened_reasoning(self) -> Mask:
        """Where the output begins in reasoning: the prompt opened it, or the output's first id does."""
        start = self.context.profile.reasoning_start
        by_output: Mask = self.output.first == (NO_ID - 1 if start is None else start)
        return self.prompt_opened_reasoning | by_output

    @cached_property
    def _recorded_tools(self) -> pl.DataFrame:
        return read_tool_names(self.column("tools", pl.String))

    @property
    def _special_ids(self) -> frozenset[int]:
        profile = self.context.profile
        return profile.structural_ids | profile.reserved_ids | self.context.all_stop_ids

    def _marks_of(self, token_id: int | None) -> Marks:
        return self.output_marks.where(self.output_marks.id == (NO_ID if token_id is None else token_id))

    def _finished(self, *kinds: str) -> Mask:
        finish = self.column("finish_type", pl.String)
        finished: Mask = np.any([where(finish == kind) for kind in kinds], axis=0)
        return finished

    @cached_property
    def _prompt_reasoning(self) -> Ints:
        """What the prompt's end says; by the longest suffix that it ends with, else its last id."""
        profile = self.context.profile
        start, end = profile.reasoning_start, profile.reasoning_end
        state = np.full(len(self), _UNSAID, np.int64)
        if start is None or end is None:
            return state
        habits = {profile.suffixes[mode]: _HABITS[h] for mode, h in profile.reasoning_habit.items()}
        for ending in sorted({*profile.suffixes.values(), (start,), (end,)}, key=len):
            inner = [i for i in ending if i in (start, end)]
            by_target = habits.get(ending, _UNSAID)
            state[self.prompt.ends_with(ending)] = (
                by_target if not inner else _OPENED if inner[-1] == start else _CLOSED
            )
        return state
