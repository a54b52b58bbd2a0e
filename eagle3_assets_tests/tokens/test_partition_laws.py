from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from eagle3_assets.config import Band, LengthBand
from eagle3_assets.tokens.context import Context, FileIdentity, PromptIndex
from eagle3_assets.tokens.judge import judge_generations, judge_prompts
from eagle3_assets.tokens.profile import Tokenizer, resolve_profile
from eagle3_assets.tokens.verdict import Verdict
from eagle3_assets.tokens.wording import percent
from eagle3_assets_tests.tokens import kimi

POSITIONS = [0, 5, 11]


def with_status(frame: pl.DataFrame, row: int, status: str | None) -> pl.DataFrame:
    values = frame["status"].to_list()
    values[row] = status
    return frame.with_columns(pl.Series("status", values, dtype=pl.String))


def conservation(frame: pl.DataFrame, context: Context) -> tuple[Verdict, list[tuple[str, str]]]:
    report = judge_generations([frame], context)
    found = report.findings.filter(pl.col("law") == "conservation")
    assert set(found["severity"]) <= {"error"}
    return report["conservation"], list(found.select("sample_id", "detail").iter_rows())


@pytest.mark.parametrize("row", POSITIONS)
def test_doubled_row(row: int, context: Context) -> None:
    frame = kimi.generations()
    verdict, found = conservation(pl.concat([frame, frame[row]]), context)
    assert (verdict.status, verdict.refuses, verdict.violations) == ("failed", True, 1)
    assert found == [(frame["sample_id"][row], "2 rows with this sample id")]


@pytest.mark.parametrize("row", POSITIONS)
def test_missing_row(row: int, context: Context) -> None:
    frame = kimi.generations()
    lost = frame["sample_id"][row]
    verdict, found = conservation(frame.filter(pl.col("sample_id") != lost), context)
    assert (lost, "no row for this prompt") in found
    assert verdict.details[1] == "only 11 of 12 sent prompts have an output (91.67% of 100%)"


@pytest.mark.parametrize("row", POSITIONS)
def test_row_of_no_prompt(row: int, context: Context) -> None:
    names = kimi.generations()["sample_id"].to_list()
    frame = kimi.generations().with_columns(pl.Series("sample_id", [*names[:row], "stranger", *names[row + 1 :]]))
    _, found = conservation(frame, context)
    expected = [(names[row], "no row for this prompt"), ("stranger", "no such prompt in tokenized_prompts")]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("status", ["running", None])
def test_state_that_is_not_terminal(status: str | None, context: Context) -> None:
    _, found = conservation(with_status(kimi.generations(), 3, status), context)
    assert found == [("cut-in-reasoning", f"status {status!r} is no terminal state")]


def test_state_that_contradicts_the_prompt(context: Context) -> None:
    _, found = conservation(with_status(kimi.generations(), 0, "refused_prompt"), context)
    assert found == [("answer", "the prompt is ready, the row says refused_prompt")]
    refused = kimi.prompts().with_columns(
        status=pl.when(pl.col("sample_id") == "last").then(pl.lit("refused")).otherwise("status")
    )
    sent = replace(context, current_prompts=PromptIndex.of([refused]))
    _, found = conservation(kimi.generations(), sent)
    assert found == [("last", "the prompt is refused, the row says generated")]


def test_refused_prompt_with_its_row_is_conserved(context: Context) -> None:
    refused = kimi.prompts().with_columns(
        status=pl.when(pl.col("sample_id") == "last").then(pl.lit("refused")).otherwise("status")
    )
    sent = replace(context, current_prompts=PromptIndex.of([refused]))
    verdict, found = conservation(with_status(kimi.generations(), 11, "refused_prompt"), sent)
    assert (verdict.status, found) == ("passed", [])
    assert verdict.figures == {"coverage": 1.0, "generated": 11, "sent": 11}


def test_coverage_threshold(context: Context) -> None:
    frame = with_status(kimi.generations(), 0, "failed")
    assert conservation(frame, context)[0].status == "failed"
    assert conservation(frame, replace(context, coverage=11 / 12))[0].status == "passed"


def test_coverage_without_prompts_leaves_refused_rows_out(context: Context) -> None:
    frame = with_status(with_status(kimi.generations(), 0, "failed"), 1, "refused_prompt")
    verdict, _ = conservation(frame, replace(context, current_prompts=None, coverage=0.5))
    assert verdict.status == "passed"
    assert (verdict.figures["generated"], verdict.figures["sent"]) == (10, 11)


