"""The pairwise grammar against a regular expression over each row's skeleton."""

import re
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.laws.tools import judge_tool_grammar
from eagle3_assets.tokens.profile import TargetProfile, ToolIds

LETTERS = {1: "S", 2: "C", 3: "A", 4: "E", 5: "Z", 6: "!", 7: "."}
SECTIONS = ToolIds(section_begin=1, call_begin=2, argument_begin=3, call_end=4, section_end=5)
CALLS = ToolIds(section_begin=None, call_begin=2, argument_begin=None, call_end=4, section_end=None)
OUTSIDE = r"[!.]*"
WHOLE = {
    "sections": rf"{OUTSIDE}(S(C\.+A\.+E)+Z{OUTSIDE})*",
    "calls": rf"{OUTSIDE}(C\.+E{OUTSIDE})*",
}
OPEN = {
    "sections": r"S(C\.+A\.+E)*(C\.*|C\.+A\.*)?",
    "calls": r"C\.*",
}
"""What may stand at the end of an output that was cut off."""


def profile(kind: str) -> TargetProfile:
    tools = SECTIONS if kind == "sections" else CALLS
    tokens = {i: LETTERS[i] for i in (*tools.all, 6)}
    return TargetProfile("test", 100, frozenset({6}), tools=tools, tokens=tokens)


def skeleton(ids: list[int], kind: str) -> str:
    known = {1: ".", 3: ".", 5: "."} if kind == "calls" else {}
    return "".join(known.get(i, LETTERS[i]) for i in ids)


def offences(rows: list[tuple[list[int], bool]], kind: str) -> list[int | None]:
    """Index of the offence in each row, None where there is none."""
    frame = pl.DataFrame(
        {
            "sample_id": [str(n) for n in range(len(rows))],
            "output_ids": pl.Series([ids for ids, _ in rows], dtype=pl.List(pl.Int32)),
            "finish_type": ["length" if cut else "stop" for _, cut in rows],
        }
    )
    found: dict[int, int] = {}
    for part in judge_tool_grammar(Batch(frame, Context(profile(kind)))).found:
        assert not set(part.rows.tolist()) & set(found), "a row is found once"
        found |= dict(zip(part.rows.tolist(), part.index.tolist(), strict=True))
    return [found.get(n) for n in range(len(rows))]


CALL = st.sampled_from([[2, 7, 3, 7, 4], [2, 7, 7, 3, 7, 7, 4], [2, 7, 4]])
PIECES = st.one_of(
    st.sampled_from([[i] for i in LETTERS]),
    CALL,
    st.lists(CALL, min_size=1, max_size=2).map(lambda calls: [1, *(i for c in calls for i in c), 5]),
)
ROWS = st.lists(
    st.tuples(st.lists(PIECES, max_size=4).map(lambda parts: [i for part in parts for i in part]), st.booleans()),
    max_size=6,
)


@pytest.mark.parametrize("kind", ["sections", "calls"])
@given(rows=ROWS)
def test_agrees_with_a_regular_expression(kind: str, rows: list[tuple[list[int], bool]]) -> None:
    for (ids, cut), offence in zip(rows, offences(rows, kind), strict=True):
        text = skeleton(ids, kind)
        fine = re.fullmatch(WHOLE[kind], text) or (cut and re.fullmatch(f"{WHOLE[kind]}({OPEN[kind]})", text))
        assert (offence is None) == bool(fine), text
        if offence is not None:
            # What stands before the first offence could still become well formed.
            assert re.fullmatch(f"{WHOLE[kind]}({OPEN[kind]})?", text[:offence]), text


@pytest.mark.parametrize(
    ("ids", "cut", "offence"),
    [
        ([1, 2, 7, 3, 7, 4, 5, 6], False, None),
        ([1, 2, 7, 3, 7, 4, 7], True, 6),
        ([1, 7, 7], True, 1),
        ([1, 7, 1], False, 1),
        ([1, 2, 7, 3, 7], True, None),
        ([1, 2, 7, 3, 7], False, 3),
        ([1], True, None),
        ([7, 7, 6], False, None),
        ([], False, None),
    ],
)
def test_where_the_offence_is(ids: list[int], cut: bool, offence: int | None) -> None:
    assert offences([(ids, cut)], "sections") == [offence]


def test_rows_do_not_see_each_other() -> None:
    rows: list[Any] = [([1, 2, 7, 3, 7, 4], False), ([5, 6], False), ([7], False), ([1, 2, 7, 3, 7, 4, 5], False)]
    assert offences(rows, "sections") == [5, 0, None, None]
