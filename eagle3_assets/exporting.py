"""Partitions exported: from what is stored to a directory that a trainer reads.

What belongs here: reading partitions, judging them anew, and writing their export. Not here: formats, filters and laws
(``exports``), Dagster, the terminal.
"""

import hashlib
import platform
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import polars as pl
from upath import UPath

from eagle3_assets.config import Export
from eagle3_assets.decoding import Decoder
from eagle3_assets.exports.card import dataset_card
from eagle3_assets.exports.derived import fates_in, files_beside, lengths_in
from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.formats import FORMATS, Format, file_rows, prompt_tokens, row_facts
from eagle3_assets.exports.laws import LawFigures, judge_file, summed
from eagle3_assets.exports.manifest import INDEX, DataFile, Hashed, Manifest, PartitionEntry, TargetEntry
from eagle3_assets.exports.selection import SPLITS, TRAIN, place, prompt_fates, select
from eagle3_assets.exports.vocabulary import (
    FILES,
    FOLDER,
    Recount,
    VocabularyRecord,
    read_vocabulary,
    require_torch,
    trained_counts,
    vocabulary_files,
    vocabulary_record,
)
from eagle3_assets.exports.vocabulary_laws import judge_vocabulary
from eagle3_assets.exports.writing import ExportDirectory, writing_into
from eagle3_assets.files import ZSTD_LEVEL, local_copy
from eagle3_assets.frames import batches
from eagle3_assets.generation.sealed import read_identity
from eagle3_assets.identity import Identity
from eagle3_assets.partitions import Partition
from eagle3_assets.project import Project
from eagle3_assets.same_target import OneTarget
from eagle3_assets.sourcing import stored_record
from eagle3_assets.storage.files import is_stored, scan_parquet, write_parquet
from eagle3_assets.target import LoadedTarget
from eagle3_assets.tokens.verdict import Report
from eagle3_assets.tokens.vocabulary import choose, require_room, vocabulary_verdict
from eagle3_assets.training import Stored, to_training_samples
from eagle3_assets.usable import PartitionState, left_out_text, usable

REVISION = "2"
"""Changes when the same rows are written in another way than before."""


@dataclass(frozen=True, slots=True)
class Exported:
    """An export that is whole, and what it was asked for and does not hold."""

    manifest: Manifest
    left_out: tuple[PartitionState, ...]


def export(
    project: Project,
    target: LoadedTarget,
    partitions: Sequence[Partition],
    directory: UPath,
    settings: Export,
    tell: Callable[[str], object] = lambda _: None,
    *,
    leave_out: bool = False,
) -> Exported:
    """Exports partitions into one directory, which is whole when it has a manifest.

    All of them are judged before anything is written. An export that was interrupted, or one of fewer rows, is gone on
    with: files of the same content are kept. Holds one partition in memory at a time; where its prompts go waits in a
    file meanwhile.

    Args:
        project: that the partitions are of.
        target: that made them.
        partitions: what to export.
        directory: empty, or of an earlier export; nothing but that export's own files is replaced or deleted.
        settings: format, filters and split.
        tell: is told of every file, in one line.
        leave_out: whether the rest is exported where a partition cannot be; else that is an error.

    Raises:
        ExportError: a partition cannot be exported, or none of them; nothing is written. Or a file as read back breaks
            a law of the export.
        StorageError: there is no room for what waits.
        VocabularyError: the draft vocabulary has no room for the structural ids; nothing is written.
    """
    form = FORMATS[settings.format]
    _require_possible(partitions, form, settings)
    if settings.vocabulary and not form.lossy:
        require_torch()
        require_room(len(target.profile.structural_ids), settings.draft_vocab_size)
    with writing_into(directory) as into, TemporaryDirectory(prefix="eagle3-") as scratch:
        judging = _Judging(project, target, form, settings, Path(scratch))
        left_out = []
        for partition in partitions:
            found = judging.take(partition)
            if found and not leave_out:
                why = " ".join(found.why) or "Nothing of it is generated: materialize it first."
                raise ExportError(f"{partition.key} is {found.state}, nothing is written. {why}")
            left_out += [found] if found else []
        if not judging.planned:
            raise ExportError(f"no partition can be exported: {left_out_text(left_out)}")
        work = _Work(project, into, form, settings, target, tell)
        files = {path: content for one in judging.planned for path, content in one.files.items()}
        into.begin(files, _others(judging.planned, form))
        entries = [work.take(one) for one in judging.planned]
        beside = [into.add_small(path, content) for path, content in files_beside(form, work.files).items()]
        vocabulary, vocabulary_hashes = work.vocabulary()
        manifest = Manifest(
            format=form.name,
            lossy=form.lossy,
            settings=settings,
            target=TargetEntry(
                model=Path(target.settings.model).name,
                profile=target.profile.name,
                vocab_size=target.vocab_size,
                tokenizer_sha256=target.tokenizer_sha256,
                weights=judging.planned[0].identity.weights,
            ),
            partitions=tuple(entries),
            left_out={one.partition: one.state for one in left_out},
            files=tuple(work.files),
            beside=(*beside, *vocabulary_hashes),
            laws=summed(work.figures),
            config=_config(project, {one.partition.dataset.name for one in judging.planned}),
            versions={name: version(name) for name in ("eagle3-assets", "polars", "transformers")}
            | {"python": platform.python_version()},
        )
        card = dataset_card(manifest, vocabulary)
        manifest = manifest.with_card(card)
        into.finish(manifest, card)
    return Exported(manifest, tuple(left_out))


