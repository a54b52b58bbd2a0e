"""Ids of another target are told from genuine ones, and genuine ones without much structure are not accused."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import judge_generations
from eagle3_assets.tokens.known_ids import known_profile
from eagle3_assets.tokens.verdict import Verdict
from eagle3_assets_tests.tokens import kimi

QWEN_END, QWEN_THINK, QWEN_END_THINK = 151645, 151667, 151668
MANY = 200


def words(number: int, length: int = 9) -> list[int]:
    """Ordinary ids, other ones for each number."""
    return [5_000 + (number * 31 + place * 7) % 90_000 for place in range(length)]


def foreign(number: int) -> list[int]:
    """What Qwen3 writes; to Kimi all of it is ordinary text."""
    return [QWEN_THINK, *words(number, 5 + number % 7), QWEN_END_THINK, *words(number, 3), QWEN_END]


def verdict(outputs: list[list[int]], name: str = "kimi", **columns: Any) -> Verdict:
    frame = pl.DataFrame(
        {"sample_id": [str(n) for n in range(len(outputs))], "output_ids": outputs}
        | {key: value if isinstance(value, list) else [value] * len(outputs) for key, value in columns.items()}
    )
    return judge_generations([frame[:70], frame[70:]], Context(known_profile(name)))["target_structure"]


@pytest.mark.parametrize("finish", ["stop", "tool_calls", None])
def test_ids_of_another_family_are_named(finish: str | None) -> None:
    found = verdict([foreign(n) for n in range(MANY)], finish_type=finish)
    assert (found.status, found.effect, found.violations) == ("warned", "warn", 1)
    assert found.details == (
        "none of 200 outputs that ended holds a structural id of the profile 'kimi', and 200 end with 151645, which is"
        " <|im_end|> of the profile 'qwen3': the ids are probably another target's",
    )


@pytest.mark.parametrize("place", [0, MANY // 2, MANY - 1])
def test_one_genuine_sample_among_many_of_another_family(place: int) -> None:
    outputs = [foreign(n) for n in range(MANY)]
    outputs[place] = [*words(place), kimi.IM_END]
    assert verdict(outputs).details[0].startswith("only 1 of 200 outputs that ended holds")


@pytest.mark.parametrize("count", [1, MANY])
def test_outputs_of_one_length_that_end_as_another_familys_are_named(count: int) -> None:
    found = verdict([[*words(n), QWEN_END] for n in range(count)])
    assert (found.status, f"{count} end with 151645" in found.details[0]) == ("warned", True)


def test_a_few_genuine_ones_do_not_hide_another_family() -> None:
    outputs = [foreign(n) if n % 30 else [*words(n), kimi.IM_END] for n in range(MANY)]
    assert verdict(outputs).details[0].startswith("only 7 of 200 outputs that ended holds")


def test_aborted_outputs_have_not_ended() -> None:
    assert verdict([words(n, 5 + n % 7) for n in range(MANY)], finish_type="abort").status == "not_judged"


@pytest.mark.parametrize("place", [0, MANY // 2, MANY - 1])
def test_one_sample_of_another_family_among_many_genuine_ones(place: int) -> None:
    outputs = [[*words(n, 5 + n % 7), kimi.IM_END] for n in range(MANY)]
    outputs[place] = foreign(place)
    assert verdict(outputs, finish_type="stop").status == "passed"


def test_where_structure_was_taken_out_that_is_said_too() -> None:
    found = verdict([words(n, 5 + n % 7) for n in range(MANY)], finish_type="stop")
    assert found.details[0].endswith("probably another target's, or every structural id was taken out")


@pytest.mark.parametrize("prompts", [True, False])
def test_silent_outputs_of_many_lengths_without_structure_are_named(prompts: bool) -> None:
    outputs = [words(n, 5 + n % 97) for n in range(MANY)]
    columns: dict[str, Any] = {"prompt_ids": [words(n, 5 + n % 53) for n in range(MANY)]} if prompts else {}
    found = verdict(outputs, **columns)
    assert found.details[0].startswith("none of 200 outputs that ended holds")


@pytest.mark.parametrize("caps", [(64,), (64, 96), (48, 64, 96)])
@pytest.mark.parametrize("kept", [0, 1])
def test_rows_that_a_trainer_cut_are_not_accused(caps: tuple[int, ...], kept: int) -> None:
    """Prompt and output together are as long as a trainer allows; ``kept`` rows were short enough to be left whole."""
    prompts = [words(n, 5 + n % 31) for n in range(MANY)]
    outputs = [words(n, caps[n % len(caps)] - len(prompt)) for n, prompt in enumerate(prompts)]
    outputs[:kept] = [[*words(n), kimi.IM_END] for n in range(kept)]
    found = verdict(outputs, prompt_ids=prompts)
    assert found.status == ("passed" if kept else "not_judged")


def test_rows_that_a_trainer_cut_hide_no_others() -> None:
    prompts = [words(n, 5 + n % 31) for n in range(MANY)]
    outputs = [words(n, 64 - len(prompt)) for n, prompt in enumerate(prompts)]
    outputs[::4] = [words(n, 3 + n % 23) for n in range(0, MANY, 4)]
    found = verdict(outputs, prompt_ids=prompts)
    assert found.details[0].startswith("none of 50 outputs that ended holds")
    assert found.share == 50 / MANY


@pytest.mark.parametrize("place", [0, MANY // 2, MANY - 1])
def test_the_share_is_that_of_the_outputs_without_structure(place: int) -> None:
    outputs = [foreign(n) for n in range(MANY)]
    outputs[place] = [*words(place), kimi.IM_END]
    found = verdict(outputs, finish_type=["length" if n in (7, 8) else "stop" for n in range(MANY)])
    assert (found.violations, found.share) == (1, (MANY - 3) / MANY)


def test_an_ordinary_id_that_is_a_stop_id_of_the_other_vocabulary() -> None:
    """DeepSeek's stop id is 1, a quotation mark in many other vocabularies."""
    outputs = [[*words(n, 4), 0, 1, *words(n, 2 + n % 3), QWEN_END] for n in range(MANY)]
    assert verdict(outputs, "deepseek-r1").status == "warned"


