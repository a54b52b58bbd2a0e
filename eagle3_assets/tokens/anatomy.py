"""The sections of outputs: where reasoning ends, what is answer, what is tool-call markup.

What belongs here: reading ids into sections, columnar. Not here: whether the sections are right (laws say), decoding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import polars as pl

from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.columns import Ints, Marks, Mask
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.profile import TargetProfile, ToolIds

SectionKind = Literal["reasoning", "tools", "answer", "stop"]
KINDS: tuple[SectionKind, ...] = get_args(SectionKind)
"""Kinds of spans. Each output is tiled by them: no gap, no overlap."""

_REASONING, _TOOLS, _ANSWER, _STOP = range(len(KINDS))

_SPANS = pl.List(pl.Struct({"kind": pl.String, "start": pl.Int32, "end": pl.Int32}))

ANATOMY = pl.Schema(
    [
        ("reasoning_opened", pl.Boolean),
        ("reasoning_end", pl.Int32),
        ("reasoning_tokens", pl.Int32),
        ("answer_tokens", pl.Int32),
        ("tool_tokens", pl.Int32),
        ("tool_calls", pl.Int32),
        ("spans", _SPANS),
    ]
)


@dataclass(frozen=True, slots=True)
class Section:
    """A span of one output."""

    kind: SectionKind
    start: int
    """Its first index."""
    end: int
    """The index after its last."""


def anatomy(frame: pl.DataFrame, profile: TargetProfile) -> pl.DataFrame:
    """Takes outputs apart.

    Args:
        frame: rows with ``output_ids`` and, to know whether an output begins in reasoning, ``prompt_ids``. Where they
            are null, an end-of-reasoning id tells that it does.
        profile: what it does not describe is answer.

    Returns:
        :data:`ANATOMY`, a row for each row: ``reasoning_opened`` is whether the output begins in reasoning, opened by
        the prompt or by its first id; ``reasoning_end`` is the index of the end-of-reasoning id, -1 where absent;
        ``reasoning_tokens`` counts the ids between the markers of reasoning, ``tool_tokens`` those of tool sections
        with their markup, ``tool_calls`` the calls that begin in these sections, ``answer_tokens`` all other ids but
        the final stop id; ``spans`` are in order, from each first index to the index after the last.

    Raises:
        TypeError: a column of ids is no list of integers.
    """
    batch = Batch(frame, Context(profile))
    lengths = batch.output.lengths
    end_id = profile.reasoning_end
    ends = batch.output_marks.of(() if end_id is None else (end_id,)).first()
    tools = _openings(batch.output_marks, profile.tools)
    opened = batch.opened_reasoning | (batch.prompt.null_rows & (ends >= 0))
    reasoning_stop = _reasoning_stop(batch, opened, ends, tools)
    stop_start = np.where(np.isin(batch.output.last, list(profile.stop_ids)), lengths - 1, lengths)
    sections = _tool_sections(batch.output_marks, profile.tools, reasoning_stop, stop_start)
    spans = _tiled(reasoning_stop, stop_start, sections, lengths)
    per_kind = np.zeros((len(KINDS), len(batch)), np.int64)
    np.add.at(per_kind, (spans[1], spans[0]), spans[3] - spans[2])
    opened_here = (batch.output.first == profile.reasoning_start) & (reasoning_stop > 0)
    closed_here = (ends >= 0) & (ends < reasoning_stop)
    markers = opened_here.astype(np.int64) + closed_here
    return pl.DataFrame(
        {
            "reasoning_opened": opened,
            "reasoning_end": ends,
            "reasoning_tokens": per_kind[_REASONING] - markers,
            "answer_tokens": per_kind[_ANSWER],
            "tool_tokens": per_kind[_TOOLS],
            "tool_calls": _calls(batch.output_marks, profile.tools, sections),
            "spans": _span_lists(spans, len(batch)),
        }
    ).cast(dict(ANATOMY))  # type: ignore[arg-type] # the stubs know no mapping of names to dtype objects


def sections(output_ids: Sequence[int], prompt_ids: Sequence[int] | None, profile: TargetProfile) -> list[Section]:
    """The spans of one output, in order; see :func:`anatomy`.

    Args:
        output_ids: of the output.
        prompt_ids: of its prompt, None where they were not recorded.
        profile: what it does not describe is answer.
    """
    ids = pl.List(pl.Int64)
    frame = pl.DataFrame(
        {"output_ids": pl.Series([output_ids], dtype=ids), "prompt_ids": pl.Series([prompt_ids], dtype=ids)}
    )
    return [Section(**span) for span in anatomy(frame, profile)["spans"][0].to_list()]


def _reasoning_stop(batch: Batch, opened: Mask, ends: Ints, tools: Ints) -> Ints:
    """Index after each output's reasoning; 0 where it does not begin in reasoning."""
    stop = np.where(ends >= 0, ends + 1, np.where(tools >= 0, tools, batch.output.lengths))
    final_stop = np.isin(batch.output.last, list(batch.context.profile.stop_ids)) & (ends < 0) & (tools < 0)
    return np.where(opened, stop - final_stop, 0)


