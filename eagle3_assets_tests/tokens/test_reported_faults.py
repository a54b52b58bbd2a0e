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
from eagle3_assets.tokens.profile import TargetProfile, Tokenizer
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
def judge(profile: TargetProfile, tokenizer: Tokenizer) -> Judge:
    def judged(row: dict[str, Any]) -> Report:
        schema = dict(RAW_GENERATIONS)
        if LOGPROB_IDS in row:
            schema[LOGPROB_IDS] = pl.List(pl.Int32)
        frame = pl.DataFrame([row], schema=schema)
        return judge_generations([frame], Context(profile, tokenizer=tokenizer, declared_tools={"s": ("get_weather",)}))

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


def warnings(report: Report) -> dict[str, str]:
    found = report.findings.filter(pl.col("severity") == "warning")
    return dict(found.select("law", "detail").iter_rows())


def tool_call(head: str, arguments: str, *, section_end: bool = True) -> list[int]:
    inner = [kimi.CALL_BEGIN, *kimi.letters(head), kimi.ARG_BEGIN, *kimi.letters(arguments), kimi.CALL_END]
    return [END, kimi.SECTION_BEGIN, *inner, *([kimi.SECTION_END] if section_end else [])]


def cut(output: list[int], cap: int, **columns: object) -> dict[str, Any]:
    sampling = Sampling(max_new_tokens=cap).model_dump(mode="json")
    row = sample(output, len(output), finish_type="length", finish_length=cap, sampling=canonical_json(sampling))
    return row | {"matched_stop": None} | columns


def test_7_weights_change_while_a_request_runs(judge: Judge) -> None:
    row = sample([A, B, END, C, STOP], 5, weight_version="v7, v8")  # as the reader of replies joins the spans
    report = judge(row)
    assert set(errors(report)) == {"one_target"}
    assert report.quarantined == {"s"}


def test_8_arguments_encoded_twice_stay_in_the_data(judge: Judge) -> None:
    output = [*tool_call("functions.get_weather:0", json.dumps('{"city":"Oslo"}')), STOP]
    report = judge(sample(output, len(output)))
    assert errors(report) == {}
    assert warnings(report) == {
        "tool_arguments_json": "the arguments are a string, not an object: encoded twice",
    }
    assert report.quarantined == frozenset()


def test_10_special_words_typed_by_a_user_are_ids_that_no_prompt_has(context: Context) -> None:
    rows = kimi.genuine()
    rows["last"]["prompt_ids"][3:3] = [A, kimi.PAD, B, kimi.UNK, C, kimi.EOS]
    frame = kimi.prompts(rows)
    report = judge_prompts([frame], replace(context, rerendered_prompts=frame, declared_tools=None))
    assert report.findings.select("sample_id", "law", "index").rows() == [("last", "prompt_well_formed", 4)]
    assert report.quarantined == {"last"}


def test_a_user_types_the_end_of_a_turn(context: Context) -> None:
    rows = kimi.genuine()
    rows["last"]["prompt_ids"][3:3] = [A, STOP, B]
    frame = kimi.prompts(rows)
    report = judge_prompts([frame], replace(context, rerendered_prompts=frame, declared_tools=None))
    assert report.findings.select("sample_id", "law", "detail").rows() == [
        ("last", "prompt_well_formed", "<|im_end|> (163586) at index 7 ends no turn")
    ]


def test_a_stop_id_in_the_middle_of_a_cut_output(judge: Judge) -> None:
    assert {"nothing_after_stop"} <= set(errors(judge(cut([END, X, STOP, B], 4))))


def test_cumulative_chunks_of_a_stream_joined(judge: Judge) -> None:
    whole = [*range(20_000, 20_060), END, *range(21_000, 21_059), STOP]
    joined = [i for end in range(4, len(whole) + 1, 4) for i in whole[:end]]
    report = judge(sample(joined, len(whole)))
    assert "completion_count" in errors(report)
    assert errors(report)["repetition"].startswith(
        "begins again at index 4 with its own first 4 ids, and each time with"
    )


