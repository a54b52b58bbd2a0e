"""Every fault of public reports, in a file among genuine samples, through the command."""

import json
from pathlib import Path
from typing import Any

import pytest

from eagle3_assets.tokens.laws import LAWS
from eagle3_assets_tests.audit.conftest import Audit, errors, genuine_lines, reply, write
from eagle3_assets_tests.tokens import kimi

A, B, C, D, N, X = kimi.letters("abcdnx")
STOP, END, T = kimi.IM_END, kimi.END_THINK, kimi.THINKING_PROMPT
JUDGED = {law.name for law in LAWS}

ECHO = [163586, 163588, 69702, 163601, 163606, A, B, END, C, STOP]
SPANS = [{"version": "v7", "start": 0, "end": 2}, {"version": "v8", "start": 2, "end": 5}]
DOUBLE = [END, kimi.SECTION_BEGIN, kimi.CALL_BEGIN, *kimi.letters("hello:0"), kimi.ARG_BEGIN]
DOUBLE += [*kimi.letters(json.dumps('{"a":1}')), kimi.CALL_END, kimi.SECTION_END, STOP]

FAULTS: list[tuple[str, dict[str, Any], set[str]]] = [
    ("1 echo", reply("s", ECHO, meta={"completion_tokens": 5}), {"no_prompt_echo", "completion_count"}),
    (
        "2 stripped stop",
        reply("s", [A, B, END, C], meta={"completion_tokens": 5}),
        {"stop_token_last", "completion_count"},
    ),
    ("2 stripped stop, recounted", reply("s", [A, B, END, C]), {"stop_token_last"}),
    (
        "2 stripped stop, recounted beside the reply",
        reply("s", [A, B, END, C], meta={"completion_tokens": 5}) | {"completion_tokens": 4},
        {"stop_token_last", "completion_count"},
    ),
    ("3 past the stop", reply("s", [A, END, B, STOP, C, D]), {"nothing_after_stop", "stop_token_last"}),
    ("4 bad logits", reply("s", [A, END, B, STOP], "NaN happened"), {"stop_token_last"}),
    ("5 removed end of reasoning", reply("s", [A, B, C, STOP]), {"reasoning_closed"}),
    (
        "6 encoded again",
        reply(
            "s",
            [END, kimi.HELLO, STOP],
            meta={
                "completion_tokens": 4,
                "output_token_logprobs": [[-0.1, END, "</think>"], [-0.2, A, "h"], [-0.3, B, None], [-0.1, STOP]],
            },
        ),
        {"logprobs_agree", "completion_count"},
    ),
    (
        "7 weights changed",
        reply("s", [A, B, END, C, STOP], meta={"weight_version": "v8", "weight_versions": SPANS}),
        {"one_target"},
    ),
]


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst"])
@pytest.mark.parametrize(("row", "laws"), [pytest.param(row, laws, id=name) for name, row, laws in FAULTS])
def test_the_faulty_sample_and_no_other_breaks_the_law(
    row: dict[str, Any], laws: set[str], suffix: str, tmp_path: Path, audit: Audit
) -> None:
    good = genuine_lines()
    answered = audit(write(tmp_path / f"outputs.{suffix}", *good[:4], row, *good[4:]))
    result = answered.only
    assert errors(result, "s") >= laws & JUDGED
    assert set(result["findings"]) <= {"s"}
    if laws & JUDGED:
        assert (answered.exit_code, result["verdict"]) == (1, "fail")
        assert result["samples"] == {"judged": len(good) + 1, "passed": len(good), "warned": 0, "failed": 1}
    for law in laws & JUDGED:
        told = next(entry for entry in result["laws"] if entry["name"] == law)
        assert told["violations"] == 1
        assert (told["examples"][0]["sample_id"], told["examples"][0]["line"]) == ("s", 5)


def test_an_echo_is_named_first_and_bad_logits_are_called_so(tmp_path: Path, audit: Audit) -> None:
    lines = [reply("echo", ECHO, meta={"completion_tokens": 5}), reply("nan", [A, END, B, STOP], "NaN happened")]
    laws = {law["name"]: law["examples"] for law in audit(write(tmp_path / "o.jsonl", *lines)).only["laws"]}
    assert "prompt echo" in laws["completion_count"][0]["detail"]
    assert laws["stop_token_last"][0]["detail"].startswith("bad logits")


def test_tools_straight_from_reasoning_are_a_warning(tmp_path: Path, audit: Audit) -> None:
    row = reply("s", [A, B, 163595, 163597, N, 163598, X, 163599, 163596, STOP])
    answered = audit(write(tmp_path / "o.jsonl", row))
    assert answered.exit_code == 0
    assert answered.only["verdict"] == "warn"
    assert answered.only["findings"]["s"]["reasoning_closed"] == "warning"
    assert answered.only["samples"]["failed"] == 0


