"""What does not add up between the parts of an export: the manifest with itself, with an index, with the vocabulary.

What belongs here: pure functions that name each contradiction. Not here: reading files and comparing hashes
(``verifying``), laws about rows (``laws``) and ids (``vocabulary_laws``).
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from pydantic import ValidationError

from eagle3_assets.exports.derived import fates_in, files_beside, lengths_in
from eagle3_assets.exports.formats import FORMATS
from eagle3_assets.exports.manifest import MANIFEST, DataFile, Lengths, Manifest, PartitionEntry
from eagle3_assets.exports.selection import FATES, SPLITS, TRAIN
from eagle3_assets.exports.vocabulary import FILES, FOLDER, RECORD, VocabularyRecord
from eagle3_assets.identity import Identity, differences

_OF_EVERY_PROMPT = ("sample_id", "conversation_id", "fate")
_OF_EXPORTED = ("row", "sample_tokens", "trained_tokens", "masked_tail", "ids_sha256")


def manifest_faults(manifest: Manifest) -> Iterator[str]:
    """What a manifest says that cannot be, whatever the files hold. Its format is one of ``FORMATS``."""
    form = FORMATS[manifest.format]
    if (manifest.settings.format, manifest.lossy) != (form.name, form.lossy):
        yield f"{MANIFEST}: format is {form.name}, settings.format {manifest.settings.format}, lossy {manifest.lossy}"
    keys = [entry.partition for entry in manifest.partitions]
    hashed = [*manifest.files, *manifest.beside, *(entry.index for entry in manifest.partitions)]
    for twice in [*_doubled(keys), *_doubled(file.path for file in hashed)]:
        yield f"{MANIFEST}: has {twice} twice"
    for key in sorted({*keys} & {*(manifest.left_out or ())}):
        yield f"{MANIFEST}: has {key}, and says that it was left out"
    for entry in manifest.partitions:
        yield from _identity_faults(manifest, entry)
        if entry.index.path != f"index/{entry.partition}.parquet":
            yield f"{MANIFEST}: {entry.index.path} is not the index of {entry.partition}"
    strange = [file for file in manifest.files if not _in_its_place(file, form.suffix)]
    for file in strange:
        yield f"{MANIFEST}: {file.path} is no place of a file of {file.partition} in {file.split}"
    for file in manifest.files:
        if file.partition not in keys:
            yield f"{file.partition}: is in no entry of the manifest"
    if not strange:
        yield from _beside_faults(manifest)


def _doubled(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _in_its_place(file: DataFile, suffix: str) -> bool:
    number = file.path.removeprefix(f"{file.split}/{file.partition}-").removesuffix(suffix)
    return (
        file.split in SPLITS
        and number.isdecimal()
        and file.path == (f"{file.split}/{file.partition}-{int(number):05d}{suffix}")
    )


def _identity_faults(manifest: Manifest, entry: PartitionEntry) -> Iterator[str]:
    try:
        identity = Identity.model_validate(entry.identity)
    except ValidationError as error:
        yield f"{MANIFEST}: {entry.partition}: is no identity of this version ({error.errors()[0]['msg']})"
        return
    if identity.fingerprint != entry.fingerprint:
        yield f"{MANIFEST}: {entry.partition}: the fingerprint of its identity is not {entry.fingerprint}"
    for said, fact, made_with in (
        ("target.weights", manifest.target.weights, identity.weights),
        ("target.tokenizer_sha256", manifest.target.tokenizer_sha256, identity.tokenizer),
    ):
        if fact != made_with:
            yield f"{MANIFEST}: {entry.partition}: was made with {made_with}, and {said} is {fact}"


def _beside_faults(manifest: Manifest) -> Iterator[str]:
    form = FORMATS[manifest.format]
    made = files_beside(form, manifest.files)
    hashes = {file.path: file.sha256 for file in manifest.beside}
    wanted = set(made)
    if manifest.settings.vocabulary and not form.lossy and any(file.split == TRAIN for file in manifest.files):
        wanted |= {f"{FOLDER}/{name}" for name in FILES}
    for path in sorted(wanted ^ hashes.keys()):
        yield f"{MANIFEST}: {'lacks' if path in wanted else 'has'} {path}, unlike an export with these settings"
    for path, content in made.items():
        if path in hashes and hashes[path] != hashlib.sha256(content).hexdigest():
            yield f"{path}: does not describe the files that {MANIFEST} has"


def index_null(index: pl.DataFrame) -> str | None:
    """Where an index lacks what it must say, or None.

    Args:
        index: ``contract.TRAINING_EXPORT``.
    """
    exported = index.filter(pl.col("file").is_not_null())
    for rows, columns in ((index, _OF_EVERY_PROMPT), (exported, _OF_EXPORTED)):
        for column in columns:
            if lacking := rows[column].null_count():
                return f"{lacking:,} rows have no {column}"
    return None


def index_faults(entry: PartitionEntry, index: pl.DataFrame, files: Sequence[DataFile]) -> Iterator[str]:
    """What does not add up between a partition's counts, its index and its files."""
    where = entry.index.path
    doubled = index.filter(pl.col("sample_id").is_duplicated())["sample_id"]
    if len(doubled):
        yield f"{where}: conservation: {doubled.n_unique():,} prompts are there twice, first {doubled[0]}"
    ended = fates_in(index)
    if ended != entry.fates or len(index) != entry.prompts or not ended.keys() <= FATES.keys():
        yield (
            f"{where}: conservation: prompts ended as {ended}, the manifest says {entry.fates} of"
            f" {entry.prompts:,} prompts"
        )
    wrong = len(index.filter(pl.col("fate").is_in(SPLITS) != pl.col("file").is_not_null()))
    if wrong:
        yield f"{where}: conservation: {wrong:,} prompts are exported without a file, or not and have one"
    if (lengths := lengths_in(index)) != entry.lengths:
        said = differences(_plain(lengths), _plain(entry.lengths))
        yield f"{where}: gives other lengths than {MANIFEST} says: {'; '.join(said)}"
    rows = {
        path: (len(part), part["row"].to_list() == list(range(len(part))))
        for (path,), part in index.filter(pl.col("file").is_not_null()).sort("row").group_by("file")
    }
    for file in files:
        if rows.pop(file.path, None) != (file.rows, True):
            yield f"{file.path}: conservation: its rows are not those of the index"
    for path in sorted(rows):
        yield f"{path}: conservation: the index has rows of it, the manifest does not have it"


def _plain(lengths: Mapping[str, Lengths]) -> dict[str, Any]:
    return {split: one.model_dump() for split, one in lengths.items()}


def vocabulary_faults(manifest: Manifest, record: VocabularyRecord) -> Iterator[str]:
    """Where a draft vocabulary is not of the target and the size that the manifest says."""
    target = manifest.target
    size = min(manifest.settings.draft_vocab_size, target.vocab_size)
    for fact, said, told in (
        ("vocab_size", record.vocab_size, target.vocab_size),
        ("draft_vocab_size", record.draft_vocab_size, size),
        ("profile", record.profile, target.profile),
        ("tokenizer_sha256", record.tokenizer_sha256, target.tokenizer_sha256),
    ):
        if said != told:
            yield f"{FOLDER}/{RECORD}: {fact} is {said}, by {MANIFEST} it is {told}"
