import subprocess
import sys
from copy import deepcopy
from dataclasses import replace

import polars as pl
import pytest

from eagle3_assets.contract import SAMPLE_FINDINGS
from eagle3_assets.tokens.context import Context, PromptIndex
from eagle3_assets.tokens.judge import SHOWN_DETAILS, Judge, judge_generations, judge_prompts, prompt_faults
from eagle3_assets.tokens.laws import LAWS, ON_REQUEST, effective, laws_of, lowerable_laws
from eagle3_assets.tokens.profile import TargetProfile
from eagle3_assets_tests.tokens import kimi


def miscounted(bad: int, good: int, wrong_server: int = 0) -> pl.DataFrame:
    """Rows of which some break completion_count and, after those, some server_saw_prompt."""
    rows = {f"{n}": deepcopy(kimi.genuine()["answer"]) for n in range(bad + good)}
    for n in range(bad):
        rows[f"{n}"]["completion_tokens"] = 99
    for n in range(bad, bad + wrong_server):
        rows[f"{n}"]["server_prompt_tokens"] = 99
    return kimi.generations(rows)


@pytest.mark.parametrize(
    ("bad", "status", "severity", "refuses"),
    [
        (0, "passed", None, False),
        (1, "warned", "WARN", False),
        (2, "warned", "WARN", False),
        (3, "failed", "ERROR", True),
    ],
)
def test_quarantine_limit(bad: int, status: str, severity: str | None, refuses: bool, profile: TargetProfile) -> None:
    report = judge_generations([miscounted(bad, 200 - bad)], Context(profile, quarantine_limit=0.01))
    verdict = report["completion_count"]
    assert (verdict.status, verdict.severity, verdict.refuses) == (status, severity, refuses)
    assert verdict.share == bad / 200
    assert report.quarantined == {f"{n}" for n in range(bad)}
    assert bool(report.refusals) == refuses
    assert report.quarantined_share == bad / 200


def test_refusal_says_what_it_means_and_what_to_do(profile: TargetProfile) -> None:
    report = judge_generations([miscounted(3, 7)], Context(profile))
    verdict = report["completion_count"]
    assert report.refusals == (
        "completion_count: 3 of 10 samples break it (30.00%); first 0: the engine counted 99 output ids, there are 6."
        f" That is more than the dataset's quarantine_limit of 1.00%. {verdict.law.meaning} {verdict.law.remedy}",
    )


def test_laws_under_the_limit_refuse_together(profile: TargetProfile) -> None:
    report = judge_generations([miscounted(2, 198, 2)], Context(profile, quarantine_limit=0.01))
    assert not any(v.refuses for v in report.verdicts)
    assert len(report.quarantined) == 4
    assert len(report.refusals) == 1
    assert "4 of 200 samples (2.00%) break one law or another" in report.refusals[0]


def test_lowered_law_warns_and_quarantines_nothing(profile: TargetProfile) -> None:
    lowered = Context(profile, law_effects={"not_stop_only": "warn"})
    rows = {f"{n}": deepcopy(kimi.genuine()["thinking-off"]) for n in range(10)}
    for n in range(5):
        rows[f"{n}"] |= {"output_ids": [kimi.IM_END], "completion_tokens": 1, "output_logprobs": [-0.5]}
    assert judge_generations([kimi.generations(rows)], Context(profile))["not_stop_only"].refuses
    report = judge_generations([kimi.generations(rows)], lowered)
    verdict = report["not_stop_only"]
    assert (verdict.effect, verdict.status, verdict.violations) == ("warn", "warned", 5)
    assert report.findings["severity"].unique().to_list() == ["warning"]
    assert report.quarantined == frozenset()
    assert report.refusals == ()


@pytest.mark.parametrize(
    ("law", "why"),
    [
        ("conservation", r"is no matter of a target's habit \(refuse\)"),
        ("completion_count", r"is no matter of a target's habit \(quarantine\)"),
        ("tool_grammar", r"is no matter of a target's habit \(warn\)"),
        ("typo", "is not a law"),
    ],
)
def test_other_laws_cannot_be_lowered(law: str, why: str, profile: TargetProfile) -> None:
    with pytest.raises(
        ValueError, match=rf"'{law}' {why}.*: messages_rendered, no_reserved_ids, no_role_ids, not_stop_only"
    ):
        judge_generations([], Context(profile, law_effects={law: "warn"}))


