"""Judging a partition: every law over batches of rows, in one pass.

What belongs here: running laws and weighing what they find. Not here: any law, reading files.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from eagle3_assets.contract import SAMPLE_FINDINGS
from eagle3_assets.tokens.batch import GENERATED, Batch
from eagle3_assets.tokens.columns import Ints, Mask
from eagle3_assets.tokens.context import Context, PromptIndex
from eagle3_assets.tokens.laws import LAWS, ON_REQUEST, PartitionLaw, RowLaw, effective, laws_of
from eagle3_assets.tokens.laws.base import Asset, Effect, Found, Severity, counted
from eagle3_assets.tokens.safe_text import visible
from eagle3_assets.tokens.verdict import Report, Status, Verdict

__all__ = [
    "Context",
    "PromptIndex",
    "Report",
    "Verdict",
    "judge_generations",
    "judge_prompts",
    "judge_replay",
    "prompt_faults",
]

SHOWN_DETAILS = 5
"""How many findings a verdict repeats in words; the findings frame has all of them."""

_ROWS_AT_ONCE = 4096
"""Larger frames are judged in slices, so that a law's arrays stay small."""

_ORDER = {law.name: place for place, law in enumerate((*LAWS, *ON_REQUEST))}

_FACTS = pl.Schema(
    {
        "sample_id": pl.String,
        "status": pl.String,
        "reason": pl.String,
        "output_tokens": pl.Int64,
        "finish_type": pl.String,
        "max_new_tokens": pl.Int64,
    }
)


def judge_prompts(batches: Iterable[pl.DataFrame], context: Context) -> Report:
    """Judges ``tokenized_prompts``: every row that has prompt ids, refused ones too.

    Args:
        batches: frames with the contract's columns; ``sample_id`` is required, a law whose column is absent is not
            judged.
        context: what the rows are judged against.

    Raises:
        ValueError: a frame has no ``sample_id``, or the context lowers a law that cannot be lowered.
        TypeError: a column of ids is no list of integers.
    """
    return _judge("tokenized_prompts", laws_of("tokenized_prompts"), batches, context, _with_prompt)


def judge_generations(batches: Iterable[pl.DataFrame], context: Context) -> Report:
    """Judges ``raw_generations``: row laws over the rows with status ``generated``, partition laws over all.

    Frames without a ``status`` column count as generated throughout. Arguments and errors as in :func:`judge_prompts`.
    """
    return _judge("raw_generations", laws_of("raw_generations"), batches, context, _generated)


def judge_replay(batches: Iterable[pl.DataFrame], context: Context) -> Report:
    """Judges rows of ``raw_generations`` that the target has scored, by the laws on request alone.

    Args:
        batches: as for :func:`judge_generations`, with the columns ``scored_logprobs`` and ``scored_best`` (lists of
            natural-log probabilities of the raw distribution, one for each output id; null where not scored).
        context: with the replay's tolerance.
    """
    return _judge("raw_generations", ON_REQUEST, batches, context, _generated)


def prompt_faults(prompts: pl.DataFrame, context: Context) -> pl.DataFrame:
    """The prompts which must not be sent, and why: to mark rows while ``tokenized_prompts`` is made.

    Returns:
        ``sample_id``, ``law`` and ``reason`` (String), one row for each prompt at fault, with its first fault.
    """
    report = judge_prompts([prompts], context)
    return (
        report.findings.filter(pl.col("sample_id").is_in(list(report.quarantined)) & (pl.col("severity") == "error"))
        .unique("sample_id", keep="first", maintain_order=True)
        .select("sample_id", "law", (pl.col("law") + ": " + pl.col("detail")).alias("reason"))
    )


@dataclass
class _Finding:
    """One row of the findings, with its place in the partition."""

    row: int
    law: str
    sample_id: str
    severity: Severity
    index: int | None
    detail: str


