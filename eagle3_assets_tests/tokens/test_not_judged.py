"""What is not there is said to be not judged, and never passes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from eagle3_assets.tokens.context import Context, PromptIndex
from eagle3_assets.tokens.judge import judge_generations, judge_prompts
from eagle3_assets.tokens.laws import LAWS, RowLaw, laws_of
from eagle3_assets.tokens.profile import TargetProfile, ToolIds
from eagle3_assets.tokens.profile_spec import Mode
from eagle3_assets.tokens.verdict import Report
from eagle3_assets_tests.tokens import kimi

ABSENT = [
    ("output_ids", "completion_count"),
    ("output_ids", "reasoning_closed"),
    ("output_ids", "text_agrees"),
    ("output_ids", "no_replacement_character"),
    ("output_ids", "retokenization_drift"),
    ("prompt_ids", "no_prompt_echo"),
    ("prompt_ids", "prompt_as_generated"),
    ("completion_tokens", "no_prompt_echo"),
    ("completion_tokens", "completion_count"),
    ("server_prompt_tokens", "server_saw_prompt"),
    ("finish_type", "finish_known"),
    ("finish_type", "stop_token_last"),
    ("finish_type", "length_honest"),
    ("sampling", "within_cap"),
    ("sampling", "sampling_recorded"),
    ("output_logprobs", "logprobs_agree"),
    ("ids_sha256", "stored_as_captured"),
    ("text", "text_agrees"),
]


@pytest.mark.parametrize(("column", "law"), ABSENT)
def test_absent_column(column: str, law: str, context: Context) -> None:
    verdict = judge_generations([kimi.generations().drop(column)], context)[law]
    assert (verdict.status, verdict.judged, verdict.refuses) == ("not_judged", 0, False)
    assert verdict.summary == f"Not judged: the column {column} is absent."


@pytest.mark.parametrize(("column", "law"), ABSENT[7:])
def test_column_without_any_value(column: str, law: str, context: Context) -> None:
    report = judge_generations([kimi.generations().with_columns(pl.lit(None).alias(column))], context)
    assert report[law].status == "not_judged"
    assert report[law].reason in (
        "no row records completion_tokens",
        "no row records both its prompt and completion_tokens",
        "no row records both its prompt and server_prompt_tokens",
        "no row records a finish type",
        "no row records a finish type and a cap",
        "no row records max_new_tokens",
        "no row records its sampling parameters",
        "no row records log-probabilities",
        "no row records a hash",
        "no row records the engine's text beside ids that can be decoded",
    )
    assert report.findings.filter(pl.col("severity") == "error").is_empty()


REPLIES_WITHOUT_CACHE = [
    kimi.generations().drop("cached_tokens"),
    kimi.generations().with_columns(pl.lit(None, pl.Int32).alias("cached_tokens")),
]


@pytest.mark.parametrize("frame", REPLIES_WITHOUT_CACHE)
def test_counts_with_nothing_to_agree_with(frame: pl.DataFrame, context: Context) -> None:
    verdict = judge_generations([frame], context)["usage_consistent"]
    assert verdict.reason == "no row records cached_tokens or reasoning_tokens"
    assert verdict.status == "not_judged"


@pytest.mark.parametrize("row", [0, 5, 11])
def test_reasoning_counted_beyond_the_output(row: int, context: Context) -> None:
    frame = kimi.generations().with_columns(reasoning_tokens=pl.lit(1))
    assert judge_generations([frame], context)["usage_consistent"].status == "passed"
    more = frame.with_columns(
        reasoning_tokens=pl.when(pl.int_range(pl.len()) == row).then(pl.col("completion_tokens") + 1).otherwise(1)
    )
    report = judge_generations([more], context)
    found = report.findings.filter(pl.col("law") == "usage_consistent").select("sample_id", "severity").rows()
    assert found == [(frame["sample_id"][row], "error")]
    assert report.quarantined == {frame["sample_id"][row]}


def test_cache_of_a_prompt_that_nobody_counted(context: Context) -> None:
    unknown = kimi.generations().drop("server_prompt_tokens", "prompt_ids")
    assert judge_generations([unknown], context)["usage_consistent"].status == "not_judged"
    by_ids = kimi.generations().drop("server_prompt_tokens")
    assert judge_generations([by_ids], context)["usage_consistent"].status == "passed"


@pytest.mark.parametrize(
    ("change", "law", "reason"),
    [
        ({"tokenizer": None}, "tool_call_id", "the target's tokenizer is not at hand"),
        ({"tokenizer": None}, "tool_arguments_json", "the target's tokenizer is not at hand"),
        ({"tokenizer": None}, "tool_declared", "the target's tokenizer is not at hand"),
        (
            {"declared_tools": None},
            "tool_declared",
            "no output of a sample whose tools are known has a whole tool call",
        ),
        (
            {"declared_tools": {"stranger": ("f",)}},
            "tool_declared",
            "no output of a sample whose tools are known has a whole tool call",
        ),
    ],
)
def test_tool_calls_without_what_tells_of_them(
    change: dict[str, object], law: str, reason: str, context: Context
) -> None:
    lacking = replace(context, **change)  # type: ignore[arg-type] # the values of each case fit
    verdict = judge_generations([kimi.generations()], lacking)[law]
    assert (verdict.status, verdict.reason) == ("not_judged", reason)


@pytest.mark.parametrize("law", ["tool_call_id", "tool_arguments_json", "tool_declared"])
def test_no_whole_tool_call(law: str, context: Context) -> None:
    without = kimi.generations().filter(~pl.col("output_ids").list.contains(kimi.CALL_END))
    verdict = judge_generations([without], context)[law]
    assert verdict.status == "not_judged"
    assert str(verdict.reason).endswith(" whole tool call")
    assert judge_generations([without], context)["tool_order"].reason == "no output has a whole tool call"


def test_order_of_calls_whose_counters_cannot_be_read(context: Context) -> None:
    verdict = judge_generations([kimi.generations()], replace(context, tokenizer=None))["tool_order"]
    assert (verdict.status, verdict.violations) == ("warned", 1)
    assert verdict.reason == (
        "the target's tokenizer is not at hand: the calls' counters are not read; 9 of 12 samples not judged: of these"
        " no output has a whole tool call"
    )


@pytest.mark.parametrize(
    ("columns", "law", "why"),
    [
        ({"output_logprobs": None}, "logprobs_agree", "of these no row records log-probabilities"),
        ({"cached_tokens": None}, "usage_consistent", "of these no row records cached_tokens or reasoning_tokens"),
        (
            {"output_ids": [9, kimi.END_THINK, 400, kimi.IM_END]},
            "retokenization_drift",
            "the tokenizer has no text for an id of theirs, or they have no ids",
        ),
        (
            {"output_ids": [9, kimi.END_THINK, 400, kimi.IM_END]},
            "no_replacement_character",
            "the tokenizer has no text for an id of theirs, or they have no ids",
        ),
    ],
)
def test_a_law_that_is_judged_in_part_says_why(columns: dict[str, Any], law: str, why: str, context: Context) -> None:
    rows = kimi.genuine()
    rows["last"] |= columns
    verdict = judge_generations([kimi.generations(rows)], context)[law]
    assert (verdict.judged, verdict.reason) == (11, f"1 of 12 samples not judged: {why}")


def test_prompts_of_a_profile_that_describes_little(context: Context) -> None:
    passed = judge_prompts([kimi.prompts()], context)["prompt_well_formed"]
    assert (passed.status, passed.reason) == ("passed", None)
    little = replace(context, profile=replace(context.profile, turns={}, prompt_bos=None))
    verdict = judge_prompts([kimi.prompts()], little)["prompt_well_formed"]
    assert verdict.status == "passed"
    assert verdict.reason == "the profile 'kimi' does not describe turns and whether prompts begin with BOS"
    no_ids = judge_prompts([kimi.prompts().drop("prompt_ids")], context)["prompt_well_formed"]
    assert no_ids.reason == "the column prompt_ids is absent"


def test_weights_that_nobody_named(context: Context) -> None:
    silent = kimi.generations().drop("weight_version")
    assert judge_generations([silent], context)["one_target"].reason == "no row records a weight version"


def test_duplicates_without_prompts_or_outputs(context: Context) -> None:
    verdict = judge_generations([kimi.generations().drop("prompt_ids")], context)["duplicates"]
    assert (verdict.status, verdict.reason) == ("passed", "12 rows without prompt")
    verdict = judge_generations([kimi.generations().drop("output_ids")], context)["duplicates"]
    assert (verdict.status, verdict.reason) == ("not_judged", "there is no generated row with ids")


def test_absent_prompt_columns(context: Context) -> None:
    report = judge_prompts([kimi.prompts().drop("thinking")], context)
    assert (report["prompt_suffix"].status, report["prompt_suffix"].judged) == ("passed", 12)
    assert report["prompt_suffix"].reason == "its thinking mode is not recorded"
    assert report["prompt_reproducible"].status == "passed"


def test_a_column_that_only_some_batches_have_is_not_judged(context: Context) -> None:
    frame = kimi.generations()
    report = judge_generations([frame.head(3), frame.tail(-3).drop("completion_tokens")], context)
    assert report["completion_count"].status == "not_judged"


def test_without_prompt_ids_nothing_is_said_of_the_prompt(context: Context) -> None:
    frame = kimi.generations()
    without = frame.with_columns(pl.lit(None, frame["prompt_ids"].dtype).alias("prompt_ids"))
    one = pl.concat([without.head(1), frame.tail(-1)])
    for law in ("no_prompt_echo", "server_saw_prompt"):
        assert judge_generations([without], context)[law].status == "not_judged"
        verdict = judge_generations([one], context)[law]
        assert (verdict.judged, verdict.violations) == (len(frame) - 1, 0)


@pytest.mark.parametrize("column", ["completion_tokens", "finish_type", "matched_stop"])
def test_rows_of_different_tools_say_nothing_of_one_another(column: str, context: Context) -> None:
    frame = kimi.generations()
    mixed = pl.concat([frame.head(1).with_columns(pl.lit(None, frame[column].dtype).alias(column)), frame.tail(-1)])
    assert not judge_generations([mixed], context).findings.filter(pl.col("severity") == "error").is_empty()
    report = judge_generations([mixed], replace(context, mixed_records=True))
    assert report.findings.filter(pl.col("severity") == "error").is_empty()


def strip(**facts: object) -> Callable[[TargetProfile], TargetProfile]:
    return lambda profile: replace(profile, **facts)  # type: ignore[arg-type] # the facts of each case fit


@pytest.mark.parametrize(
    ("change", "laws", "reason"),
    [
        (
            strip(reasoning_end=None),
            ["reasoning_closed", "reasoning_not_reopened", "reasoning_off"],
            "the profile 'kimi' describes no reasoning",
        ),
        (
            strip(tools=None),
            ["tool_grammar", "tool_call_id", "tool_arguments_json", "tool_declared", "tool_order"],
            "the profile 'kimi' describes no tool-call markup",
        ),
        (strip(tool_call_id=None), ["tool_call_id"], "the profile 'kimi' describes no form of a call's id"),
        (
            strip(tool_call_id=None),
            ["tool_declared"],
            "the profile 'kimi' does not describe where a call names its tool",
        ),
        (
            strip(tools=ToolIds(None, kimi.CALL_BEGIN, None, kimi.CALL_END, None)),
            ["tool_arguments_json"],
            "the profile 'kimi' does not say that calls are JSON",
        ),
        (
            strip(prompt_only_ids=frozenset()),
            ["no_role_ids"],
            "the profile 'kimi' describes no ids that only prompts have",
        ),
        (
            strip(reserved_ids=frozenset(), media_ids=frozenset(), bos=None, pad=None, unk=None),
            ["no_reserved_ids"],
            "the profile 'kimi' describes no reserved, BOS, PAD, UNK or media ids",
        ),
        (
            strip(stop_ids=frozenset()),
            ["target_structure", "stop_token_last", "nothing_after_stop", "not_stop_only"],
            "no stop ids are known",
        ),
    ],
)
def test_profile_without_the_grammar(
    change: Callable[[TargetProfile], TargetProfile], laws: list[str], reason: str, context: Context
) -> None:
    stripped = replace(context, profile=change(context.profile), stop_token_ids=None)
    report = judge_generations([kimi.generations()], stripped)
    assert {v.law.name for v in report.verdicts if v.reason == reason} == set(laws)
    assert all(report[law].status == "not_judged" for law in laws)


def test_profile_without_suffixes(context: Context) -> None:
    plain = replace(context, profile=replace(context.profile, suffixes={}, suffix_texts={}))
    verdict = judge_prompts([kimi.prompts()], plain)["prompt_suffix"]
    assert verdict.reason == "the profile 'kimi' describes no generation suffix"


def test_profile_without_the_suffix_of_the_mode(context: Context) -> None:
    suffixes: dict[Mode, tuple[int, ...]] = {"thinking": context.profile.suffixes["thinking"]}
    plain = replace(context, profile=replace(context.profile, suffixes=suffixes))
    off = kimi.prompts().filter(~pl.col("thinking"))
    for rows in (off, kimi.prompts().drop("thinking")):
        verdict = judge_prompts([rows], plain)["prompt_suffix"]
        said = "the profile describes no suffix for the rows' thinking mode, or their mode is not recorded"
        assert (verdict.status, verdict.reason) == ("not_judged", said)


def test_nothing_to_compare_with(profile: TargetProfile) -> None:
    bare = Context(profile)
    prompts, generations = judge_prompts([kimi.prompts()], bare), judge_generations([kimi.generations()], bare)
    assert prompts["tokenizer_canary"].reason == "the target's tokenizer is not at hand"
    assert prompts["prompt_reproducible"].reason == "no prompt was rendered again"
    assert prompts["prompt_injection"].reason == "no prompt was rendered with inert text"
    assert prompts["tools_rendered"].reason == "the target's tokenizer is not at hand"
    for law in ("text_agrees", "no_replacement_character", "retokenization_drift"):
        assert generations[law].reason == "the target's tokenizer is not at hand"
    assert prompts["prompts_accounted"].reason == "the prompts are not at hand"
    assert generations["prompt_as_generated"].reason == "the tokenized prompts are not at hand"
    assert generations["length_band"].reason == "no expected lengths are at hand (a dataset's length_band)"
    conservation = generations["conservation"]
    assert conservation.status == "passed"
    assert "missing rows cannot be noticed" in conservation.summary


@pytest.mark.parametrize("row", [0, 5, 11])
def test_prompt_that_is_rendered_no_more_is_another_prompt(row: int, context: Context) -> None:
    frame = kimi.prompts()
    sample = frame["sample_id"][row]
    gone = frame.with_columns(prompt_ids=pl.when(pl.col("sample_id") != sample).then("prompt_ids"))
    report = judge_prompts([frame], replace(context, rerendered_prompts=gone, declared_tools=None))
    verdict = report["prompt_reproducible"]
    assert (verdict.status, verdict.refuses, verdict.judged, verdict.violations) == ("failed", True, 12, 1)
    assert report.findings.select("sample_id", "law").rows() == [(sample, "prompt_reproducible")]
    assert f"{sample}: rendering it again gives nothing instead of" in verdict.details[0]


def test_none_of_the_prompts_is_rendered_any_more(context: Context) -> None:
    frame = kimi.prompts()
    nothing = frame.select("sample_id", pl.lit(None).alias("prompt_ids"))
    verdict = judge_prompts([frame], replace(context, rerendered_prompts=nothing))["prompt_reproducible"]
    assert (verdict.status, verdict.violations) == ("failed", 12)


def test_only_the_sample_that_was_rendered_again_is_judged(context: Context) -> None:
    few = kimi.prompts().head(3)
    verdict = judge_prompts([kimi.prompts()], replace(context, rerendered_prompts=few))["prompt_reproducible"]
    assert (verdict.status, verdict.judged, verdict.rows) == ("passed", 3, 12)


def test_of_a_sample_that_was_rendered_again_twice_the_first_counts(context: Context) -> None:
    frame = kimi.prompts().select("sample_id", "prompt_ids")
    sample = frame["sample_id"][4]
    other = frame.filter(pl.col("sample_id") == sample).with_columns(pl.col("prompt_ids").list.head(2))
    for rendered, broken in ((pl.concat([frame, other]), []), (pl.concat([other, frame]), [sample])):
        known = replace(context, rerendered_prompts=rendered, declared_tools=None)
        report = judge_prompts(kimi.prompts().iter_slices(5), known)
        assert report["prompt_reproducible"].judged == 12
        assert report.findings["sample_id"].to_list() == broken


def test_rendered_again_are_other_prompts(context: Context) -> None:
    others = kimi.prompts().with_columns(pl.lit("x").alias("sample_id"))
    verdict = judge_prompts([kimi.prompts()], replace(context, rerendered_prompts=others))["prompt_reproducible"]
    assert verdict.reason == "none of the prompts that were rendered again is in the partition"


def test_prompts_without_twin_or_tools(context: Context) -> None:
    frame = kimi.prompts()
    others = frame.with_columns(pl.lit("x").alias("sample_id"))
    report = judge_prompts([frame], replace(context, declared_tools={"x": ("a",)}).with_inert_prompts([others]))
    assert report["prompt_injection"].reason == "none of the prompts was rendered with inert text"
    assert report["tools_rendered"].reason == "no prompt is known to declare tools"
    assert report["messages_rendered"].reason == "which messages became nothing of a prompt is not known"
    unrendered = pl.lit([], pl.List(pl.String)).alias("unrendered")
    told = judge_prompts([frame], context.with_inert_prompts([others.with_columns(unrendered)]))["messages_rendered"]
    assert told.reason == "none of the prompts was rendered with inert text"
    assert judge_prompts([frame], context)["messages_rendered"].reason == "no prompt was rendered with inert text"
    refused = frame.with_columns(prompt_ids=pl.when(pl.col("sample_id") != "last").then("prompt_ids"))
    with_one_refused = context.with_inert_prompts([refused.with_columns(unrendered)])
    assert judge_prompts([frame], with_one_refused)["messages_rendered"].judged == 11
    verdict = judge_prompts([frame], context.with_inert_prompts([refused]))["prompt_injection"]
    assert (verdict.status, verdict.judged, verdict.rows) == ("warned", 11, 12)
    tools = {"last": ("a",), "answer": ()}
    without = replace(context, declared_tools=tools, tokenizer=None)
    assert judge_prompts([frame], without)["tools_rendered"].reason == "the target's tokenizer is not at hand"
    assert judge_prompts([frame], replace(context, declared_tools=tools))["tools_rendered"].judged == 1


def test_a_text_that_only_some_rows_record(context: Context) -> None:
    frame = kimi.generations().with_columns(text=pl.when(pl.col("sample_id") == "last").then("text"))
    verdict = judge_generations([frame], replace(context, complete_records=True))["text_agrees"]
    assert (verdict.status, verdict.judged, verdict.rows) == ("passed", 1, 12)


def test_no_sample_of_the_mode(context: Context) -> None:
    thinking = kimi.generations().filter(pl.col("prompt_ids").list.last() == kimi.THINK)
    report = judge_generations([thinking], context)
    assert report["reasoning_off"].reason == "reasoning is off for no prompt"
    off = kimi.generations().filter(pl.col("prompt_ids").list.last() == kimi.END_THINK)
    report = judge_generations([off], context)
    assert report["reasoning_closed"].reason == "no prompt or output has reasoning"
    assert report["reasoning_not_reopened"].reason == "no prompt or output opened reasoning"


@pytest.mark.parametrize("batches", [[], [kimi.generations().clear()]])
def test_no_rows_at_all(batches: list[pl.DataFrame], profile: TargetProfile) -> None:
    bare = Context(profile)
    report = judge_generations(batches, bare)
    assert report.nothing_judged
    assert [v.law for v in report.verdicts] == list(laws_of("raw_generations"))
    assert report["completion_count"].reason == "there is no generated row"
    assert report.refusals == ()
    none = replace(bare, source_sample_ids=frozenset(), current_prompts=PromptIndex({}, frozenset()))
    prompts = judge_prompts(batches, none)
    assert prompts["prompts_accounted"].reason == "there are no prompts"
    assert all(v.status == "not_judged" for v in (*prompts.verdicts, *judge_generations(batches, none).verdicts))
    assert prompts.refusals == judge_generations(batches, none).refusals == ()


def test_rows_that_all_failed(context: Context) -> None:
    failed = kimi.generations().with_columns(pl.lit("failed").alias("status"))
    report = judge_generations([failed], context)
    judged = {v.law.name for v in report.verdicts if v.status != "not_judged"}
    assert judged == {"conservation"}
    assert report["conservation"].status == "failed"
    assert report.refusals[-1] == (
        "nothing judged: no prompt has an output (12 rows: 12 failed); each row's reason says why."
    )
    forgiving = judge_generations([failed], replace(context, coverage=0.0))
    assert forgiving["conservation"].status == "passed"
    assert len(forgiving.refusals) == 1


def test_prompts_that_all_were_refused(context: Context) -> None:
    frame = kimi.prompts()
    nothing = frame.with_columns(prompt_ids=pl.lit(None, frame.schema["prompt_ids"]), status=pl.lit("refused"))
    report = judge_prompts([nothing], replace(context, rerendered_prompts=None))
    assert report.refusals == ("nothing judged: no prompt has ids (12 rows: 12 refused); each row's reason says why.",)
    raw = kimi.generations().with_columns(pl.lit("refused_prompt").alias("status"))
    sent = replace(context, current_prompts=PromptIndex.of([nothing]))
    first, last = judge_generations([raw], sent).refusals
    assert first.startswith("conservation: No prompt was sent: all 12 were refused.")
    assert last.startswith("nothing judged: no prompt has an output (12 rows: 12 refused_prompt)")


def test_rows_of_which_no_law_can_say_anything_are_refused(profile: TargetProfile) -> None:
    bare = kimi.generations().select("sample_id", "status")
    report = judge_generations([bare], Context(profile))
    assert report.nothing_judged
    assert report.refusals == ("nothing judged: no law could say anything of any of the 12 rows.",)


def test_every_row_law_says_why_it_may_have_nothing_to_judge() -> None:
    assert all(law.nothing and law.columns for law in LAWS if isinstance(law, RowLaw))


def test_matched_stop_recorded_nowhere_leaves_the_last_id_judged(context: Context) -> None:
    frame = kimi.generations().drop("matched_stop")
    verdict = judge_generations([frame], context)["stop_token_last"]
    assert verdict.status == "passed"
    assert verdict.reason == "matched_stop is not recorded in 9 of 12 samples"
    damaged = frame.with_columns(output_ids=pl.col("output_ids").list.head(2))
    report: Report = judge_generations([damaged], context)
    assert report["stop_token_last"].violations > 0
    assert report["stop_token_last"].violations < len(frame)


@pytest.mark.parametrize(("last", "open_reasoning"), [(kimi.IM_END, True), (kimi.HELLO, False)])
def test_without_finish_types_a_stop_id_says_that_an_output_is_whole(
    last: int, open_reasoning: bool, context: Context
) -> None:
    rows = {"answer": kimi.genuine()["answer"] | {"output_ids": [kimi.HELLO, last]}}
    report = judge_generations([kimi.generations(rows).drop("finish_type")], context)
    assert report["reasoning_closed"].violations == int(open_reasoning)