def test_batches_do_not_change_the_report(context: Context) -> None:
    frame = pl.concat([kimi.generations(), miscounted(3, 3)])
    whole = judge_generations([frame], context)
    assert not whole.findings.is_empty()
    for size in (1, 2, 5):
        parts = judge_generations(frame.iter_slices(size), context)
        assert parts.findings.equals(whole.findings)
        assert parts.verdicts == whole.verdicts
        assert parts.quarantined == whole.quarantined


def test_batches_are_taken_one_by_one(context: Context) -> None:
    alive = 0

    def stream() -> object:
        nonlocal alive
        for part in kimi.generations().iter_slices(1):
            alive += 1
            yield part

    report = judge_generations(stream(), context)  # type: ignore[arg-type] # a generator with a side effect
    assert alive == report.rows == 12


def test_value_missing_in_one_batch_is_a_fault_of_that_row(context: Context) -> None:
    frame = kimi.generations()
    parts = [frame.head(4).with_columns(pl.lit(None, pl.Int32).alias("completion_tokens")), frame.tail(-4)]
    verdict = judge_generations(parts, context)["completion_count"]
    assert (verdict.violations, verdict.judged) == (4, 12)
    assert verdict.details[0] == "answer: completion_tokens is not recorded"


def test_only_generated_rows_are_judged_by_row_laws(context: Context) -> None:
    frame = miscounted(4, 8).with_columns(
        status=pl.when(pl.int_range(pl.len()) < 3).then(pl.lit("failed")).otherwise("status")
    )
    report = judge_generations([frame], context)
    assert report.rows == 9
    assert report["completion_count"].violations == 1
    assert report.findings.filter(pl.col("law") == "completion_count")["sample_id"].to_list() == ["3"]


def test_failed_rows_without_ids_do_not_disturb(context: Context) -> None:
    frame = kimi.generations()
    failed = pl.DataFrame([{"sample_id": "x", "status": "failed"}], schema=frame.schema)
    report = judge_generations([failed, pl.concat([failed, frame])], replace(context, current_prompts=None))
    assert report.rows == 12
    assert report["completion_count"].status == "passed"


def test_findings_are_ordered_by_row_and_then_by_law(context: Context) -> None:
    rows = {name: deepcopy(row) for name, row in kimi.genuine().items()}
    for name in ("last", "answer"):
        rows[name]["completion_tokens"] = rows[name]["server_prompt_tokens"] = 1
    found = judge_generations([kimi.generations(rows)], context).findings
    assert found.schema == SAMPLE_FINDINGS
    assert found.select("sample_id", "law").rows() == [
        ("answer", "server_saw_prompt"),
        ("answer", "completion_count"),
        ("implicit-end", "reasoning_closed"),
        ("tools-then-text", "tool_order"),
        ("last", "server_saw_prompt"),
        ("last", "completion_count"),
    ]


def test_every_law_has_a_verdict_in_order(context: Context) -> None:
    prompts, generations = judge_prompts([kimi.prompts()], context), judge_generations([kimi.generations()], context)
    assert [v.law for v in (*prompts.verdicts, *generations.verdicts)] == list(LAWS)
    with pytest.raises(KeyError):
        prompts["completion_count"]


def test_verdict_shows_the_first_few(profile: TargetProfile) -> None:
    verdict = judge_generations([miscounted(20, 0)], Context(profile))["completion_count"]
    assert len(verdict.details) == SHOWN_DETAILS
    assert verdict.details[1].startswith("1: ")


def test_faults_are_shown_before_remarks(context: Context) -> None:
    rows = kimi.genuine()
    rows["last"]["output_ids"] = [kimi.HELLO, kimi.IM_END]
    verdict = judge_generations([kimi.generations(rows)], context)["reasoning_closed"]
    assert [detail.split(":")[0] for detail in verdict.details] == ["last", "implicit-end"]
    assert verdict.summary.startswith(
        "1 of 12 samples break it (8.33%) and 1 of 12 samples have a remark (3 of 12 samples not judged: of these no"
        " prompt or output has reasoning); first last: "
    )


def test_rows_without_sample_id_are_refused(context: Context) -> None:
    with pytest.raises(ValueError, match="need a column sample_id; there are: text"):
        judge_generations([pl.DataFrame({"text": ["a"]})], context)


def test_ids_that_are_no_integers_are_refused(context: Context) -> None:
    frame = kimi.generations().with_columns(pl.col("output_ids").cast(pl.List(pl.String)))
    with pytest.raises(TypeError, match="'output_ids' must be a list of integer ids"):
        judge_generations([frame], context)


