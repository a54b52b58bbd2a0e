"""Judging a partition: every law over batches of rows, in one pass.

What belongs here: running laws and weighing what they find. Not here: any law, reading files.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from eagle3_assets.contract import SAMPLE_FINDINGS
from eagle3_assets.tokens.batch import Batch
from eagle3_assets.tokens.columns import Ids, Ints, Mask, nulls
from eagle3_assets.tokens.context import Context, PromptIndex
from eagle3_assets.tokens.drawing import Draw
from eagle3_assets.tokens.laws import LAWS, ON_REQUEST, PartitionLaw, RowLaw, effective, laws_of
from eagle3_assets.tokens.laws.base import Asset, Effect, Found, Severity, counted
from eagle3_assets.tokens.row_facts import facts_schema, row_facts
from eagle3_assets.tokens.safe_text import visible
from eagle3_assets.tokens.verdict import Report, Status, Verdict

__all__ = [
    "Context",
    "Judge",
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
    return _judge("tokenized_prompts", batches, context)


def judge_generations(batches: Iterable[pl.DataFrame], context: Context) -> Report:
    """Judges ``raw_generations``: row laws over the rows with status ``generated``, partition laws over all.

    Frames without a ``status`` column count as generated throughout. Arguments and errors as in :func:`judge_prompts`.
    """
    return _judge("raw_generations", batches, context)


def judge_replay(batches: Iterable[pl.DataFrame], context: Context) -> Report:
    """Judges rows of ``raw_generations`` that the target has scored, by the laws on request alone.

    Args:
        batches: as for :func:`judge_generations`, with the columns ``scored_logprobs`` and ``scored_best`` (lists of
            natural-log probabilities of the raw distribution, one for each output id; null where not scored).
        context: with the replay's tolerance.
    """
    return _judge("raw_generations", batches, context, ON_REQUEST)


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
    keep: int | None
    judged: int = 0
    violations: int = 0
    warnings: int = 0
    recorded: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    findings: list[_Finding] = field(default_factory=list)
    missing: list[_Finding] = field(default_factory=list)
    missing_rows: list[Ids] = field(default_factory=list)
    judged_without: int = 0
    """Judged rows among those that lack the value: the law can say something about them all the same."""
    error_rows: list[Ids] = field(default_factory=list)
    warning_rows: list[Ids] = field(default_factory=list)
    kept: Counter[Severity] = field(default_factory=Counter)
    named: dict[Severity, list[str]] = field(default_factory=lambda: {"error": [], "warning": []})
    """The first few samples of each kind: remarks that come first must not hide what is broken."""
    left_out: int = 0

    def add(self, batch: Batch, places: Ints) -> None:
        """Judges a batch whose rows have these places in the partition."""
        absent = next((column for column in self.law.columns if not batch.has(column)), None)
        if absent is not None:
            self.impossible = self.impossible or f"the column {absent} is absent"
        if self.impossible is not None:
            return
        judgement = self.law.judge(batch)
        self.judged += int(judgement.judged.sum())
        self.counts.update(judgement.counts)
        self.recorded += int((judgement.judged if judgement.recorded is None else judgement.recorded).sum())
        errors = _rows(judgement.found, "error")
        warned = np.setdiff1d(_rows(judgement.found, "warning"), errors)
        self.violations += len(errors)
        self.warnings += len(warned)
        self._mark(places[errors])
        self.warning_rows.append(places[warned].astype(np.int32))
        echo = batch.echo if self.law.explained_by_echo else np.zeros(len(batch), np.int64)
        for found in judgement.found:
            room = self._room(found.severity, len(found.rows))
            every = zip(found.rows[:room].tolist(), found.index[:room].tolist(), found.details[:room], strict=True)
            kept = [
                self._finding(
                    batch,
                    places,
                    row,
                    found.severity,
                    index,
                    f"prompt echo of {counted(int(echo[row]), 'id')}; {detail}" if echo[row] else detail,
                )
                for row, index, detail in every
            ]
            self.findings += kept
            first = self.named[found.severity]
            first += [finding.sample_id for finding in kept[: SHOWN_DETAILS - len(first)]]
        if judgement.missing is not None:
            rows = np.flatnonzero(judgement.missing)
            self.judged_without += int(judgement.judged[rows].sum())
            self.missing_rows.append(places[rows].astype(np.int32))
            room = len(rows) if self.keep is None else min(len(rows), self.keep - len(self.missing))
            for row in rows[:room].tolist():
                self.missing.append(self._finding(batch, places, row, "error", -1, self.law.missing))

    def verdict(self, rows: int, of: int, no_rows: str, context: Context) -> Verdict:
        """The law's verdict after the last batch, of a sample of ``rows`` where there are ``of``."""
        sample = f"judged a sample of {rows:,} of {of:,}" if rows < of else None
        partly = _joined(sample, self.law.partly(context))
        missing = sum(map(len, self.missing_rows))
        if missing and not context.mixed_records and (self.recorded or context.complete_records):
            self.judged += missing - self.judged_without
            self.violations += missing
            for rows_without in self.missing_rows:
                self._mark(rows_without)
            room = self._room("error", missing)
            self.findings += self.missing[:room]
            missing = 0
        elif missing:
            lacking = f" in {missing:,} of {counted(rows, 'sample')}" if missing < rows else ""
            partly = _joined(f"{self.law.missing}{lacking}", partly)
            missing -= self.judged_without
        others = rows - self.judged - missing
        self.findings.sort(key=lambda f: f.row)
        reason = self.impossible or (no_rows if not rows else None if self.judged else self.law.nothing)
        if reason is not None:
            return _not_judged(self.law, self.effect, rows, reason)
        if others:
            why = self.law.others or f"of these {self.law.nothing}"
            partly = _joined(partly, f"{others:,} of {counted(rows, 'sample')} not judged: {why}")
        share = self.violations / rows
        remark = self.law.remark(self.judged, self.violations)
        remarks = self.warnings or remark is not None
        status, refuses = _weighed(self.effect, self.violations, remarks, share, context.quarantine_limit)
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
            figures=dict(self.counts),
            remark=remark,
        )

    def _mark(self, places: Ids) -> None:
        """Remembers rows at fault, by what that means for them."""
        (self.warning_rows if self.effect == "warn" else self.error_rows).append(places.astype(np.int32))

    def _room(self, severity: Severity, wanted: int) -> int:
        """How many more findings are kept, remarks apart from errors; the rest is counted."""
        room = wanted if self.keep is None else min(wanted, self.keep - self.kept[severity])
        self.kept[severity] += room
        self.left_out += wanted - room
        return room

    def _finding(self, batch: Batch, places: Ints, row: int, severity: Severity, index: int, detail: str) -> _Finding:
        severity = "warning" if self.effect == "warn" else severity
        position = None if index < 0 else index
        return _Finding(int(places[row]), self.law.name, batch.sample_ids[row], severity, position, detail)


