"""Faults from real reports, as small cases on Kimi's ids."""

import json
from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from eagle3_assets.config import Sampling
from eagle3_assets.contract import RAW_GENERATIONS
from eagle3_assets.identity import canonical_json
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import judge_generations
from eagle3_assets.tokens.laws.records import LOGPROB_IDS
from eagle3_assets.tokens.profile import TargetProfile
from eagle3_assets.tokens.verdict import Report
from eagle3_assets_tests.tokens import kimi

A, B, C, D, N, X = kimi.letters("abcdnx")
Judge = Callable[[dict[str, Any]], Report]
STOP, END = kimi.IM_END, kimi.END_THINK


def sample(output: list[int], counted: int, matched: int | str = STOP, **columns: object) -> dict[str, Any]:
    return {
        "sample_id": "s",
        "status": "generated",
        "prompt_ids": kimi.THINKING_PROMPT,
        "server_prompt_tokens": len(kimi.THINKING_PROMPT),
        "output_ids": output,
        "completion_tokens": counted,
        "finish_type": "stop",
        "matched_stop": json.dumps(matched),
        "sampling": canonical_json(Sampling().model_dump(mode="json")),
        **columns,
    }


@pytest.fixture
def judge(profile: TargetProfile) -> Judge:
    def judged(row: dict[str, Any]) -> Report:
        schema = dict(RAW_GENERATIONS)
        if LOGPROB_IDS in row:
            schema[LOGPROB_IDS] = pl.List(pl.Int32)
        frame = pl.DataFrame([row], schema=schema)
        return judge_generations([frame], Context(profile))

    return judged


def errors(report: Report) -> dict[str, str]:
    found = report.findings.filter(pl.col("severity") == "error")
    return dict(found.select("law", "detail").iter_rows())


def test_1_the_engine_echoes_the_prompts_tail(judge: Judge) -> None:
    output = [163586, 163588, 69702, 163601, 163606, A, B, END, C, STOP]
    report = judge(sample(output, 5))
    found = errors(report)
    assert {"no_prompt_echo", "completion_count"} <= set(found)
    assert report["no_prompt_echo"].severity == report["completion_count"].severity == "ERROR"
    assert all("echo" in detail.split(";")[0] for detail in found.values())
    assert report.findings["law"][0] == "no_prompt_echo"
    assert report.refusals[0].startswith("no_prompt_echo")


@pytest.mark.parametrize("counted", [0, 2])
def test_1_the_engine_echoes_the_whole_prompt(counted: int, judge: Judge) -> None:
    output = [*kimi.THINKING_PROMPT, *[END, STOP][:counted]]
    assert (
        f"prompt echo of {len(kimi.THINKING_PROMPT)} ids" in errors(judge(sample(output, counted)))["completion_count"]
    )


@pytest.mark.parametrize(("counted", "count_too"), [(4, False), (5, True)])
def test_2_a_layer_strips_the_stop_id(counted: int, count_too: bool, judge: Judge) -> None:
    found = errors(judge(sample([A, B, END, C], counted)))
    assert set(found) == {"stop_token_last"} | ({"completion_count"} if count_too else set())


def test_3_ids_after_the_stop_id(judge: Judge) -> None:
    found = errors(judge(sample([A, END, B, STOP, C, D], 6)))
    assert set(found) == {"nothing_after_stop", "stop_token_last"}
    assert "at index 3" in found["nothing_after_stop"]


def test_4_bad_logits(judge: Judge) -> None:
    found = errors(judge(sample([A, END, B, STOP], 4, matched="NaN happened")))
    assert set(found) == {"stop_token_last"}
    assert found["stop_token_last"].startswith("bad logits")
    assert "stop string" not in found["stop_token_last"]


def test_5_a_parser_removed_the_end_of_reasoning(judge: Judge) -> None:
    assert set(errors(judge(sample([A, B, C, STOP], 4)))) == {"reasoning_closed"}


def test_5_tools_straight_from_reasoning_are_how_the_target_behaves(judge: Judge) -> None:
    output = [A, B, 163595, 163597, N, 163598, X, 163599, 163596, STOP]
    report = judge(sample(output, 10))
    assert errors(report) == {}
    assert report["reasoning_closed"].warnings == 1
    assert report["reasoning_closed"].severity == "WARN"
    assert report.findings["detail"][0].startswith("implicit end")


def test_6_the_output_was_encoded_again(judge: Judge) -> None:
    row = sample([END, kimi.HELLO, STOP], 4, output_logprobs=[-0.1] * 4)
    assert set(errors(judge(row))) == {"logprobs_agree", "completion_count"}


@pytest.mark.parametrize("index", [0, 1, 2])
def test_6_the_log_probabilities_are_of_other_ids(index: int, judge: Judge) -> None:
    ids = [END, A, STOP]
    row = sample(ids, 3, output_logprobs=[-0.1] * 3)
    assert errors(judge(row | {LOGPROB_IDS: ids})) == {}
    report = judge(row | {LOGPROB_IDS: [B if i == index else token for i, token in enumerate(ids)]})
    assert set(errors(report)) == {"logprobs_agree"}
    assert report.findings["index"][0] == index