@pytest.mark.parametrize("wide", [2**31, 2**32 + kimi.HELLO, 2**40])
def test_ids_beyond_int32_are_refused_by_sample_and_never_cast(wide: int, context: Context) -> None:
    frame = kimi.generations().with_columns(pl.col("output_ids").cast(pl.List(pl.Int64)))
    assert judge_generations([frame], context)["ids_in_vocabulary"].status == "passed"
    ids = frame["output_ids"].to_list()
    ids[0][0] = wide
    frame = frame.with_columns(pl.Series("output_ids", ids, dtype=pl.List(pl.Int64)))
    report = judge_generations([frame], context)
    found = report.findings.filter(pl.col("severity") == "error").select("sample_id", "law").rows()
    assert found == [("answer", "ids_in_vocabulary"), ("answer", "stored_as_captured")]
    assert f"id {wide}" in report.findings["detail"][0]


@pytest.mark.parametrize("edge", [2**31 - 1, -(2**31)])
def test_the_largest_and_smallest_int32_are_stored_as_captured(edge: int, context: Context) -> None:
    rows = kimi.genuine()
    rows["answer"]["output_ids"][0] = edge
    frame = kimi.generations(rows).with_columns(pl.col("output_ids").cast(pl.List(pl.Int64)))
    report = judge_generations([frame], context)
    assert report["stored_as_captured"].status == "passed"
    assert report["ids_in_vocabulary"].violations == 1


def test_null_id_is_a_missing_id(context: Context) -> None:
    ids = kimi.generations()["output_ids"].to_list()
    ids[0][1] = None
    frame = kimi.generations().with_columns(pl.Series("output_ids", ids, dtype=pl.List(pl.Int32)))
    report = judge_generations([frame], context)
    assert (
        report["ids_in_vocabulary"]
        .details[0]
        .startswith("answer: a missing id (null, or no whole number) at index 1 out")
    )


def test_prompt_faults_mark_what_must_not_be_sent(context: Context) -> None:
    rows = kimi.genuine()
    rows["last"]["prompt_ids"] = rows["last"]["prompt_ids"][:-2]
    known = replace(context, rerendered_prompts=None, declared_tools=None)
    faults = prompt_faults(kimi.prompts(rows), known)
    assert faults.select("sample_id", "law").rows() == [("last", "prompt_suffix")]
    assert faults["reason"][0].startswith("prompt_suffix: ends with ")
    assert prompt_faults(kimi.prompts(), known).is_empty()


@pytest.mark.parametrize("row", [0, 5, 11])
def test_prompt_whose_mode_is_not_recorded(row: int, context: Context) -> None:
    thinking = kimi.prompts()["thinking"].to_list()
    thinking[row] = None
    frame = kimi.prompts().with_columns(pl.Series("thinking", thinking, dtype=pl.Boolean))
    verdict = judge_prompts([frame], context)["prompt_suffix"]
    assert (verdict.violations, verdict.judged) == (1, 12)
    assert verdict.details[0].endswith("its thinking mode is not recorded")


def test_refused_prompts_stay_in_the_check(context: Context) -> None:
    rows = kimi.genuine()
    rows["last"]["prompt_ids"] = rows["last"]["prompt_ids"][:-2]
    marked = kimi.prompts(rows).with_columns(
        status=pl.when(pl.col("sample_id") == "last").then(pl.lit("refused")).otherwise("status")
    )
    unrendered = pl.DataFrame([{"sample_id": "no-ids", "status": "refused"}], schema=marked.schema)
    report = judge_prompts([pl.concat([marked, unrendered])], replace(context, rerendered_prompts=None))
    assert (report["prompt_suffix"].violations, report["prompt_suffix"].rows) == (1, 12)


def test_prompt_gone_from_tokenized_prompts(context: Context) -> None:
    fewer = replace(context, current_prompts=PromptIndex.of([kimi.prompts().head(11)]))
    report = judge_generations([kimi.generations()], fewer)
    assert report["prompt_as_generated"].details == ("last: tokenized_prompts has no prompt of this sample any more",)


@pytest.mark.parametrize(
    ("stored", "now", "judged", "said"),
    [
        (False, False, 0, None),
        (False, True, 1, "no prompt is stored with the output, tokenized_prompts has one"),
        (True, False, 1, "a prompt was sent, and tokenized_prompts has this sample without one now"),
        (True, True, 1, None),
    ],
)
def test_no_prompt_is_not_compared_with_none(
    stored: bool, now: bool, judged: int, said: str | None, context: Context
) -> None:
    def one(frame: pl.DataFrame, there: bool) -> pl.DataFrame:
        return (
            frame.head(1) if there else frame.head(1).with_columns(prompt_ids=pl.lit(None, frame.schema["prompt_ids"]))
        )

    current = replace(context, current_prompts=PromptIndex.of([one(kimi.prompts(), now)]))
    verdict = judge_generations([one(kimi.generations(), stored)], current)["prompt_as_generated"]
    assert (verdict.judged, verdict.violations) == (judged, int(said is not None))
    assert verdict.status == ("not_judged" if not judged else "failed" if said else "passed")
    assert said is None or verdict.details[0].endswith(said)


