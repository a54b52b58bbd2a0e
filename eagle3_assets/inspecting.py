"""What there is to see of a partition: its figures, its verdicts, and a few dozen samples worth reading.

What belongs here: gathering that from sealed generations, once for asset, page and terminal. Not here: how it is shown
(``pages``, ``cli``), which samples are worth reading (``tokens.strata``), Dagster.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from eagle3_assets.contract import DECODED_PREVIEWS
from eagle3_assets.decoding import Decoder
from eagle3_assets.frames import batches
from eagle3_assets.generation.sealed import Sealed, scan_sealed
from eagle3_assets.judging import judge_raw
from eagle3_assets.partitions import Partition
from eagle3_assets.project import Project
from eagle3_assets.sample_sources import SourceError, named_by, not_among
from eagle3_assets.storage.files import naming_damage, sealed_generations
from eagle3_assets.target import LoadedTarget
from eagle3_assets.tokens.anatomy import anatomy
from eagle3_assets.tokens.facts import OUTPUT_COLUMNS, has_output, output_facts
from eagle3_assets.tokens.lengths import length_statistics
from eagle3_assets.tokens.profile import TargetProfile
from eagle3_assets.tokens.strata import choose
from eagle3_assets.tokens.verdict import Report
from eagle3_assets.usable import usable

ASKED_FOR = "asked for"
"""The stratum of samples that a person named."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """One partition, looked at."""

    partition: Partition
    report: Report
    statistics: pl.DataFrame
    """``contract.LENGTH_STATISTICS``."""
    samples: pl.DataFrame
    """``contract.DECODED_PREVIEWS`` with ``reasoning_opened``, ``prompt_ids`` and ``output_ids``, those spread over the
    lengths first."""

    @property
    def previews(self) -> pl.DataFrame:
        """``contract.DECODED_PREVIEWS``."""
        return self.samples.select(DECODED_PREVIEWS.names())


def partition_facts(sealed: Sealed, profile: TargetProfile) -> pl.DataFrame:
    """``facts.OUTPUT_FACTS`` of sealed generations, read batch by batch."""
    return _facts(scan_sealed(sealed).filter(has_output()), profile)


@dataclass(frozen=True, slots=True)
class PartitionLengths:
    """How long the outputs of a partition are, and whether they may be used."""

    partition: Partition
    statistics: pl.DataFrame
    """``contract.LENGTH_STATISTICS``."""
    state: Literal["usable", "refused", "unreadable"]
    why: tuple[str, ...]
    """Why it is not usable."""


def partition_lengths(project: Project, partition: Partition, target: LoadedTarget) -> PartitionLengths:
    """Counts and judges what is sealed of a partition.

    Raises:
        StorageError: nothing is sealed, or the sealed file is damaged.
        SealedError: the pointer or its file is missing or damaged.
    """
    sealed = sealed_generations(project.layout, partition.key)
    with naming_damage(project.layout, partition.key):
        statistics = length_statistics(partition_facts(sealed, target.profile))
    found = usable(project, partition, target, lambda *_: None)
    if found is None or found[0] == "missing":
        return PartitionLengths(partition, statistics, "usable", ())
    return PartitionLengths(partition, statistics, found[0], tuple(found[1]))


def inspect_partition(
    project: Project,
    partition: Partition,
    target: LoadedTarget,
    prompts: pl.LazyFrame,
    tokenized: pl.LazyFrame,
    sealed: Sealed,
    asked_for: Sequence[str] = (),
) -> Inspection:
    """Judges a partition, counts lengths, and chooses and decodes samples.

    Args:
        project: its config and files.
        partition: to look at.
        target: that made it.
        prompts: the partition's ``prompts``, for the tools that they declare.
        tokenized: its ``tokenized_prompts``.
        sealed: its generations.
        asked_for: ids of samples to show beside the chosen ones, before them.

    Raises:
        SealedError: the file, or the record of its identity, is missing or damaged.
        SourceError: a sample that was asked for has no output there.
    """
    report = judge_raw(project, partition, target, tokenized, sealed, prompts=prompts).report
    try:
        return inspect_rows(partition, target, scan_sealed(sealed), report, asked_for)
    except SourceError as error:
        raise SourceError(f"{sealed.path}: {error}") from None


def inspect_rows(
    partition: Partition, target: LoadedTarget, raw: pl.LazyFrame, report: Report, asked_for: Sequence[str] = ()
) -> Inspection:
    """The same of rows that are judged already.

    Args:
        partition: that the rows are of.
        target: that made them.
        raw: ``contract.RAW_GENERATIONS``, or of its columns those that facts are made of and ``status``.
        report: of these rows.
        asked_for: ids of samples to show beside the chosen ones, before them.

    Raises:
        SourceError: a sample that was asked for has no output there.
    """
    outputs = raw.filter(has_output())
    facts = _facts(outputs, target.profile)
    asked = facts.filter(named_by(asked_for)).select("sample_id")
    if missing := not_among(asked_for, asked["sample_id"]):
        raise SourceError(f"has no output of sample {', '.join(map(repr, sorted(missing)))}")
    chosen = pl.concat([asked.with_columns(stratum=pl.lit(ASKED_FOR)), choose(facts, report.findings)])
    chosen = chosen.unique("sample_id", keep="first", maintain_order=True)
    return Inspection(partition, report, length_statistics(facts), _samples(outputs, chosen, report.findings, target))


def _facts(outputs: pl.LazyFrame, profile: TargetProfile) -> pl.DataFrame:
    return output_facts(batches(outputs.select(OUTPUT_COLUMNS)), profile)


def _samples(outputs: pl.LazyFrame, chosen: pl.DataFrame, findings: pl.DataFrame, target: LoadedTarget) -> pl.DataFrame:
    rows = outputs.filter(pl.col("sample_id").is_in(chosen["sample_id"].to_list())).collect()
    # An id that is there twice breaks a law; a person sees the first of its rows.
    rows = rows.unique("sample_id", keep="first", maintain_order=True)
    sections = anatomy(rows, target.profile)
    broken = findings.group_by("sample_id").agg(findings=pl.col("law").unique(maintain_order=True))
    decoder = Decoder(target.tokenizer, target.profile)
    texts = [decoder.text(ids) for ids in rows["output_ids"].to_list()]
    described = rows.select(
        "sample_id",
        "prompt_ids",
        "output_ids",
        pl.Series("text", texts, dtype=pl.String),
        sections["reasoning_opened"],
        sections["reasoning_end"],
        pl.col("output_ids").list.len().cast(pl.Int32).alias("completion_tokens"),
        "finish_type",
        sections["spans"],
    ).join(broken, on="sample_id", how="left")
    return (
        chosen.join(described, on="sample_id", how="left", maintain_order="left")
        .with_columns(pl.col("findings").fill_null(pl.lit([], pl.List(pl.String))))
        .select(*DECODED_PREVIEWS.names(), "reasoning_opened", "prompt_ids", "output_ids")
        .cast(dict(DECODED_PREVIEWS))  # type: ignore[arg-type] # the stubs know no mapping of names to dtype objects
    )
