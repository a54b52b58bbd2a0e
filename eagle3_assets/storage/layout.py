"""Which file holds what, under the storage root.

What belongs here: paths. Not here: reading or writing them.

    <root>/prompts/<partition>.parquet              likewise every asset but raw_generations
    <root>/decoded_previews/<partition>.html        the page to look at, beside the parquet
    <root>/corpus_summary/corpus.parquet, .html     the one asset that is of no partition, and its page
    <root>/draft_vocabulary/corpus.parquet, .html   likewise, with the files that trainers read beside them
    <root>/prompts/<partition>.source.json          what the prompts were made of
    <root>/prompts/<partition>.refused.jsonl        every row of the source that made no prompt
    <root>/raw_generations/<partition>/             sealed files, identities, the pointer to the current one
    <root>/training_export/<partition>/             one partition as the trainers take it
    <root>/.journals/<partition>/                   what is being generated; on an object store, its uploaded chunks
    <root>/.row_indexes/<dataset>/                  which conversation each row of a source is of; may be deleted
    <root>/.servers/                                logs of managed servers

On an object store the journal itself and the logs lie in the scratch directory.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from upath import UPath

from eagle3_assets.files import local_path, place_of

WHOLE = "corpus"
"""Stands in the place of a partition where an asset is of all of them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths under one storage root."""

    root: UPath
    scratch: Path
    """Local directory for what needs one, where the root is on an object store."""

    @classmethod
    def at(cls, root: str, scratch: str | None = None) -> "Layout":
        """The layout under a directory or object-store URL."""
        return cls(place_of(root), Path(scratch) if scratch else Path.cwd() / ".eagle3")

    def asset_file(self, asset: str, partition: str) -> UPath:
        """The parquet file of a partition of any asset but ``raw_generations``."""
        return self.root / asset / f"{partition}.parquet"

    def page(self, partition: str) -> UPath:
        """The page of a partition that a person opens."""
        return self.root / "decoded_previews" / f"{partition}.html"

    def corpus_page(self, asset: str = "corpus_summary") -> UPath:
        """The page of an asset that is of all partitions together."""
        return self.root / asset / f"{WHOLE}.html"

    def vocabulary(self) -> UPath:
        """The directory of the draft vocabulary's files."""
        return self.root / "draft_vocabulary"

    def source_record(self, partition: str) -> UPath:
        """What a partition's prompts were made of."""
        return self.root / "prompts" / f"{partition}.source.json"

    def refused_rows(self, partition: str) -> UPath:
        """The rows of a partition's source that made no prompt."""
        return self.root / "prompts" / f"{partition}.refused.jsonl"

    def row_index(self, dataset: str, source: str) -> UPath:
        """The index of a file of a dataset's source, by the file's name in it."""
        return self.root / ".row_indexes" / dataset / hashlib.sha256(source.encode()).hexdigest()[:32]

    def generations(self, partition: str) -> UPath:
        """The directory of a partition's sealed generations."""
        return self.root / "raw_generations" / partition

    def export(self, partition: str) -> UPath:
        """The directory of a partition's export."""
        return self.root / "training_export" / partition

    def journals(self, partition: str) -> Path:
        """The local directory of a partition's journal: appending needs a real file system."""
        return self._local("journals") / partition

    def shared_journal(self, partition: str) -> UPath | None:
        """Where a partition's journal is uploaded to; None where the root is local, and the journal is there itself."""
        return self.root / ".journals" / partition if local_path(self.root) is None else None

    def servers(self) -> Path:
        """The local directory for the logs of managed servers."""
        return self._local("servers")

    def _local(self, what: str) -> Path:
        place = local_path(self.root)
        if place is not None:
            return place / f".{what}"
        name = hashlib.sha256(str(self.root).encode()).hexdigest()[:12]
        return self.scratch / what / name