def all_refused(frame: pl.DataFrame, status: str) -> pl.DataFrame:
    return frame.with_columns(pl.lit(status).alias("status"))


@pytest.mark.parametrize("coverage", [0.0, 1.0])
@pytest.mark.parametrize("at_hand", [True, False])
def test_every_prompt_refused_is_no_success(at_hand: bool, coverage: float, context: Context) -> None:
    index = PromptIndex.of([all_refused(kimi.prompts(), "refused")])
    sent = replace(context, current_prompts=index if at_hand else None, coverage=coverage)
    verdict, found = conservation(all_refused(kimi.generations(), "refused_prompt"), sent)
    assert (verdict.status, verdict.refuses, found) == ("failed", True, [])
    assert verdict.summary.startswith("No prompt was sent: all 12 were refused")
    assert verdict.figures == {"coverage": 0.0, "generated": 0, "sent": 0}


def with_value(column: str, row: int, value: object) -> pl.DataFrame:
    frame = kimi.generations()
    values = frame[column].to_list()
    values[row] = value
    return frame.with_columns(pl.Series(column, values, dtype=frame.schema[column]))


@pytest.mark.parametrize("row", POSITIONS)
def test_weights_that_change_within_a_row_quarantine_it(row: int, context: Context) -> None:
    frame = with_value("weight_version", row, "v7, v8")
    sample = frame["sample_id"][row]
    report = judge_generations([frame], context)
    verdict = report["one_target"]
    assert (verdict.status, verdict.refuses, verdict.violations) == ("warned", False, 1)
    found = report.findings.filter(pl.col("law") == "one_target").select("sample_id", "severity", "detail").rows()
    assert found == [(sample, "error", "the weights changed while it was generated: v7, v8")]
    assert report.quarantined == report.broken == {sample}
    strict = judge_generations([frame], replace(context, quarantine_limit=0.01))
    assert strict["one_target"].refuses
    assert strict.refusals[0].startswith("one_target: 1 sample with several; first ")


@pytest.mark.parametrize("row", POSITIONS)
def test_two_weight_versions_in_one_partition(row: int, context: Context) -> None:
    frame = with_value("weight_version", row, "v8")
    elsewhere = with_value("endpoint", row, "http://b:1")["endpoint"]
    report = judge_generations([frame.with_columns(elsewhere)], context)
    verdict = report["one_target"]
    assert (verdict.status, verdict.refuses, verdict.violations) == ("failed", True, 1)
    assert verdict.details == (
        "2 weight versions in one partition: v7 (11 rows from embedded), v8 (1 rows from http://b:1)",
    )
    found = report.findings.filter(pl.col("law") == "one_target").select("sample_id", "severity", "detail").rows()
    assert found == [(frame["sample_id"][row], "error", "made by v8, most rows by v7")]
    assert report.quarantined == frozenset()


@pytest.mark.parametrize(
    ("weights", "refuses"),
    [("v7", False), ("path:/m@v7", False), ("path:/m@unknown", False), (None, False), ("path:/m@v8", True)],
)
def test_weights_of_the_files_identity(weights: str | None, refuses: bool, context: Context) -> None:
    frame = kimi.generations()
    file = FileIdentity("0" * 16, frame["sampling"][0], weights)
    verdict = judge_generations([frame], replace(context, file_identity=file))["one_target"]
    assert verdict.refuses == refuses
    assert ("v7 is not the weight version of the file's identity" in verdict.details[0]) == refuses


def test_rows_that_do_not_name_their_weights(context: Context) -> None:
    verdict = judge_generations([with_value("weight_version", 3, None)], context)["one_target"]
    assert (verdict.status, verdict.reason) == ("passed", "1 row without a weight version")
    failed = with_status(with_value("weight_version", 3, "v8"), 3, "failed")
    assert judge_generations([failed], replace(context, coverage=0.5))["one_target"].status == "passed"


def duplicates(frame: pl.DataFrame, context: Context) -> tuple[Verdict, list[tuple[str, str, str]]]:
    report = judge_generations([frame[:5], frame[5:]], context)
    found = report.findings.filter(pl.col("law") == "duplicates")
    return report["duplicates"], found.select("sample_id", "severity", "detail").rows()