@dataclass
class _Tally:
    """What one row law has found so far."""

    law: RowLaw
    effect: Effect
    impossible: str | None
    judged: int = 0
    violations: int = 0
    warnings: int = 0
    recorded: int = 0
    missing: list[_Finding] = field(default_factory=list)
    findings: list[_Finding] = field(default_factory=list)

    def add(self, batch: Batch, places: list[int]) -> None:
        """Judges a batch whose rows have these places in the partition."""
        absent = next((column for column in self.law.columns if not batch.has(column)), None)
        if absent is not None:
            self.impossible = self.impossible or f"the column {absent} is absent"
        if self.impossible is not None:
            return
        judgement = self.law.judge(batch)
        self.judged += int(judgement.judged.sum())
        self.recorded += int((judgement.judged if judgement.recorded is None else judgement.recorded).sum())
        errors = _rows(judgement.found, "error")
        self.violations += len(errors)
        self.warnings += len(np.setdiff1d(_rows(judgement.found, "warning"), errors))
        echo = batch.echo if self.law.explained_by_echo else np.zeros(len(batch), np.int64)
        for found in judgement.found:
            for row, index, detail in zip(found.rows.tolist(), found.index.tolist(), found.details, strict=True):
                text = f"prompt echo of {echo[row]} ids; {detail}" if echo[row] else detail
                self.findings.append(self._finding(batch, places, row, found.severity, index, text))
        if judgement.missing is not None:
            for row in np.flatnonzero(judgement.missing).tolist():
                self.missing.append(self._finding(batch, places, row, "error", -1, self.law.missing))

    def verdict(self, rows: int, no_rows: str, context: Context) -> Verdict:
        """The law's verdict after the last batch."""
        partly = None
        if self.missing and (self.recorded or context.complete_records):
            self.judged += len({f.row for f in self.missing})
            self.violations += len({f.row for f in self.missing})
            self.findings += self.missing
        elif self.missing:
            partly = self.law.missing
        self.findings.sort(key=lambda f: f.row)
        reason = self.impossible or (no_rows if not rows else None if self.judged else self.law.nothing)
        if reason is not None:
            return _not_judged(self.law, self.effect, rows, reason)
        share = self.violations / rows
        status, refuses = _weighed(self.effect, self.violations, self.warnings, share, context.quarantine_limit)
        worst_first = sorted(self.findings, key=lambda f: f.severity != "error" and self.effect != "warn")
        return Verdict(
            law=self.law,
            effect=self.effect,
            status=status,
            judged=self.judged,
            rows=rows,
            violations=self.violations,
            warnings=self.warnings,
            share=share,
            refuses=refuses,
            reason=partly,
            details=tuple(f"{visible(f.sample_id)}: {f.detail}" for f in worst_first[:SHOWN_DETAILS]),
        )

    def _finding(
        self, batch: Batch, places: list[int], row: int, severity: Severity, index: int, detail: str
    ) -> _Finding:
        severity = "warning" if self.effect == "warn" else severity
        position = None if index < 0 else index
        return _Finding(places[row], self.law.name, batch.sample_ids[row], severity, position, detail)


def _judge(
    asset: Asset,
    laws: Sequence[RowLaw | PartitionLaw],
    batches: Iterable[pl.DataFrame],
    context: Context,
    candidates: Callable[[pl.DataFrame], Mask],
) -> Report:
    effects = effective(context.law_effects)
    tallies = {law.name: _Tally(law, effects[law.name], law.unless(context)) for law in laws if isinstance(law, RowLaw)}
    facts, rows, total = [_FACTS.to_frame()], 0, 0
    for frame in _sliced(batches):
        chosen = candidates(frame)
        facts.append(_facts(frame, context))
        if chosen.any():
            batch = Batch(frame if chosen.all() else frame.filter(chosen), context)
            places = (total + np.flatnonzero(chosen)).tolist()
            for tally in tallies.values():
                tally.add(batch, places)
        rows += int(chosen.sum())
        total += len(frame)
    no_rows = "there is no row with prompt ids" if asset == "tokenized_prompts" else "there is no generated row"
    partition = pl.concat(facts)
    verdicts: list[Verdict] = []
    findings: list[_Finding] = []
    place: dict[str, int] = {}
    for law in laws:
        if isinstance(law, RowLaw):
            tally = tallies[law.name]
            verdicts.append(tally.verdict(rows, no_rows, context))
            findings += tally.findings if tally.impossible is None else []
        else:
            place = place or {sample: row for row, sample in enumerate(partition["sample_id"])}
            verdict, named = _partition_verdict(law, effects[law.name], partition, context, place)
            verdicts.append(verdict)
            findings += named
    return Report(
        tuple(verdicts),
        _frame(findings),
        rows,
        frozenset(f.sample_id for f in findings if effects[f.law] == "quarantine" and f.severity == "error"),
        context.quarantine_limit,
        _without_result(asset, partition, rows),
    )


