"""A partition as stored, and which of it may train a drafter.

What belongs here: reading what training needs, judging it anew, and the samples that are left. Not here: any law
(``tokens.laws``), the trainers' formats (``exports``), Dagster.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from eagle3_assets.generation.sealed import Sealed, scan_sealed
from eagle3_assets.judging import judge_raw, without_origin
from eagle3_assets.partitions import Partition
from eagle3_assets.project import Project
from eagle3_assets.storage.files import scan_parquet, sealed_generations
from eagle3_assets.target import LoadedTarget
from eagle3_assets.tokens.verdict import Report


class RefusedPartitionError(Exception):
    """A partition must not train anything; the text says why and how to recover."""

    def __init__(self, partition: str, reasons: Sequence[str], report: Report) -> None:
        super().__init__(f"{partition} is refused as training data, nothing is written. {' '.join(reasons)}")
        self.partition = partition
        self.reasons = tuple(reasons)
        self.report = report


@dataclass(frozen=True, slots=True)
class Stored:
    """What training data is made of, as it lies in storage."""

    prompts: pl.LazyFrame
    """``contract.PROMPTS``."""
    tokenized: pl.LazyFrame
    """``contract.TOKENIZED_PROMPTS``."""
    sealed: Sealed

    @property
    def raw(self) -> pl.LazyFrame:
        """``contract.RAW_GENERATIONS``."""
        return scan_sealed(self.sealed)


def read_stored(project: Project, partition: str) -> Stored:
    """Finds a partition's files.

    Raises:
        StorageError: an asset was not made yet, or cannot be read.
        SealedError: the sealed file is damaged.
    """

    def stored(asset: str) -> pl.LazyFrame:
        return scan_parquet(project.layout.asset_file(asset, partition), asset=asset)

    return Stored(stored("prompts"), stored("tokenized_prompts"), sealed_generations(project.layout, partition))


def judge_for_training(project: Project, partition: Partition, target: LoadedTarget, stored: Stored) -> Report:
    """Judges a partition anew: no stored check status is trusted.

    Raises:
        RefusedPartitionError: a law refuses it, or outputs have no prompt any more.
    """
    report = judge_raw(project, partition, target, stored.tokenized, stored.sealed).report
    if why := refusals(stored, report):
        raise RefusedPartitionError(partition.key, why, report)
    return report


def refusals(stored: Stored, report: Report) -> tuple[str, ...]:
    """Why a partition must not train anything, and how to recover; empty where it may."""
    return (*report.refusals, *without_origin(stored.prompts, stored.raw))


def to_training_samples(prompts: pl.LazyFrame, raw: pl.LazyFrame, quarantined: frozenset[str]) -> pl.LazyFrame:
    """Generated rows which are not quarantined, as the trainers take them.

    Args:
        prompts: ``contract.PROMPTS``.
        raw: ``contract.RAW_GENERATIONS``.
        quarantined: ids of the samples to leave out.

    Returns:
        ``contract.TRAINING_SAMPLES`` in the order of ``raw``. ``loss_mask`` has a 0 for each prompt id and a 1 for each
        output id, the stop token among them; it is not shifted.
    """
    origin = prompts.select("sample_id", "conversation_id", "turn", "sample_index", "source", "source_row")
    zeros = pl.lit(0, pl.UInt8).repeat_by(pl.col("prompt_ids").list.len())
    ones = pl.lit(1, pl.UInt8).repeat_by(pl.col("output_ids").list.len())
    facts = ("turn", "sample_index", "source", "source_row", "finish_type", "identity", "request_key", "ids_sha256")
    return (
        raw.filter((pl.col("status") == "generated") & ~pl.col("sample_id").is_in(sorted(quarantined)))
        .join(origin, on="sample_id", how="left", maintain_order="left")
        .select(
            id=pl.col("sample_id"),
            conversation_id=pl.col("conversation_id"),
            input_ids=pl.concat_list("prompt_ids", "output_ids"),
            loss_mask=pl.concat_list(zeros, ones),
            metadata=pl.struct(*facts).struct.json_encode(),
        )
    )