@pytest.mark.parametrize(("row", "earlier"), [(1, 0), (5, 2), (11, 0), (11, 10)])
@pytest.mark.parametrize(
    ("columns", "figure", "said"),
    [
        (["prompt_ids"], "equal_prompts", "the same prompt as"),
        (["output_ids"], "equal_outputs", "the same output as, to another prompt,"),
        (["prompt_ids", "output_ids"], "equal_samples", "the same prompt as"),
    ],
)
def test_equal_rows(columns: list[str], figure: str, said: str, row: int, earlier: int, context: Context) -> None:
    frame = kimi.generations()
    assert duplicates(frame, context)[0].summary == "No two of 12 samples are equal."
    for column in columns:
        ids = frame[column].to_list()
        ids[row] = ids[earlier]
        frame = frame.with_columns(pl.Series(column, ids, dtype=frame.schema[column]))
    names = frame["sample_id"]
    verdict, found = duplicates(frame, context)
    assert (verdict.status, verdict.refuses, verdict.violations) == ("warned", False, 1)
    assert found == [(names[row], "warning", f"{said} {names[earlier]}")]
    assert verdict.figures[figure] == 1
    assert sum(verdict.figures.values()) == len(columns)


@pytest.mark.parametrize(("row", "earlier"), [(1, 0), (5, 2), (11, 0)])
@pytest.mark.parametrize("recorded", [[], ["row"], ["earlier"], ["row", "earlier"]])
def test_nothing_is_said_of_prompts_that_are_not_recorded(
    recorded: list[str], row: int, earlier: int, context: Context
) -> None:
    frame = kimi.generations()
    outputs, prompts = frame["output_ids"].to_list(), frame["prompt_ids"].to_list()
    outputs[row] = outputs[earlier]
    for name, place in (("row", row), ("earlier", earlier)):
        prompts[place] = prompts[place] if name in recorded else None
    frame = frame.with_columns(
        pl.Series("output_ids", outputs, dtype=pl.List(pl.Int32)),
        pl.Series("prompt_ids", prompts, dtype=pl.List(pl.Int32)),
    )
    names = frame["sample_id"]
    verdict, found = duplicates(frame, context)
    other = ", to another prompt," if len(recorded) == 2 else ""
    assert found == [(names[row], "warning", f"the same output as{other} {names[earlier]}")]
    assert verdict.reason == ("2 rows without prompt", "1 row without prompt", None)[len(recorded)]


def test_samples_of_one_prompt_are_wanted(context: Context) -> None:
    answer = kimi.genuine()["answer"]
    outputs = [[*kimi.letters(text), kimi.END_THINK, kimi.IM_END] for text in ("a", "b", "a")]
    rows = {f"c:1:{n}": answer | {"output_ids": ids} for n, ids in enumerate(outputs)}
    verdict, found = duplicates(kimi.generations(rows), context)
    assert verdict.figures == {"equal_prompts": 0, "equal_samples": 1, "equal_outputs": 0}
    assert found == [("c:1:2", "warning", "the same prompt and output as c:1:0")]
    other_turn = kimi.generations({"c:1:0": rows["c:1:0"], "c:3:0": rows["c:1:1"]})
    assert duplicates(other_turn, context)[0].figures["equal_prompts"] == 1


def accounted(frame: pl.DataFrame, context: Context, expected: set[str]) -> tuple[Verdict, list[tuple[str, str]]]:
    report = judge_prompts([frame], replace(context, source_sample_ids=frozenset(expected)))
    found = report.findings.filter(pl.col("law") == "prompts_accounted")
    return report["prompts_accounted"], list(found.select("sample_id", "detail").iter_rows())


def test_prompts_that_are_all_there_are_accounted(context: Context) -> None:
    frame = kimi.prompts()
    refused = frame.with_columns(pl.lit(None, frame.schema["prompt_ids"]).alias("prompt_ids"))
    for rows in (frame, refused, frame[::-1]):
        verdict, found = accounted(rows, context, set(frame["sample_id"]))
        assert (verdict.status, verdict.effect, found) == ("passed", "block", [])
        assert verdict.summary == "All 12 samples of prompts have one row."


@pytest.mark.parametrize("row", POSITIONS)
def test_tokenized_prompt_missing(row: int, context: Context) -> None:
    frame = kimi.prompts()
    lost = frame["sample_id"][row]
    verdict, found = accounted(frame.filter(pl.col("sample_id") != lost), context, set(frame["sample_id"]))
    assert (verdict.status, verdict.refuses, verdict.violations) == ("failed", True, 1)
    assert found == [(lost, "tokenized_prompts has no row for it")]


