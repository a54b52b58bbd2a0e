"""Replay of a partition: the engine scores recorded outputs, and the law of replay judges them.

What belongs here: choosing samples, asking the engine, calibrating the tolerance. Not here: the law
(``tokens.laws.replay``), engines, Dagster.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import polars as pl
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential, wait_random

from eagle3_assets.config import Sampling
from eagle3_assets.engines.base import (
    Description,
    Engine,
    EngineError,
    Generation,
    Request,
    RequestRefusedError,
    Scores,
    ScoringEngine,
    TransientEngineError,
)
from eagle3_assets.generation.loop import RetryPolicy
from eagle3_assets.generation.sealed import Sealed, read_identity, scan_sealed
from eagle3_assets.identity import Identity
from eagle3_assets.judging import Judged, replay_context
from eagle3_assets.partitions import Partition, stable_rank
from eagle3_assets.project import Project
from eagle3_assets.target import LoadedTarget
from eagle3_assets.tokens.facts import has_output
from eagle3_assets.tokens.judge import judge_replay
from eagle3_assets.tokens.laws.replay import SCORED_KIND, tolerance_of

T = TypeVar("T")

SAMPLES = 100
"""How many outputs of a partition are scored, unless a person says otherwise."""

TRIED = 16
"""How many of their prompts are answered afresh, to see how far generating and scoring lie apart."""
TRIED_TOKENS = 64
"""Most tokens of such an answer."""

SCORES = pl.Schema({"scored_logprobs": pl.List(pl.Float64), "scored_best": pl.List(pl.Float64)})
"""What a replay adds to rows of ``raw_generations``."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A partition's replay."""

    judged: Judged
    rows: pl.DataFrame
    """The sampled rows of ``raw_generations``, with ``SCORES``."""
    unscored: Mapping[str, str]
    """Why a sample has no scores, by sample id."""
    scored_by: Description
    generated_by: Identity

    @property
    def same_weights(self) -> bool:
        """Whether the engine names the weights as it did when the outputs were generated."""
        return self.scored_by.weights == self.generated_by.weights


def replay(
    project: Project,
    partition: Partition,
    target: LoadedTarget,
    engine: Engine,
    sealed: Sealed,
    *,
    samples: int = SAMPLES,
    retry: RetryPolicy | None = None,
) -> Replayed:
    """Has the engine score a sample of a partition's outputs, and judges it.

    Args:
        project: its config.
        partition: which.
        target: its tokenizer and profile.
        engine: not yet started; closed at the end.
        sealed: the partition's generations.
        samples: most outputs to score: always the same ones, those with recorded log-probabilities first.
        retry: for transient errors.

    Raises:
        EngineError: the engine cannot run or cannot score, or no sample could be scored.
        SealedError: the record of the identity is missing or damaged.
    """
    identity = read_identity(sealed.directory, sealed.pointer.fingerprint)
    rows = chosen_rows(scan_sealed(sealed), samples)

    async def run() -> tuple[Description, list[Scores | str], float]:
        try:
            description = await engine.start()
            if not isinstance(engine, ScoringEngine):
                raise EngineError(f"the engine {project.config.engine.kind} cannot score recorded outputs")
            asking = retry or RetryPolicy()
            tolerance = await calibrated(engine, rows, asking)
            return description, await score_rows(engine, rows, asking), tolerance
        finally:
            await engine.close()

    description, scores, tolerance = asyncio.run(run())
    unscored = {s: why for s, why in zip(rows["sample_id"], scores, strict=True) if isinstance(why, str)}
    if len(rows) and len(unscored) == len(rows):
        sample, why = next(iter(unscored.items()))
        raise EngineError(f"none of {len(rows):,} samples could be scored; first {sample}: {why}")
    scored = with_scores(rows, scores)
    context = replay_context(project, partition, target, identity, tolerance)
    return Replayed(Judged(judge_replay([scored], context), context), scored, unscored, description, identity)


