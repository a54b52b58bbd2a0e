"""The law of replay on figures: what is found, where, by what; and that its false-alarm rate is what it says."""

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eagle3_assets.config import Sampling
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import judge_generations, judge_replay
from eagle3_assets.tokens.laws.replay import (
    FALSE_ALARM,
    LEAST_TOLERANCE,
    TOLERANCE_FACTOR,
    Rule,
    first_impossible,
    read_rule,
    surprise,
    tolerance_of,
)
from eagle3_assets.tokens.profile import TargetProfile
from eagle3_assets.tokens.verdict import Verdict

GREEDY, SAMPLED = Sampling(temperature=0.0), Sampling(temperature=1.0)
PENALIZED = Sampling(temperature=1.0, repetition_penalty=1.1)
VOCAB = 2_000
SURE = -1e-4
TOLERANCE = 0.01
Row = dict[str, Any]


def row(length: int = 20, sampling: Sampling | None = GREEDY, **changes: Any) -> Row:
    """A row of likely tokens, recorded as scored."""
    values: Row = {
        "output_ids": list(range(length)),
        "scored_logprobs": [SURE] * length,
        "scored_best": [SURE] * length,
        "output_logprobs": [SURE] * length,
        "logprob_kind": "model",
        "sampling": None if sampling is None else json.dumps(sampling.model_dump(mode="json")),
    }
    return values | changes


def changed(values: list[float], index: int, value: float) -> list[float]:
    return [*values[:index], value, *values[index + 1 :]]


def judged(*rows: Row, tolerance: float | None = TOLERANCE) -> tuple[Verdict, list[tuple[str, int]]]:
    """The verdict, and sample and index of each finding."""
    types: dict[str, pl.DataType | type[pl.DataType]] = {
        "scored_logprobs": pl.List(pl.Float64),
        "scored_best": pl.List(pl.Float64),
        "output_ids": pl.List(pl.Int32),
        "output_logprobs": pl.List(pl.Float32),
        "logprob_kind": pl.String,
        "sampling": pl.String,
    }
    frame = pl.DataFrame(rows, schema=pl.Schema(types)).with_columns(
        sample_id=pl.Series([f"s{n}" for n in range(len(rows))])
    )
    profile = TargetProfile(name="t", vocab_size=VOCAB, stop_ids=frozenset({1}))
    report = judge_replay([frame], Context(profile, replay_tolerance=tolerance))
    assert report["replayed"].effect == "warn" and not report.quarantined
    return report["replayed"], report.findings.select("sample_id", "index").rows()


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, PENALIZED, None])
@pytest.mark.parametrize("index", [0, 10, 19])
def test_a_departure_from_the_record_is_found_at_its_index(sampling: Sampling | None, index: int) -> None:
    whole = row(sampling=sampling)
    within = row(sampling=sampling, output_logprobs=changed(whole["output_logprobs"], index, SURE - 0.9 * TOLERANCE))
    beyond = row(sampling=sampling, output_logprobs=changed(whole["output_logprobs"], index, SURE - 1.1 * TOLERANCE))
    verdict, found = judged(whole, within, beyond)
    assert (verdict.status, verdict.judged, verdict.violations) == ("warned", 3, 1)
    assert found == [("s2", index)]
    assert f"from index {index} on: log-probability -0.0001 now, -0.0111 recorded, tolerance 0.01" in verdict.summary


def test_a_recorded_nan_is_a_departure() -> None:
    assert judged(row(output_logprobs=[float("nan")] * 20))[1] == [("s0", 0)]


@pytest.mark.parametrize("kind", ["sampled", None])
def test_log_probabilities_of_another_kind_are_not_compared(kind: str | None) -> None:
    other = row(logprob_kind=kind, output_logprobs=[-3.0] * 20)
    assert judged(other)[0].status == "passed"  # by the likelihood
    verdict, _ = judged(other | {"sampling": None})
    assert verdict.status == "not_judged"
    assert "no scored row records log-probabilities of the raw distribution" in verdict.summary


@pytest.mark.parametrize("count", [0, 19, 21])
def test_log_probabilities_of_another_number_are_not_compared(count: int) -> None:
    assert judged(row(output_logprobs=[-3.0] * count))[0].status == "passed"
    assert judged(row(sampling=PENALIZED, output_logprobs=[-3.0] * count))[0].status == "not_judged"


def test_what_was_not_scored_is_not_judged() -> None:
    unscored = row(scored_logprobs=None, scored_best=None)
    verdict, _ = judged(row(), unscored)
    assert (verdict.status, verdict.judged, verdict.rows) == ("passed", 1, 2)
    assert judged(unscored)[0].status == "not_judged"
    assert judged(row(), tolerance=None)[0].summary == "Not judged: the target was not asked to score the outputs."


def test_it_is_no_part_of_the_usual_judgement(context: Context) -> None:
    with pytest.raises(KeyError):
        judge_generations([], replace(context, replay_tolerance=1.0))["replayed"]


@pytest.mark.parametrize("index", [0, 10, 19])
def test_at_temperature_0_every_token_is_the_likeliest(index: int) -> None:
    bare = row(output_logprobs=None)
    near = bare | {"scored_logprobs": changed(bare["scored_logprobs"], index, SURE - 0.9 * TOLERANCE)}
    second = bare | {"scored_logprobs": changed(bare["scored_logprobs"], index, -0.8)}
    verdict, found = judged(bare, near, second)
    assert found == [("s2", index)]
    assert "-0.8 for this token, -0.0001 for the likeliest, and temperature 0 takes the likeliest" in verdict.summary


