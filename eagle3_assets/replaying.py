"""Replay of a partition: the engine scores recorded outputs, and the law of replay judges them.

What belongs here: choosing samples, asking the engine, calibrating the tolerance. Not here: the law
(``tokens.laws.replay``), engines, Dagster.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential, wait_random

from eagle3_assets.engines.base import (
    Description,
    Engine,
    EngineError,
    RequestRefusedError,
    Scores,
    Scoring,
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
from eagle3_assets.tokens.laws.replay import tolerance_of

SAMPLES = 100
"""How many outputs of a partition are scored, unless a person says otherwise."""

SCORED_TWICE = 16
"""How many of those are scored once more, to see how far two replays lie apart."""

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
            if not isinstance(engine, Scoring):
                raise EngineError(f"the engine {project.config.engine.kind} cannot score recorded outputs")
            return description, *await score_rows(engine, rows, engine.capacity, retry or RetryPolicy())
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


async def score_rows(
    engine: Scoring, rows: pl.DataFrame, at_once: int, retry: RetryPolicy
) -> tuple[list[Scores | str], float]:
    """Scores rows, and some of them again in another order, that is in other company.

    Args:
        engine: started.
        rows: with ``prompt_ids`` and ``output_ids``.
        at_once: most requests in flight.
        retry: for transient errors.

    Returns:
        The scores of each row, or why it has none; and the tolerance that the second replay suggests.

    Raises:
        EngineUnavailableError: the engine cannot run any more.
    """
    room = asyncio.Semaphore(at_once)
    pairs = list(zip(rows["prompt_ids"].to_list(), rows["output_ids"].to_list(), strict=True))

    async def ask(prompt_ids: list[int], output_ids: list[int]) -> Scores | str:
        attempts = AsyncRetrying(
            retry=retry_if_exception_type(TransientEngineError),
            stop=stop_after_attempt(retry.attempts),
            wait=wait_exponential(retry.first_wait_s, retry.longest_wait_s) + wait_random(0, retry.first_wait_s),
            reraise=True,
        )
        try:
            async with room:
                return await attempts(engine.score, prompt_ids, output_ids)
        except (RequestRefusedError, TransientEngineError) as error:
            return str(error)

    first = await asyncio.gather(*(ask(*pair) for pair in pairs))
    twice = [number for number, scores in enumerate(first) if isinstance(scores, Scores)][-SCORED_TWICE:][::-1]
    again = await asyncio.gather(*(ask(*pairs[number]) for number in twice))
    before, after = [np.zeros(0)], [np.zeros(0)]
    for number, other in zip(twice, again, strict=True):
        one = first[number]
        if isinstance(one, Scores) and isinstance(other, Scores):
            before.append(np.array(one.logprobs))
            after.append(np.array(other.logprobs))
    return first, tolerance_of(np.concatenate(before), np.concatenate(after))


def with_scores(rows: pl.DataFrame, scores: list[Scores | str]) -> pl.DataFrame:
    """The rows with the columns ``SCORES``, null where there are none."""
    values = [(s.logprobs, s.best) if isinstance(s, Scores) else (None, None) for s in scores]
    return rows.hstack(pl.DataFrame(values, schema=SCORES, orient="row"))
