"""What rows of other tools say of their sampling: whole numbers in any form, values that mean something, stop ids."""

from pathlib import Path
from typing import Any

import pytest

from eagle3_assets_tests.audit.conftest import Audit, errors, write
from eagle3_assets_tests.tokens import kimi

A, B, C = kimi.letters("abc")
STOP, BEGIN, END = kimi.IM_END, kimi.THINK, kimi.END_THINK
SAMPLING = {
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 20,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "max_new_tokens": 40,
}
OUTPUT = [BEGIN, A, END, B, C, STOP]


def line(sample: Any, sampling: dict[str, Any], output: list[int] = OUTPUT, **more: Any) -> dict[str, Any]:
    return {"id": sample, "output_ids": output, "sampling_params": SAMPLING | sampling, "finish_reason": "stop"} | more


def details(result: dict[str, Any], law: str) -> list[str]:
    return [example["detail"] for entry in result["laws"] if entry["name"] == law for example in entry["examples"]]


@pytest.mark.parametrize("recorded", ["sampling_params", "sampling"])
def test_a_cap_that_is_a_whole_float_is_a_cap(recorded: str, tmp_path: Path, audit: Audit) -> None:
    params = SAMPLING | {"max_new_tokens": 4.0, "top_k": 20.0, "stop_token_ids": [], "seed": 1}
    row = {"id": 1.0, "output_ids": OUTPUT, "finish_reason": "stop", recorded: params}
    result = audit(write(tmp_path / "o.jsonl", row)).only
    assert result["findings"] == {"1": {"within_cap": "error"}}
    assert details(result, "within_cap") == ["6 output ids, more than the request's max_new_tokens of 4"]


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        ({"temperature": "hot"}, 'temperature is "hot", not a number, 0 or more'),
        ({"top_p": -3}, "top_p is -3, not a number above 0, at most 1"),
        ({"top_k": [1]}, "top_k is a list, not a whole number, -1 or more"),
        ({"top_k": 1.5}, "top_k is 1.5, not a whole number, -1 or more"),
        ({"min_p": True}, "min_p is true, not a number from 0 to 1"),
        ({"max_new_tokens": "3"}, 'max_new_tokens is "3", not a whole number, 0 or more'),
        ({"repetition_penalty": 0}, "repetition_penalty is 0, not a number above 0"),
        ({"stop_token_ids": ["</s>"]}, "stop_token_ids is a list, not a list of token ids"),
        ({"top_k": 0, "temperature": 0, "repetition_penalty": 5, "max_new_tokens": 2**30}, None),
    ],
)
def test_values_that_no_engine_can_mean(
    sampling: dict[str, Any], said: str | None, tmp_path: Path, audit: Audit
) -> None:
    result = audit(write(tmp_path / "o.jsonl", line("a", sampling))).only
    assert details(result, "sampling_recorded") == ([] if said is None else [said])
    assert errors(result, "a") == (set() if said is None else {"sampling_recorded"})


@pytest.mark.parametrize("key", ["max_tokens", "max_completion_tokens"])
def test_two_caps_that_differ_contradict_each_other(key: str, tmp_path: Path, audit: Audit) -> None:
    rows = [line("two", {key: 5}), line("same", {key: 40.0}, [BEGIN, B, END, A, C, STOP])]
    result = audit(write(tmp_path / "o.jsonl", *rows)).only
    assert result["findings"] == {"two": {"usage_consistent": "error"}}
    assert details(result, "usage_consistent") == ["the row contradicts itself: max_new_tokens 40 and 5"]


def test_a_weight_version_is_the_same_number_in_either_form(tmp_path: Path, audit: Audit) -> None:
    rows = [{"id": n, "output_ids": [BEGIN, n, END, STOP], "weight_version": v} for n, v in ((7, 1), (8, 1.0))]
    assert audit(write(tmp_path / "o.jsonl", *rows)).only["verdict"] == "pass"


@pytest.mark.parametrize(
    ("sampling", "output", "broken"),
    [
        ({"stop_token_ids": [C]}, [BEGIN, A, END, B, C], set()),
        ({"stop_token_ids": [C, float(B)]}, [BEGIN, A, END, B], set()),
        ({"stop_token_ids": [C]}, [BEGIN, A, END, B, STOP], set()),
        ({"stop_token_ids": [C]}, [BEGIN, A, END, A, B], {"stop_token_last"}),
        ({"stop_token_ids": [C]}, [BEGIN, A, END, C, B, STOP], {"nothing_after_stop"}),
        ({"stop_token_ids": [C], "ignore_eos": True}, [BEGIN, A, END, B, C], set()),
        ({"stop_token_ids": [C], "ignore_eos": True}, [BEGIN, A, END, B, STOP], {"stop_token_last"}),
        ({"stop_token_ids": [C], "ignore_eos": True}, [BEGIN, A, END, STOP, C], {"nothing_after_stop"}),
        ({"stop_token_ids": [kimi.IM_USER]}, [BEGIN, A, END, B, kimi.IM_USER], set()),
        ({}, [BEGIN, A, END, B, C], {"stop_token_last"}),
    ],
)
@pytest.mark.parametrize("recorded", ["sampling_params", "sampling"])
def test_a_rows_own_stop_set_is_kept(
    recorded: str, sampling: dict[str, Any], output: list[int], broken: set[str], tmp_path: Path, audit: Audit
) -> None:
    neutral = {"seed": 1, "stop_token_ids": []}
    other = line("other", {}, [BEGIN, B, END, C, A, STOP])  # what one row records says nothing of another
    row = {"id": "own", "output_ids": output, recorded: SAMPLING | neutral | sampling, "finish_reason": "stop"}
    result = audit(write(tmp_path / "o.jsonl", other, row)).only
    assert (errors(result, "own"), errors(result, "other")) == (broken, set())
