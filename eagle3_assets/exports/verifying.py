"""An export checked as it lies there, without the project that made it: hashes, laws, conservation.

What belongs here: what an export must be by itself. Not here: making it (``writing``), its laws (``laws``).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from upath import UPath

from eagle3_assets.contract import TRAINING_EXPORT
from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.formats import FORMATS, Format
from eagle3_assets.exports.laws import LawFigures, Rows, judge_file, summed
from eagle3_assets.exports.manifest import (
    VERSION,
    DataFile,
    Hashed,
    Manifest,
    PartitionEntry,
    read_manifest,
)
from eagle3_assets.exports.selection import FATES, SPLITS, TRAIN, held_out
from eagle3_assets.exports.vocabulary import (
    FOLDER,
    VocabularyVerdict,
    judge_vocabulary,
    read_vocabulary,
    trained_counts,
)
from eagle3_assets.exports.writing import listed, sha256_of
from eagle3_assets.files import local_copy
from eagle3_assets.tokens.columns import Ints


@dataclass(frozen=True, slots=True)
class Verification:
    """What checking an export found."""

    manifest: Manifest
    laws: tuple[LawFigures, ...]
    vocabulary: tuple[VocabularyVerdict, ...]
    """Empty where the export has none."""
    faults: tuple[str, ...]
    """One sentence for each; empty if the export is as it was made."""


def verify(place: UPath) -> Verification:
    """Checks a whole export, one file after the other.

    Raises:
        ExportError: there is no export of this version.
    """
    manifest = read_manifest(place)
    if manifest.version != VERSION or manifest.format not in FORMATS:
        raise ExportError(f"{place}: is an export of another version; verify it with the one that made it")
    faults: list[str] = []
    figures: list[list[LawFigures]] = []
    trained = np.zeros(manifest.target.vocab_size, np.int64)
    hashed = [*manifest.beside, *(one.index for one in manifest.partitions)]
    known = {file.path for file in (*manifest.files, *hashed)}
    faults += [f"{path}: is not in the manifest" for path in sorted(listed(place) - known)]
    faults += [fault for file in hashed for fault in _unlike(place, file)]
    for entry in manifest.partitions:
        files = [file for file in manifest.files if file.partition == entry.partition]
        index = _index(place, entry)
        if index is None:
            faults.append(f"{entry.index.path}: cannot be read as an index")
            continue
        faults += index_faults(entry, index, files)
        for file in files:
            wrong = _unlike(place, file)
            faults += wrong
            if not wrong:
                faults += _file_faults(place, manifest, file, index, figures, trained)
    faults += [
        f"{one.partition}: is in no entry of the manifest"
        for one in manifest.files
        if all(one.partition != entry.partition for entry in manifest.partitions)
    ]
    laws = summed(figures)
    faults += [one.sentence for one in laws if one.violations]
    vocabulary: tuple[VocabularyVerdict, ...] = ()
    if any(file.path.startswith(f"{FOLDER}/") for file in manifest.beside):
        recount = None if faults else trained
        read = read_vocabulary(place / FOLDER, recount=recount, why_no_recount="files are not as they were written")
        vocabulary = judge_vocabulary(read)
        faults += [f"{FOLDER}: {one.sentence}" for one in vocabulary if one.fault]
    return Verification(manifest, laws, vocabulary, tuple(faults))


def read_index(place: UPath, partition: str) -> pl.DataFrame | None:
    """The index of a partition in an export, ``contract.TRAINING_EXPORT``; None where the export has no such partition.

    Raises:
        ExportError: there is no export, or the index is damaged.
    """
    for entry in read_manifest(place).partitions:
        if entry.partition == partition:
            index = _index(place, entry)
            if index is None:
                raise ExportError(f"{place / entry.index.path}: cannot be read as an index; export again")
            return index
    return None


def file_rows(form: Format, path: Path, index: pl.DataFrame, manifest_facts: "RowFacts") -> Rows | str:
    """Reads a file back beside its index; why it cannot be, if so."""
    if form.read is None:
        return "holds text alone"
    try:
        read = form.read(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        return f"cannot be read back: {str(error).strip().splitlines()[0]}"
    if len(read) != len(index):
        return f"has {len(read):,} rows, the index says {len(index):,}"
    return Rows.of(
        read,
        index,
        vocab_size=manifest_facts.vocab_size,
        max_length=manifest_facts.max_length,
        eval_share=manifest_facts.eval_share,
    )


@dataclass(frozen=True, slots=True)
class RowFacts:
    """What the laws need beside the rows."""

    vocab_size: int
    max_length: int | None
    eval_share: float


def index_faults(entry: PartitionEntry, index: pl.DataFrame, files: list[DataFile]) -> Iterator[str]:
    """What does not add up between a partition's counts, its index and its files."""
    where = entry.index.path
    doubled = index.filter(pl.col("sample_id").is_duplicated())["sample_id"]
    if len(doubled):
        yield f"{where}: conservation: {doubled.n_unique():,} prompts are there twice, first {doubled[0]}"
    counted = dict(index.group_by("fate").len().iter_rows())
    if counted != entry.fates or sum(counted.values()) != entry.prompts or not counted.keys() <= FATES.keys():
        yield (
            f"{where}: conservation: prompts ended as {counted}, the manifest says {entry.fates} of"
            f" {entry.prompts:,} prompts"
        )
    wrong = [
        name
        for name, fate in index.filter(pl.col("fate").is_in(SPLITS) != pl.col("file").is_not_null())
        .select("sample_id", "fate")
        .iter_rows()
    ]
    if wrong:
        yield f"{where}: conservation: {len(wrong):,} prompts are exported without a file, or not and have one"
    rows = {
        path: (len(part), part["row"].to_list() == list(range(len(part))))
        for (path,), part in index.filter(pl.col("file").is_not_null()).sort("row").group_by("file")
    }
    for file in files:
        if rows.pop(file.path, None) != (file.rows, True):
            yield f"{file.path}: conservation: its rows are not those of the index"
    for path in sorted(rows):
        yield f"{path}: conservation: the index has rows of it, the manifest does not have it"


