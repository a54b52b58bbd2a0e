"""Datasets, their shards and their trials, flattened to one dimension of partition keys.

What belongs here: which keys there are, what each means, and which rows belong to it. Not here: reading rows.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from eagle3_assets.config import TRIAL_SUFFIX, Dataset, Eagle3Config


class UnknownPartitionError(LookupError):
    """No dataset has such a partition; the text lists those that exist."""

    def __str__(self) -> str:
        """The message without the quotes that ``LookupError`` puts around it."""
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class Partition:
    """One unit of work: a shard of a dataset, or the dataset's trial."""

    key: str
    dataset: Dataset
    shard: int
    trial: bool

    def holds(self, rank: int) -> bool:
        """Whether the rows of a conversation, by its ``stable_rank``, belong here; a trial draws from all of them."""
        return self.trial or shard_of(rank, self.dataset.shards) == self.shard


def stable_rank(conversation_id: str) -> int:
    """A number below 2**64 which is the same on every machine and in every run."""
    return int.from_bytes(hashlib.sha256(conversation_id.encode()).digest()[:8], "big")


def shard_of(rank: int, shards: int) -> int:
    """The shard of a conversation, by its ``stable_rank``. Rows added to a source never move a row that is there."""
    return rank % shards


def dataset_partitions(dataset: Dataset) -> list[Partition]:
    """A dataset's shards in order, zero-padded so that key order is shard order, then its trial."""
    width = max(2, len(str(dataset.shards)))
    keys = (
        [dataset.name]
        if dataset.shards == 1
        else [f"{dataset.name}-{i:0{width}d}of{dataset.shards:0{width}d}" for i in range(dataset.shards)]
    )
    shards = [Partition(key, dataset, shard, trial=False) for shard, key in enumerate(keys)]
    return [*shards, Partition(dataset.name + TRIAL_SUFFIX, dataset, 0, trial=True)]


def all_partitions(config: Eagle3Config) -> dict[str, Partition]:
    """Every partition of the config by its key, in the order of the datasets."""
    return {p.key: p for dataset in config.datasets for p in dataset_partitions(dataset)}


def unknown_partition(key: str, known: Iterable[str]) -> UnknownPartitionError:
    """The error for a key that no partition has; it lists those that exist."""
    keys = list(known)
    shown = ", ".join(keys[:20]) + (f" and {len(keys) - 20} more" if len(keys) > 20 else "")
    return UnknownPartitionError(f"no partition is named {key!r}; there are: {shown}")