def test_laws_are_declared_completely() -> None:
    names = [law.name for law in LAWS]
    assert len(set(names)) == len(names) == 45
    for law in LAWS:
        texts = (law.definition, law.meaning, law.remedy)
        assert all(text and text[0].isupper() and text.endswith(".") for text in texts), law.name
        assert all("#" in cause and "/" in cause for cause in law.causes)
    assert lowerable_laws() == [
        "messages_rendered",
        "no_reserved_ids",
        "no_role_ids",
        "not_stop_only",
        "reasoning_closed",
        "reasoning_not_reopened",
        "repetition",
    ]
    assert all(law.effect == "quarantine" for law in LAWS if law.lowerable)
    blocking = [law for law in LAWS if law.effect == "block"]
    assert all(law.asset == "tokenized_prompts" for law in blocking)
    assert {law.asset for law in laws_of("raw_generations")} == {"raw_generations"}


def test_effects_without_overrides() -> None:
    assert effective() == {law.name: law.effect for law in (*LAWS, *ON_REQUEST)}


def test_names_in_a_summary_are_made_visible(profile: TargetProfile) -> None:
    frame = miscounted(1, 0).with_columns(pl.lit("a\u202eb\n").alias("sample_id"))
    report = judge_generations([pl.concat([frame, frame])], Context(profile))
    assert "first a<U+202E>b↵: the engine counted" in report["completion_count"].summary
    assert "first a<U+202E>b↵: 2 rows" in report["conservation"].summary


def test_laws_load_no_model_library() -> None:
    code = (
        "import sys, eagle3_assets.tokens.judge, eagle3_assets.tokens.evidence, eagle3_assets.tokens.anatomy;"
        "print(sorted({'torch', 'transformers', 'tokenizers', 'dagster'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("keep", [0, 1, 3, 100])
def test_findings_that_are_not_kept_are_counted(keep: int, profile: TargetProfile) -> None:
    frame = miscounted(6, 4)
    uncounted = frame.with_columns(pl.when(pl.col("sample_id") != "9").then("completion_tokens"))
    everything = judge_generations([uncounted], Context(profile))
    judge = Judge("raw_generations", Context(profile), keep=keep)
    for part in uncounted.iter_slices(3):
        judge.add(part)
    report = judge.report()
    assert report["completion_count"].violations == everything["completion_count"].violations == 7
    assert report.findings.filter(pl.col("law") == "completion_count").height == min(keep, 7)
    assert report.findings.height + report.findings_left_out == everything.findings.height
    assert report.error_rows.tolist() == everything.error_rows.tolist() == [0, 1, 2, 3, 4, 5, 9]
    assert [f"{row}" for row in report.finding_rows] == report.findings["sample_id"].to_list()


def test_first_offenders_are_kept_with_their_ids(profile: TargetProfile) -> None:
    judge = Judge("raw_generations", Context(profile))
    frame = miscounted(SHOWN_DETAILS + 5, 3)
    for part in frame.iter_slices(2):
        judge.add(part)
    assert judge.offenders.equals(frame.head(SHOWN_DETAILS).select("sample_id", "prompt_ids", "output_ids"))
    assert judge.places(["1", "4", "nobody"]).rows() == [("1", 1), ("4", 4)]


def test_remarks_never_push_an_error_out_of_what_is_kept(context: Context) -> None:
    rows = kimi.genuine()
    for number, row in enumerate(rows.values()):
        row["cached_tokens"] = 10_000 if number < 10 else -1
    judge = Judge("raw_generations", context, keep=3)
    judge.add(kimi.generations(rows))
    report = judge.report()
    found = report.findings.filter(pl.col("law") == "usage_consistent")
    assert found["severity"].to_list() == ["warning"] * 3 + ["error"] * (len(rows) - 10)
    assert report.quarantined == set(list(rows)[10:])


def test_what_is_quarantined_does_not_depend_on_how_much_is_kept(context: Context) -> None:
    frame = miscounted(8, 4)
    judge = Judge("raw_generations", replace(context, current_prompts=None), keep=1)
    judge.add(frame)
    assert judge.report().quarantined == judge_generations([frame], replace(context, current_prompts=None)).quarantined
