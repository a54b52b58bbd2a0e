"""A config made ready for use: its partitions and where their files lie.

What belongs here: what assets, checks and the terminal share about one project. Not here: anything that loads a model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from eagle3_assets.config import Eagle3Config
from eagle3_assets.files import names_in
from eagle3_assets.generation.shared import Sharing
from eagle3_assets.partitions import Partition, all_partitions, unknown_partition
from eagle3_assets.storage.files import StorageError
from eagle3_assets.storage.layout import Layout


@dataclass(frozen=True)
class Project:
    """One config and what follows from it."""

    config: Eagle3Config

    @cached_property
    def layout(self) -> Layout:
        """Paths under the storage root."""
        return Layout.at(str(self.config.storage.root), self.config.storage.scratch)

    @cached_property
    def partitions(self) -> Mapping[str, Partition]:
        """Every partition by key."""
        return all_partitions(self.config)

    def partition(self, key: str) -> Partition:
        """The partition of that key.

        Raises:
            UnknownPartitionError: there is none.
        """
        if key not in self.partitions:
            raise unknown_partition(key, self.partitions)
        return self.partitions[key]

    def sharing(self, key: str) -> Sharing | None:
        """How a partition's journal is uploaded; None where it lies with the data."""
        place, settings = self.layout.shared_journal(key), self.config.storage
        if place is None:
            return None
        return Sharing(place, settings.flush_rows, settings.flush_seconds, settings.lease_seconds)

    def orphans(self) -> list[str]:
        """Partitions with sealed generations that the config does not have (any more): never read, never deleted.

        Raises:
            StorageError: the storage cannot be reached.
        """
        place = self.layout.root / "raw_generations"
        try:
            made = names_in(place)
        except OSError as error:
            raise StorageError(f"{place}: cannot be listed: {error}") from error
        return [name for name in made if name not in self.partitions]
