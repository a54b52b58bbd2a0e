"""Partitions exported: from what is stored to a directory that a trainer reads.

What belongs here: reading partitions, judging them anew, and writing their export. Not here: formats, filters and laws
(``exports``), Dagster, the terminal.
"""

import hashlib
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

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
from eagle3_assets.target import LoadedTarget
from eagle3_assets.tokens.columns import Ints
from eagle3_assets.tokens.verdict import Report
from eagle3_assets.tokens.vocabulary import choose, require_room, vocabulary_verdict
from eagle3_assets.training import Stored, judge_for_training

REVISION = "1"
"""Changes when the same rows are written in another way than before."""


@dataclass(frozen=True, slots=True)
class ToExport:
    """A partition to export, as stored."""

    partition: Partition
    stored: Stored
    samples: pl.LazyFrame
    """``contract.TRAINING_SAMPLES``."""


def export(
    project: Project,
    target: LoadedTarget,
    chosen: Sequence[ToExport],
    directory: UPath,
    settings: Export,
    tell: Callable[[str], object] = lambda _: None,
) -> Manifest:
    """Exports partitions into one directory, which is whole when it has a manifest.

    An export that was interrupted, or one of fewer rows, is gone on with: files of the same content are kept.

    Args:
        project: that the partitions are of.
        target: that made them.
        chosen: what to export.
        directory: empty, or of an earlier export; nothing but that export's own files is replaced or deleted.
        settings: format, filters and split.
        tell: is told of every file, in one line.

    Raises:
        RefusedPartitionError: a law refuses a partition; nothing is written.
        ExportError: nothing can be exported, or a file as read back breaks a law of the export.
        VocabularyError: the draft vocabulary has no room for the structural ids; nothing is written.
        SealedError: sealed generations are damaged.
    """
    form = FORMATS[settings.format]
    _require_possible(chosen, form, settings)
    if settings.vocabulary and not form.lossy:
        require_torch()
        require_room(len(target.profile.structural_ids), settings.draft_vocab_size)
    identities = [read_identity(one.stored.sealed.directory, one.stored.sealed.pointer.fingerprint) for one in chosen]
    _require_one_target(target, chosen, identities)
    with writing_into(directory) as into:
        judged = []
        for one in chosen:
            fates = fates_of(one.stored, judge_for_training(project, one.partition, target, one.stored))
            _require_current(one, fates)
            judged.append(place(select(fates, settings), settings.shard_rows, one.partition.key, form.suffix))
        work = _Work(into, form, settings, target, tell)
        planned = [work.planned(one, index) for one, index in zip(chosen, judged, strict=True)]
        into.begin({path: content for files in planned for path, content in files.items()}, _others(chosen, form))
        entries = [
            work.take(one, index, files, identity, project)
            for one, index, files, identity in zip(chosen, judged, planned, identities, strict=True)
        ]
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
                weights=identities[0].weights,
            ),
            partitions=tuple(entries),
            files=tuple(work.files),
            beside=(*beside, *vocabulary_hashes),
            laws=summed(work.figures),
            config=_config(project, chosen),
            versions={name: version(name) for name in ("eagle3-assets", "polars", "transformers")}
            | {"python": platform.python_version()},
        )
        card = dataset_card(manifest, vocabulary)
        manifest = manifest.with_card(card)
        into.finish(manifest, card)
    return manifest


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