def _partition_verdict(
    law: PartitionLaw, effect: Effect, facts: pl.DataFrame, context: Context, place: Mapping[str, int]
) -> tuple[Verdict, list[_Finding]]:
    reason = law.unless(context)
    if reason is not None:
        return _not_judged(law, effect, len(facts), reason), []
    judgement = law.judge(facts, context)
    if not judgement.judged:
        return _not_judged(law, effect, len(facts), judgement.reason or "nothing to judge"), []
    status, refuses = _weighed(effect, judgement.violations, 0, 0.0, context.quarantine_limit)
    severity: Severity = "warning" if effect == "warn" else "error"
    verdict = Verdict(
        law=law,
        effect=effect,
        status=status,
        judged=len(facts),
        rows=len(facts),
        violations=judgement.violations,
        warnings=0,
        share=judgement.violations / len(facts) if len(facts) else 0.0,
        refuses=refuses,
        reason=judgement.reason,
        details=judgement.details[:SHOWN_DETAILS],
        figures=judgement.figures,
    )
    return verdict, [
        _Finding(place.get(sample, len(facts)), law.name, sample, severity, None, text)
        for sample, text in judgement.samples
    ]


def _weighed(effect: Effect, violations: int, warnings: int, share: float, limit: float) -> tuple[Status, bool]:
    """The status that an effect makes of what was found, and whether the partition is refused."""
    if not violations:
        return ("warned" if warnings else "passed"), False
    if effect == "warn" or (effect == "quarantine" and share <= limit):
        return "warned", False
    return "failed", True


def _not_judged(law: RowLaw | PartitionLaw, effect: Effect, rows: int, reason: str) -> Verdict:
    return Verdict(law, effect, "not_judged", 0, rows, 0, 0, 0.0, refuses=False, reason=reason)


def _rows(found: Iterable[Found], severity: Severity) -> Ints:
    return np.unique(np.concatenate([np.empty(0, np.int64), *(f.rows for f in found if f.severity == severity)]))


def _sliced(batches: Iterable[pl.DataFrame]) -> Iterable[pl.DataFrame]:
    for frame in batches:
        if "sample_id" not in frame.columns:
            raise ValueError(f"rows to judge need a column sample_id; there are: {', '.join(frame.columns) or 'none'}")
        yield from frame.iter_slices(_ROWS_AT_ONCE)


def _with_prompt(frame: pl.DataFrame) -> Mask:
    if "prompt_ids" not in frame.columns:
        return np.ones(len(frame), np.bool_)
    return frame["prompt_ids"].is_not_null().to_numpy()


def _without_result(asset: Asset, facts: pl.DataFrame, rows: int) -> str | None:
    """Why there is nothing to judge though there are rows; None where there is something, or no row at all."""
    if rows or not len(facts):
        return None
    counts = Counter(facts["status"]).most_common()
    states = ", ".join(f"{number:,} {visible(state or 'without a state')}" for state, number in counts)
    lacking = "ids" if asset == "tokenized_prompts" else "an output"
    return f"no prompt has {lacking} ({counted(len(facts), 'row')}: {states})"


def _generated(frame: pl.DataFrame) -> Mask:
    if "status" not in frame.columns:
        return np.ones(len(frame), np.bool_)
    return (frame["status"].cast(pl.String) == GENERATED).fill_null(value=False).to_numpy()


def _facts(frame: pl.DataFrame, context: Context) -> pl.DataFrame:
    batch = Batch(frame, context)
    status = frame["status"] if batch.has("status") else pl.repeat(GENERATED, len(frame), eager=True)
    has_output = pl.Series(_generated(frame) & batch.present("output_ids"))
    lengths = pl.Series(batch.output.lengths) if batch.has("output_ids") else pl.repeat(None, len(frame), eager=True)
    return pl.DataFrame(
        {
            "sample_id": frame["sample_id"],
            "status": status,
            "reason": batch.column("reason", pl.String),
            "output_tokens": pl.select(pl.when(has_output).then(lengths)).to_series(),
            "finish_type": batch.column("finish_type", pl.String),
            "max_new_tokens": batch.samplings["max_new_tokens"],
        }
    ).cast(dict(_FACTS))  # type: ignore[arg-type] # the stubs know no mapping of names to dtype objects


def _frame(findings: list[_Finding]) -> pl.DataFrame:
    findings.sort(key=lambda f: (f.row, _ORDER[f.law]))
    return pl.DataFrame(
        [(f.sample_id, f.law, f.severity, f.index, f.detail) for f in findings], schema=SAMPLE_FINDINGS, orient="row"
    )
