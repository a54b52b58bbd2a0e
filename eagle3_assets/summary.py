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
from eagle3_assets.generation.sealed import Pointer, read_current
from eagle3_assets.inspecting import partition_facts
from eagle3_assets.partitions import Partition, dataset_partitions
from eagle3_assets.planning import Expected, Throughput, expected_in_all, expected_output
from eagle3_assets.project import Project
from eagle3_assets.prompts.rows import PromptSourceError
from eagle3_assets.storage.files import is_stored
from eagle3_assets.survey import Survey, Surveyed
from eagle3_assets.target import LoadedTarget
from eagle3_assets.tokens.lengths import added_counts, counted_figures, length_counts
from eagle3_assets.tokens.verdict import Report
from eagle3_assets.training import Stored
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

_BROKEN: tuple[State, ...] = ("refused", "unreadable")

_HELD_UP = {
    "refused": "{} there need retry_failed, retry_broken or regenerate, whichever mends what the law found",
    "unreadable": "{} there count again when the files are restored or made again",
    "blocked": "materialize refuses to send {} there; plan says why",
}
"""What prompts that are held up need."""

NAMED = 3
"""Partitions named in the sentence; the table has them all."""


@dataclass(frozen=True, slots=True)
class _Good:
    """A partition that no law refuses."""

    report: Report
    pointer: Pointer
    outputs: pl.DataFrame
    """``facts.OUTPUT_FACTS`` of the outputs that are not quarantined."""

    @property
    def samples(self) -> int:
        return len(self.outputs)

    @property
    def tokens(self) -> int:
        return int(self.outputs["output"].cast(pl.Int64).sum())


@dataclass(slots=True)
class _Sum:
    """What is counted so far of a dataset, or of all."""

    lengths: pl.DataFrame = field(default_factory=lambda: length_counts(pl.Series([], dtype=pl.Int32)))
    reasoning: int = 0
    cut_off: int = 0
    drifting: float = 0
    drift_outputs: int = 0
    drift_samples: int = 0
    quarantined: int = 0
    failed: int = 0
    refused: int = 0
    laws: Counter[str] = field(default_factory=Counter)
    partitions: list[dict[str, Any]] = field(default_factory=list)
    unknown: bool = False
    """Whether of a partition it cannot be told what is left to generate."""
    held_up: int = 0
    to_generate: int = 0
    projected_samples: int = 0
    projected_tokens: int = 0
    """Without those still to be generated."""
    expected: list[Expected] = field(default_factory=list)

    def count(self, good: _Good) -> None:
        """Counts a partition."""
        outputs, report = good.outputs, good.report
        self.lengths = added_counts([self.lengths, length_counts(outputs["output"])])
        self.reasoning += int(outputs["reasoning"].cast(pl.Int64).sum())
        self.cut_off += int(outputs["cut_off"].sum())
        drift = report["retokenization_drift"]
        if drift.status != "not_judged":
            # As many rows are looked at of a small partition as of a large one.
            self.drifting += drift.violations / drift.rows * len(outputs) if drift.rows else 0
            self.drift_outputs += len(outputs) if drift.rows else 0
            self.drift_samples += drift.rows
        self.quarantined += len(report.quarantined)
        self.laws.update(verdict.law.name for verdict in report.verdicts if verdict.status == "warned")

    def sealed(self, pointer: Pointer) -> None:
        """Adds prompts without an output, which need a person whether or not the partition counts."""
        self.failed += pointer.failed
        self.refused += pointer.refused

    def name(self, partition: str, state: State, why: Iterable[str], good: _Good | None, held_up: int | None) -> None:
        """Puts a partition on the list."""
        entry = {"partition": partition, "state": state, "samples": 0, "tokens": 0, "held_up": held_up}
        entry |= {"samples": good.samples, "tokens": good.tokens} if good else {}
        self.partitions.append(entry | {"why": list(why)})
        self.held_up += held_up or 0

    def project(self, now: Surveyed, good: _Good | None) -> None:
        """Adds what materializing, as things are, makes of a partition that no law refuses and that can be read."""
        # An unfinished run that began anew replaces what is sealed.
        if good is not None and (now.blocked or now.kept.count):
            self.projected_samples += good.samples
            self.projected_tokens += good.tokens
        if now.blocked:
            return
        dataset = now.partition.dataset
        self.to_generate += now.missing
        self.projected_samples += now.unfinished.count + now.missing
        self.projected_tokens += now.unfinished.tokens
        cap = dataset.sampling.max_new_tokens
        self.expected.append(expected_output(now.missing, now.outputs, dataset.length_band.median, cap))

    def row(self, dataset: str | None, speed: Throughput | None) -> dict[str, Any]:
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
            "drift_share": self.drifting / self.drift_outputs if self.drift_outputs else None,
            "drift_samples": self.drift_samples,
            "quarantined": self.quarantined,
            "failed": self.failed,
            "refused": self.refused,
            "laws_warned": [{"law": law, "partitions": partitions} for law, partitions in self.laws.most_common()],
            "held_up": self.held_up,
            "to_generate": self.to_generate if known else None,
            "projected_samples": self.projected_samples if known else None,
            "projected_tokens": self.projected_tokens + rest.tokens if known else None,
            "projected_at_cap": rest.capped if known else None,
            "projection_basis": rest.basis if known else None,
            "seconds_left": rest.seconds(speed.tokens_per_s) if known and speed else None,
            "throughput": speed.text if speed else None,
            "partitions": self.partitions,
        }


