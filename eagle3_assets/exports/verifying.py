"""An export checked as it lies there, without the project that made it: hashes, laws, conservation.

What belongs here: reading every file once, and comparing hashes. Not here: making an export (``writing``), what must
hold of rows and ids (``laws``, ``vocabulary_laws``) and between an export's parts (``consistency``).
"""

from dataclasses import dataclass, field

import numpy as np
import polars as pl
from upath import UPath

from eagle3_assets.contract import TRAINING_EXPORT
from eagle3_assets.exports.consistency import index_faults, index_null, manifest_faults, vocabulary_faults
from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.formats import FORMATS, file_rows, row_facts
from eagle3_assets.exports.laws import LawFigures, Rows, judge_file, summed
from eagle3_assets.exports.manifest import (
    CARD,
    FOLDERS,
    MANIFEST,
    DataFile,
    Hashed,
    Manifest,
    PartitionEntry,
    is_no_file,
    read_and_hashed,
    read_manifest,
)
from eagle3_assets.exports.selection import TRAIN
from eagle3_assets.exports.vocabulary import FILES, FOLDER, Recount, read_vocabulary, trained_counts
from eagle3_assets.exports.vocabulary_laws import VocabularyVerdict, judge_vocabulary
from eagle3_assets.exports.writing import sha256_of
from eagle3_assets.files import local_copy, names_in, paths_below
from eagle3_assets.tokens.laws.base import counted

LOADED_BY_NAME = ("dataset_dict.json", "dataset_info.json", "state.json")
"""What ``datasets.load_from_disk`` looks for in the directory that it is given."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What checking an export found."""

    manifest: Manifest
    laws: tuple[LawFigures, ...]
    vocabulary: tuple[VocabularyVerdict, ...]
    """Empty where the export has none."""
    faults: tuple[str, ...]
    """One sentence for each; empty if the export is as it was made."""
    others: tuple[str, ...] = ()
    """Names beside the export, hidden ones aside, that no trainer takes for a part of it; they were not looked into."""


def verify(place: UPath) -> Verification:
    """Checks a whole export, one file after the other.

    Raises:
        ExportError: there is no export of this version, or its directory cannot be listed.
    """
    manifest, as_written = read_and_hashed(place)
    if manifest.format not in FORMATS:
        raise ExportError(f"{place}: is of a format that this version does not know, {manifest.format}")
    checking = _Checking(place, manifest)
    if not as_written:
        checking.faults.append(f"{MANIFEST}: is not the manifest that was written: its hash is of other content")
    checking.faults += manifest_faults(manifest)
    others = checking.surroundings()
    for entry in manifest.partitions:
        checking.partition(entry)
    laws = checking.laws()
    return Verification(manifest, laws, checking.vocabulary(), tuple(checking.faults), others)


def read_index(place: UPath, partition: str) -> pl.DataFrame | None:
    """The index of a partition in an export, ``contract.TRAINING_EXPORT``; None where the export has no such partition.

    Raises:
        ExportError: there is no export, or the index is damaged.
    """
    for entry in read_manifest(place).partitions:
        if entry.partition == partition:
            index = _index(place, entry)
            if isinstance(index, str):
                raise ExportError(f"{place / entry.index.path}: {index}; export again")
            return index
    return None