@pytest.mark.parametrize("row", POSITIONS)
def test_tokenized_prompt_of_no_prompt(row: int, context: Context) -> None:
    frame = kimi.prompts()
    extra = frame["sample_id"][row]
    verdict, found = accounted(frame, context, set(frame["sample_id"]) - {extra})
    assert (verdict.status, verdict.violations) == ("failed", 1)
    assert found == [(extra, "prompts has no such sample")]


@pytest.mark.parametrize("row", POSITIONS)
def test_tokenized_prompt_doubled(row: int, context: Context) -> None:
    frame = kimi.prompts()
    verdict, found = accounted(pl.concat([frame, frame[row]]), context, set(frame["sample_id"]))
    assert (verdict.status, verdict.violations) == ("failed", 1)
    assert found == [(frame["sample_id"][row], "2 rows with this sample id")]
    assert frame["sample_id"][row] in verdict.summary


def test_tokenized_prompts_of_another_dataset(context: Context) -> None:
    frame = kimi.prompts().with_columns(
        sample_id=pl.when(pl.col("sample_id") != "last").then(pl.concat_str("sample_id", pl.lit("!")))
    )
    verdict, found = accounted(frame, context, set(kimi.prompts()["sample_id"]))
    assert verdict.violations == len(found) == 11 + 1 + 12
    assert "11 times" not in verdict.summary
    assert "12 times prompts has no such sample, 12 times tokenized_prompts has no row for it" in verdict.summary


def test_prompts_that_all_went_leave_rows_of_no_sample(context: Context) -> None:
    assert accounted(kimi.prompts(), context, set())[0].violations == 12
    assert accounted(kimi.prompts().clear(), context, {"a"})[0].violations == 1


def test_empty_file_for_prompts_that_there_are(context: Context) -> None:
    verdict, found = conservation(kimi.generations().clear(), context)
    assert verdict.refuses
    assert len(found) == 12


@pytest.mark.parametrize(
    ("band", "said"),
    [
        (LengthBand(median=Band(low=100, high=200)), "Median 10 is outside 100-200."),
        (LengthBand(p95=Band(low=1, high=10)), "P95 64 is outside 1-10."),
        (LengthBand(share_under_500=Band(low=0, high=0.5)), "Share under 500 100% is outside 0%-50.00%."),
    ],
)
def test_lengths_outside_the_band(band: LengthBand, said: str, context: Context) -> None:
    frame = kimi.generations()
    verdict = judge_generations([frame], replace(context, length_band=band))["length_band"]
    assert (verdict.status, verdict.refuses) == ("warned", False)
    assert verdict.summary == said


def test_lengths_inside_the_band(context: Context) -> None:
    band = LengthBand(median=Band(low=0, high=1_000), share_under_500=Band(low=1, high=1))
    verdict = judge_generations([kimi.generations()], replace(context, length_band=band))["length_band"]
    assert verdict.status == "passed"
    assert verdict.figures["share_under_500"] == 1.0


def cut_off(lengths: list[int], whole: int, recorded: int = kimi.CAP) -> pl.DataFrame:
    rows = {f"cut-{n}": kimi.genuine()["cut-in-reasoning"] for n in range(len(lengths))}
    for row, length in zip(rows, lengths, strict=True):
        rows[row] = rows[row] | {"output_ids": kimi.letters("y" * length), "finish_length": length}
    rows |= {f"whole-{n}": kimi.genuine()["answer"] for n in range(whole)}
    sampling = kimi.SAMPLING.model_copy(update={"max_new_tokens": recorded}).model_dump_json()
    return kimi.generations(rows).with_columns(pl.lit(sampling).alias("sampling"))


@pytest.mark.parametrize(
    ("frame", "status", "said"),
    [
        (cut_off([64], 19), "passed", "1 of 20 outputs were cut off (5.00%)"),
        (cut_off([64] * 3, 17), "warned", "3 of 20 outputs were cut off (15.00%)"),
        (cut_off([128, 128], 38, 512), "warned", "every cut-off output has 128 tokens, SGLang's default, which is not"),
        (cut_off([100, 100], 38, 512), "warned", "every cut-off output has 100 tokens, which is not the recorded"),
        (cut_off([100, 101], 38, 512), "passed", "2 of 40"),
        (cut_off([100], 38, 512), "passed", "1 of 39"),
    ],
)
def test_cut_off_share(frame: pl.DataFrame, status: str, said: str, context: Context) -> None:
    verdict = judge_generations([frame], context)["cut_off_share"]
    assert verdict.status == status
    assert said in verdict.summary[:1].lower() + verdict.summary[1:]


