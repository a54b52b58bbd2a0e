"""The law of replay: the target itself, asked how likely the recorded tokens are.

What belongs here: what log-probabilities say about an output. Not here: getting them from an engine (``replaying``).

Two kinds of evidence, each with a false-alarm rate that does not have to be guessed:

- Where the log-probability at generation was recorded (of the same kind, the raw distribution), the two must agree, up
  to a tolerance that genuine outputs of the moment give (:func:`tolerance_of`).
- Else, and besides, tokens must be such as the target would choose with the recorded sampling. At temperature 0 each is
  the likeliest one, up to the tolerance. Above, every token is a bet against the target (:func:`surprise`): a factor
  whose mean over genuine tokens is 1 at most, large where the target was sure of another token, or would hardly ever
  choose this one. By Ville's inequality a product of such factors reaches ``1 / FALSE_ALARM`` in no more than
  ``FALSE_ALARM`` of all genuine outputs. As the beginning of a fault is not known, each index is tried as one, and the
  number of tokens counts against the product.
"""

import json
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.laws.base import Found, RowJudgement, RowLaw

Floats = NDArray[np.float64]

SCORED_KIND = "model"
"""What engines score with: the raw distribution, before temperature and truncation."""

FALSE_ALARM = 1e-3
"""Share of genuine outputs, at most, whose tokens are called impossible; in truth far fewer (``docs/replay.md``)."""

LEAST_TOLERANCE = 1e-3
"""In natural-log units. In float32, generating and scoring differ by 1e-5."""
TOLERANCE_FACTOR = 5.0
"""The tolerance, in largest differences that a few genuine outputs show: the many that are judged have larger ones."""

_BET_SURE, _BET_RARE = 0.2, 0.05
"""Share of the stake on either kind of surprise; the rest is kept."""
_SUREST = 1e-6
"""A target's doubt smaller than this is rounding in float32."""


def tolerance_of(generated: Floats, scored: Floats) -> float:
    """The tolerance of a target: how far genuine log-probabilities may lie apart, in natural-log units.

    Args:
        generated: log-probabilities of tokens that were generated just now.
        scored: of the same tokens, scored.
    """
    noise = float(np.abs(generated - scored).max(initial=0.0))
    return max(LEAST_TOLERANCE, TOLERANCE_FACTOR * noise)


@dataclass(frozen=True, slots=True)
class Rule:
    """What a recorded sampling says of which tokens can come."""

    temperature: float
    choices: int
    """Most tokens there are to choose from in one place."""
    widest: float
    """How far a token may lie below the likeliest at all, in natural-log units."""


def read_rule(record: str | None, vocab_size: int) -> Rule | None:
    """The rule of one recorded sampling.

    Returns:
        None where it is not recorded, or where a repetition penalty makes another distribution than the scored one.
    """
    try:
        values = json.loads(record or "")
        temperature, penalty = float(values["temperature"]), float(values["repetition_penalty"])
        top_k, min_p = int(values["top_k"]), float(values["min_p"])
    except (ValueError, TypeError, KeyError):
        return None
    if penalty != 1.0 or not 0.0 <= temperature < np.inf:
        return None
    widest = 0.0 if temperature == 0 else -temperature * np.log(min_p) if min_p > 0 else np.inf
    return Rule(temperature, min(vocab_size, top_k) if top_k > 0 else vocab_size, float(widest))


def surprise(logprobs: Floats, best: Floats, rule: Rule) -> Floats:
    """The natural log of each token's factor, of which genuine tokens have a mean of 1 at most.

    Let p be the probability of a token, m that of the likeliest, and T > 0 the temperature; truncation only takes
    unlikely tokens away. A token other than the likeliest comes with probability (1 - m) / m to the power of 1 / T at
    most (times (V - 1) to the power of 1 - 1 / T where T > 1), so one over that, where it does, has a mean of 1 at
    most. So has (m / p) to the power of 1 / T, divided by the number of tokens to choose from.

    Args:
        logprobs: of the recorded tokens, raw distribution.
        best: of the likeliest token in each place.
        rule: with a temperature above 0.
    """
    inverse = 1.0 / rule.temperature
    gap = best - logprobs
    doubt = np.clip(-np.expm1(np.minimum(best, 0.0)), _SUREST, 1.0)
    log_other = inverse * (np.log(doubt) - np.log(np.maximum(1.0 - doubt, _SUREST)))
    log_other += max(0.0, 1.0 - inverse) * np.log(rule.choices)
    sure = np.where(gap > 0, -np.minimum(log_other, 0.0), -np.inf)
    rare = inverse * gap - np.log(rule.choices)
    bets = (
        np.full_like(gap, np.log1p(-_BET_SURE - _BET_RARE)),
        np.log(_BET_SURE) + sure,
        np.log(_BET_RARE) + rare,
    )
    total: Floats = np.logaddexp.reduce(bets)
    return total