@dataclass
class _Checking:
    """An export while it is checked."""

    place: UPath
    manifest: Manifest
    faults: list[str] = field(default_factory=list)
    figures: list[list[LawFigures]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.again = Recount(np.zeros(self.manifest.target.vocab_size, np.int64), {})

    def surroundings(self) -> tuple[str, ...]:
        """Checks what else lies there, the card, and files that hold no rows; the names that are none of the export."""
        hashed = [*self.manifest.beside, *(one.index for one in self.manifest.partitions)]
        known = {file.path for file in (*self.manifest.files, *hashed)}
        try:
            below = [f"{folder}/{path}" for folder in FOLDERS for path in paths_below(self.place / folder)]
            names = {name for name in names_in(self.place) if not name.startswith(".")}
        except OSError as error:
            raise ExportError(f"{self.place}: cannot be listed: {error.strerror or error}") from None
        names -= {MANIFEST, CARD, *FOLDERS, *known}
        strays = [*names.intersection(LOADED_BY_NAME), *(set(below) - known)]
        self.faults += [f"{path}: is not in the manifest, and a trainer may read it" for path in sorted(strays)]
        card = self._unlike(CARD, self.manifest.card_sha256)
        self.faults += [fault for fault in (card, *map(self._changed, hashed)) if fault]
        return tuple(sorted(names.difference(LOADED_BY_NAME)))

    def partition(self, entry: PartitionEntry) -> None:
        """Checks the index and the files of rows of one partition."""
        index = _index(self.place, entry)
        if isinstance(index, str):
            self.faults.append(f"{entry.index.path}: {index}")
            return
        files = [file for file in self.manifest.files if file.partition == entry.partition]
        self.faults += index_faults(entry, index, files)
        for file in files:
            if changed := self._changed(file):
                self.faults.append(changed)
            else:
                self._file(file, index.filter(pl.col("file") == file.path).sort("row"))

    def laws(self) -> tuple[LawFigures, ...]:
        """The figures of all files, which the manifest must have, too."""
        laws = summed(self.figures)
        self.faults += [one.sentence for one in laws if one.violations]
        if not self.faults and laws != self.manifest.laws:
            other = [one.sentence for one in laws if one not in self.manifest.laws] or ["nothing of other laws"]
            self.faults.append(f"{MANIFEST}: says other things of the laws than its files: {'; '.join(other)}")
        return laws

    def vocabulary(self) -> tuple[VocabularyVerdict, ...]:
        """Checks the draft vocabulary against the files of rows, where there is one."""
        if not any(file.path.startswith(f"{FOLDER}/") for file in self.manifest.beside):
            return ()
        if any(is_no_file(self.place / FOLDER / name) for name in FILES):  # which is a fault by now
            return ()
        recount = None if self.faults else self.again
        read = read_vocabulary(
            self.place / FOLDER, recount=recount, why_no_recount="files are not as they were written"
        )
        verdicts = judge_vocabulary(read)
        self.faults += [f"{FOLDER}: {one.sentence}" for one in verdicts if one.fault]
        if not isinstance(read, str):
            self.faults += vocabulary_faults(self.manifest, read.record)
        return verdicts

    def _file(self, file: DataFile, lines: pl.DataFrame) -> None:
        form = FORMATS[self.manifest.format]
        facts = row_facts(form, self.manifest.target.vocab_size, self.manifest.settings)
        with local_copy(self.place / file.path) as path:
            rows = file_rows(form, path, lines, facts)
        if isinstance(rows, str):
            self.faults.append(f"{file.path}: {rows}")
            return
        self.figures.append(judge_file(file.path, rows))
        if not form.lossy:
            self._count(file, rows)
        tokens, trained = int(lines["sample_tokens"].sum()), int(lines["trained_tokens"].sum())
        if (tokens, trained) != (file.tokens, file.trained_tokens):
            self.faults.append(
                f"{file.path}: has {tokens:,} tokens, {trained:,} of them trained; the manifest says {file.tokens:,}"
                f" and {file.trained_tokens:,}"
            )

    def _count(self, file: DataFile, rows: Rows) -> None:
        lengths = np.column_stack((rows.tokens.lengths, rows.mask.marks([1]).count()))
        if other := int((lengths != rows.index.select("sample_tokens", "trained_tokens").to_numpy()).any(axis=1).sum()):
            self.faults.append(f"{file.path}: {counted(other, 'row')} of other lengths than the index says")
        if file.split == TRAIN:
            self.again.add(file.partition, trained_counts(rows))

    def _changed(self, file: Hashed) -> str | None:
        return self._unlike(file.path, file.sha256, file.size_bytes)

    def _unlike(self, path: str, sha256: str, size: int | None = None) -> str | None:
        if is_no_file(self.place / path):
            return f"{path}: is no file"
        try:
            found = sha256_of(self.place / path)
        except OSError as error:
            return f"{path}: cannot be read: {error.strerror or error}"
        if found.sha256 != sha256 or size not in (None, found.size_bytes):
            return f"{path}: is not the file that was written ({found.size_bytes:,} bytes, other hash)"
        return None


def _index(place: UPath, entry: PartitionEntry) -> pl.DataFrame | str:
    """The index, or why it is none."""
    if is_no_file(place / entry.index.path):
        return "is no file, and no index"
    try:
        with local_copy(place / entry.index.path) as path:
            index = pl.read_parquet(path, glob=False)
    except (OSError, pl.exceptions.PolarsError):
        return "cannot be read as an index"
    return "cannot be read as an index" if index.schema != TRAINING_EXPORT else index_null(index) or index
