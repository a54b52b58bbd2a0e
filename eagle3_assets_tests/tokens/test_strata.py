"""Which samples are chosen for a person to look at."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.contract import SAMPLE_FINDINGS
from eagle3_assets.partitions import stable_rank
from eagle3_assets.tokens.facts import OUTPUT_FACTS
from eagle3_assets.tokens.lengths import length_figures
from eagle3_assets.tokens.quantiles import spread
from eagle3_assets.tokens.strata import PER_KIND, choose, first_look


def facts(count: int) -> pl.DataFrame:
    rows = [
        {
            "sample_id": f"s{i}",
            "turn": 1,
            "output": 10 * i + 1,
            "reasoning": 0,
            "answer": 0,
            "reasoning_opened": True,
            "reasoning_end": -1 if i % 10 == 3 else i,
            "finish_type": "length" if i % 20 == 7 else "stop",
            "cut_off": i % 20 == 7,
            "tool_call": i % 2 == 0,
            "tool_calls": i % 7 if i % 2 == 0 else 0,
        }
        for i in range(count)
    ]
    return pl.DataFrame(rows, schema=OUTPUT_FACTS)


def findings(*pairs: tuple[str, str], severity: str = "error") -> pl.DataFrame:
    rows = [{"sample_id": s, "law": law, "severity": severity, "index": 0, "detail": ""} for s, law in pairs]
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
    assert chosen["sample_id"].to_list()[:7] == ["s0", "s9", "s24", "s49", "s74", "s89", "s99"]
    assert by_stratum["breaks stop_token_last"] == ["s41"]
    assert sorted(by_stratum["breaks no_prompt_echo"]) == ["s43", "s44"]
    assert {facts(100)["tool_calls"][int(s[1:])] for s in by_stratum["most tool calls"]} == {6}
    for kind in ("cut off", "most tool calls", "tool call", "no tool call", "no end of reasoning"):
        assert len(by_stratum[kind]) == PER_KIND, kind
    assert chosen["sample_id"].is_unique().all()
    assert len(chosen) < 40


def test_remarks_hide_no_breach_of_the_same_law() -> None:
    remarks = findings(*((f"s{i}", "reasoning_closed") for i in range(200)), severity="warning")
    broken = findings(("s203", "reasoning_closed"))
    strata = dict(choose(facts(300), pl.concat([remarks, broken])).iter_rows())
    assert strata["s203"] == "breaks reasoning_closed"
    assert list(strata.values()).count("remark of reasoning_closed") == PER_KIND
    assert list(strata.values()).count("breaks reasoning_closed") == 1


def test_reasoning_that_never_began_has_no_end_to_miss() -> None:
    rows = facts(100).with_columns(reasoning_opened=pl.col("output") > 500, reasoning_end=pl.lit(-1, pl.Int32))
    found = choose(rows, findings()).filter(pl.col("stratum") == "no end of reasoning")
    assert set(found["sample_id"]) <= {f"s{i}" for i in range(50, 100)}
    assert len(found) == PER_KIND
    without = choose(rows.with_columns(reasoning_opened=pl.lit(value=False)), findings())
    assert "no end of reasoning" not in without["stratum"].to_list()


@given(st.lists(st.integers(1, 9_999), min_size=1, max_size=60) | st.lists(st.integers(1, 3), min_size=1, max_size=60))
def test_the_first_look_is_over_the_lengths_as_statistics_and_decode_have_them(lengths: list[int]) -> None:
    rows = facts(len(lengths)).with_columns(output=pl.Series(lengths, dtype=pl.Int32))
    by_id = dict(rows.select("sample_id", "output").iter_rows())
    chosen = choose(rows, findings())
    seen = first_look(chosen, ())["sample_id"].to_list()
    assert seen == [rows["sample_id"][place] for place in spread(lengths, list(map(stable_rank, by_id)), 5)]
    figures = length_figures(rows["output"])
    if len(lengths) > 2:
        [median] = chosen.filter(pl.col("stratum") == "p50 of length")["sample_id"]
        assert by_id[median] == figures["median"]


def test_a_broken_sample_is_at_first_look() -> None:
    rows = facts(100)
    chosen = choose(rows, findings(("s41", "stop_token_last"), ("s43", "no_prompt_echo")))
    assert first_look(chosen, {"s43"}).rows() == [
        ("s0", "shortest"),
        ("s49", "p50 of length"),
        ("s74", "p75 of length"),
        ("s99", "longest"),
        ("s43", "breaks no_prompt_echo"),
    ]
    with_one = first_look(chosen, {"s24", "s43"})["stratum"].to_list()
    assert with_one == ["shortest", "p25 of length", "p50 of length", "p75 of length", "longest"]


def test_the_same_data_in_another_order_gives_the_same_choice() -> None:
    rows, found = facts(60), findings(("s5", "tool_grammar"))
    assert choose(rows, found).equals(choose(rows.sample(fraction=1.0, shuffle=True, seed=3), found))


def test_the_longest_section_is_the_longest_or_is_shown_already() -> None:
    rows = facts(50).with_columns(
        reasoning=pl.int_range(50, dtype=pl.Int32), answer=50 - pl.int_range(50, dtype=pl.Int32)
    )
    strata = dict(choose(rows, findings()).iter_rows())
    assert strata["s49"] == "longest"  # has the longest reasoning, too
    assert "longest reasoning" not in strata.values()
    rows = rows.with_columns(answer=pl.when(pl.col("sample_id") == "s30").then(900).otherwise("answer").cast(pl.Int32))
    assert dict(choose(rows, findings()).iter_rows())["s30"] == "longest answer"


def test_few_and_no_samples() -> None:
    assert choose(facts(1), findings())["sample_id"].to_list() == ["s0"]
    assert choose(facts(0), findings()).is_empty()