@dataclass
class _Work:
    """An export while it is made, partition after partition."""

    into: ExportDirectory
    form: Format
    settings: Export
    target: LoadedTarget
    tell: Callable[[str], object]

    def __post_init__(self) -> None:
        self.files: list[DataFile] = []
        self.figures: list[list[LawFigures]] = []
        self.trained: dict[str, Ints] = {}
        """Tokens to train on as counted in the files, by partition."""

    def take(
        self, one: ToExport, index: pl.DataFrame, planned: Mapping[str, str], identity: Identity, project: Project
    ) -> PartitionEntry:
        """Writes a partition's files as they are :meth:`planned`, and its index."""
        made: dict[str, DataFile] = {}
        for path, content in planned.items():
            kept = self.into.kept(path, content)
            if kept is not None:
                with local_copy(self.into.place / path) as copy:
                    self._check(path, copy, index, one.partition.key)
                made[path] = kept
                self.tell(f"{path}: {kept.rows:,} rows, kept from before")
        for path, rows in _shards(self._rows(one), index, set(planned) - set(made)):
            made[path] = self._write(path, rows, index, one.partition.key, planned[path])
            self.tell(f"{path}: {made[path].rows:,} rows, {made[path].tokens:,} tokens")
        self.files += [made[path] for path in planned]
        return self._entry(one, index, identity, project)

    def vocabulary(self) -> tuple[VocabularyRecord | None, list[Hashed]]:
        """Writes the draft vocabulary of what is trained on, if it is wanted and there is anything, and judges it.

        Raises:
            ExportError: as read back it breaks a law.
        """
        if not (self.settings.vocabulary and self.trained):
            return None, []
        profile = self.target.profile
        counts = sum(self.trained.values(), np.zeros(self.target.vocab_size, np.int64))
        chosen = choose(counts, profile.structural_ids, self.settings.draft_vocab_size)
        by_partition = {partition: int(some.sum()) for partition, some in self.trained.items()}
        record = vocabulary_record(chosen, profile.name, self.target.tokenizer_sha256, by_partition)
        hashes = [
            self.into.add_small(f"{FOLDER}/{name}", content)
            for name, content in vocabulary_files(chosen, record).items()
        ]
        again = Recount(counts, by_partition)
        read = read_vocabulary(self.into.place / FOLDER, structural=profile.structural_ids, recount=again)
        if broken := [one.sentence for one in judge_vocabulary(read) if one.fault]:
            raise ExportError(f"{FOLDER}: as read back it breaks laws. {'; '.join(broken)}. Export again.")
        self.tell(f"{FOLDER}: {vocabulary_verdict(chosen)}")
        return record, hashes

    def planned(self, one: ToExport, index: pl.DataFrame) -> dict[str, str]:
        """The files to be, in order, each with a hash of all that goes into it."""
        contents = one.samples.select(sample_id="id", content=pl.col("metadata").hash())
        if self.form.lossy:
            messages = one.stored.prompts.select("sample_id", messages=pl.col("messages").hash())
            contents = contents.join(messages, on="sample_id", how="left")
        exported = index.filter(pl.col("file").is_not_null()).join(contents.collect(), on="sample_id", how="left")
        common = (REVISION, self.form.name, self.target.tokenizer_sha256, version("polars"))
        return {
            path: hashlib.sha256(repr((common, rows.drop("reason").rows())).encode()).hexdigest()
            for (path,), rows in exported.group_by("file", maintain_order=True)
        }

    def _rows(self, one: ToExport) -> pl.LazyFrame:
        rows = one.samples.with_columns(partition=pl.lit(one.partition.key))
        if self.form.lossy:
            messages = one.stored.prompts.select(id="sample_id", messages="messages")
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
            counts = trained_counts(rows)
            self.trained[partition] = self.trained[partition] + counts if partition in self.trained else counts

    def _entry(self, one: ToExport, index: pl.DataFrame, identity: Identity, project: Project) -> PartitionEntry:
        key = one.partition.key
        path = _index_path(key)
        hashed = self.into.add(
            path,
            lambda temporary: index.write_parquet(temporary, compression="zstd", compression_level=ZSTD_LEVEL),
            lambda _: None,
        )
        record = stored_record(project, one.partition)
        return PartitionEntry(
            partition=key,
            dataset=one.partition.dataset.name,
            identity=identity.model_dump(mode="json"),
            fingerprint=identity.fingerprint,
            sealed_file=one.stored.sealed.pointer.file,
            source_rows=record.accounts.model_dump() if record else None,
            prompts=len(index),
            fates=fates_in(index),
            lengths=lengths_in(index),
            index=hashed,
        )


