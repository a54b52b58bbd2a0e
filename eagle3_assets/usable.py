"""Which partitions count for the corpus: those that are sealed and that no law refuses, judged anew.

What belongs here: that decision, in one place for everything that is of all partitions. Not here: laws
(``tokens.laws``), what is counted (``summary``, ``vocabularies``), Dagster.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import polars as pl

from eagle3_assets.generation.errors import GenerationError
from eagle3_assets.generation.sealed import Sealed, read_current, scan_sealed
from eagle3_assets.judging import judge_raw, without_origin
from eagle3_assets.partitions import Partition
from eagle3_assets.project import Project
from eagle3_assets.storage.files import StorageError, naming_damage, scan_parquet
from eagle3_assets.target import LoadedTarget
from eagle3_assets.tokens.verdict import Report

UNREADABLE = (GenerationError, StorageError, pl.exceptions.ComputeError)
"""What reading a stored partition raises where it cannot be read."""

NotUsable = tuple[Literal["missing", "refused", "unreadable"], Sequence[str]]
"""Why a partition does not count, and the reasons in words."""

Read = TypeVar("Read")


def refusals(report: Report, prompts: pl.LazyFrame, sealed: Sealed) -> list[str]:
    """Why a partition that was judged must not be used, empty if it may be.

    Args:
        report: of its generations.
        prompts: the partition's ``prompts``.
        sealed: its generations.
    """
    return [*report.refusals, *without_origin(prompts, scan_sealed(sealed))]


def usable(
    project: Project, partition: Partition, target: LoadedTarget, read: Callable[[Report, Sealed], Read]
) -> Read | NotUsable:
    """Judges a partition exactly as ``training_samples`` does, and reads it if it counts.

    Args:
        project: its config and files.
        partition: no trial.
        target: that made it.
        read: takes what is wanted of a partition that counts; may raise what ``UNREADABLE`` lists.

    Returns:
        What ``read`` gave, or why the partition does not count.
    """
    try:
        sealed = read_current(project.layout.generations(partition.key))
        if sealed is None:
            return "missing", ()
        with naming_damage(project.layout, partition.key):
            prompts, tokenized = (
                scan_parquet(project.layout.asset_file(asset, partition.key), asset=asset)
                for asset in ("prompts", "tokenized_prompts")
            )
            report = judge_raw(project, partition, target, tokenized, sealed, prompts=prompts).report
            if why := refusals(report, prompts, sealed):
                return "refused", why
            return read(report, sealed)
    except UNREADABLE as error:
        return "unreadable", (str(error),)