class Judge:
    """Judges the rows of one asset, a frame at a time: for rows that are read once and judged in more than one way."""

    def __init__(
        self,
        asset: Asset,
        context: Context,
        *,
        laws: Sequence[RowLaw | PartitionLaw] | None = None,
        keep: int | None = None,
    ) -> None:
        """Nothing is judged yet.

        Args:
            asset: whose laws.
            context: what the rows are judged against.
            laws: of the asset; without them, all that each judgement applies.
            keep: findings of each law that are kept one by one, the first ones; the rest is counted. None keeps all.

        Raises:
            ValueError: the context lowers a law that cannot be lowered.
        """
        self.asset, self.context, self.keep = asset, context, keep
        self._laws = laws_of(asset) if laws is None else laws
        self._effects = effective(context.law_effects)
        self._tallies = {
            law.name: _Tally(law, self._effects[law.name], law.unless(context), keep)
            for law in self._laws
            if isinstance(law, RowLaw)
        }
        tallies = self._tallies.values()
        self._sampled = [tally for tally in tallies if tally.law.sampled and tally.impossible is None]
        wanted = {"sample_id", "finish_type"}.union(*(tally.law.columns for tally in self._sampled))
        self._draw = Draw(context.sample_rows, wanted)
        self._schema = facts_schema(asset)
        self._facts = [self._schema.to_frame()]
        self._rows = self._total = 0
        self._offenders: list[pl.DataFrame] = []
        self._remembered: frozenset[str] = frozenset()

    def add(self, frame: pl.DataFrame) -> None:
        """Judges rows; errors as in :func:`judge_prompts`."""
        for part in _sliced([frame]):
            whole = Batch(part, self.context)
            chosen = _with_prompt(part) if self.asset == "tokenized_prompts" else whole.generated
            self._facts.append(row_facts(whole, self._schema))
            if chosen.any():
                batch = whole if chosen.all() else Batch(part.filter(chosen), self.context)
                places = self._total + np.flatnonzero(chosen)
                for tally in self._tallies.values():
                    if not tally.law.sampled:
                        tally.add(batch, places)
                if self._sampled:
                    self._draw.add(batch.frame, places)
                self._remember(batch.frame)
            self._rows += int(chosen.sum())
            self._total += len(part)

    @property
    def offenders(self) -> pl.DataFrame:
        """Ids of the first few offenders of each law about single rows, for those who read the rows only once.

        Columns ``sample_id`` and, where the rows have them, ``prompt_ids`` and ``output_ids``.
        """
        return pl.concat([pl.DataFrame(schema={"sample_id": pl.String}), *self._offenders], how="diagonal")

    def report(self) -> Report:
        """The verdicts, after the last row; to be asked for once."""
        self._judge_sample()
        context, effects = self.context, self._effects
        no_rows = (
            "there is no row with prompt ids" if self.asset == "tokenized_prompts" else "there is no generated row"
        )
        partition = pl.concat(self._facts)
        verdicts: list[Verdict] = []
        findings: list[_Finding] = []
        left_out = 0
        broken: set[str] = set()
        error_rows: list[Ids] = [np.empty(0, np.int32)]
        quarantined_rows: list[Ids] = [np.empty(0, np.int32)]
        warning_rows: list[Ids] = [np.empty(0, np.int32)]
        for law in self._laws:
            if isinstance(law, RowLaw):
                tally = self._tallies[law.name]
                shown = min(self._rows, context.sample_rows) if law.sampled else self._rows
                verdicts.append(tally.verdict(shown, self._rows, no_rows, context))
                if tally.impossible is None:
                    findings += tally.findings
                    left_out += tally.left_out
                    error_rows += tally.error_rows
                    quarantined_rows += tally.error_rows if tally.effect == "quarantine" else []
                    warning_rows += tally.warning_rows
            else:
                verdict, named, broken_here = _partition_verdict(law, effects[law.name], partition, context)
                broken |= broken_here
                if broken_here:
                    error_rows.append(_places(partition, broken_here)["row"].to_numpy().astype(np.int32))
                verdicts.append(verdict)
                findings += named[: self.keep]
                left_out += len(named[self.keep :]) if self.keep is not None else 0
        findings.sort(key=lambda f: (f.row, _ORDER[f.law]))
        errors = np.unique(np.concatenate(error_rows))
        quarantined = partition["sample_id"].gather(np.unique(np.concatenate(quarantined_rows))).fill_null("")
        return Report(
            tuple(verdicts),
            _frame(findings),
            self._rows,
            pl.concat([pl.Series("sample_id", sorted(broken), pl.String), quarantined]),
            context.quarantine_limit,
            _without_result(self.asset, partition, self._rows),
            errors,
            np.setdiff1d(np.concatenate(warning_rows), errors),
            np.array([f.row for f in findings], np.int64),
            left_out,
        )

    def _judge_sample(self) -> None:
        drawn, places = self._draw.rows()
        if len(drawn):
            batch = Batch(drawn, self.context)
            for tally in self._sampled:
                tally.add(batch, np.array(places, np.int64))
            self._remember(drawn)

    def _remember(self, rows: pl.DataFrame) -> None:
        """Keeps the ids of rows that laws name first."""
        named = frozenset(
            sample for tally in self._tallies.values() for first in tally.named.values() for sample in first
        )
        if new := named - self._remembered:
            columns = [name for name in ("sample_id", "prompt_ids", "output_ids") if name in rows.columns]
            found = rows.select(columns).filter(pl.col("sample_id").is_in(list(new)))
            self._offenders.append(found.unique("sample_id", keep="first", maintain_order=True).rechunk())
            self._remembered = named

    def places(self, sample_ids: Iterable[str]) -> pl.DataFrame:
        """Where samples stand: ``sample_id`` and ``row`` (UInt32, 0-based among all rows), ordered by row."""
        return _places(pl.concat(self._facts), sample_ids)


