"""Where every row of a source and every prompt of a partition went, up to the file that a trainer reads.

What belongs here: following a partition from its source to an export, and adding it up. Not here: deciding any of it,
how it is shown (``cli``), Dagster.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl
from upath import UPath

from eagle3_assets.exporting import fates_of
from eagle3_assets.exports.manifest import MANIFEST
from eagle3_assets.exports.selection import DECIDED, FATES
from eagle3_assets.exports.verifying import read_index
from eagle3_assets.files import reading
from eagle3_assets.generation.sealed import read_identity
from eagle3_assets.judging import judge_raw, judge_tokenized
from eagle3_assets.partitions import Partition
from eagle3_assets.project import Project
from eagle3_assets.prompts.rows import Accounts, NotedRow, used_rows
from eagle3_assets.same_target import OneTarget
from eagle3_assets.sourcing import stored_record
from eagle3_assets.storage.files import StorageError, is_stored, naming_damage, scan_parquet
from eagle3_assets.target import LoadedTarget
from eagle3_assets.training import read_stored, refusals

USABLE = "usable"
"""The fate of an output that keeps every law and is in no export."""

REFUSED = "refused_partition"
"""The fate of an output that breaks no law by itself, in a partition that must not train anything."""

MEANINGS = {
    **FATES,
    USABLE: "keeps every law, and is in no export",
    REFUSED: "breaks no law by itself; its partition is refused",
}


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """What became of a partition's source rows and prompts."""

    partition: str
    source: Accounts | None
    """Where the rows of the source ended; None where the record beside the prompts is gone."""
    used_rows: int
    """Rows of the source that the stored prompts are of."""
    prompts: pl.DataFrame
    """``contract.TRAINING_EXPORT``, a row for each prompt; every ``fate`` is one of ``MEANINGS``."""
    refusals: tuple[str, ...]
    """Why the partition is refused as training data, where it is: by a law, or as another target's."""
    stale: tuple[str, ...]
    """Ids of prompts that ended otherwise in the export than they would now."""

    @property
    def fates(self) -> dict[str, int]:
        """How many prompts ended where, in the order of ``MEANINGS``."""
        counts = dict(self.prompts.group_by("fate").len().iter_rows())
        return {fate: counts[fate] for fate in MEANINGS if fate in counts}

    @property
    def faults(self) -> tuple[str, ...]:
        """What does not add up, one sentence each."""
        faults = []
        if self.source is None:
            faults.append("the record of the source is gone; materialize prompts again")
        elif self.source.unaccounted:
            faults.append(f"{self.source.unaccounted:,} rows of the source are not accounted for")
        if self.source is not None and self.source.used != self.used_rows:
            faults.append(f"{self.source.used:,} rows of the source were used, the prompts are of {self.used_rows:,}")
        doubled = len(self.prompts) - self.prompts["sample_id"].n_unique()
        if doubled:
            faults.append(f"{doubled:,} prompts are there more than once")
        if sum(self.fates.values()) != len(self.prompts):
            faults.append("some prompts ended nowhere")
        if self.stale:
            faults.append(
                f"the export is older than the data: {len(self.stale):,} prompts ended otherwise, first"
                f" {self.stale[0]}; export again"
            )
        return tuple(faults)


def whereabouts(project: Project, partition: Partition, target: LoadedTarget, exported: UPath) -> Whereabouts:
    """Follows every prompt of a partition, by the stored data as it is now.

    Args:
        project: that the partition is of.
        partition: to follow.
        target: that made it.
        exported: directory of an export to look into; without an export of the partition there, nothing is exported.

    Raises:
        StorageError: prompts, tokenized prompts or generations are not there, or cannot be read to their end.
        SealedError: the generations, or the record of what made them, are damaged.
        ExportError: the export is damaged.
    """
    with naming_damage(project.layout, partition.key):
        stored = read_stored(project, partition.key)
        report = judge_raw(project, partition, target, stored.tokenized, stored.sealed).report
        identity = read_identity(stored.sealed.directory, stored.sealed.pointer.fingerprint)
        other = OneTarget(target).refusal(identity)
        why = (*refusals(stored, report), *([other] if other else []))
        now = fates_of(stored, report)
        source_rows = used_rows(stored.prompts.collect())
    if why:
        lost = pl.col("fate").is_null()
        now = now.with_columns(
            fate=pl.col("fate").fill_null(REFUSED),
            reason=pl.when(lost).then(pl.lit(" ".join(why))).otherwise("reason"),
        )
    record = stored_record(project, partition)
    index = read_index(exported, partition.key) if is_stored(exported / MANIFEST) else None
    prompts, stale = (now.with_columns(pl.col("fate").fill_null(USABLE)), ()) if index is None else _merged(now, index)
    return Whereabouts(partition.key, record.accounts if record else None, source_rows, prompts, why, stale)


def held_back(project: Project, partition: Partition, target: LoadedTarget) -> tuple[str, ...]:
    """Why nothing is generated of a partition as its prompts are now: the laws about them that refuse it, in words.

    Empty where they may be generated, or are not made yet.
    """
    try:
        with naming_damage(project.layout, partition.key):
            prompts, tokenized = (
                scan_parquet(project.layout.asset_file(asset, partition.key), asset=asset)
                for asset in ("prompts", "tokenized_prompts")
            )
            return judge_tokenized(project, partition, target, prompts, tokenized).report.refusals
    except StorageError:
        return ()


def refused_rows(project: Project, partition: Partition) -> Iterator[NotedRow]:
    """Every row of the source that made no prompt, and why.

    Raises:
        StorageError: the file beside the prompts is not there.
    """
    path = project.layout.refused_rows(partition.key)
    try:
        with reading(path) as file:
            for line in file:
                yield NotedRow.model_validate_json(line)
    except (OSError, ValueError) as error:
        raise StorageError(f"{path}: cannot be read ({error}); materialize prompts again") from error


def _merged(now: pl.DataFrame, index: pl.DataFrame) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """The fates as the export has them where they still hold; and the ids of those that do not."""
    both = now.select("sample_id", "fate", "ids_sha256").join(
        index.select("sample_id", then="fate", hash="ids_sha256"), on="sample_id", how="full", coalesce=True
    )
    # Usable outputs have no fate of their own before an export.
    decided_then = pl.col("then").is_in(DECIDED)
    same = pl.when(pl.col("fate").is_null()).then(decided_then).otherwise(pl.col("fate") == pl.col("then"))
    holds = both.filter(same.fill_null(value=False) & pl.col("ids_sha256").eq_missing(pl.col("hash")))["sample_id"]
    stale = both.filter(~pl.col("sample_id").is_in(holds.to_list()))["sample_id"]
    fresh = now.filter(~pl.col("sample_id").is_in(holds.to_list())).with_columns(pl.col("fate").fill_null(USABLE))
    kept = index.filter(pl.col("sample_id").is_in(holds.to_list()))
    order = now.select("sample_id")
    return (
        order.join(pl.concat([kept, fresh]), on="sample_id", how="left", maintain_order="left"),
        tuple(stale.to_list()),
    )