def first_impossible(logprobs: Floats, best: Floats, rule: Rule, tolerance: float) -> tuple[int, str] | None:
    """Where tokens begin that the target would not choose, and why; None where there are none.

    Args:
        logprobs: of the recorded tokens, raw distribution.
        best: of the likeliest token in each place.
        rule: of the recorded sampling.
        tolerance: in natural-log units.
    """
    outside = np.flatnonzero(best - logprobs > rule.widest + tolerance)
    if len(outside):
        at = int(outside[0])
        why = "temperature 0 takes the likeliest" if rule.temperature == 0 else "min_p cuts it off"
        return at, f"{_shown(logprobs[at])} for this token, {_shown(best[at])} for the likeliest, and {why}"
    if rule.temperature == 0:
        return None
    total = np.concatenate(([0.0], np.cumsum(surprise(logprobs, best, rule))))
    least = np.minimum.accumulate(total)
    over = np.flatnonzero(total - least > np.log(len(logprobs) / FALSE_ALARM))
    if not len(over):
        return None
    end = int(over[0])
    begin = int(np.flatnonzero(total[: end + 1] == least[end])[-1])
    exponent = ((total - least)[end] - np.log(len(logprobs))) / np.log(10)
    return begin, (
        f"{_shown(logprobs[begin])} for this token, {_shown(best[begin])} for the likeliest: with what follows up to"
        f" index {end - 1}, less than once in 1e{exponent:.0f} outputs of this target"
    )


def first_departure(logprobs: Floats, recorded: Floats, tolerance: float) -> tuple[int, str] | None:
    """Where log-probabilities depart from the recorded ones by more than the tolerance; None where they do not."""
    away = np.flatnonzero(~(np.abs(logprobs - recorded) <= tolerance))
    if not len(away):
        return None
    at = int(away[0])
    return at, f"{_shown(logprobs[at])} now, {_shown(recorded[at])} recorded, tolerance {tolerance:.2g}"


def judge_replayed(batch: Batch) -> RowJudgement:
    """Judges the rows that have scores, each by whatever there is to judge it by."""
    tolerance = batch.context.replay_tolerance
    if tolerance is None:
        raise ValueError("a replay is judged with a tolerance in its context")
    rules: dict[str | None, Rule | None] = {}
    judged = np.zeros(len(batch), np.bool_)
    rows: list[int] = []
    index: list[int] = []
    details: list[str] = []
    columns = zip(
        batch.column("scored_logprobs", pl.List(pl.Float64)),
        batch.column("scored_best", pl.List(pl.Float64)),
        batch.column("output_logprobs", pl.List(pl.Float32)),
        batch.column("logprob_kind", pl.String),
        batch.column("sampling", pl.String),
        strict=True,
    )
    for row, (scored, likeliest, kept, kind, record) in enumerate(columns):
        if scored is None or likeliest is None or len(scored) != batch.output.lengths[row]:
            continue
        logprobs, best = scored.to_numpy(), likeliest.to_numpy()
        if record not in rules:
            rules[record] = read_rule(record, batch.context.profile.vocab_size)
        rule = rules[record]
        found: list[tuple[int, str] | None] = []
        if kept is not None and kind == SCORED_KIND and len(kept) == len(scored):
            found.append(first_departure(logprobs, kept.cast(pl.Float64).to_numpy(), tolerance))
        if rule is not None:
            found.append(first_impossible(logprobs, best, rule, tolerance))
        judged[row] = bool(found)
        if faults := [fault for fault in found if fault is not None]:
            at, detail = min(faults, key=lambda fault: fault[0])
            rows.append(row)
            index.append(at)
            details.append(f"from index {at} on: log-probability {detail}")
    return RowJudgement(judged, (Found(np.array(rows, np.int64), np.array(index, np.int64), details, "error"),))


def needs_replay(context: Context) -> str | None:
    """Condition of the law: the target has to be asked, which costs its time."""
    return None if context.replay_tolerance is not None else "the target was not asked to score the outputs"


def _shown(logprob: float) -> str:
    return f"{logprob:.3g}"


REPLAYED = RowLaw(
    name="replayed",
    definition="The target, scoring prompt and output of a sample of the rows, gives every token the log-probability"
    " that was recorded with it, and finds no token impossible.",
    asset="raw_generations",
    effect="warn",
    meaning="These tokens are not what this target emits after these prompts: text was edited or encoded again, a"
    " token is missing, the prompt was rendered otherwise, or another model wrote them.",
    remedy="Look at the named index in context; if the target serves the same weights as then, find what changed the"
    " rows since capture and regenerate them.",
    judge=judge_replayed,
    columns=("output_ids", "scored_logprobs", "scored_best"),
    unless=needs_replay,
    nothing="no scored row records log-probabilities of the raw distribution, or a sampling without repetition penalty",
)