def _file_faults(
    place: UPath,
    manifest: Manifest,
    file: DataFile,
    index: pl.DataFrame,
    figures: list[list[LawFigures]],
    counts: Ints,
) -> Iterator[str]:
    """What is wrong with a file of rows; adds to the figures of laws, and to the counts of trained ids."""
    lines = index.filter(pl.col("file") == file.path).sort("row")
    form = FORMATS[manifest.format]
    if form.lossy:
        wrong = sum(
            (fate == "eval") != held_out(name, manifest.settings.eval_share)
            for fate, name in lines.select("fate", "conversation_id").iter_rows()
        )
        if wrong:
            yield f"{file.path}: split_by_conversation: {wrong:,} rows are on the other side"
        return
    facts = RowFacts(manifest.target.vocab_size, manifest.settings.max_length, manifest.settings.eval_share)
    with local_copy(place / file.path) as path:
        rows = file_rows(form, path, lines, facts)
    if isinstance(rows, str):
        yield f"{file.path}: {rows}"
        return
    figures.append(judge_file(file.path, rows))
    if file.split == TRAIN:
        counts += trained_counts(rows)
    tokens, trained = int(rows.tokens.lengths.sum()), len(rows.mask.marks([1]))
    if (tokens, trained) != (file.tokens, file.trained_tokens):
        yield (
            f"{file.path}: has {tokens:,} tokens, {trained:,} of them trained; the manifest says {file.tokens:,} and"
            f" {file.trained_tokens:,}"
        )


def _unlike(place: UPath, file: Hashed) -> list[str]:
    try:
        found = sha256_of(place / file.path)
    except OSError as error:
        return [f"{file.path}: cannot be read: {error.strerror or error}"]
    if (found.sha256, found.size_bytes) != (file.sha256, file.size_bytes):
        return [f"{file.path}: is not the file that was written ({found.size_bytes:,} bytes, other hash)"]
    return []


def _index(place: UPath, entry: PartitionEntry) -> pl.DataFrame | None:
    try:
        with local_copy(place / entry.index.path) as path:
            index = pl.read_parquet(path, glob=False)
    except (OSError, pl.exceptions.PolarsError):
        return None
    return index if index.schema == TRAINING_EXPORT else None
