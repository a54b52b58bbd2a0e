"""Which samples are chosen for a person to look at."""

import polars as pl

from eagle3_assets.contract import SAMPLE_FINDINGS
from eagle3_assets.tokens.facts import OUTPUT_FACTS
from eagle3_assets.tokens.strata import PER_KIND, choose


def facts(count: int) -> pl.DataFrame:
    rows = [
        {
            "sample_id": f"s{i}",
            "output": 10 * i + 1,
            "reasoning": 0,
            "answer": 0,
            "reasoning_end": -1 if i % 10 == 3 else i,
            "cut_off": i % 20 == 7,
            "tool_call": i % 2 == 0,
        }
        for i in range(count)
    ]
    return pl.DataFrame(rows, schema=OUTPUT_FACTS)


def findings(*pairs: tuple[str, str]) -> pl.DataFrame:
    rows = [{"sample_id": s, "law": law, "severity": "error", "index": 0, "detail": ""} for s, law in pairs]
    return pl.DataFrame(rows, schema=SAMPLE_FINDINGS)


def test_lengths_are_covered_and_every_odd_kind_is_there() -> None:
    chosen = choose(
        facts(100), findings(("s41", "stop_token_last"), ("s43", "no_prompt_echo"), ("s44", "no_prompt_echo"))
    )
    by_stratum = dict(chosen.group_by("stratum").agg("sample_id").iter_rows())
    assert chosen["stratum"].to_list()[:7] == [
        "shortest",
        "p10 of length",
        "p25 of length",
        "p50 of length",
        "p75 of length",
        "p90 of length",
        "longest",
    ]
    assert chosen["sample_id"].to_list()[:7] == ["s0", "s10", "s25", "s50", "s74", "s89", "s99"]
    assert by_stratum["breaks stop_token_last"] == ["s41"]
    assert sorted(by_stratum["breaks no_prompt_echo"]) == ["s43", "s44"]
    for kind in ("cut off", "tool call", "no tool call", "no end of reasoning"):
        assert len(by_stratum[kind]) == PER_KIND, kind
    assert chosen["sample_id"].is_unique().all()
    assert len(chosen) < 40


def test_the_same_data_in_another_order_gives_the_same_choice() -> None:
    rows, found = facts(60), findings(("s5", "tool_grammar"))
    assert choose(rows, found).equals(choose(rows.sample(fraction=1.0, shuffle=True, seed=3), found))


def test_few_and_no_samples() -> None:
    assert choose(facts(1), findings())["sample_id"].to_list() == ["s0"]
    assert choose(facts(0), findings()).is_empty()
