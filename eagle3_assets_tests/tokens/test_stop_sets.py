"""Which ids may end an output: those of the recorded stop set, else those of the profile, and which set was used."""

import polars as pl
import pytest

from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import judge_generations
from eagle3_assets.tokens.known_ids import KNOWN_IDS, known_profile
from eagle3_assets.tokens.verdict import Report

# What the targets' generation configs name.
EOS = {"llama3": (128001, 128008, 128009), "gpt-oss": (200002, 199999, 200012)}


def judged(name: str, ends: list[int], recorded: frozenset[int] | None = None) -> Report:
    frame = pl.DataFrame(
        {
            "sample_id": [f"s{number}" for number in range(len(ends))],
            "output_ids": [[5_000 + number, 6_000, end] for number, end in enumerate(ends)],
            "finish_type": ["stop"] * len(ends),
            "matched_stop": [str(end) for end in ends],
        }
    )
    return judge_generations([frame], Context(known_profile(name), stop_token_ids=recorded))


@pytest.mark.parametrize("name", EOS)
def test_every_id_of_the_generation_config_may_end_an_output(name: str) -> None:
    report = judged(name, [*EOS[name], *EOS[name]])
    for law in ("stop_token_last", "nothing_after_stop", "no_reserved_ids", "target_structure"):
        assert report[law].status == "passed", law


@pytest.mark.parametrize("place", [0, 10, 20])
def test_the_profiles_stop_set_is_named_where_none_is_recorded(place: int) -> None:
    ends = [128009] * 21
    ends[place] = 128007
    report = judged("llama3", ends)
    assert report["stop_token_last"].details == (
        f"s{place}: the last id is <|end_header_id|> (128007), not in the stop set of the profile 'llama3':"
        " <|end_of_text|> (128001), <|eom_id|> (128008), <|eot_id|> (128009)",
    )


def test_a_recorded_stop_set_is_named_as_such() -> None:
    report = judged("llama3", [128009, 128008], frozenset({128009}))
    assert report["stop_token_last"].details == (
        "s1: the last id is <|eom_id|> (128008), not in the recorded stop set: <|eot_id|> (128009)",
    )


def test_outputs_that_await_a_tools_result_are_told_as_llamas() -> None:
    report = judged("kimi", [KNOWN_IDS["llama3"].tokens["<|eom_id|>"]] * 5)
    assert "128008, which is <|eom_id|> of the profile 'llama3'" in report["target_structure"].details[0]