def _openings(marks: Marks, tools: ToolIds | None) -> Ints:
    return marks.of(() if tools is None else (tools.opening,)).first()


def _tool_sections(
    marks: Marks, tools: ToolIds | None, reasoning_stop: Ints, stop_start: Ints
) -> tuple[Ints, Ints, Ints]:
    """Row, first index and index after the last of each tool section; one left open reaches to the final stop id."""
    if tools is None:
        return (np.empty(0, np.int64),) * 3
    edges = marks.of((tools.opening, tools.closing))
    edges = edges.where(edges.index >= reasoning_stop[edges.row])
    opens = edges.id == tools.opening
    # Of several openings in a row the first counts, and so of several ends: what is left alternates.
    new_row = np.diff(edges.row, prepend=-1) != 0
    changes: Mask = np.where(new_row, opens, opens != np.roll(opens, 1))
    edges, opens = edges.where(changes), opens[changes]
    closed_by_next = np.append(~opens[1:] & (np.diff(edges.row) == 0), np.zeros(min(len(opens), 1), np.bool_))
    end = np.where(closed_by_next, np.roll(edges.index, -1) + 1, stop_start[edges.row])
    return edges.row[opens], edges.index[opens], end[opens]


def _calls(marks: Marks, tools: ToolIds | None, sections: tuple[Ints, Ints, Ints]) -> Ints:
    """How many calls begin in the tool sections of each row."""
    begins = marks.of(() if tools is None else (tools.call_begin,))
    row, start, end = sections
    place, first, after = (r << 32 | i for r, i in ((begins.row, begins.index), (row, start), (row, end)))
    calls = np.zeros(marks.rows, np.int64)
    np.add.at(calls, row, np.searchsorted(place, after) - np.searchsorted(place, first))
    return calls


def _tiled(
    reasoning_stop: Ints, stop_start: Ints, sections: tuple[Ints, Ints, Ints], lengths: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """Row, kind, start and end of all spans, ordered by row and start; what no other kind covers is answer."""
    rows = np.arange(len(lengths))
    section_row, section_start, section_end = sections
    row = np.concatenate([rows, section_row, rows])
    start = np.concatenate([np.zeros_like(lengths), section_start, stop_start])
    end = np.concatenate([reasoning_stop, section_end, lengths])
    kind = np.repeat([_REASONING, _TOOLS, _STOP], [len(rows), len(section_row), len(rows)])
    order = np.lexsort((kind == _STOP, start, row))
    row, start, end, kind = row[order], start[order], end[order], kind[order]
    # Each row's stop span is its last, empty or not, so every gap lies before a span of its own row.
    gap_start = np.where(np.diff(row, prepend=-1) != 0, 0, np.roll(end, 1))
    row, kind = np.repeat(row, 2), np.stack([np.full_like(kind, _ANSWER), kind], axis=1).ravel()
    begin, finish = np.stack([gap_start, start], axis=1).ravel(), np.stack([start, end], axis=1).ravel()
    real = finish > begin
    return row[real], kind[real], begin[real], finish[real]


def _span_lists(spans: tuple[Ints, Ints, Ints, Ints], rows: int) -> pl.Series:
    row, kind, start, end = spans
    names = pl.Series("kind", [*KINDS])
    grouped = (
        pl.DataFrame({"row": row, "kind": names.gather(kind.astype(np.uint32)), "start": start, "end": end})
        .group_by("row", maintain_order=True)
        .agg(pl.struct("kind", "start", "end").alias("spans"))
    )
    every = pl.DataFrame({"row": np.arange(rows)})
    joined = every.join(grouped, on="row", how="left", maintain_order="left")
    return joined["spans"].cast(_SPANS).fill_null(pl.Series([[]], dtype=_SPANS))
