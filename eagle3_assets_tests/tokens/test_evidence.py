from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from eagle3_assets.contract import SAMPLE_FINDINGS
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.evidence import collect_evidence, evidence_markdown
from eagle3_assets_tests.tokens import kimi


def finding(sample: str | None, law: str, index: int | None, detail: str = "said") -> dict[str, Any]:
    return {"sample_id": sample, "law": law, "severity": "error", "index": index, "detail": detail}


def findings(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SAMPLE_FINDINGS)


FRAME = kimi.generations()
ANSWER = kimi.genuine()["answer"]["output_ids"]


def test_window_around_an_output_id(context: Context) -> None:
    (item,) = collect_evidence(findings(finding("answer", "reasoning_closed", 2)), [FRAME], context, around=2)
    assert (item.before, item.offender, item.after) == (tuple(ANSWER[:2]), kimi.END_THINK, tuple(ANSWER[3:5]))
    assert item.boundary is None
    assert item.ids_line == "1064 1065 [163607] 1066 1067"
    assert item.text == "ab ⟦</think>⟧ cd"


def test_window_at_the_start_shows_the_end_of_the_prompt(context: Context) -> None:
    (item,) = collect_evidence(findings(finding("answer", "no_prompt_echo", 0)), [FRAME], context, around=2)
    assert item.before == (kimi.IM_MIDDLE, kimi.THINK)
    assert item.offender == ANSWER[0]
    assert item.ids_line == "163601 163606 ¦ [1064] 1065 163607"
    assert item.text.startswith("<|im_middle|><think>")


def test_window_at_the_end(context: Context) -> None:
    (item,) = collect_evidence(findings(finding("answer", "stop_token_last", 5)), [FRAME], context, around=3)
    assert (item.offender, item.after) == (kimi.IM_END, ())


def test_finding_without_an_index_shows_the_end(context: Context) -> None:
    (item,) = collect_evidence(findings(finding("answer", "completion_count", None)), [FRAME], context, around=3)
    assert (item.before, item.offender, item.after) == (tuple(ANSWER[-3:]), None, ())


def test_what_stands_for_an_id_that_is_none_is_not_shown_as_a_number(context: Context) -> None:
    rows = FRAME.with_columns(output_ids=pl.lit([1000, None, 2**63 - 1], pl.List(pl.Int64)))
    (item,) = collect_evidence(findings(finding("answer", "ids_in_vocabulary", 1)), [rows], context, around=1)
    assert item.ids_line == "1000 [null] (over 63 bits)"
    assert "null" in item.text and "-2147483648" not in item.text


def test_law_about_prompts_shows_the_prompt(context: Context) -> None:
    (item,) = collect_evidence(findings(finding("answer", "prompt_suffix", 8)), [FRAME], context, around=1)
    assert (item.before, item.offender, item.after) == ((kimi.IM_MIDDLE,), kimi.THINK, ())
    assert "¦" not in item.ids_line


def test_samples_that_are_nowhere_and_findings_without_sample(context: Context) -> None:
    found = findings(finding("nobody", "conservation", None), finding(None, "conservation", 3))
    items = collect_evidence(found, [FRAME], context)
    assert [(i.sample_id, i.ids_line, i.text) for i in items] == [("nobody", "", ""), ("", "", "")]


def test_limit_and_one_for_each_sample(context: Context) -> None:
    found = findings(
        finding("answer", "reasoning_closed", 2),
        finding("answer", "reasoning_closed", 3),
        finding("emoji", "reasoning_closed", 4),
        finding("thinking-off", "reasoning_closed", 0),
    )
    items = collect_evidence(found, FRAME.iter_slices(1), context, limit=2)
    assert [(i.sample_id, i.index) for i in items] == [("answer", 2), ("emoji", 4)]


def test_without_a_tokenizer_there_are_ids_alone(context: Context) -> None:
    bare = replace(context, tokenizer=None)
    (item,) = collect_evidence(findings(finding("answer", "reasoning_closed", 2)), [FRAME], bare)
    assert item.text == ""
    assert "[163607]" in item.ids_line


@pytest.mark.parametrize("unknown", [999_999, 160_000, -1])
def test_ids_without_a_text_are_shown_as_everywhere_else(unknown: int, context: Context) -> None:
    rows = kimi.genuine()
    rows["answer"]["output_ids"][1] = unknown
    found = findings(finding("answer", "ids_in_vocabulary", 1))
    (item,) = collect_evidence(found, [kimi.generations(rows)], context, around=1)
    assert item.text == f"a ⟦<id {unknown}>⟧ </think>"


def test_markdown_is_inert(context: Context) -> None:
    found = findings(finding("answer", "reasoning_closed", 2, "a | b `c` <img src=x> \u202e"))
    text = evidence_markdown(collect_evidence(found, [FRAME], context))
    row = text.splitlines()[2]
    assert "``a \\| b `c` <img src=x> <U+202E>``" in row
    assert row.replace("\\|", "").count("|") == 7