def fates_of(stored: Stored, report: Report) -> pl.DataFrame:
    """Where every prompt of a partition ended before the export; see :func:`exports.selection.prompt_fates`."""
    prompts = stored.prompts.select("sample_id", "conversation_id").collect()
    states = stored.tokenized.select("sample_id", "status", "reason").collect()
    sent = pl.col("status") == "generated"
    raw = stored.raw.select(
        "sample_id",
        "status",
        "reason",
        prompt_tokens=pl.when(sent).then(pl.col("prompt_ids").list.len()),
        output_tokens=pl.when(sent).then(pl.col("output_ids").list.len()),
        finish_type=pl.when(sent).then("finish_type"),
        ids_sha256=pl.when(sent).then("ids_sha256"),
    ).collect()
    broken = pl.DataFrame({"sample_id": sorted(report.quarantined)}, schema={"sample_id": pl.String})
    first = (
        report.findings.filter(pl.col("severity") == "error")
        .unique("sample_id", keep="first", maintain_order=True)
        .select("sample_id", reason=pl.format("{}: {}", "law", "detail"))
    )
    return prompt_fates(
        prompts.join(states, on="sample_id", how="left", maintain_order="left"),
        raw,
        broken.join(first, on="sample_id", how="left", maintain_order="left"),
    )


@dataclass(frozen=True, slots=True)
class _Planned:
    """A partition that is judged, and what will be written of it."""

    partition: Partition
    identity: Identity
    sealed_file: str
    index: pl.LazyFrame
    """``contract.TRAINING_EXPORT``, every fate decided and every exported row in its place."""
    files: dict[str, str]
    """The files of rows to be, in order, each with a hash of all that goes into it."""