def test_a_cap_that_was_never_sent(judge: Judge) -> None:
    row = cut([END, *range(20_000, 20_127)], 128)
    values = json.loads(row["sampling"])
    report = judge(row | {"sampling": canonical_json({k: v for k, v in values.items() if k != "max_new_tokens"})})
    assert set(errors(report)) == {"sampling_recorded"}
    assert errors(report)["sampling_recorded"] == "not explicit: max_new_tokens"


def test_one_id_five_hundred_times(judge: Judge) -> None:
    found = errors(judge(sample([END, *[X] * 500, STOP], 502)))
    assert set(found) == {"repetition"}
    assert "500 times in a row" in found["repetition"]


@pytest.mark.parametrize("head", ["functionsexec5", "functions_get_weather_1", "functions.get_weather:0\n"])
def test_call_ids_of_another_form(head: str, judge: Judge) -> None:
    output = [*tool_call(head, "{}"), STOP]
    report = judge(sample(output, len(output)))
    assert errors(report) == {}
    assert set(warnings(report)) == {"tool_call_id"}


def test_a_form_with_braces_of_its_own(context: Context) -> None:
    profile = replace(context.profile, tool_call_id='{"id": "{name}"}')
    output = [*tool_call("functions.f:0", "{}"), STOP]
    frame = pl.DataFrame([sample(output, len(output))], schema_overrides=RAW_GENERATIONS)
    report = judge_generations([frame], replace(context, profile=profile))
    assert warnings(report)["tool_call_id"] == 'call id \'functions.f:0\' is not {"id": "NAME"}'


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_newline_in_the_id_of_one_of_adjacent_calls(place: int, judge: Judge) -> None:
    heads = [f"functions.get_weather:{number}" for number in range(3)]
    heads[place] = f"\n{heads[place]}"
    calls = [i for head in heads for i in tool_call(head, "{}")[2:-1]]
    output = [END, kimi.SECTION_BEGIN, *calls, kimi.SECTION_END, STOP]
    report = judge(sample(output, len(output)))
    assert errors(report) == {}
    assert "tool_call_id" in warnings(report)
    assert set(warnings(report)) <= {"tool_call_id", "tool_order"}
    assert heads[place].strip() in warnings(report)["tool_call_id"]


def test_a_counter_that_never_ends_is_another_form(judge: Judge) -> None:
    calls = [i for _ in range(2) for i in tool_call(f"functions.get_weather:{'1' * 5000}", "{}")[2:-1]]
    output = [END, kimi.SECTION_BEGIN, *calls, kimi.SECTION_END, STOP]
    report = judge(sample(output, len(output), sampling=None))
    assert "tool_call_id" in warnings(report)


def test_whole_calls_without_the_sections_end_at_the_cap(judge: Judge) -> None:
    output = tool_call("functions.get_weather:0", "{}", section_end=False)
    report = judge(cut(output, len(output)))
    assert errors(report) == warnings(report) == {}


def test_a_stop_id_alone(judge: Judge) -> None:
    assert "not_stop_only" in errors(judge(sample([STOP], 1)))


def test_one_log_probability_too_many(judge: Judge) -> None:
    report = judge(sample([END, A, STOP], 3, output_logprobs=[-0.1] * 4))
    assert set(errors(report)) == {"logprobs_agree"}


@pytest.mark.parametrize("index", [0, 2, 3])
def test_a_reserved_id(index: int, judge: Judge) -> None:
    output = [END, A, B, STOP]
    output.insert(index, 163700)
    report = judge(sample(output, 5))
    assert set(errors(report)) == {"no_reserved_ids"}
    assert report.findings["index"][0] == index


def test_a_cache_counted_twice_leaves_the_sample_as_it_is(judge: Judge) -> None:
    report = judge(sample([END, A, STOP], 3, cached_tokens=20))
    assert errors(report) == {}
    assert set(warnings(report)) == {"usage_consistent"}


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
    report = judge_prompts([frame], replace(context, rerendered_prompts=None).with_inert_prompts([twins]))
    assert report.quarantined == {"typed"}
    assert errors(report)["prompt_injection"] == f"text of the conversation became {became}"
    assert set(errors(report)) == {"prompt_injection", "prompt_well_formed"}
