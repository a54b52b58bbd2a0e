"""The same rows as JSON lines and as Parquet: whatever columns a tool leaves out, both are judged alike."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from eagle3_assets_tests.audit.conftest import Audit, errors, write
from eagle3_assets_tests.tokens import kimi

A, B, C = kimi.letters("abc")
STOP, BEGIN, END, T = kimi.IM_END, kimi.THINK, kimi.END_THINK, kimi.THINKING_PROMPT
GOOD = [BEGIN, A, END, B, STOP]

Row = dict[str, Any]

BARE: list[Row] = [
    {"sample_id": "twice", "output_ids": [BEGIN, A, END, B, END, C, STOP]},
    {"sample_id": "reopened", "output_ids": [BEGIN, A, BEGIN, B, END, C, STOP]},
    {"sample_id": "empty", "output_ids": []},
    {"sample_id": "good", "output_ids": GOOD},
]
RETURNED: list[Row] = [
    {"sample_id": "other", "prompt_ids": T, "server_prompt_ids": [*T[:-1], A], "output_ids": [A, END, B, STOP]},
    {"sample_id": "same", "prompt_ids": T, "server_prompt_ids": T, "output_ids": [A, END, C, STOP]},
]
HASHED: list[Row] = [
    {"sample_id": "no-prompt", "prompt_ids": None, "output_ids": GOOD, "ids_sha256": "ab"},
    {"sample_id": "no-hash", "prompt_ids": T, "output_ids": [A, END, C, STOP], "ids_sha256": None},
]


@pytest.mark.parametrize(
    ("rows", "broken"),
    [
        (BARE, {"twice": "reasoning_closed", "reopened": "reasoning_not_reopened", "empty": "completion_count"}),
        (RETURNED, {"other": "server_saw_prompt"}),
        (HASHED, {}),
    ],
)
def test_absent_columns_are_nulls_in_both(
    rows: list[Row], broken: dict[str, str], tmp_path: Path, audit: Audit
) -> None:
    pl.DataFrame(rows).write_parquet(tmp_path / "o.parquet")
    [lines, parquet] = audit(write(tmp_path / "o.jsonl", *rows), tmp_path / "o.parquet").files
    assert {row["sample_id"]: errors(parquet, row["sample_id"]) for row in rows} == {
        row["sample_id"]: {broken[row["sample_id"]]} if row["sample_id"] in broken else set() for row in rows
    }
    assert lines | {"file": ""} == parquet | {"file": ""}


@pytest.mark.parametrize("status", ["success", "completed", None])
def test_a_state_in_other_words_says_nothing(status: str | None, tmp_path: Path, audit: Audit) -> None:
    rows = [
        {"sample_id": s, "output_ids": [BEGIN, A, END, s_id, STOP], "status": status}
        for s, s_id in (("b", B), ("c", C))
    ]
    pl.DataFrame(rows).write_parquet(tmp_path / "o.parquet")
    for result in audit(write(tmp_path / "o.jsonl", *rows), tmp_path / "o.parquet").files:
        assert (result["verdict"], result["samples"]["passed"]) == ("pass", 2)
        assert "without_output" not in result


def test_an_output_is_judged_whatever_state_is_beside_it(tmp_path: Path, audit: Audit) -> None:
    rows = [
        {"sample_id": "good", "output_ids": GOOD, "status": "generated"},
        {"sample_id": "bad", "output_ids": [BEGIN, A, END, STOP, C], "status": "failed"},
    ]
    pl.DataFrame(rows).write_parquet(tmp_path / "o.parquet")
    for result in audit(write(tmp_path / "o.jsonl", *rows), tmp_path / "o.parquet").files:
        assert (result["verdict"], result["samples"]["judged"]) == ("fail", 2)
        assert errors(result, "bad") == {"nothing_after_stop", "usage_consistent"}
        [detail] = [law["examples"][0]["detail"] for law in result["laws"] if law["name"] == "usage_consistent"]
        assert detail == "the row contradicts itself: status failed, and an output"
        assert "without_output" not in result


def test_a_row_is_named_by_the_first_name_that_it_has(tmp_path: Path, audit: Audit) -> None:
    rows: list[Row] = [
        {"sample_id": None, "id": 7, "output_ids": [BEGIN, A, END, STOP]},
        {"sample_id": "x", "id": 8, "output_ids": [BEGIN, A, END, STOP, B]},
    ]
    pl.DataFrame(rows).write_parquet(tmp_path / "o.parquet")
    for result in audit(write(tmp_path / "o.jsonl", *rows), tmp_path / "o.parquet").files:
        assert (result["refused"], list(result["findings"])) == ([], ["x"])