def test_min_p_cuts_a_token_off() -> None:
    bare = row(sampling=Sampling(temperature=1.0, min_p=0.1), output_logprobs=None)
    for gap, found in ((-np.log(0.11), []), (-np.log(0.09), [("s0", 7)])):
        assert judged(bare | {"scored_logprobs": changed(bare["scored_logprobs"], 7, SURE - float(gap))})[1] == found


@pytest.mark.parametrize("index", [0, 10, 19])
def test_a_token_that_the_target_hardly_ever_takes(index: int) -> None:
    bare = row(sampling=SAMPLED, output_logprobs=None)
    for logprob, found in ((-9.5, []), (-25.0, [("s0", index)])):
        values = bare | {"scored_logprobs": changed(bare["scored_logprobs"], index, logprob)}
        verdict, places = judged(values)
        assert places == found
    assert "-25 for this token, -0.0001 for the likeliest: with what follows up to index" in verdict.summary


def test_many_unlikely_tokens_are_found_together_where_they_begin() -> None:
    """None of them alone says anything."""
    bare = row(60, sampling=SAMPLED, output_logprobs=None)
    for start in (0, 10, 40):
        logprobs, best = [SURE] * 60, [-0.01] * 60
        logprobs[start : start + 8] = [-6.0] * 8
        assert judged(bare | {"scored_logprobs": logprobs, "scored_best": best})[1] == [("s0", start)]
        assert not judged(bare | {"scored_logprobs": changed([SURE] * 60, start, -6.0), "scored_best": best})[1]


def test_the_earlier_of_two_findings_counts() -> None:
    values = row(output_logprobs=changed([SURE] * 20, 5, -1.0), scored_logprobs=changed([SURE] * 20, 3, -1.0))
    assert judged(values)[1] == [("s0", 3)]


@pytest.mark.parametrize("record", [None, "", "[]", "{}", '{"temperature": "hot"}', "no json"])
def test_a_sampling_that_is_not_recorded_gives_no_rule(record: str | None) -> None:
    assert read_rule(record, VOCAB) is None


def test_rules() -> None:
    sampling = Sampling(temperature=0.5, top_k=20, min_p=0.1)
    rule = read_rule(json.dumps(sampling.model_dump(mode="json")), VOCAB)
    assert rule is not None
    assert (rule.temperature, rule.choices) == (0.5, 20)
    assert rule.widest == pytest.approx(0.5 * np.log(10))
    assert read_rule(json.dumps(SAMPLED.model_dump(mode="json")), VOCAB) == Rule(1.0, VOCAB, float("inf"))


@given(
    st.lists(st.floats(-25.0, 0.0), min_size=2, max_size=30),
    st.sampled_from([0.3, 0.7, 1.0, 1.5]),
    st.integers(1, 30),
    st.floats(0.1, 1.0),
)
def test_genuine_tokens_have_a_mean_factor_of_one_at_most(
    logits: list[float], temperature: float, top_k: int, top_p: float
) -> None:
    """What the false-alarm rate follows from, whatever the distribution: computed over all tokens that can come."""
    raw = np.sort(np.array(logits))[::-1]
    p = np.exp(raw - np.logaddexp.reduce(raw))
    q = p ** (1 / temperature)
    q /= q.sum()
    kept = (np.arange(len(q)) < top_k) & (np.concatenate(([0.0], np.cumsum(q)[:-1])) < top_p)
    q = np.where(kept, q, 0.0) / q[kept].sum()
    rule = Rule(temperature, min(top_k, len(p)), float("inf"))
    factors = np.exp(surprise(np.log(p), np.full(len(p), np.log(p[0])), rule))
    assert float(q @ factors) <= 1 + 1e-9


def test_fewer_false_alarms_than_promised() -> None:
    """Outputs drawn from distributions of every sharpness."""
    draw = np.random.default_rng(0)
    alarms = 0
    outputs = 2_000
    for _ in range(outputs):
        logits = draw.normal(size=(40, 50)) * draw.choice([0.5, 3.0, 8.0], size=(40, 1))
        logprobs = logits - np.logaddexp.reduce(logits, axis=1)[:, None]
        chosen = (logits + draw.gumbel(size=logits.shape)).argmax(axis=1)
        rule = Rule(1.0, 50, float("inf"))
        alarms += first_impossible(logprobs[np.arange(40), chosen], logprobs.max(axis=1), rule, 0.0) is not None
    assert alarms <= FALSE_ALARM * outputs


def test_the_tolerance_is_what_two_replays_give() -> None:
    numbers = random.Random(0)  # noqa: S311 - test data
    first = np.array([numbers.uniform(-5, 0) for _ in range(100)])
    assert tolerance_of(first, first) == LEAST_TOLERANCE
    assert tolerance_of(np.zeros(0), np.zeros(0)) == LEAST_TOLERANCE
    again = first.copy()
    again[50] += 0.02
    assert tolerance_of(first, again) == pytest.approx(0.02 * TOLERANCE_FACTOR)
