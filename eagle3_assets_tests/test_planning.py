"""Estimates, against values reckoned by hand."""

import polars as pl
import pytest

from eagle3_assets.cli.plan_tables import how_much, total_text
from eagle3_assets.config import Band
from eagle3_assets.planning import (
    Basis,
    Expected,
    Outputs,
    PromptTokens,
    Throughput,
    expected_in_all,
    expected_output,
    prompt_tokens,
    tokens_per_output,
)
from eagle3_assets.tokens.quantiles import nearest_rank

NONE = Outputs()


def test_prompt_tokens_are_real_lengths() -> None:
    assert prompt_tokens(pl.Series(range(100, 0, -1), dtype=pl.Int32)) == PromptTokens(50, 95, 100, 5050)
    assert prompt_tokens(pl.Series([7], dtype=pl.Int32)) == PromptTokens(7, 7, 7, 7)
    assert prompt_tokens(pl.Series([3, 9], dtype=pl.Int32)) == PromptTokens(3, 9, 9, 12)
    lengths = pl.Series(range(7, 47), dtype=pl.Int32)
    found, ranks = prompt_tokens(lengths), [nearest_rank(len(lengths), q) for q in (0.5, 0.95)]
    assert found and [found.p50, found.p95] == [lengths[rank] for rank in ranks]
    assert prompt_tokens(pl.Series([], dtype=pl.Int32)) is None


def test_the_total_of_many_long_prompts_does_not_overflow() -> None:
    figures = prompt_tokens(pl.Series([2_000_000_000] * 3, dtype=pl.Int32))
    assert figures is not None and figures.total == 6_000_000_000


@pytest.mark.parametrize(
    ("outputs", "band", "cap", "expected"),
    [
        (Outputs(4, 262), Band(low=40, high=150), 160, (65.5, "measured")),
        (Outputs(1, 900), None, 512, (512, "measured")),  # of a higher cap than now
        (NONE, Band(low=40, high=150), 160, (95, "band")),
        (NONE, Band(low=400, high=1500), 160, (160, "band")),
        (NONE, None, 160, (160, "cap")),
    ],
)
def test_one_output(outputs: Outputs, band: Band | None, cap: int, expected: tuple[float, Basis]) -> None:
    assert tokens_per_output(outputs, band, cap) == expected


def test_what_is_generated_of_a_dataset_adds_up() -> None:
    assert Outputs(2, 100) + Outputs(3, 50) == Outputs(5, 150)
    assert (Outputs(5, 150).mean, NONE.mean) == (30, None)


def test_output_and_time() -> None:
    expected = expected_output(1_000, Outputs(4, 262), None, 160)
    assert expected == Expected(65_500, "measured")
    assert expected.seconds(500.0) == 131.0
    assert expected_output(4, NONE, None, 160) == Expected(640, "cap", 640)


def test_the_total_is_as_sure_as_its_least_sure_part_and_keeps_limits_apart() -> None:
    measured, guessed, unknown = Expected(100, "measured"), Expected(20, "band"), Expected(50, "cap", 50)
    assert expected_in_all([measured, measured]) == Expected(200, "measured")
    assert expected_in_all([measured, guessed]) == Expected(120, "band")
    # One dataset without a trial leaves the estimates of the others as they are.
    assert expected_in_all([measured, unknown]) == Expected(150, "measured", 50)
    assert expected_in_all([measured, guessed, unknown]) == Expected(170, "band", 50)
    assert expected_in_all([unknown, unknown]) == Expected(100, "cap", 100)
    # What is done already has no part in how sure the rest is.
    assert expected_in_all([measured, Expected(0, "band"), Expected(0, "cap")]) == Expected(100, "measured")
    assert expected_in_all([]) == Expected(0, "measured")


def test_a_total_names_the_datasets_of_which_only_the_limit_is_known() -> None:
    measured, unknown = Expected(7_900, "measured"), Expected(640, "cap", 640)
    total = expected_in_all([measured, unknown])
    assert [how_much(one) for one in (measured, unknown, total)] == ["7,900", "<= 640", "7,900 + <= 640"]
    assert how_much(expected_in_all([Expected(20, "band"), total])) == "~ 7,920 + <= 640"
    assert total_text({"a": measured, "b": unknown, "c": unknown}, "a trial") == (
        "Output in all: about 7,900 tokens measured + at most 1,280 for datasets without a trial: b, c."
    )
    assert total_text({"a": measured}, "a trial") is None
    assert total_text({"b": unknown}, "a trial") is None


def test_a_throughput_says_what_measured_it_and_how_little_that_is() -> None:
    one = Throughput(123.4, 1, "d-trial", 2, 9.0)
    assert one.text == (
        "123 output tokens/s, measured by the last run that generated: d-trial, 2 outputs in 9 s; so short a run says"
        " little of a long one"
    )
    several = Throughput(5_000.0, 3, "B1", 40_000, 7_200.0)
    assert several.text == (
        "5,000 output tokens/s, measured by the last 3 runs that generated, the newest of B1, 40,000 outputs"
        " in 2 h 00 min"
    )
