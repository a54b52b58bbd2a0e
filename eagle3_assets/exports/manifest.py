"""What an export says of itself: ``manifest.json``.

What belongs here: the manifest's form, reading it. Not here: making an export (``writing``), checking one
(``verifying``).

    <export>/manifest.json              this; there only when the export is whole
    <export>/README.md                  the same for people, as the Hugging Face Hub shows it
    <export>/train/<partition>-00000.*  what to train on, and below eval/ what is held out
    <export>/index/<partition>.parquet  a row for each prompt: the file and row it is in, or why it is in none
    <export>/vocabulary/                the draft vocabulary of what is trained on, see ``vocabulary``
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from upath import UPath

from eagle3_assets.config import Export
from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.laws import LawFigures
from eagle3_assets.exports.selection import EVAL, SPLITS, TRAIN
from eagle3_assets.files import read_bytes
from eagle3_assets.identity import digest

MANIFEST, CARD = "manifest.json", "README.md"
VERSION = 1


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Hashed(_Record):
    """A file of the export, by its path there."""

    path: str
    size_bytes: int
    sha256: str


class DataFile(Hashed):
    """A file of rows."""

    partition: str
    split: str
    rows: int
    tokens: int
    trained_tokens: int
    content: str
    """Hash of all that the file is made of: tells whether it has to be written again."""


class Lengths(_Record):
    """Input ids of the rows of one side of the split, prompt and output together."""

    rows: int
    tokens: int
    trained_tokens: int
    median: int
    p95: int
    longest: int


class PartitionEntry(_Record):
    """One partition in an export."""

    partition: str
    dataset: str
    identity: dict[str, Any]
    """What decided the tokens; ``fingerprint`` is its name."""
    fingerprint: str
    sealed_file: str
    source_rows: dict[str, int] | None
    """Where the rows of the source ended; None where the prompts' record is gone."""
    prompts: int
    fates: dict[str, int]
    """Where the prompts ended; adds up to ``prompts``."""
    lengths: dict[str, Lengths]
    """By side of the split."""
    index: Hashed


class TargetEntry(_Record):
    """The target whose tokens these are."""

    model: str
    """The name of its directory."""
    profile: str
    vocab_size: int
    tokenizer_sha256: str
    weights: str


class Manifest(_Record):
    """An export."""

    version: int = VERSION
    format: str
    lossy: bool
    settings: Export
    target: TargetEntry
    partitions: tuple[PartitionEntry, ...]
    files: tuple[DataFile, ...]
    beside: tuple[Hashed, ...]
    """What a format needs beside its data, and the draft vocabulary."""
    laws: tuple[LawFigures, ...]
    config: dict[str, Any]
    """What else decided the data; neither engines nor places."""
    versions: dict[str, str]

    def rows(self, split: str) -> int:
        """Rows of one side of the split."""
        return sum(file.rows for file in self.files if file.split == split)

    @property
    def data_version(self) -> str:
        """Sixteen hex digits which change exactly when a file of rows does."""
        return digest([file.sha256 for file in self.files])

    @property
    def fates(self) -> dict[str, int]:
        """Where the prompts of all partitions ended."""
        names = dict.fromkeys(name for one in self.partitions for name in one.fates)
        return {name: sum(one.fates.get(name, 0) for one in self.partitions) for name in names}

    @property
    def train_ratio(self) -> float | None:
        """The share of rows to train on, with as few digits as tell them from those held out by their number alone.

        For a trainer that splits by position. None where nothing is on one side.
        """
        train, rows = self.rows(TRAIN), self.rows(TRAIN) + self.rows(EVAL)
        if train in (0, rows):
            return None
        ratios = (round((train + 0.5) / rows, digits) for digits in range(1, 17))
        return next(ratio for ratio in ratios if int(rows * ratio) == train and 0 < ratio < 1)

    def lengths(self, split: str) -> list[tuple[str, Lengths]]:
        """Partition and lengths, of one side of the split."""
        return [(one.partition, one.lengths[split]) for one in self.partitions if split in one.lengths]


def read_manifest(place: UPath) -> Manifest:
    """The manifest of an export.

    Raises:
        ExportError: there is none, or it is none of this version.
    """
    path = place / MANIFEST
    try:
        return Manifest.model_validate_json(read_bytes(path))
    except FileNotFoundError:
        raise ExportError(f"{place}: holds no {MANIFEST}: it is no export, or one that did not end") from None
    except (OSError, ValidationError) as error:
        said = str(error).strip().splitlines()[0]
        raise ExportError(f"{path}: is no manifest of this version ({said}); export again") from None


__all__ = [
    "CARD",
    "MANIFEST",
    "SPLITS",
    "VERSION",
    "DataFile",
    "Hashed",
    "Lengths",
    "Manifest",
    "PartitionEntry",
    "TargetEntry",
    "read_manifest",
]
