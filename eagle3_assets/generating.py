"""One partition's generation: target, engine and loop brought together.

What belongs here: building the identity, and the laws that must hold before anything is sent. Not here: the loop
(``generation``), any engine, Dagster.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass

import polars as pl

from eagle3_assets.config import Sampling
from eagle3_assets.engines.base import Description, Engine, EngineError
from eagle3_assets.generation.errors import IdentityMismatchError
from eagle3_assets.generation.loop import Outcome, generate_partition
from eagle3_assets.generation.progress import Progress
from eagle3_assets.identity import Identity
from eagle3_assets.partitions import Partition
from eagle3_assets.project import Project
from eagle3_assets.remote_code import hashes
from eagle3_assets.target import LoadedTarget


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a person may ask of one run."""

    retry_failed: bool = False
    retry_broken: bool = False
    """Ask again for rows that break a law about single rows."""
    regenerate: bool = False
    accept_environment: bool = False


@dataclass(frozen=True, slots=True)
class Generated:
    """What a run made, and by whom."""

    outcome: Outcome
    identity: Identity
    description: Description


def identity_of(target: LoadedTarget, description: Description, *, thinking: bool, sampling: Sampling) -> Identity:
    """The identity of what an engine generates for a target.

    Raises:
        EngineError: a stop id of the config is outside the engine's vocabulary.
    """
    beyond = [i for i in sampling.stop_token_ids if i >= description.vocab_size]
    if beyond:
        raise EngineError(
            f"sampling.stop_token_ids: {beyond[0]} is no id of the target, whose vocabulary has"
            f" {description.vocab_size:,}"
        )
    stops = {*description.stop_token_ids, *target.stop_token_ids, *sampling.stop_token_ids}
    return Identity(
        weights=description.weights,
        tokenizer=target.tokenizer_sha256,
        chat_template=target.template_sha256,
        thinking=thinking,
        sampling=sampling,
        stop_token_ids=tuple(sorted(stops)),
        remote_code=hashes(target.code),
    )


def generate(
    project: Project,
    partition: Partition,
    target: LoadedTarget,
    engine: Engine,
    prompts: pl.LazyFrame,
    *,
    sampling: Sampling,
    wishes: Wishes,
    broken: Collection[str] = (),
    progress: Callable[[Progress], None],
) -> Generated:
    """Generates what is missing of a partition and seals it.

    A trial is for trying: another identity there starts a new file beside the old without being asked.

    Args:
        project: where things lie.
        partition: which.
        target: its tokenizer and template.
        engine: not yet started; closed at the end.
        prompts: ``contract.TOKENIZED_PROMPTS``.
        sampling: of this run.
        wishes: of the person who started it.
        broken: ids of the samples to ask for again, whatever is there.
        progress: is told how far it is.

    Raises:
        EngineError: the engine cannot run.
        GenerationError: see :mod:`generation.errors`.
    """

    async def run() -> Generated:
        try:
            description = await engine.start()
            identity = identity_of(target, description, thinking=partition.dataset.thinking, sampling=sampling)

            async def attempt(*, regenerate: bool) -> Outcome:
                return await generate_partition(
                    directory=project.layout.generations(partition.key),
                    journal_directory=project.layout.journals(partition.key),
                    sharing=project.sharing(partition.key),
                    prompts=prompts,
                    identity=identity,
                    description=description,
                    engine=engine,
                    logprob_share=project.config.engine.logprob_share,
                    retry_failed=wishes.retry_failed,
                    again=broken,
                    regenerate=regenerate,
                    accept_environment=wishes.accept_environment or partition.trial,
                    progress=progress,
                )

            try:
                outcome = await attempt(regenerate=wishes.regenerate)
            except IdentityMismatchError:
                if not partition.trial:
                    raise
                outcome = await attempt(regenerate=True)
            return Generated(outcome, identity, description)
        finally:
            await engine.close()

    return asyncio.run(run())