def test_8_arguments_encoded_twice_are_what_the_model_wrote(
    tmp_path: Path, audit: Audit, tokenizer_directory: Path
) -> None:
    answered = audit(write(tmp_path / "o.jsonl", reply("s", DOUBLE)), options=("--tokenizer", str(tokenizer_directory)))
    assert answered.exit_code == 0
    assert errors(answered.only, "s") == set()
    if "tool_arguments_json" in JUDGED:
        assert answered.only["findings"]["s"]["tool_arguments_json"] == "warning"


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst"])
def test_11_a_sample_id_twice_names_both_lines(suffix: str, tmp_path: Path, audit: Audit) -> None:
    good = genuine_lines()
    again = reply(good[1]["sample_id"], [A, END, B, STOP])
    answered = audit(write(tmp_path / f"o.{suffix}", *good, b"\n", again))
    [finding] = [f for f in answered.only["file_findings"] if f["law"] == "conservation"]
    assert finding["effect"] == "refuse"
    assert finding["lines"] == [2, len(good) + 2]
    assert good[1]["sample_id"] in finding["detail"]
    assert answered.exit_code == 1


def test_prompt_ids_of_the_server_that_are_not_those_sent(tmp_path: Path, audit: Audit) -> None:
    def returned(sample: str, prompt: list[int], **meta: Any) -> dict[str, Any]:
        return reply(sample, [A, END, B, STOP], meta=meta, prompt_token_ids=prompt)

    lines = [returned(f"g{n}", T) for n in range(9)]
    for place in (0, 4, 8):
        for index in (0, 4, len(T) - 1):
            changed = [C if at == index else token for at, token in enumerate(T)]
            broken = [*lines[:place], returned("s", changed), *lines[place:]]
            result = audit(write(tmp_path / "o.jsonl", *broken)).only
            assert result["findings"] == {"s": {"server_saw_prompt": "error"}}
            told = next(law for law in result["laws"] if law["name"] == "server_saw_prompt")
            assert told["judged"] == 10
            assert told["examples"][0]["detail"].endswith(f"not those sent, from index {index} on")
    inside = audit(write(tmp_path / "o.jsonl", *lines, reply("s", [A, END, B, STOP], meta={"prompt_token_ids": T[1:]})))
    assert errors(inside.only, "s") == {"server_saw_prompt"}


@pytest.mark.parametrize("place", [0, 3, 7])
@pytest.mark.parametrize("echoed", [1, 5, len(T)])
def test_1_an_echo_of_any_length_in_one_of_many(echoed: int, place: int, tmp_path: Path, audit: Audit) -> None:
    good = genuine_lines()[:7]
    row = reply("s", [*T[-echoed:], A, B, END, C, STOP], meta={"completion_tokens": 5})
    result = audit(write(tmp_path / "o.jsonl", *good[:place], row, *good[place:])).only
    assert errors(result, "s") >= {"no_prompt_echo", "completion_count"}
    assert set(result["findings"]) == {"s"}
    told = next(law for law in result["laws"] if law["name"] == "no_prompt_echo")
    assert (told["violations"], told["examples"][0]["line"]) == (1, place + 1)
    assert f"the prompt's last {echoed} id{'s' * (echoed > 1)}, 5 counted ones follow" in told["examples"][0]["detail"]


def test_a_cap_that_nobody_sent_is_told_from_one_that_was(tmp_path: Path, audit: Audit) -> None:
    def cut(number: int, cap: int | None) -> dict[str, Any]:
        output = [END, *range(20_000 + number * 200, 20_127 + number * 200)]
        sampling = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
        sent = sampling | ({} if cap is None else {"max_new_tokens": cap})
        finish = {"finish_reason": {"type": "length", "length": 128}}
        return reply(str(number), output, meta=finish, sampling_params=sent)

    unsent = audit(write(tmp_path / "o.jsonl", *(cut(n, None) for n in range(4)))).only
    assert all(errors(unsent, str(n)) == {"sampling_recorded"} for n in range(4))
    [told] = [f["detail"] for f in unsent["file_findings"] if f["law"] == "cut_off_share"]
    assert told.startswith("Every cut-off output has 128 tokens, SGLang's default, and no max_new_tokens is recorded")
    sent = audit(write(tmp_path / "o.jsonl", *(cut(n, 4096) for n in range(4)))).only
    [told] = [f["detail"] for f in sent["file_findings"] if f["law"] == "cut_off_share"]
    assert told.startswith("Every cut-off output has 128 tokens, SGLang's default")


@pytest.mark.parametrize("place", [0, 3, 7])
@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"completion_tokens": 99}, "completion_tokens 4 and 99"),
        ({"usage": {"completion_tokens": 77}}, "completion_tokens 4 and 77"),
        ({"usage": {"prompt_tokens": 77}}, "prompt_tokens 9 and 77"),
        ({"finish_reason": "length"}, 'finish "stop" and "length"'),
        ({"finish_reason": "tool_calls", "completion_tokens": 4}, None),
    ],
)
def test_a_reply_that_contradicts_its_own_meta_info(
    other: dict[str, Any], said: str | None, place: int, tmp_path: Path, audit: Audit
) -> None:
    good = genuine_lines()[:7]
    result = audit(
        write(tmp_path / "o.jsonl", *good[:place], reply("s", [A, END, B, STOP], **other), *good[place:])
    ).only
    assert set(result["findings"]) == ({"s"} if said else set())
    if said is not None:
        assert errors(result, "s") == {"usage_consistent"}
        [law] = [law for law in result["laws"] if law["name"] == "usage_consistent"]
        assert said in law["examples"][0]["detail"]
