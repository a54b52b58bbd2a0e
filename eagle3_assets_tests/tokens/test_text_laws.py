"""Laws that decode: what is genuine passes, what is a sample is said, and the choice of it is stable."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.drawing import Draw
from eagle3_assets.tokens.judge import judge_generations
from eagle3_assets.tokens.laws import LAWS, RowLaw
from eagle3_assets.tokens.laws.texts import SUSPICIOUS_ROWS
from eagle3_assets.tokens.verdict import Report
from eagle3_assets_tests.tokens import kimi

A, B, C = kimi.letters("abc")
EMOJI = kimi.letters("😀")
DECODING = ("text_agrees", "no_replacement_character", "retokenization_drift")


def row(output: list[int], *, cut: bool = False, **columns: object) -> dict[str, Any]:
    last = kimi.genuine()["cut-in-reasoning" if cut else "last"]
    recorded = {"completion_tokens": len(output), "output_logprobs": [-0.5] * len(output)}
    return last | recorded | {"output_ids": output, "text": kimi.spelled(output)} | columns


def judged(context: Context, *rows: dict[str, Any]) -> Report:
    frame = kimi.generations({f"{number}": row for number, row in enumerate(rows)})
    return judge_generations([frame], replace(context, current_prompts=None))


def remarks(report: Report) -> set[str]:
    return {law for law in report.findings["law"] if law in DECODING}


@pytest.mark.parametrize(
    "genuine",
    [
        row([*EMOJI, kimi.END_THINK, *EMOJI, kimi.IM_END]),
        row([*kimi.letters("👩‍💻 é 世界 \u202e"), kimi.END_THINK, B, kimi.IM_END]),
        row([kimi.END_THINK, *kimi.letters("a  b\n c\t"), kimi.IM_END]),
        row([A, kimi.END_THINK, 271, kimi.IM_END]),
        row([kimi.END_THINK, *kimi.letters(" ..."), kimi.IM_END]),
    ],
    ids=["emoji", "joined and right to left", "spaces", "two newlines in one", "dots"],
)
def test_genuine_text(genuine: dict[str, Any], context: Context) -> None:
    report = judged(context, genuine)
    assert remarks(report) == set()
    assert all(report[law].status == "passed" for law in DECODING)


@pytest.mark.parametrize("bytes_left", [1, 2, 3])
def test_a_character_that_the_cap_cut_in_two(bytes_left: int, context: Context) -> None:
    ids = [A, kimi.END_THINK, *EMOJI, *EMOJI[:bytes_left]]
    assert remarks(judged(context, row(ids, cut=True))) == {"retokenization_drift"}
    kept_back = row(ids, cut=True, text="a</think>😀")
    assert remarks(judged(context, kept_back)) == {"retokenization_drift"}
    stopped = judged(context, row([*ids, kimi.IM_END]))
    assert remarks(stopped) == {"no_replacement_character", "retokenization_drift"}
    in_the_middle = judged(context, row([*EMOJI[:bytes_left], *ids], cut=True))
    assert remarks(in_the_middle) == {"no_replacement_character", "retokenization_drift"}


@pytest.mark.parametrize(
    ("text", "foreign", "own"),
    [
        ("ab</think>c<|im_end|>", True, True),
        ("ab</think>c", True, True),  # a trimmed stop token, whoever trimmed it
        ("ab</think>c ", False, False),
        ("abc<|im_end|>", False, False),  # the end of reasoning is no special token: a parser took it
        ("abc", False, False),
    ],
)
def test_flags_of_the_engines_text(text: str, foreign: bool, own: bool, context: Context) -> None:
    ids = [A, B, kimi.END_THINK, C, kimi.IM_END]
    for complete, right in ((False, foreign), (True, own)):
        report = judged(replace(context, complete_records=complete), row(ids, text=text))
        assert report["text_agrees"].status == ("passed" if right else "warned")


def test_special_tokens_may_be_left_out_of_a_foreign_text_alone(context: Context) -> None:
    special = row([A, kimi.PAD, kimi.END_THINK, C, kimi.IM_END], text="a</think>c")
    assert judged(context, special)["text_agrees"].status == "passed"
    assert judged(replace(context, complete_records=True), special)["text_agrees"].status == "warned"


def test_ids_without_a_text_are_not_judged(context: Context) -> None:
    report = judged(
        context,
        *(row([A, odd, kimi.END_THINK, B, kimi.IM_END], text="a") for odd in (-1, 7, kimi.VOCAB_SIZE)),
        row([], text=""),
        row([A, kimi.END_THINK, B, kimi.IM_END]),
    )
    assert {law: (report[law].judged, report[law].violations) for law in DECODING} == dict.fromkeys(DECODING, (1, 0))


def test_drift_by_kind(context: Context) -> None:
    report = judged(
        context,
        row([kimi.END_THINK, 198, 198, kimi.IM_END]),
        row([kimi.END_THINK, *kimi.letters("12"), kimi.IM_END]),
        row([kimi.END_THINK, *kimi.letters("12 "), *kimi.letters("世"), kimi.IM_END]),
        row([kimi.END_THINK, *kimi.letters("[PAD]"), kimi.IM_END]),
        row([kimi.END_THINK, A, kimi.IM_END]),
    )
    verdict = report["retokenization_drift"]
    assert verdict.figures == {
        "drift_whitespace": 1,
        "drift_digits": 2,
        "drift_multi_byte": 0,
        "drift_structural": 1,
        "drift_other": 0,
    }
    assert (verdict.violations, verdict.share, verdict.severity) == (4, 0.8, "WARN")
    assert report.findings.filter(pl.col("law") == "retokenization_drift")["index"].to_list() == [1, 1, 1, 1]
    assert not report.quarantined


@pytest.mark.parametrize(("rows", "odd"), [(SUSPICIOUS_ROWS - 1, False), (SUSPICIOUS_ROWS, True)])
def test_no_drift_at_all_over_many_outputs_is_odd(rows: int, odd: bool, context: Context) -> None:
    verdict = judged(context, *[row([A, kimi.END_THINK, B, kimi.IM_END])] * rows)["retokenization_drift"]
    assert (verdict.status, verdict.violations) == ("warned" if odd else "passed", 0)
    assert ("as is usual of ids that were made from text" in verdict.summary) == odd
    one = [row([kimi.END_THINK, 198, 198, kimi.IM_END])]
    drifting = judged(context, *one, *[row([A, kimi.END_THINK, B, kimi.IM_END])] * rows)["retokenization_drift"]
    assert drifting.violations == 1
    assert "made from text" not in drifting.summary


def test_the_sample_is_stated_and_does_not_depend_on_batches(context: Context) -> None:
    broken = {f"{n}": row([A, B, kimi.END_THINK, C, kimi.IM_END], text="x") for n in range(200)}
    frame = kimi.generations(broken)
    few = replace(context, current_prompts=None, sample_rows=30)
    reports = [
        judge_generations(batches, few)
        for batches in (
            [frame],
            list(frame.iter_slices(7)),
            list(frame.iter_slices(1)),
            [frame.drop("latency_s"), frame.clear()],
        )
    ]
    for report in reports:
        verdict = report["text_agrees"]
        assert (verdict.judged, verdict.rows, verdict.violations, verdict.share) == (30, 30, 30, 1.0)
        assert "30 of 30 samples break it (100%) (judged a sample of 30 of 200); first" in verdict.summary
        assert "judged a sample of 30 of 200" in report["no_replacement_character"].summary
        assert report["completion_count"].judged == 200
        assert report.findings.equals(reports[0].findings)

    def named(report: Report) -> list[str]:
        return report.findings.filter(pl.col("law") == "text_agrees")["sample_id"].to_list()

    chosen = named(reports[0])
    assert chosen == [n for n in broken if n in set(chosen)]  # in the partition's order
    backwards = judge_generations([frame.reverse()], few)
    assert named(backwards) == chosen[::-1]
    everything = judge_generations([frame], replace(few, sample_rows=200))["text_agrees"]
    assert (everything.judged, everything.reason) == (200, None)


def test_a_draw_keeps_its_columns_and_rows_that_come_later_push_few_out() -> None:
    rows = pl.DataFrame({"sample_id": [f"s{n}" for n in range(300)], "a": range(300), "b": range(300)})
    draw = Draw(100, {"sample_id", "a", "absent"})
    draw.add(rows.head(200), list(range(200)))
    first, places = draw.rows()
    assert first.columns == ["sample_id", "a"]
    assert first["a"].to_list() == places == sorted(places)
    draw.add(rows.tail(100), list(range(200, 300)))
    second, _ = draw.rows()
    assert len(second) == 100
    kept = set(first["a"]) & set(second["a"])
    assert {n for n in second["a"] if n < 200} == kept
    assert 40 < len(kept) < 95


def test_laws_that_see_a_sample_never_filter() -> None:
    sampled = [law for law in LAWS if isinstance(law, RowLaw) and law.sampled]
    assert [law.name for law in sampled] == list(DECODING)
    assert {law.effect for law in sampled} == {"warn"}
