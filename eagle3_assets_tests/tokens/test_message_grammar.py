"""Messages and channels of gpt-oss: one damaged output among many is found, genuine ones pass."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from eagle3_assets.target import load_tokenizer
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import judge_generations
from eagle3_assets.tokens.profile import TargetProfile, resolve_profile
from eagle3_assets.tokens.verdict import Report
from eagle3_assets_tests.tokens import families
from eagle3_assets_tests.tokens.families import ANALYSIS, ARGUMENTS, FAMILIES, FINAL, HARMONY_ASK, HARMONY_CALL, Sample

HARMONY = FAMILIES["gpt-oss"]
BEGIN = "<|start|>assistant"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory: Path = families.save_small_tokenizer(HARMONY, tmp_path_factory.mktemp("harmony"))
    return load_tokenizer(directory, trust_remote_code=False)


@pytest.fixture(scope="module")
def harmony(encoder: Any) -> TargetProfile:
    return resolve_profile(encoder, vocab_size=400)


def judged(encoder: Any, profile: TargetProfile, samples: dict[str, Sample], **columns: Any) -> Report:
    frame = families.generations(encoder, samples).with_columns(**columns)
    return judge_generations([frame], Context(profile))


GENUINE = {
    "empty analysis": f"<|channel|>analysis<|message|><|end|>{FINAL}",
    "built-in tool": f"{ANALYSIS}{BEGIN}<|channel|>analysis to=python code<|message|>1+1<|call|>",
    "preamble": f"{ANALYSIS}{BEGIN}<|channel|>commentary<|message|>I.<|end|>{HARMONY_CALL}",
    "emoji": f"<|channel|>analysis<|message|>😀<|end|>{BEGIN}<|channel|>final<|message|>😀<|return|>",
}
CUT = [
    "<|channel|>",
    "<|channel|>ana",
    "<|channel|>analysis",
    "<|channel|>analysis<|message|>",
    ANALYSIS,
    f"{ANALYSIS}<|start|>",
    f"{ANALYSIS}<|start|>assis",
    f"{ANALYSIS}{BEGIN}<|channel|>commentary to=functions.f <|constrain|>",
    f"{ANALYSIS}{BEGIN}<|channel|>commentary to=functions.f <|constrain|>json<|message|>{{",
]

DAMAGES: dict[str, tuple[str, str, str]] = {
    "return without a final channel": (
        "<|channel|>analysis<|message|>Two.<|return|>",
        "<|return|>",
        "ends a message of the channel 'analysis', not of final",
    ),
    "return after a preamble": (
        f"{ANALYSIS}{BEGIN}<|channel|>commentary<|message|>I look.<|return|>",
        "<|return|>",
        "ends a message of the channel 'commentary', not of final",
    ),
    "call in the final channel": (
        f"{ANALYSIS}{BEGIN}<|channel|>final<|message|>{ARGUMENTS}<|call|>",
        "<|call|>",
        "ends a message of the channel 'final', not of analysis or commentary",
    ),
    "final message ended as one among others": (
        f"<|channel|>final<|message|>4.<|end|>{FINAL}",
        "<|end|>",
        "ends a message of the channel 'final', not of analysis or commentary",
    ),
    "channel without a body": (
        f"{ANALYSIS}{BEGIN}<|channel|>final It is 4.<|return|>",
        "<|return|>",
        "cannot stand there, after <|channel|>",
    ),
    "channel of the first message without a body": (
        f"<|channel|>analysis Two.<|end|>{FINAL}",
        "<|end|>",
        "cannot stand there, after <|channel|>",
    ),
    "no channel, first": (
        f"<|message|>Two.<|end|>{FINAL}",
        "<|message|>",
        "cannot stand there, after the output's beginning",
    ),
    "no channel, last": (
        f"{ANALYSIS}{BEGIN}<|message|>4.<|return|>",
        "<|message|>",
        "cannot stand there, after <|start|>",
    ),
    "no markup at all": ("It is 4.<|return|>", "<|return|>", "cannot stand there, after the output's beginning"),
    "no name of a channel": (
        f"{ANALYSIS}{BEGIN}<|channel|><|message|>4.<|return|>",
        "<|channel|>",
        "names none of the channels",
    ),
    "unknown channel": (
        f"<|channel|>thoughts<|message|>Two.<|end|>{FINAL}",
        "<|channel|>",
        "names none of the channels analysis, commentary, final",
    ),
    "two channels": (
        "<|channel|>analysis<|channel|>final<|message|>4.<|return|>",
        "<|channel|>",
        "cannot stand there, after <|channel|>",
    ),
    "message in a message": (
        f"<|channel|>analysis<|message|>Two<|message|>.<|end|>{FINAL}",
        "<|message|>",
        "cannot stand there, after <|message|>",
    ),
    "end lost": (
        f"<|channel|>analysis<|message|>Two.{FINAL}",
        "<|start|>",
        "cannot stand there, after <|message|>",
    ),
    "text between messages": (f"{ANALYSIS}\n{FINAL}", "<|start|>", "cannot stand there, after <|end|>"),
    "begin lost": (
        f"{ANALYSIS}<|channel|>final<|message|>4.<|return|>",
        "<|channel|>",
        "cannot stand there, after <|end|>",
    ),
    "message of another role": (
        f"{ANALYSIS}<|start|>user<|channel|>final<|message|>4.<|return|>",
        "<|start|>",
        "begins a message of another role than the target's",
    ),
}


@pytest.mark.parametrize("place", [0, 20, 39])
@pytest.mark.parametrize("name", DAMAGES)
def test_damage_in_one_of_many(name: str, place: int, encoder: Any, harmony: TargetProfile) -> None:
    output, token, said = DAMAGES[name]
    kinds = [*HARMONY.samples.values()]
    samples = {str(n): kinds[n % len(kinds)] for n in range(40)}
    assert judged(encoder, harmony, samples)["message_grammar"].violations == 0
    samples[str(place)] = Sample(HARMONY_ASK, output)
    report = judged(encoder, harmony, samples)
    [finding] = report.findings.filter(pl.col("law") == "message_grammar").iter_rows(named=True)
    assert (finding["sample_id"], finding["severity"]) == (str(place), "warning")
    assert said in finding["detail"]
    ids = encoder.encode(output, add_special_tokens=False)
    assert ids[finding["index"]] == encoder.convert_tokens_to_ids(token)
    others = set(report.findings.filter(pl.col("sample_id") == str(place))["law"]) - {"message_grammar"}
    assert others - {"duplicates"} == set()  # the few prompts are shared
    verdict = report["message_grammar"]
    assert (verdict.judged, verdict.violations, verdict.status, verdict.effect) == (40, 1, "warned", "warn")
    assert report.quarantined == frozenset()


@pytest.mark.parametrize("output", [*GENUINE.values(), *(s.output for s in HARMONY.samples.values() if not s.cut)])
def test_genuine_messages_pass(output: str, encoder: Any, harmony: TargetProfile) -> None:
    report = judged(encoder, harmony, {"s": Sample(HARMONY_ASK, output)})
    assert report["message_grammar"].status == "passed"
    unsaid = judged(encoder, harmony, {"s": Sample(HARMONY_ASK, output)}, finish_type=pl.lit(None, pl.String))
    assert unsaid["message_grammar"].status == "passed"


@pytest.mark.parametrize("output", CUT)
def test_what_is_cut_off_may_be_open(output: str, encoder: Any, harmony: TargetProfile) -> None:
    samples = {"s": Sample(HARMONY_ASK, output, cut=True)}
    assert judged(encoder, harmony, samples)["message_grammar"].status == "passed"
    whole = judged(encoder, harmony, samples, finish_type=pl.lit("stop"))["message_grammar"]
    assert whole.violations == 1


def test_a_whole_output_without_any_message(encoder: Any, harmony: TargetProfile) -> None:
    verdict = judged(encoder, harmony, {"s": Sample(HARMONY_ASK, "It is 4.")})["message_grammar"]
    assert verdict.details == ("s: there is no message, though the output was not cut off",)


def test_an_output_that_goes_on_elsewhere_is_not_judged(encoder: Any, harmony: TargetProfile) -> None:
    prefilled = {"s": Sample(f"{HARMONY_ASK}<|channel|>final<|message|>", "It is 4.<|return|>")}
    verdict = judged(encoder, harmony, prefilled)["message_grammar"]
    assert verdict.reason == "no output goes on where a prompt of the profile ends"
    unknown = judged(encoder, harmony, prefilled, prompt_ids=pl.lit(None, pl.List(pl.Int32)))
    assert unknown["message_grammar"].violations == 1


def test_what_comes_after_the_end_is_another_laws(encoder: Any, harmony: TargetProfile) -> None:
    report = judged(encoder, harmony, {"s": Sample(HARMONY_ASK, f"{ANALYSIS}{FINAL}<|message|><|return|>")})
    assert report["message_grammar"].violations == 0
    assert report["nothing_after_stop"].violations == 1


def test_profiles_without_messages_are_not_judged(context: Context) -> None:
    one = replace(context, tokenizer=None)
    frame = pl.DataFrame({"sample_id": ["s"], "output_ids": [[163586]]})
    verdict = judge_generations([frame], one)["message_grammar"]
    assert (verdict.status, verdict.reason) == ("not_judged", "the profile 'kimi' describes no messages within outputs")
