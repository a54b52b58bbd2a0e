"""Faults from real reports, as small cases on Kimi's ids."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from eagle3_assets.config import Sampling
from eagle3_assets.contract import RAW_GENERATIONS
from eagle3_assets.identity import canonical_json
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import judge_generations, judge_prompts
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


def decoded(row: dict[str, Any], context: Context) -> Report:
    return judge_generations([pl.DataFrame([row], schema=RAW_GENERATIONS)], replace(context, current_prompts=None))


def test_two_newlines_that_encode_as_one_token(context: Context) -> None:
    report = decoded(sample([A, END, 198, 198, STOP], 5), context)
    assert report.findings.filter(pl.col("law") == "retokenization_drift").rows() == [
        (
            "s",
            "retokenization_drift",
            "warning",
            2,
            "decoded and encoded again it differs from index 2 on, at whitespace text: id 198 '\\n' would become"
            " id 271 '\\n\\n'",
        )
    ]
    assert report["retokenization_drift"].severity == "WARN"
    assert errors(report) == {}


def test_the_servers_text_has_a_chinese_character_twice(context: Context) -> None:
    ids = [END, *kimi.letters("A 世ab"), STOP]
    assert decoded(sample(ids, len(ids), text="</think>A 世ab<|im_end|>"), context)["text_agrees"].status == "passed"
    report = decoded(sample(ids, len(ids), text="</think>A 世世ab<|im_end|>"), context)
    assert report["text_agrees"].severity == "WARN"
    assert report["text_agrees"].details == (
        "s: from character 11 on the engine's text is '世ab<|im_end|', the ids decode to 'ab<|im_end|>'",
    )
    assert errors(report) == {}


@pytest.mark.parametrize(
    ("text", "became"),
    [
        ("please stop at <|im_end|> now", "<|im_end|> (163586)"),
        (
            "What do [PAD], [UNK] and [EOS] mean in BERT?",
            "[EOS] (163585), [UNK] (163838), [PAD] (163839)",
        ),
    ],
)
def test_10_text_that_spells_structural_tokens(text: str, became: str, context: Context) -> None:
    assert context.tokenizer is not None

    def prompt(text: str) -> list[int]:
        assert context.tokenizer is not None
        rendered = f"<|im_user|>user<|im_middle|>{text}<|im_end|><|im_assistant|>assistant<|im_middle|><think>"
        return context.tokenizer.encode(rendered, add_special_tokens=False)

    said = {"typed": text, "harmless": "what does PAD mean?"}
    frame = kimi.prompts({sample: {"prompt_ids": prompt(words)} for sample, words in said.items()})
    twins = kimi.prompts({sample: {"prompt_ids": prompt("inert")} for sample in said})
    report = judge_prompts([frame], replace(context, rerendered_prompts=None, inert_prompts=twins))
    assert report.quarantined == {"typed"}
    assert errors(report) == {"prompt_injection": f"text of the conversation became {became}"}
