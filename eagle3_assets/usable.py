"""Which partitions count: those that are sealed and that no law refuses, judged anew.

What belongs here: that decision, in one place for everything that puts partitions together, and naming what is left
out. Not here: laws (``tokens.laws``), what is counted (``summary``, ``vocabularies``) or exported (``exporting``),
Dagster.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import polars as pl

from eagle3_assets.generation.errors import GenerationError
from eagle3_assets.generation.sealed import read_current
from eagle3_assets.judging import judge_raw
from eagle3_assets.partitions import Partition
from eagle3_assets.project import Project
from eagle3_assets.storage.files import StorageError, naming_damage
from eagle3_assets.target import LoadedTarget
from eagle3_assets.tokens.safe_text import visible
from eagle3_assets.tokens.verdict import Report
from eagle3_assets.training import Stored, read_stored, refusals

UNREADABLE = (GenerationError, StorageError, pl.exceptions.ComputeError)
"""What reading a stored partition raises where it cannot be read."""

NotUsable = tuple[Literal["missing", "refused", "unreadable"], Sequence[str]]
"""Why a partition does not count, and the reasons in words."""

State = Literal["counted", "missing", "behind", "refused", "unreadable", "trial", "orphaned"]

AT_FAULT: frozenset[State] = frozenset({"behind", "refused", "unreadable"})
"""States of partitions that hold outputs, which something is the matter with."""

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition, and whether it counts."""

    partition: str
    state: State
    """``behind``: its ``training_samples`` are not those of its generations."""
    why: tuple[str, ...] = ()
    """Why it does not count, in words."""


def left_out_text(left_out: Iterable[PartitionState]) -> str:
    """Partitions by state, and the first reason of each that has one."""
    said: dict[str, list[str]] = {}
    for one in left_out:
        why = f" ({visible(one.why[0])})" if one.why else ""
        said.setdefault(one.state, []).append(one.partition + why)
    return "; ".join(f"{state}: {', '.join(named)}" for state, named in said.items()) or "none"


def usable(
    project: Project, partition: Partition, target: LoadedTarget, read: Callable[[Report, Stored], Read]
) -> Read | NotUsable:
    """Judges a partition exactly as ``training_samples`` does, and reads it if it counts.

    Args:
        project: its config and files.
        partition: to judge.
        target: that made it.
        read: takes what is wanted of a partition that counts; may raise what ``UNREADABLE`` lists.

    Returns:
        What ``read`` gave, or why the partition does not count.
    """
    try:
        if read_current(project.layout.generations(partition.key)) is None:
            return "missing", ()
        with naming_damage(project.layout, partition.key):
            stored = read_stored(project, partition.key)
            report = judge_raw(
                project, partition, target, stored.tokenized, stored.sealed, prompts=stored.prompts
            ).report
            if why := refusals(stored, report):
                return "refused", why
            return read(report, stored)
    except UNREADABLE as error:
        return "unreadable", (str(error),)