@dataclass
class _Judging:
    """Partitions while they are judged, one after the other, before anything is written."""

    project: Project
    target: LoadedTarget
    form: Format
    settings: Export
    scratch: Path

    def __post_init__(self) -> None:
        self.planned: list[_Planned] = []
        self._one_target = OneTarget(self.target)

    def take(self, partition: Partition) -> PartitionState | None:
        """Plans a partition, or says why it cannot be exported.

        Raises:
            StorageError: the disk is full.
        """
        found = usable(self.project, partition, self.target, partial(self._plan, partition))
        if not isinstance(found, _Planned):
            state, why = found
            return PartitionState(partition.key, state, tuple(why))
        path = self.scratch / f"{partition.key}.parquet"
        write_parquet(found.index, UPath(path))
        self._one_target.let_in(partition.key, found.identity)
        self.planned.append(replace(found, index=pl.scan_parquet(path, glob=False)))
        return None

    def _plan(
        self, partition: Partition, report: Report, stored: Stored
    ) -> _Planned | tuple[Literal["behind", "refused"], Sequence[str]]:
        if not is_stored(self.project.layout.asset_file("training_samples", partition.key)):
            return "behind", ("training_samples is not made yet; materialize training_samples",)
        samples = _samples(self.project, partition.key)
        if behind := _other_samples(samples, to_training_samples(stored.prompts, stored.raw, report.quarantined)):
            return "behind", (behind,)
        # A drafter learns one target, and texts are decoded by its tokenizer.
        identity = read_identity(stored.sealed.directory, stored.sealed.pointer.fingerprint)
        if refusal := self._one_target.refusal(identity):
            return "refused", (refusal,)
        selected = select(fates_of(stored, report), self.settings)
        index = place(selected, self.settings.shard_rows, partition.key, self.form.suffix)
        files = self._files(samples, stored.prompts, index)
        return _Planned(partition, identity, stored.sealed.pointer.file, index.lazy(), files)

    def _files(self, samples: pl.LazyFrame, prompts: pl.LazyFrame, index: pl.DataFrame) -> dict[str, str]:
        contents = samples.select(sample_id="id", content=pl.col("metadata").hash())
        if self.form.lossy:
            messages = prompts.select("sample_id", messages=pl.col("messages").hash())
            contents = contents.join(messages, on="sample_id", how="left")
        exported = index.filter(pl.col("file").is_not_null()).join(contents.collect(), on="sample_id", how="left")
        common = (REVISION, self.form.name, self.target.tokenizer_sha256, version("polars"))
        return {
            path: hashlib.sha256(repr((common, rows.drop("reason").rows())).encode()).hexdigest()
            for (path,), rows in exported.group_by("file", maintain_order=True)
        }