def chosen_rows(generations: pl.LazyFrame, samples: int) -> pl.DataFrame:
    """The rows to score, in the file's order: those with log-probabilities first, then by a hash of the sample's id.

    Args:
        generations: ``contract.RAW_GENERATIONS``.
        samples: most rows.
    """
    known = generations.filter(has_output(), pl.col("prompt_ids").is_not_null()).select(
        "sample_id", bare=pl.col("output_logprobs").is_null()
    )
    ranked = sorted(known.collect().iter_rows(), key=lambda row: (row[1], stable_rank(row[0])))
    wanted = [sample for sample, _ in ranked[:samples]]
    return generations.filter(has_output(), pl.col("sample_id").is_in(wanted)).collect()


async def score_rows(engine: ScoringEngine, rows: pl.DataFrame, retry: RetryPolicy) -> list[Scores | str]:
    """Scores rows.

    Args:
        engine: started.
        rows: with ``prompt_ids`` and ``output_ids``.
        retry: for transient errors.

    Returns:
        The scores of each row, or why it has none.

    Raises:
        EngineError: the engine cannot run any more.
    """
    pairs = zip(rows["prompt_ids"].to_list(), rows["output_ids"].to_list(), strict=True)
    return await _all((partial(engine.score, *pair) for pair in pairs), engine.capacity, retry)


async def calibrated(engine: ScoringEngine, rows: pl.DataFrame, retry: RetryPolicy) -> float:
    """The tolerance of a target on this engine: some prompts are answered afresh, and those answers scored.

    Two replays would not do: in bfloat16 they may agree to the last bit, and both differ from generating.

    Args:
        engine: started.
        rows: with ``prompt_ids``; none gives the least tolerance, with which there is nothing to judge.
        retry: for transient errors.

    Raises:
        EngineError: no prompt could be answered and scored, or the engine cannot run any more.
    """
    sampling = Sampling(temperature=1.0, max_new_tokens=TRIED_TOKENS)
    requests = [
        Request(f"calibrate-{seed}", f"calibrate-{seed}", ids, sampling, seed, want_logprobs=True)
        for seed, ids in enumerate(rows["prompt_ids"].head(TRIED).to_list())
    ]
    answers = await _all((partial(engine.generate, request) for request in requests), engine.capacity, retry)
    genuine = [
        (request.prompt_ids, answer.output_ids, answer.output_logprobs)
        for request, answer in zip(requests, answers, strict=True)
        if isinstance(answer, Generation) and answer.output_logprobs and answer.logprob_kind == SCORED_KIND
    ]
    scores = await _all((partial(engine.score, p, o) for p, o, _ in genuine), engine.capacity, retry)
    pairs = [
        (logprobs, one.logprobs)
        for (_, _, logprobs), one in zip(genuine, scores, strict=True)
        if isinstance(one, Scores)
    ]
    if requests and not pairs:
        why = next((one for one in (*answers, *scores) if isinstance(one, str)), "the engine gave no log-probabilities")
        raise EngineError(f"no prompt could be answered and scored, to calibrate the tolerance: {why}")
    generated, scored = (np.array([value for pair in pairs for value in pair[side]]) for side in (0, 1))
    return tolerance_of(generated, scored)


async def _all(asked: Iterable[Callable[[], Awaitable[T]]], at_once: int, retry: RetryPolicy) -> list[T | str]:
    """Every answer, or why there is none."""
    room = asyncio.Semaphore(at_once)

    async def answer(ask: Callable[[], Awaitable[T]]) -> T | str:
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(TransientEngineError),
            stop=stop_after_attempt(retry.attempts),
            wait=wait_exponential(retry.first_wait_s, retry.longest_wait_s) + wait_random(0, retry.first_wait_s),
            reraise=True,
        )
        try:
            async with room:
                return await attempts(ask)
        except (RequestRefusedError, TransientEngineError) as error:
            return str(error)

    return await asyncio.gather(*map(answer, asked))


def with_scores(rows: pl.DataFrame, scores: list[Scores | str]) -> pl.DataFrame:
    """The rows with the columns ``SCORES``, null where there are none."""
    values = [(s.logprobs, s.best) if isinstance(s, Scores) else (None, None) for s in scores]
    return rows.hstack(pl.DataFrame(values, schema=SCORES, orient="row"))
