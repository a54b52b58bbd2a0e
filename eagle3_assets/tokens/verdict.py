"""What judging a partition yields: a verdict for every law, and the findings that a person can follow to a sample.

What belongs here: results and their reading in words. Not here: how they are reached.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl

from eagle3_assets.tokens.columns import Ids, Ints
from eagle3_assets.tokens.laws.base import Effect, Law
from eagle3_assets.tokens.wording import percent

Status = Literal["passed", "warned", "failed", "not_judged"]


@dataclass(frozen=True)
class Verdict:
    """One law over one partition."""

    law: Law
    effect: Effect
    """The law's effect, or ``warn`` where the config lowered it."""
    status: Status
    """``failed`` goes with severity ERROR and ``warned`` with WARN."""
    judged: int
    """Rows that the law could say something about."""
    rows: int
    """Rows that it was shown."""
    violations: int
    """Samples that break the law; for a law about the partition, how many faults it found."""
    warnings: int
    """Samples with a remark only: the law's warning class."""
    share: float
    """Rows at fault among the rows, 0 to 1."""
    refuses: bool
    """Whether the partition must not be used because of this law."""
    reason: str | None = None
    """Why it was not judged, or what of it was not."""
    details: tuple[str, ...] = ()
    """What was found, one sentence for each of the first few."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Numbers that the law is about, by name."""
    remark: str | None = None
    """What is odd about all rows together, though none breaks the law."""

    @property
    def severity(self) -> Literal["ERROR", "WARN"] | None:
        """How loudly a check says it; None where it passed or was not judged."""
        return {"failed": "ERROR", "warned": "WARN"}.get(self.status)  # type: ignore[return-value] # a literal from a dict is a str to mypy

    @property
    def summary(self) -> str:
        """One sentence for a person."""
        if self.status == "not_judged":
            return f"Not judged: {self.reason}."
        if self.law.scope == "partition":
            said = "; ".join(self.details) or "Holds"
            return f"{said[:1].upper()}{said[1:]}{f' ({self.reason})' if self.reason else ''}."
        partly = f" ({self.reason})" if self.reason else ""
        if not self.violations and not self.warnings:
            odd = f"; {self.remark}" if self.remark else ""
            return f"All {self.judged:,} judged of {self.rows:,} samples keep it{partly}{odd}."
        of = f"of {self.rows:,} samples"
        counts = [f"{self.violations:,} {of} break it ({percent(self.share, 2)})"] if self.violations else []
        counts += [f"{self.warnings:,} {of} have a remark"] if self.warnings else []
        return f"{' and '.join(counts)}{partly}; first {self.details[0]}."


@dataclass(frozen=True)
class Report:
    """All laws of one asset over one partition."""

    verdicts: tuple[Verdict, ...]
    """One for every law of the asset, in the order of ``LAWS``."""
    findings: pl.DataFrame
    """Schema ``contract.SAMPLE_FINDINGS``, by row and then by law; ``index`` is null where it is about no single id."""
    rows: int
    """Rows that row laws were shown: prompts with ids, or rows with an output."""
    quarantined_names: pl.Series
    """Sample ids of ``quarantined`` (String), maybe some twice; a column, as there may be millions."""
    quarantine_limit: float
    without_result: str | None = None
    """Why there was nothing to judge though there were rows."""
    error_rows: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    """Rows (0-based among all that were given, ascending) which break a law about single rows with another effect than
    to warn."""
    warning_rows: Ids = field(default_factory=lambda: np.empty(0, np.int64))
    """Other rows that such a law has a warning for."""
    finding_rows: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """Of each finding the row that it is about; the number of all rows where it is about none."""
    findings_left_out: int = 0
    """Findings that were counted and not kept."""

    @cached_property
    def quarantined(self) -> frozenset[str]:
        """Ids of the samples which must not be exported (or, for prompts, not be sent)."""
        return frozenset(self.quarantined_names)

    def __getitem__(self, law: str) -> Verdict:
        """The verdict of the law of that name.

        Raises:
            KeyError: the asset has no such law.
        """
        for verdict in self.verdicts:
            if verdict.law.name == law:
                return verdict
        raise KeyError(law)

    @property
    def broken(self) -> frozenset[str]:
        """Ids of the samples that a law about single rows, or their quarantine, keeps from being used."""
        laws = [v.law.name for v in self.verdicts if v.law.scope == "row" and v.effect != "warn"]
        errors = self.findings.filter(pl.col("law").is_in(laws) & (pl.col("severity") == "error"))
        return frozenset(errors["sample_id"]) | self.quarantined

    @property
    def nothing_judged(self) -> bool:
        """Whether no law about single rows could say anything, as over an empty file: no reason to trust it."""
        return all(v.status == "not_judged" for v in self.verdicts if v.law.scope == "row")

    @property
    def quarantined_share(self) -> float:
        """Quarantined samples among the rows, 0 to 1."""
        return len(self.quarantined) / self.rows if self.rows else 0.0

    @property
    def refused_together(self) -> bool:
        """Whether laws quarantine more than the limit together, and none of them does alone."""
        alone = any(v.refuses and v.effect == "quarantine" for v in self.verdicts)
        return not alone and self.quarantined_share > self.quarantine_limit

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why the partition must not be used, one text for each reason, with what to do; empty if it may be.

        A partition without any row may be: so is a shard which no conversation fell to.
        """
        refused = [v for v in self.verdicts if v.refuses]
        limit = f"more than the dataset's quarantine_limit of {percent(self.quarantine_limit, 2)}"
        texts = [
            f"{v.law.name}: {v.summary} "
            + (f"That is {limit}. " if v.effect == "quarantine" else "")
            + f"{v.law.meaning} {v.law.remedy}"
            for v in refused
        ]
        if self.refused_together:
            texts.append(
                f"quarantine: {len(self.quarantined):,} of {self.rows:,} samples ({percent(self.quarantined_share, 2)})"
                f" break one law or another, {limit}."
            )
        if self.without_result is not None:
            texts.append(f"nothing judged: {self.without_result}; each row's reason says why.")
        elif self.rows and self.nothing_judged:
            texts.append(f"nothing judged: no law could say anything of any of the {self.rows:,} rows.")
        return tuple(texts)