@dataclass
class _Work:
    """An export while it is made, partition after partition."""

    project: Project
    into: ExportDirectory
    form: Format
    settings: Export
    target: LoadedTarget
    tell: Callable[[str], object]

    def __post_init__(self) -> None:
        self.files: list[DataFile] = []
        self.figures: list[list[LawFigures]] = []
        self.trained = Recount(np.zeros(self.target.vocab_size, np.int64), {})
        """Tokens to train on, as counted in the files."""

    def take(self, one: _Planned) -> PartitionEntry:
        """Writes a partition's files as they are planned, and its index.

        Raises:
            ExportError: a file as read back breaks a law, or what was planned is there no more.
        """
        index = one.index.collect()
        made: dict[str, DataFile] = {}
        for path, content in one.files.items():
            kept = self.into.kept(path, content)
            if kept is not None:
                with local_copy(self.into.place / path) as copy:
                    self._check(path, copy, index, one.partition.key)
                made[path] = kept
                self.tell(f"{path}: {kept.rows:,} rows, kept from before")
        if missing := one.files.keys() - made.keys():
            try:
                for path, rows in _shards(self._rows(one.partition.key), index, missing):
                    made[path] = self._write(path, rows, index, one.partition.key, one.files[path])
                    self.tell(f"{path}: {made[path].rows:,} rows, {made[path].tokens:,} tokens")
            except pl.exceptions.ComputeError as error:  # it was read to its end before anything was written
                raise ExportError(
                    f"{one.partition.key}: its training_samples can be read no more ({error}); were they replaced"
                    " meanwhile? What is complete is kept, export again"
                ) from error
        self.files += [made[path] for path in one.files]
        return self._entry(one, index)

    def vocabulary(self) -> tuple[VocabularyRecord | None, list[Hashed]]:
        """Writes the draft vocabulary of what is trained on, if it is wanted and there is anything, and judges it.

        Raises:
            ExportError: as read back it breaks a law.
        """
        trained = self.trained
        if not (self.settings.vocabulary and trained.partitions):
            return None, []
        profile = self.target.profile
        chosen = choose(trained.counts, profile.structural_ids, self.settings.draft_vocab_size)
        record = vocabulary_record(chosen, profile.name, self.target.tokenizer_sha256, trained.partitions)
        hashes = [
            self.into.add_small(f"{FOLDER}/{name}", content)
            for name, content in vocabulary_files(chosen, record).items()
        ]
        read = read_vocabulary(self.into.place / FOLDER, structural=profile.structural_ids, recount=trained)
        if broken := [one.sentence for one in judge_vocabulary(read) if one.fault]:
            raise ExportError(f"{FOLDER}: as read back it breaks laws. {'; '.join(broken)}. Export again.")
        self.tell(f"{FOLDER}: {vocabulary_verdict(chosen)}")
        return record, hashes

    def _rows(self, key: str) -> pl.LazyFrame:
        rows = _samples(self.project, key).with_columns(partition=pl.lit(key))
        if self.form.lossy:
            prompts = scan_parquet(self.project.layout.asset_file("prompts", key), asset="prompts")
            messages = prompts.select(id="sample_id", messages="messages")
            rows = rows.join(messages, on="id", how="left", maintain_order="left")
        return rows

    def _write(self, path: str, rows: pl.DataFrame, index: pl.DataFrame, partition: str, content: str) -> DataFile:
        told = self._told(rows)
        hashed = self.into.add(
            path,
            lambda temporary: self.form.write(told, temporary),
            lambda written: self._check(path, written, index, partition),
        )
        file = DataFile(
            **hashed.model_dump(),
            partition=partition,
            split=path.split("/", 1)[0],
            rows=len(rows),
            tokens=int(rows["input_ids"].list.len().sum()),
            trained_tokens=int(rows["loss_mask"].list.sum().sum()),
            content=content,
        )
        self.into.done(file)
        return file

    def _told(self, rows: pl.DataFrame) -> pl.DataFrame:
        """With the texts that the format holds."""
        decoder = Decoder(self.target.tokenizer, self.target.profile)
        if self.form.texts:
            # Row by row: as lists, a whole file's ids take ten times their size.
            texts = [decoder.text(ids.to_list()) for ids in rows["input_ids"]]
            return rows.with_columns(pl.Series("text", texts, dtype=pl.String))
        if self.form.lossy:
            stops = set(self.target.profile.stop_ids)
            outputs = rows.select(pl.col("input_ids").list.slice(prompt_tokens()))["input_ids"].to_list()
            answers = [decoder.text(ids[:-1] if ids[-1] in stops else ids) for ids in outputs]
            return rows.with_columns(pl.Series("answer", answers, dtype=pl.String))
        return rows

    def _check(self, path: str, written: Path, index: pl.DataFrame, partition: str) -> None:
        """Every law on a file as it is read back, and what of it is trained on counted.

        Raises:
            ExportError: it breaks one.
        """
        facts = row_facts(self.form, self.target.vocab_size, self.settings)
        rows = file_rows(self.form, written, index.filter(pl.col("file") == path).sort("row"), facts)
        if isinstance(rows, str):
            raise ExportError(f"{path}: {rows}")
        figures = judge_file(path, rows)
        if broken := [one.sentence for one in figures if one.violations]:
            raise ExportError(
                f"{path}: as read back it breaks laws of the export, and is not kept. {'; '.join(broken)}."
                " Materialize training_samples of this partition again."
            )
        self.figures.append(figures)
        if path.startswith(f"{TRAIN}/") and not self.form.lossy:
            self.trained.add(partition, trained_counts(rows))

    def _entry(self, one: _Planned, index: pl.DataFrame) -> PartitionEntry:
        key = one.partition.key
        hashed = self.into.add(
            _index_path(key),
            lambda temporary: index.write_parquet(temporary, compression="zstd", compression_level=ZSTD_LEVEL),
            lambda _: None,
        )
        record = stored_record(self.project, one.partition)
        return PartitionEntry(
            partition=key,
            dataset=one.partition.dataset.name,
            identity=one.identity.model_dump(mode="json"),
            fingerprint=one.identity.fingerprint,
            sealed_file=one.sealed_file,
            source_rows=record.accounts.model_dump() if record else None,
            prompts=len(index),
            fates=fates_in(index),
            lengths=lengths_in(index),
            index=hashed,
        )


def _samples(project: Project, key: str) -> pl.LazyFrame:
    """``contract.TRAINING_SAMPLES`` of a partition."""
    return scan_parquet(project.layout.asset_file("training_samples", key), asset="training_samples")