class Bent:
    """A tokenizer with one thing wrong."""

    def __init__(self, tokenizer: Tokenizer, **wrong: dict[Any, Any]) -> None:
        self.tokenizer, self.wrong = tokenizer, wrong

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]:
        return self.tokenizer.added_tokens_decoder

    def get_vocab(self) -> dict[str, int]:
        return self.tokenizer.get_vocab()

    def convert_tokens_to_ids(self, tokens: str) -> object:
        return self.wrong.get("ids", {}).get(tokens, self.tokenizer.convert_tokens_to_ids(tokens))

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        plain = self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return list(self.wrong.get("encoded", {}).get(text, plain))

    def decode(self, token_ids: list[int], **flags: bool) -> object:
        plain = self.tokenizer.decode(token_ids, **flags)
        return self.wrong.get("decoded", {}).get(tuple(token_ids), plain)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"decoded": {(kimi.END_THINK,): ""}}, "id 163607 decodes to '', not to </think>"),
        ({"encoded": {"<|im_end|>": [27, 91]}}, "<|im_end|> encodes to [27, 91], not to [163586]"),
        ({"ids": {"<think>": 7}}, "<think> has id 7 in the tokenizer, 163606 in the profile"),
        (
            {"encoded": {"<|im_assistant|>assistant<|im_middle|><think>": [1]}},
            "the thinking suffix encodes to [1], not to [163588, 69702, 163601, 163606]",
        ),
        ({"decoded": {tuple(kimi.SUFFIX): "x"}}, "the thinking suffix decodes to 'x'"),
    ],
)
def test_tokenizer_canary(wrong: dict[str, Any], said: str, tokenizer: Tokenizer, context: Context) -> None:
    assert judge_prompts([kimi.prompts()], context)["tokenizer_canary"].status == "passed"
    bent = replace(context, tokenizer=Bent(tokenizer, **wrong))
    verdict = judge_prompts([kimi.prompts()], bent)["tokenizer_canary"]
    assert (verdict.status, verdict.refuses, verdict.violations) == ("failed", True, 1)
    assert said in verdict.details[0]


def test_stop_id_that_the_tokenizer_does_not_name_is_not_asked_for(tokenizer: Tokenizer, context: Context) -> None:
    profile = resolve_profile(tokenizer, vocab_size=kimi.VOCAB_SIZE, stop_token_ids=[5])
    assert 5 in profile.stop_ids
    verdict = judge_prompts([], replace(context, profile=profile))["tokenizer_canary"]
    assert (verdict.status, verdict.figures["structural_tokens"]) == ("passed", 20)


def test_tokenizer_canary_needs_no_rows(context: Context) -> None:
    assert judge_prompts([], context)["tokenizer_canary"].status == "passed"


@pytest.mark.parametrize(("refused", "status"), [(0, "passed"), (1, "passed"), (2, "warned"), (12, "warned")])
def test_refused_prompts_are_counted_with_their_reasons(refused: int, status: str, context: Context) -> None:
    reasons = ["too long: 9 ids" if row else "template: no\x1b[2J" for row in range(refused)]
    frame = kimi.prompts().with_columns(
        status=pl.when(pl.int_range(pl.len()) < refused).then(pl.lit("refused")).otherwise("status"),
        reason=pl.Series([*reasons, *[None] * (12 - refused)], dtype=pl.String),
    )
    verdict = judge_prompts([frame], context)["prompts_refused"]
    assert (verdict.status, verdict.refuses) == (status, False)
    assert verdict.summary.startswith(f"{refused} of 12 prompts refused ({percent(refused / 12, 2)})")
    assert verdict.figures == {"refused_share": refused / 12}
    if refused == 12:
        assert "; 11 times too long; 1 times template" in verdict.summary


def test_without_prompts_nothing_is_said_of_refused_ones(context: Context) -> None:
    assert judge_prompts([kimi.prompts().clear()], context)["prompts_refused"].status == "not_judged"
