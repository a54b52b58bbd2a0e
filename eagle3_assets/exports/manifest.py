"""What an export says of itself: ``manifest.json``.

What belongs here: the manifest's form, reading it, which paths an export can have. Not here: making an export
(``writing``), checking one (``verifying``).

    <export>/manifest.json              this; there only when the export is whole
    <export>/README.md                  the same for people, as the Hugging Face Hub shows it
    <export>/train/<partition>-00000.*  what to train on, and below eval/ what is held out
    <export>/index/<partition>.parquet  a row for each prompt: the file and row it is in, or why it is in none
    <export>/vocabulary/                the draft vocabulary of what is trained on, see ``vocabulary``
"""

import hashlib
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, computed_field
from pydantic_core import from_json
from upath import UPath

from eagle3_assets.config import Export
from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.formats import FORMATS
from eagle3_assets.exports.laws import LawFigures
from eagle3_assets.exports.selection import EVAL, FATES, SPLITS, TRAIN
from eagle3_assets.exports.vocabulary import FOLDER as VOCABULARY
from eagle3_assets.files import local_path, read_bytes
from eagle3_assets.identity import digest
from eagle3_assets.tokens.vocabulary import MAX_VOCAB_SIZE

MANIFEST, CARD = "manifest.json", "README.md"
VERSION = 2

INDEX = "index"
FOLDERS = (*SPLITS, INDEX, VOCABULARY)
"""Of an export, which holds no others."""

BESIDE = tuple(dict.fromkeys(name for form in FORMATS.values() for name in form.beside((), "")))
"""Names that a format may have beside the data of each folder of rows, and of all together."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def _of_an_export(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    if (folder in FOLDERS and _NAME.fullmatch(name)) or (not slash and name in (CARD, *BESIDE)):
        return path
    raise ValueError(f"{path!r} is no path that an export has")


PathInExport = Annotated[str, AfterValidator(_of_an_export)]
"""What a manifest may name, and an export therefore read and delete: a plain name in one of ``FOLDERS``, or one of the
few beside them; nothing absolute, nothing with ``..``. A manifest may be anybody's."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Checksum(_Record):
    """What tells a file's content from any other."""

    size_bytes: int
    sha256: str


class Hashed(Checksum):
    """A file of the export, by its path there."""

    path: PathInExport


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
    vocab_size: int = Field(ge=1, le=MAX_VOCAB_SIZE)
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
    left_out: dict[str, str] | None = None
    """Partitions that were asked for with the others and could not be exported, each with its state: ``missing``,
    ``behind``, ``refused`` or ``unreadable``. None in exports made before this was recorded. Why is not said: it may
    name places of a machine."""
    files: tuple[DataFile, ...]
    beside: tuple[Hashed, ...]
    """What a format needs beside its data, and the draft vocabulary."""
    laws: tuple[LawFigures, ...]
    config: dict[str, Any]
    """What else decided the data; neither engines nor places."""
    versions: dict[str, str]
    card_sha256: str = ""
    """Of ``README.md``, which is made of the rest."""

    @computed_field  # type: ignore[prop-decorator] # as pydantic documents it
    @property
    def sha256(self) -> str:
        """Of all the rest, in its canonical form."""
        return digest(self.model_dump(mode="json", exclude={"sha256"}), length=64)

    def with_card(self, card: str) -> "Manifest":
        """The same with the hash of its card."""
        return self.model_copy(update={"card_sha256": hashlib.sha256(card.encode()).hexdigest()})

    def rows(self, split: str) -> int:
        """Rows of one side of the split."""
        return sum(file.rows for file in self.files if file.split == split)

    @property
    def paths(self) -> tuple[str, ...]:
        """Every file of the export but the card and the manifest itself."""
        hashed = (*self.files, *self.beside, *(one.index for one in self.partitions))
        return tuple(dict.fromkeys(file.path for file in hashed))

    @property
    def data_version(self) -> str:
        """Sixteen hex digits which change exactly when a file of rows does."""
        return digest([file.sha256 for file in self.files])

    @property
    def fates(self) -> dict[str, int]:
        """How many prompts of all partitions ended where, in the order of ``FATES``."""
        counts = {fate: sum(one.fates.get(fate, 0) for one in self.partitions) for fate in FATES}
        return {fate: count for fate, count in counts.items() if count}

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
    """The manifest of an export, whether or not it is as it was written.

    Raises:
        ExportError: there is none, it is none of this version, or what it names is no file.
    """
    manifest = read_and_hashed(place)[0]
    for name in manifest.paths:
        _require_file(place / name)
    return manifest


def read_and_hashed(place: UPath) -> tuple[Manifest, bool]:
    """The manifest of an export, and whether its hash is that of what it says.

    Raises:
        ExportError: there is none, or it is none of this version.
    """
    path = place / MANIFEST
    try:
        _require_file(path)
        said = from_json(read_bytes(path))
        if not isinstance(said, dict):
            raise ValueError(f"a {type(said).__name__}, no object")
        if (version := said.get("version")) != VERSION:
            raise ExportError(
                f"{path}: is a manifest of version {version!r}, and only version {VERSION} is read here. Delete"
                f" {place} and export again, as an export of another version is never replaced; or keep it, export into"
                " another directory, and verify it with the eagle3-assets that made it"
            )
        hashed = said.pop("sha256", None)
        manifest = Manifest.model_validate(said)
    except (FileNotFoundError, NotADirectoryError):
        raise ExportError(f"{place}: holds no {MANIFEST}: it is no export, or one that did not end") from None
    except OSError as error:
        raise ExportError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValidationError as error:
        fault = error.errors()[0]
        why = f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
        raise ExportError(f"{path}: is no manifest ({why}); export again, into an empty directory") from None
    except ValueError as error:
        why = str(error).strip().splitlines()[0]
        raise ExportError(f"{path}: is no manifest ({why}); export again, into an empty directory") from None
    return manifest, hashed == digest(said, length=64)


def is_no_file(path: UPath) -> bool:
    """Whether something else is there, a device or a pipe, that must not be read.

    A link to a file is one: the Hub's cache is made of links.
    """
    place = local_path(path)
    try:
        return place is not None and place.exists() and not place.is_file()
    except OSError:  # reading it says why
        return False


def _require_file(path: UPath) -> None:
    if is_no_file(path):
        raise ExportError(f"{path}: is no file; give an export as it was made")


__all__ = [
    "BESIDE",
    "CARD",
    "FOLDERS",
    "INDEX",
    "MANIFEST",
    "VERSION",
    "Checksum",
    "DataFile",
    "Hashed",
    "Lengths",
    "Manifest",
    "PartitionEntry",
    "PathInExport",
    "TargetEntry",
    "is_no_file",
    "read_and_hashed",
    "read_manifest",
]