def _judge(
    asset: Asset,
    batches: Iterable[pl.DataFrame],
    context: Context,
    laws: Sequence[RowLaw | PartitionLaw] | None = None,
) -> Report:
    judge = Judge(asset, context, laws=laws)
    for frame in batches:
        judge.add(frame)
    return judge.report()


def _places(facts: pl.DataFrame, sample_ids: Iterable[str]) -> pl.DataFrame:
    wanted = pl.Series(list(sample_ids), dtype=pl.String)
    return (
        facts.select("sample_id")
        .with_row_index("row")
        .filter(pl.col("sample_id").is_in(wanted.implode()))
        .select("sample_id", "row")
    )


def _partition_verdict(
    law: PartitionLaw, effect: Effect, facts: pl.DataFrame, context: Context
) -> tuple[Verdict, list[_Finding], frozenset[str]]:
    """The verdict, the findings, and the samples which are quarantined by themselves."""
    reason = law.unless(context)
    if reason is not None:
        return _not_judged(law, effect, len(facts), reason), [], frozenset()
    judgement = law.judge(facts, context)
    if not judgement.judged:
        return _not_judged(law, effect, len(facts), judgement.reason or "nothing to judge"), [], frozenset()
    broken = frozenset(sample for sample, _ in judgement.broken)
    share = len(broken) / len(facts) if len(facts) else 0.0
    violations = judgement.violations + len(broken)
    concerned = violations if judgement.concerned is None else judgement.concerned
    weighed_as: Effect = effect if judgement.violations else "quarantine"
    status, refuses = _weighed(weighed_as, violations, 0, share, context.quarantine_limit)
    severity: Severity = "warning" if effect == "warn" else "error"
    verdict = Verdict(
        law=law,
        effect=effect,
        status=status,
        judged=len(facts),
        rows=len(facts),
        violations=violations,
        warnings=0,
        share=concerned / len(facts) if len(facts) else 0.0,
        refuses=refuses,
        reason=judgement.reason,
        details=judgement.details[:SHOWN_DETAILS],
        figures=judgement.figures,
    )
    named = (*judgement.broken, *judgement.samples)
    rows = _places(facts, (sample for sample, _ in named)) if named else facts.clear()
    place = dict(rows.unique("sample_id", keep="last").iter_rows()) if len(rows) else {}
    findings = [
        _Finding(place.get(sample, len(facts)), law.name, sample, severity, None, text) for sample, text in named
    ]
    return verdict, findings, broken