def summarize(project: Project, target: LoadedTarget, speed: Throughput | None = None) -> pl.DataFrame:
    """Judges every partition anew and sums up those that no law refuses; trials never count.

    Args:
        project: its config and files.
        target: that made them.
        speed: that the rest will be generated at; None where that is unknown.

    Returns:
        ``contract.CORPUS_SUMMARY``: a row for each dataset in the config's order, then one for all of them together.
    """
    whole, sums = _Sum(), {dataset.name: _Sum() for dataset in project.config.datasets}
    for dataset in project.config.datasets:
        _sum_up(project, dataset, target, (sums[dataset.name], whole))
    for orphan in project.orphans():
        whole.name(orphan, "orphaned", (), None, 0)
    rows = [total.row(name, speed) for name, total in (*sums.items(), (None, whole))]
    return pl.DataFrame([{key: row.get(key) for key in CORPUS_SUMMARY} for row in rows], schema=CORPUS_SUMMARY)


def _sum_up(project: Project, dataset: Dataset, target: LoadedTarget, totals: Sequence[_Sum]) -> None:
    """Adds a dataset to its own sum and to that of all."""
    *shards, trial = dataset_partitions(dataset)
    counting = Survey(project, target)
    for partition in shards:
        found = usable(project, partition, target, partial(_read, target))
        now = _surveyed(counting, partition)
        pointer = _pointer(project, partition)
        good = found if isinstance(found, _Good) else None
        state, why = _state(now) if isinstance(found, _Good) else found
        if state == "missing":
            why = (now,) if isinstance(now, str) else now.hindrances
        held_up = _held_up(state, now, pointer)
        for total in totals:
            total.name(partition.key, state, why, good, held_up)
            if pointer is not None:
                total.sealed(pointer)
            if good is not None:
                total.count(good)
            if state in _BROKEN:
                continue
            if isinstance(now, Surveyed):
                total.project(now, good)
            else:
                total.unknown = True
    if is_stored(project.layout.generations(trial.key)):
        for total in totals:
            total.name(trial.key, "trial", (), None, 0)


def _surveyed(counting: Survey, partition: Partition) -> Surveyed | str:
    """The counts of a partition, or why there are none."""
    try:
        return counting.of(partition)
    except (*UNREADABLE, PromptSourceError) as error:
        return str(error)


def _pointer(project: Project, partition: Partition) -> Pointer | None:
    try:
        sealed = read_current(project.layout.generations(partition.key))
    except UNREADABLE:
        return None
    return sealed.pointer if sealed else None


def _held_up(state: State, now: Surveyed | str, pointer: Pointer | None) -> int | None:
    """Prompts that have no usable output and, as things are, get none by materializing; None where nothing tells."""
    if isinstance(now, str):
        known = state in _BROKEN and pointer is not None
        return pointer.rows - pointer.refused if known and pointer else None
    if state in _BROKEN:
        return now.generated + now.failed + now.missing
    return now.missing if now.blocked else 0


def _read(target: LoadedTarget, report: Report, stored: Stored) -> _Good:
    facts = partition_facts(stored.sealed, target.profile)
    return _Good(report, stored.sealed.pointer, facts.filter(~pl.col("sample_id").is_in(sorted(report.quarantined))))


def _state(now: Surveyed | str) -> tuple[State, Sequence[str]]:
    """Of a good partition, against what source and settings are now."""
    if isinstance(now, str):
        return "unknown", (now,)
    stale = [f"made with other settings: {'; '.join(now.other_identity)}"] if now.other_identity else []
    stale += [f"prompts: {now.why_tokenized}"] if now.why_tokenized else []
    waiting = []
    if now.missing and now.other_identity:
        waiting = [f"{now.missing:,} prompts that only regenerate sends"]
    elif now.missing and now.blocked:
        waiting = [f"{now.missing:,} prompts that materialize refuses to send: {' '.join(now.hindrances)}"]
    elif now.missing:
        waiting = [f"{now.missing:,} prompts to generate"]
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
    """What is left to generate, how long that takes, and what no materialization of today brings, in words."""
    held = _held_up_texts(row)
    if row["to_generate"] is None:
        said = "what is left to generate is unknown"
    elif not row["to_generate"]:
        said = "nothing is left to generate" if not held else "as things are, nothing more will be generated"
    else:
        at_cap = row["projected_at_cap"]
        sign = "about " if row["projection_basis"] == "band" else ""
        limit = f" + at most {at_cap:,} of datasets without a trial" if at_cap else ""
        about = "at most " if at_cap else "about "
        time = "time unknown" if row["seconds_left"] is None else f"{about}{duration(row['seconds_left'])}"
        said = (
            f"{row['to_generate']:,} prompts left to generate ({time}), then {row['projected_samples']:,} samples,"
            f" {sign}{row['projected_tokens'] - at_cap:,} tokens{limit}"
        )
    return "; ".join([said, *held])


def _held_up_texts(row: Mapping[str, Any]) -> list[str]:
    """What has no usable output and gets none by itself: of which partitions, and what it needs."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for p in row["partitions"]:
        if p["state"] in _BROKEN or p["held_up"]:
            kinds.setdefault(p["state"] if p["state"] in _BROKEN else "blocked", []).append(p)
    said = []
    for kind, partitions in kinds.items():
        known = [p["held_up"] for p in partitions if p["held_up"] is not None]
        prompts = f"{sum(known):,} prompts" if known else "the prompts"
        said.append(f"{len(partitions):,} {kind} ({_named(partitions)}): {_HELD_UP[kind].format(prompts)}")
    if row["failed"]:
        said.append(f"{row['failed']:,} prompts failed and stay so unless they are asked again (retry_failed)")
    return said


def _named(partitions: Sequence[Mapping[str, Any]]) -> str:
    keys = [p["partition"] for p in partitions[:NAMED]]
    return ", ".join(keys) + (f" and {len(partitions) - NAMED:,} more" if len(partitions) > NAMED else "")
