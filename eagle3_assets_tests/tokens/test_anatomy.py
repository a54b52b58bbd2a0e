from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.tokens.anatomy import ANATOMY, anatomy
from eagle3_assets.tokens.facts import output_facts
from eagle3_assets.tokens.profile import TargetProfile, ToolIds
from eagle3_assets_tests.tokens import kimi

START, END, OPEN, CLOSE, STOP, CALL = 1, 2, 3, 4, 5, 6
MARKUP = TargetProfile(
    "test",
    100,
    frozenset({STOP}),
    suffixes={"thinking": (9, START)},
    reasoning_start=START,
    reasoning_end=END,
    tools=ToolIds(OPEN, CALL, None, 7, CLOSE),
    tokens={i: str(i) for i in (START, END, OPEN, CLOSE, STOP, CALL, 7)},
)


def parts(prompts: list[list[int]], outputs: list[list[int]], profile: TargetProfile = MARKUP) -> pl.DataFrame:
    ids = pl.List(pl.Int32)
    return anatomy(
        pl.DataFrame({"prompt_ids": pl.Series(prompts, dtype=ids), "output_ids": pl.Series(outputs, dtype=ids)}),
        profile,
    )


def naive(prompt: list[int], output: list[int]) -> list[str]:
    """The kind of each id, found one id at a time."""
    reasoning = prompt[-1:] == [START] or output[:1] == [START]
    closes = END in output
    last_is_stop = output[-1:] == [STOP]
    kinds, tools = [], False
    for i, token in enumerate(output):
        if last_is_stop and i == len(output) - 1:
            kinds.append("stop")
            continue
        if reasoning and not closes and token == OPEN:
            reasoning = False
        if reasoning:
            kinds.append("reasoning")
            reasoning = token != END
        elif tools or token == OPEN:
            kinds.append("tools")
            tools = token != CLOSE
        else:
            kinds.append("answer")
    return kinds


ROWS = st.lists(
    st.tuples(
        st.sampled_from([[8], [9, START], []]),
        st.lists(st.sampled_from([START, END, OPEN, CLOSE, CALL, STOP, 8]), max_size=9),
    ),
    max_size=6,
)


@given(ROWS)
def test_spans_tile_the_output_as_reading_it_does(rows: list[tuple[list[int], list[int]]]) -> None:
    found = parts([p for p, _ in rows], [o for _, o in rows])
    assert found.schema == ANATOMY
    for (prompt, output), row in zip(rows, found.iter_rows(named=True), strict=True):
        kinds = naive(prompt, output)
        flat = [span["kind"] for span in row["spans"] for _ in range(span["start"], span["end"])]
        assert flat == kinds
        edges = [edge for span in row["spans"] for edge in (span["start"], span["end"])]
        assert edges == sorted(edges)
        assert all(span["end"] > span["start"] for span in row["spans"])
        assert row["reasoning_end"] == (output.index(END) if END in output else -1)
        assert row["tool_tokens"] == kinds.count("tools")
        assert row["tool_calls"] == sum(kind == "tools" and i == CALL for kind, i in zip(kinds, output, strict=True))
        assert row["answer_tokens"] == kinds.count("answer")


@pytest.mark.parametrize(
    ("prompt", "output", "tokens"),
    [
        ([9, START], [8, 8, END, 8, STOP], 2),
        ([9, START], [END, 8, STOP], 0),
        ([9, START], [8, 8, 8], 3),
        ([9, START], [8, 8, OPEN, CLOSE, STOP], 2),
        ([9, START], [8, STOP], 1),
        ([8], [START, 8, 8, END, 8, STOP], 2),
        ([8], [8, STOP], 0),
        ([8], [8, END, STOP], 0),
        ([9, START], [], 0),
    ],
)
def test_reasoning_is_counted_between_its_markers(prompt: list[int], output: list[int], tokens: int) -> None:
    assert parts([prompt], [output])["reasoning_tokens"].to_list() == [tokens]


def test_where_no_prompt_was_recorded_the_end_of_reasoning_tells_that_it_began() -> None:
    ids = pl.List(pl.Int32)
    outputs = pl.Series([[8, END, 8], [8, 8], [OPEN, 8, CLOSE]], dtype=ids)
    found = anatomy(pl.DataFrame({"prompt_ids": pl.Series([None] * 3, dtype=ids), "output_ids": outputs}), MARKUP)
    assert found["reasoning_opened"].to_list() == [True, False, False]
    assert found["reasoning_tokens"].to_list() == [1, 0, 0]


def test_what_is_said_to_call_tools_has_calls_and_the_other_way_round() -> None:
    outputs = [[CALL, END, 8], [OPEN, CALL, CALL, CLOSE, CALL], [END, OPEN, CLOSE], [8]]
    rows = pl.DataFrame(
        {
            "sample_id": [str(i) for i in range(4)],
            "prompt_ids": [[9, START]] * 4,
            "output_ids": outputs,
            "finish_type": ["stop"] * 4,
        }
    )
    found = output_facts([rows], MARKUP)
    assert found["tool_calls"].to_list() == [0, 2, 0, 0]
    assert found["tool_call"].to_list() == [False, True, False, False]


def test_genuine_samples(profile: TargetProfile) -> None:
    frame = kimi.generations()
    found: Any = dict(zip(frame["sample_id"], anatomy(frame, profile).iter_rows(named=True), strict=True))
    kinds = {name: [span["kind"] for span in row["spans"]] for name, row in found.items()}
    assert kinds["parallel-calls"] == ["reasoning", "answer", "tools", "stop"]
    assert kinds["implicit-end"] == ["reasoning", "tools", "stop"]
    assert kinds["cut-in-reasoning"] == ["reasoning"]
    assert kinds["cut-in-arguments"] == ["reasoning", "tools"]
    assert kinds["thinking-off"] == ["answer", "stop"]
    assert kinds["tools-then-text"] == ["tools", "answer", "stop"]


def test_what_the_profile_does_not_describe_is_answer() -> None:
    plain = TargetProfile("plain", 100, frozenset())
    row = parts([[9, START]], [[8, END, OPEN, CLOSE]], plain).row(0, named=True)
    assert row["spans"] == [{"kind": "answer", "start": 0, "end": 4}]
    assert (row["reasoning_end"], row["answer_tokens"]) == (-1, 4)


def test_no_rows() -> None:
    assert parts([], []).schema == ANATOMY