def _joined(*parts: str | None) -> str | None:
    return "; ".join(filter(None, parts)) or None


def _weighed(effect: Effect, violations: int, remarks: int | bool, share: float, limit: float) -> tuple[Status, bool]:
    """The status that an effect makes of what was found, and whether the partition is refused."""
    if not violations:
        return ("warned" if remarks else "passed"), False
    if effect == "warn" or (effect == "quarantine" and share <= limit):
        return "warned", False
    return "failed", True


def _not_judged(law: RowLaw | PartitionLaw, effect: Effect, rows: int, reason: str) -> Verdict:
    return Verdict(law, effect, "not_judged", 0, rows, 0, 0, 0.0, refuses=False, reason=reason)


def _rows(found: Iterable[Found], severity: Severity) -> Ints:
    rows = [f.rows for f in found if f.severity == severity and len(f.rows)]
    return np.unique(np.concatenate(rows)) if rows else np.empty(0, np.int64)


def _sliced(batches: Iterable[pl.DataFrame]) -> Iterable[pl.DataFrame]:
    for frame in batches:
        if "sample_id" not in frame.columns:
            raise ValueError(f"rows to judge need a column sample_id; there are: {', '.join(frame.columns) or 'none'}")
        yield from frame.iter_slices(_ROWS_AT_ONCE)


def _with_prompt(frame: pl.DataFrame) -> Mask:
    if "prompt_ids" not in frame.columns:
        return np.ones(len(frame), np.bool_)
    return ~nulls(frame["prompt_ids"])


def _without_result(asset: Asset, facts: pl.DataFrame, rows: int) -> str | None:
    """Why there is nothing to judge though there are rows; None where there is something, or no row at all."""
    if rows or not len(facts):
        return None
    counts = Counter(facts["status"]).most_common()
    states = ", ".join(f"{number:,} {visible(state or 'without a state')}" for state, number in counts)
    lacking = "ids" if asset == "tokenized_prompts" else "an output"
    return f"no prompt has {lacking} ({counted(len(facts), 'row')}: {states})"


def _frame(findings: list[_Finding]) -> pl.DataFrame:
    return pl.DataFrame(
        [(f.sample_id, f.law, f.severity, f.index, f.detail) for f in findings], schema=SAMPLE_FINDINGS, orient="row"
    )