def _shards(samples: pl.LazyFrame, index: pl.DataFrame, wanted: set[str]) -> Iterator[tuple[str, pl.DataFrame]]:
    """The rows of each wanted file, with the masks that they will have; holds at most one file of each side."""
    places = index.filter(pl.col("file").is_in(wanted)).select("file", "row", "masked_tail", id="sample_id")
    planned = dict(places.group_by("file").len().iter_rows())
    waiting: dict[str, list[pl.DataFrame]] = {}
    tail = pl.col("masked_tail")
    learnt = pl.col("loss_mask").list.head(pl.col("loss_mask").list.len() - tail)
    masked = pl.concat_list(learnt, pl.lit(0, pl.UInt8).repeat_by(tail))
    for batch in batches(samples) if wanted else ():
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


def _others(chosen: Sequence[ToExport], form: Format) -> list[str]:
    """All files that an export may have beside its rows."""
    folders = ("", *(f"{split}/" for split in SPLITS))
    return [
        *(_index_path(one.partition.key) for one in chosen),
        *(folder + name for folder in folders for name in form.beside((), "")),
        *(f"{FOLDER}/{name}" for name in FILES),
    ]


def _require_possible(chosen: Sequence[ToExport], form: Format, settings: Export) -> None:
    if not chosen:
        raise ExportError("no partition is to be exported")
    if settings.cut_off == "mask" and not form.masks:
        raise ExportError(f"{form.name} holds no loss mask, so cut_off: mask cannot be written; keep or drop")
    trials = {one.partition.key for one in chosen if one.partition.trial}
    whole = {one.partition.dataset.name for one in chosen if not one.partition.trial}
    doubled = [one.partition.key for one in chosen if one.partition.trial and one.partition.dataset.name in whole]
    if doubled:
        raise ExportError(f"{', '.join(sorted(doubled))}: a trial's conversations are its dataset's too; leave it out")
    if trials and whole:
        raise ExportError(f"{', '.join(sorted(trials))}: trials may have other sampling; export them by themselves")


def _require_one_target(target: LoadedTarget, chosen: Sequence[ToExport], identities: Sequence[Identity]) -> None:
    """A drafter learns one target, and texts are decoded by its tokenizer."""
    one_target = OneTarget(target)
    for one, identity in zip(chosen, identities, strict=True):
        if refusal := one_target.refusal(one.partition.key, identity):
            raise ExportError(f"{one.partition.key}: {refusal}")


def _require_current(one: ToExport, fates: pl.DataFrame) -> None:
    """``training_samples`` are exactly the outputs that can be used now."""
    usable = fates.filter(pl.col("fate").is_null()).select("sample_id", "ids_sha256")
    stored = one.samples.select(
        sample_id="id", ids_sha256=pl.col("metadata").str.json_path_match("$.ids_sha256")
    ).collect()
    if not usable.sort("sample_id").equals(stored.sort("sample_id")):
        other = len(stored.join(usable, on=["sample_id", "ids_sha256"], how="anti"))
        raise ExportError(
            f"{one.partition.key}: training_samples has {len(stored):,} samples, {other:,} of them of outputs that are"
            f" not those of now, and {len(usable):,} outputs can be used now; materialize training_samples again"
        )


def _config(project: Project, chosen: Sequence[ToExport]) -> dict[str, Any]:
    """What else decided the data: no engine, no address, no place of a file."""
    names = {one.partition.dataset.name for one in chosen}
    target = project.config.target.model_dump(
        mode="json", exclude_defaults=True, exclude={"model", "tokenizer", "chat_template"}
    )
    return {
        "target": target,
        "datasets": [
            dataset.model_dump(mode="json", exclude_defaults=True, exclude={"source"})
            for dataset in project.config.datasets
            if dataset.name in names
        ],
        "law_effects": dict(project.config.law_effects),
    }
