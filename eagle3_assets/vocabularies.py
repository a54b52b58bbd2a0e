"""The draft vocabulary of a corpus: the tokens of all partitions that count, and what was left out.

What belongs here: counting stored tokens, a batch in memory at a time. Not here: which partitions count (``usable``),
choosing (``tokens.vocabulary``), files (``exports.vocabulary``), drawing, Dagster.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from eagle3_assets.contract import DRAFT_VOCABULARY
from eagle3_assets.exports.vocabulary import Recount, VocabularyRecord, vocabulary_record
from eagle3_assets.frames import batches
from eagle3_assets.generation.sealed import read_identity
from eagle3_assets.partitions import dataset_partitions
from eagle3_assets.project import Project
from eagle3_assets.same_target import OneTarget
from eagle3_assets.storage.files import StorageError, is_stored, naming_damage, scan_parquet
from eagle3_assets.target import LoadedTarget
from eagle3_assets.tokens.columns import Ints, TokenColumn
from eagle3_assets.tokens.verdict import Report
from eagle3_assets.tokens.vocabulary import DraftVocabulary, VocabularyError, choose, count_ids, coverage
from eagle3_assets.training import Stored
from eagle3_assets.usable import PartitionState, left_out_text, usable


@dataclass(frozen=True, eq=False)
class CorpusVocabulary:
    """A draft vocabulary, and the corpus that it was chosen by."""

    vocabulary: DraftVocabulary
    record: VocabularyRecord
    datasets: tuple[tuple[str, Ints], ...]
    """Name and counts, int64[V], of every dataset with a token, in the config's order."""
    partitions: tuple[PartitionState, ...]

    @property
    def left_out(self) -> tuple[PartitionState, ...]:
        """Partitions that were not counted."""
        return tuple(one for one in self.partitions if one.state != "counted")

    def table(self) -> pl.DataFrame:
        """``contract.DRAFT_VOCABULARY``."""
        rows = coverage(self.vocabulary, self.datasets)
        return pl.DataFrame(
            [(row.dataset, row.size, row.mark, row.tokens, row.covered, row.share) for row in rows],
            schema=DRAFT_VOCABULARY,
            orient="row",
        )


def corpus_vocabulary(project: Project, target: LoadedTarget, size: int) -> CorpusVocabulary:
    """Judges every partition anew, counts those of the target that no law refuses, and chooses; trials never count.

    Args:
        project: its config and files.
        target: that made them: its config says V, its profile the structural ids.
        size: D.

    Raises:
        VocabularyError: there is nothing to count, or no room for the structural ids.
    """
    one_target = OneTarget(target)

    def counted(key: str, report: Report, stored: Stored) -> Ints | str:
        identity = read_identity(stored.sealed.directory, stored.sealed.pointer.fingerprint)
        if refusal := one_target.refusal(identity):
            return refusal
        used = (pl.col("status") == "generated") & ~pl.col("sample_id").is_in(sorted(report.quarantined))
        ids = stored.raw.filter(used).select("output_ids")
        try:
            counts = _sum((TokenColumn.from_series(b["output_ids"]).values for b in batches(ids)), target.vocab_size)
        except VocabularyError as error:
            return str(error)
        one_target.let_in(key, identity)
        return counts

    states: list[PartitionState] = []
    by_partition: dict[str, int] = {}
    datasets: list[tuple[str, Ints]] = []
    for dataset in project.config.datasets:
        *shards, trial = dataset_partitions(dataset)
        total = np.zeros(target.vocab_size, np.int64)
        for partition in shards:
            found = usable(project, partition, target, partial(counted, partition.key))
            if isinstance(found, np.ndarray):
                total += found
                by_partition[partition.key] = int(found.sum())
                states.append(PartitionState(partition.key, "counted"))
            else:
                state, why = ("refused", (found,)) if isinstance(found, str) else found
                states.append(PartitionState(partition.key, state, tuple(why)))
        if is_stored(project.layout.generations(trial.key)):
            states.append(PartitionState(trial.key, "trial"))
        if total.any():
            datasets.append((dataset.name, total))
    states += [PartitionState(orphan, "orphaned") for orphan in project.orphans()]
    if not datasets:
        left_out = left_out_text(one for one in states if one.state != "counted")
        raise VocabularyError(f"no token is trained on, so no draft vocabulary can be chosen: {left_out}")
    vocabulary = choose(np.sum([counts for _, counts in datasets], axis=0), target.profile.structural_ids, size)
    record = vocabulary_record(vocabulary, target.profile.name, target.tokenizer_sha256, by_partition)
    return CorpusVocabulary(vocabulary, record, tuple(datasets), tuple(states))


def recount(project: Project, partitions: Iterable[str], vocab_size: int) -> Recount | str:
    """Counts tokens with a loss in stored ``training_samples``: what a vocabulary is held against.

    Args:
        project: its files.
        partitions: that the vocabulary was counted over.
        vocab_size: V.

    Returns:
        the counts, or why they cannot be said.
    """
    counts, by_partition = np.zeros(vocab_size, np.int64), dict[str, int]()
    try:
        for key in partitions:
            with naming_damage(project.layout, key):
                found = _sum(_trained(project, key), vocab_size)
            counts += found
            by_partition[key] = int(found.sum())
    except StorageError as error:
        return str(error)
    return Recount(counts, by_partition)


def _trained(project: Project, key: str) -> Iterator[Ints]:
    samples = scan_parquet(project.layout.asset_file("training_samples", key), asset="training_samples")
    for batch in batches(samples.select("input_ids", "loss_mask")):
        mask = TokenColumn.from_series(batch["loss_mask"]).values
        yield TokenColumn.from_series(batch["input_ids"]).values[mask == 1]


def _sum(parts: Iterable[Ints], vocab_size: int) -> Ints:
    counts = np.zeros(vocab_size, np.int64)
    for ids in parts:
        counts += count_ids(ids, vocab_size)
    return counts