def _shards(samples: pl.LazyFrame, index: pl.DataFrame, wanted: Set[str]) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows of each wanted file, with the masks that they will have; holds at most one file of each side."""
    places = index.filter(pl.col("file").is_in(wanted)).select("file", "row", "masked_tail", id="sample_id")
    planned = dict(places.group_by("file").len().iter_rows())
    waiting: dict[str, list[pl.DataFrame]] = {}
    tail = pl.col("masked_tail")
    learnt = pl.col("loss_mask").list.head(pl.col("loss_mask").list.len() - tail)
    masked = pl.concat_list(learnt, pl.lit(0, pl.UInt8).repeat_by(tail))
    for batch in batches(samples):
        rows = batch.join(places, on="id", how="inner", maintain_order="left").with_columns(loss_mask=masked)
        for (path,), some in rows.group_by("file", maintain_order=True):
            waiting.setdefault(str(path), []).append(some)
            if sum(map(len, waiting[str(path)])) == planned[path]:
                yield str(path), pl.concat(waiting.pop(str(path))).sort("row").drop("file", "row", "masked_tail")
                del planned[path]
    if planned:
        raise ExportError(f"training_samples lacks rows of {', '.join(sorted(planned))}; was it replaced meanwhile?")


def _index_path(partition: str) -> str:
    return f"{INDEX}/{partition}.parquet"


def _others(planned: Sequence[_Planned], form: Format) -> list[str]:
    """All files that an export may have beside its rows."""
    folders = ("", *(f"{split}/" for split in SPLITS))
    return [
        *(_index_path(one.partition.key) for one in planned),
        *(folder + name for folder in folders for name in form.beside((), "")),
        *(f"{FOLDER}/{name}" for name in FILES),
    ]


def _require_possible(partitions: Sequence[Partition], form: Format, settings: Export) -> None:
    if not partitions:
        raise ExportError("no partition is to be exported")
    if settings.cut_off == "mask" and not form.masks:
        raise ExportError(f"{form.name} holds no loss mask, so cut_off: mask cannot be written; keep or drop")
    trials = {one.key: one.dataset.name for one in partitions if one.trial}
    whole = {one.dataset.name for one in partitions if not one.trial}
    doubled = [key for key, dataset in trials.items() if dataset in whole]
    if doubled:
        raise ExportError(f"{', '.join(sorted(doubled))}: a trial's conversations are its dataset's too; leave it out")
    if trials and whole:
        raise ExportError(f"{', '.join(sorted(trials))}: trials may have other sampling; export them by themselves")


def _other_samples(samples: pl.LazyFrame, now: pl.LazyFrame) -> str | None:
    """Why ``training_samples`` are not exactly what the generations give now; None where they are.

    Reads all that will be written, so that damage is found before anything is.
    """
    stored, given = _contents(samples), _contents(now)
    if given.sort("id").equals(stored.sort("id")):
        return None
    other = len(stored.join(given, on=stored.columns, how="anti"))
    return (
        f"training_samples has {len(stored):,} samples, {other:,} of them not as the outputs of now give them, and"
        f" {len(given):,} outputs can be used now; materialize training_samples again"
    )


def _contents(samples: pl.LazyFrame) -> pl.DataFrame:
    """A row for each sample, by which it is told from any other: the lists hashed, so that few bytes are held."""
    captured = pl.col("metadata").str.json_path_match("$.ids_sha256")
    told = samples.select("id", pl.col("input_ids", "loss_mask").hash(), ids_sha256=captured)
    return pl.concat([pl.DataFrame(schema=told.collect_schema()), *batches(told)])  # of no rows there is no batch


def _config(project: Project, datasets: Set[str]) -> dict[str, Any]:
    """What else decided the data: no engine, no address, no place of a file."""
    target = project.config.target.model_dump(
        mode="json", exclude_defaults=True, exclude={"model", "tokenizer", "chat_template"}
    )
    return {
        "target": target,
        "datasets": [
            dataset.model_dump(mode="json", exclude_defaults=True, exclude={"source"})
            for dataset in project.config.datasets
            if dataset.name in datasets
        ],
        "law_effects": dict(project.config.law_effects),
    }
