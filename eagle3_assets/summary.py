"""The corpus: what of it is sealed and good, what is missing or stale, and what all of it will be.

What belongs here: gathering that from what is stored, a partition in memory at a time. Not here: which partitions count
(``usable``), counting prompts (``survey``), estimating (``planning``), how it is shown (``pages``, ``cli``), Dagster.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import polars as pl

from eagle3_assets.config import Dataset
from eagle3_assets.contract import CORPUS_SUMMARY
from eagle3_assets.generation.progress import duration
from eagle3_assets.generation.sealed import Pointer, Sealed
from eagle3_assets.inspecting import partition_facts
from eagle3_assets.partitions import dataset_partitions
from eagle3_assets.planning import Expected, expected_in_all, expected_output
from eagle3_assets.project import Project
from eagle3_assets.prompts.rows import PromptSourceError
from eagle3_assets.storage.files import is_stored
from eagle3_assets.survey import Surveyed, survey
from eagle3_assets.target import LoadedTarget
from eagle3_assets.tokens.lengths import added_counts, counted_figures, length_counts
from eagle3_assets.tokens.verdict import Report
from eagle3_assets.usable import UNREADABLE, usable

State = Literal["complete", "incomplete", "stale", "unknown", "refused", "unreadable", "missing", "trial", "orphaned"]
"""Of a partition. Only the first four count: they are what ``training_samples`` takes."""

COUNTED: tuple[State, ...] = ("complete", "incomplete", "stale", "unknown")

STATE_MEANINGS: dict[State, str] = {
    "complete": "every prompt that may be sent was",
    "incomplete": "good as far as it goes; prompts wait to be sent",
    "stale": "good, but of a source, a template or settings that have changed since",
    "unknown": "good as far as it goes; what the source gives now cannot be told",
    "refused": "a law refuses it: not counted",
    "unreadable": "what is stored cannot be judged: not counted",
    "missing": "nothing is sealed",
    "trial": "a trial: never counted",
    "orphaned": "of no dataset or shard count in the config: never counted",
}


@dataclass(frozen=True, slots=True)
class _Good:
    """A partition that no law refuses."""

    report: Report
    pointer: Pointer
    outputs: pl.DataFrame
    """``facts.OUTPUT_FACTS`` of the outputs that are not quarantined."""


@dataclass(slots=True)
class _Sum:
    """What is counted so far of a dataset, or of all."""

    lengths: pl.DataFrame = field(default_factory=lambda: length_counts(pl.Series([], dtype=pl.Int32)))
    reasoning: int = 0
    cut_off: int = 0
    drifting: int = 0
    drift_samples: int = 0
    quarantined: int = 0
    failed: int = 0
    refused: int = 0
    laws: Counter[str] = field(default_factory=Counter)
    partitions: list[dict[str, Any]] = field(default_factory=list)
    unknown: bool = False
    """Whether something to be read for it is unreadable, so that what is left to generate cannot be told."""
    to_generate: int = 0
    projected_samples: int = 0
    generated_tokens: int = 0
    expected: list[Expected] = field(default_factory=list)

    def count(self, good: _Good) -> None:
        """Counts a partition."""
        outputs, report = good.outputs, good.report
        self.lengths = added_counts([self.lengths, length_counts(outputs["output"])])
        self.reasoning += int(outputs["reasoning"].cast(pl.Int64).sum())
        self.cut_off += int(outputs["cut_off"].sum())
        drift = report["retokenization_drift"]
        if drift.status != "not_judged":
            self.drifting += drift.violations
            self.drift_samples += drift.rows
        self.quarantined += len(report.quarantined)
        self.failed += good.pointer.failed
        self.refused += good.pointer.refused
        self.laws.update(verdict.law.name for verdict in report.verdicts if verdict.status == "warned")

    def name(self, partition: str, state: State, why: Iterable[str] = (), good: _Good | None = None) -> None:
        """Puts a partition on the list."""
        samples, tokens = (len(good.outputs), int(good.outputs["output"].cast(pl.Int64).sum())) if good else (0, 0)
        entry = {"partition": partition, "state": state, "samples": samples, "tokens": tokens, "why": list(why)}
        self.partitions.append(entry)

    def project(self, surveyed: Surveyed) -> None:
        """Adds what a partition will hold."""
        dataset = surveyed.partition.dataset
        cap = dataset.sampling.max_new_tokens
        self.to_generate += surveyed.missing
        self.projected_samples += surveyed.own.count + surveyed.missing
        self.generated_tokens += surveyed.own.tokens
        self.expected.append(expected_output(surveyed.missing, surveyed.outputs, dataset.length_band.median, cap))

    def row(self, dataset: str | None, tokens_per_s: float | None) -> dict[str, Any]:
        """One row of ``contract.CORPUS_SUMMARY``."""
        figures = counted_figures(self.lengths)
        samples, tokens = figures["samples"], figures["tokens"]
        rest = expected_in_all(self.expected)
        known = not self.unknown
        return {
            "dataset": dataset,
            **figures,
            "reasoning_share": self.reasoning / tokens if tokens else None,
            "cut_off_share": self.cut_off / samples if samples else None,
            "drift_share": self.drifting / self.drift_samples if self.drift_samples else None,
            "drift_samples": self.drift_samples,
            "quarantined": self.quarantined,
            "failed": self.failed,
            "refused": self.refused,
            "laws_warned": [{"law": law, "partitions": partitions} for law, partitions in self.laws.most_common()],
            "to_generate": self.to_generate if known else None,
            "projected_samples": self.projected_samples if known else None,
            "projected_tokens": self.generated_tokens + rest.tokens if known else None,
            "projection_basis": rest.basis if known else None,
            "seconds_left": rest.seconds(tokens_per_s) if known and tokens_per_s else None,
            "partitions": self.partitions,
        }


def summarize(project: Project, target: LoadedTarget, tokens_per_s: float | None = None) -> pl.DataFrame:
    """Judges every partition anew and sums up those that no law refuses; trials never count.

    Args:
        project: its config and files.
        target: that made them.
        tokens_per_s: output tokens per second that the rest will be generated at; None where that is unknown.

    Returns:
        ``contract.CORPUS_SUMMARY``: a row for each dataset in the config's order, then one for all of them together.
    """
    whole, sums = _Sum(), {dataset.name: _Sum() for dataset in project.config.datasets}
    for dataset in project.config.datasets:
        _sum_up(project, dataset, target, (sums[dataset.name], whole))
    for orphan in project.orphans():
        whole.name(orphan, "orphaned")
    rows = [total.row(name, tokens_per_s) for name, total in (*sums.items(), (None, whole))]
    return pl.DataFrame([{key: row.get(key) for key in CORPUS_SUMMARY} for row in rows], schema=CORPUS_SUMMARY)


def _sum_up(project: Project, dataset: Dataset, target: LoadedTarget, totals: Sequence[_Sum]) -> None:
    """Adds a dataset to its own sum and to that of all."""
    *shards, trial = dataset_partitions(dataset)
    surveyed: dict[str, Surveyed] = {}
    unknown = ""
    try:
        surveyed = {one.partition.key: one for one in survey(project, shards, target)}
    except (*UNREADABLE, PromptSourceError) as error:
        unknown = str(error)
    for partition in shards:
        found = usable(project, partition, target, partial(_read, target))
        good = found if isinstance(found, _Good) else None
        now = surveyed.get(partition.key)
        state, why = _state(now, unknown) if isinstance(found, _Good) else found
        for total in totals:
            total.name(partition.key, state, why, good)
            if good is not None:
                total.count(good)
            if now is not None:
                total.project(now)
            total.unknown |= now is None
    if is_stored(project.layout.generations(trial.key)):
        for total in totals:
            total.name(trial.key, "trial")


def _read(target: LoadedTarget, report: Report, sealed: Sealed) -> _Good:
    facts = partition_facts(sealed, target.profile)
    return _Good(report, sealed.pointer, facts.filter(~pl.col("sample_id").is_in(sorted(report.quarantined))))


def _state(counted: Surveyed | None, unknown: str) -> tuple[State, Sequence[str]]:
    """Of a good partition, against what source and settings are now."""
    if counted is None:
        return "unknown", (unknown,)
    stale = [f"made with other settings: {'; '.join(counted.other_identity)}"] if counted.other_identity else []
    stale += [f"prompts: {counted.why_tokenized}"] if counted.why_tokenized else []
    waiting = [f"{counted.missing:,} prompts to generate"] if counted.missing else []
    return "stale" if stale else "incomplete" if waiting else "complete", [*stale, *waiting]


def partition_states(row: Mapping[str, Any]) -> dict[str, list[str]]:
    """The partitions of a row of the summary by state, in the order of ``State``."""
    states = {state: [p["partition"] for p in row["partitions"] if p["state"] == state] for state in STATE_MEANINGS}
    return {state: keys for state, keys in states.items() if keys}


def summary_verdict(summary: pl.DataFrame) -> str:
    """The corpus in one sentence: what counts, what does not, what is left to do."""
    whole = summary.row(-1, named=True)
    states = partition_states(whole)
    counted = sum(len(keys) for state, keys in states.items() if state in COUNTED)
    of = sum(len(keys) for state, keys in states.items() if state not in ("trial", "orphaned"))
    said = f"{counted:,} of {of:,} partitions count: {whole['samples']:,} samples, {whole['tokens']:,} output tokens"
    others = [f"{len(keys):,} {state}" for state, keys in states.items() if state != "complete"]
    said += f"; {', '.join(others)}" if others else ""
    return f"{said}; {projection_text(whole)}"


def projection_text(row: Mapping[str, Any]) -> str:
    """What is left to generate and how long that takes, in words."""
    if row["to_generate"] is None:
        return "what is left to generate is unknown"
    if not row["to_generate"]:
        return "nothing is left to generate"
    sign = {"measured": "", "band": "about ", "cap": "at most "}[row["projection_basis"]]
    time = "time unknown" if row["seconds_left"] is None else f"{sign}{duration(row['seconds_left'])}"
    return (
        f"{row['to_generate']:,} prompts left to generate ({time}), then {row['projected_samples']:,} samples,"
        f" {sign}{row['projected_tokens']:,} tokens"
    )