GENUINE: dict[str, tuple[list[list[int]], dict[str, Any]]] = {
    "plain chat": ([[*words(n), kimi.IM_END] for n in range(MANY)], {"finish_type": "stop"}),
    "plain chat, nothing said of its end": ([[*words(n), kimi.IM_END] for n in range(MANY)], {}),
    "one that stopped among many cut ones": (
        [*([words(n, 9) for n in range(MANY)]), [*words(1), kimi.IM_END]],
        {"finish_type": [*["length"] * MANY, "stop"]},
    ),
    "reasoning without an end": ([[*words(n), kimi.END_THINK] for n in range(MANY)], {"finish_type": "stop"}),
    "tool markup alone": ([[kimi.CALL_BEGIN, *words(n)] for n in range(3)], {"finish_type": "stop"}),
}
NOT_JUDGED: dict[str, tuple[list[list[int]], dict[str, Any]]] = {
    "all cut off": ([words(n, 5 + n % 7) for n in range(MANY)], {"finish_type": "length"}),
    "of one length, nothing said of their end": ([words(n, 9) for n in range(MANY)], {}),
    "as long as their caps": (
        [words(n, 5 + n % 7) for n in range(MANY)],
        {"sampling": [f'{{"max_new_tokens":{5 + n % 7}}}' for n in range(MANY)]},
    ),
    "one output, nothing said of its end": ([words(1)], {}),
}


@pytest.mark.parametrize("name", GENUINE)
def test_genuine_outputs_are_not_accused(name: str) -> None:
    outputs, columns = GENUINE[name]
    assert verdict(outputs, **columns).status == "passed"


@pytest.mark.parametrize("name", NOT_JUDGED)
def test_without_an_end_nothing_is_said(name: str) -> None:
    outputs, columns = NOT_JUDGED[name]
    found = verdict(outputs, **columns)
    assert (found.status, found.reason) == ("not_judged", "every output was cut off, or may have been")


def test_nothing_is_said_of_the_end_of_outputs_that_are_not_there() -> None:
    found = verdict([[], []], finish_type="stop")
    assert (found.status, found.reason) == ("not_judged", "there is no output with ids")


def test_a_target_without_stop_ids_is_not_judged(context: Context) -> None:
    bare = replace(context, profile=replace(context.profile, stop_ids=frozenset()), stop_token_ids=frozenset())
    assert judge_generations([kimi.generations()], bare)["target_structure"].reason == "no stop ids are known"


def reasoned(number: int, *end: int) -> list[int]:
    """An answer after reasoning, as long as its number says."""
    return [*words(number, 20), kimi.END_THINK, *words(number, 20 + number), *end]


def test_outputs_whose_stop_ids_were_all_stripped_are_named() -> None:
    found = verdict([reasoned(n) for n in range(40)])
    assert (found.status, found.effect, found.violations) == ("warned", "warn", 1)
    assert found.details[0].startswith("40 of 40 outputs (100%) end on no stop id, and nothing says that they were cut")
    assert verdict([reasoned(n, kimi.IM_END) for n in range(40)]).status == "passed"


def test_some_outputs_without_their_stop_id_are_counted() -> None:
    half = [reasoned(n, *[kimi.IM_END][n % 2 :]) for n in range(40)]
    assert verdict(half).details[0].startswith("20 of 40 outputs (50.0%) end on no stop id")
    few = [reasoned(n, *[kimi.IM_END][n < 4 :]) for n in range(40)]
    assert verdict(few).status == "passed"


def test_rows_that_a_trainer_truncated_are_not_taken_for_stripped_ones() -> None:
    cut = [reasoned(n + 20)[: 50 - n % 7] for n in range(40)]
    prompts = [[1] * (10 + n % 7) for n in range(40)]
    assert verdict(cut, prompt_ids=prompts).status != "warned"
    assert verdict([reasoned(n) for n in range(40)], finish_type="length").status != "warned"
