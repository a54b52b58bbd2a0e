"""The result of an audit as data: for machines as it is, for people the terminal makes tables of it.

What belongs here: counts, verdict, examples. Not here: judging, printing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl

from eagle3_assets.audit.auditing import Audited
from eagle3_assets.files import STDIN
from eagle3_assets.tokens.laws import LAWS
from eagle3_assets.tokens.verdict import Verdict

Json = dict[str, Any]
Answer = Literal["pass", "warn", "fail", "nothing_judged"]

EXAMPLES = 5
FILE_FINDINGS_NAMED = 100
"""Samples that a law about the whole file names one by one; the rest is counted."""


def audit_json(audited: Audited) -> Json:
    """The result of one file; further keys stand there only where there is something to say.

    ``laws[].reason`` says why a law was not judged, or what of it; ``cut_off`` how many entries are not in the lists
    of that name; ``without_output`` how many rows say themselves that they have none, by their state;
    ``chat_completions`` what a dump of chat completions has lost.
    """
    verdicts, samples = law_verdicts(audited), sample_counts(audited)
    findings, named = _findings(audited), file_findings(audited)
    result: Json = {
        "file": str(audited.path),
        "samples": samples,
        "laws": [_law(audited, verdict, findings) for verdict in verdicts],
        "findings": _by_sample(_of_rows(audited, findings)),
        "file_findings": named[:FILE_FINDINGS_NAMED],
        "refused": [{"line": r.line, "sample_id": r.sample_id, "reason": r.reason} for r in audited.refused],
        "verdict": answer(audited),
    }
    cut_off = {
        "findings": audited.prompts.findings_left_out + audited.generations.findings_left_out,
        "file_findings": max(0, len(named) - FILE_FINDINGS_NAMED),
        "refused": audited.refused_count - len(audited.refused),
    }
    if any(cut_off.values()):
        result["cut_off"] = cut_off
    if audited.without_output:
        result["without_output"] = audited.without_output
    if audited.chats is not None:
        result["chat_completions"] = audited.chats.as_json()
    return result


def unusable_json(path: Path, reason: str) -> Json:
    """The result of a file of which nothing could be read."""
    return {
        "file": str(path),
        "samples": {"judged": 0, "passed": 0, "warned": 0, "failed": 0},
        "laws": [],
        "findings": {},
        "file_findings": [],
        "refused": [{"line": None, "sample_id": None, "reason": reason}],
        "verdict": "nothing_judged",
    }


def law_verdicts(audited: Audited) -> list[Verdict]:
    """Every law's verdict, in the order in which people are shown laws."""
    by_name = {v.law.name: v for v in (*audited.prompts.verdicts, *audited.generations.verdicts)}
    return [by_name[law.name] for law in LAWS if law.name in by_name]


def sample_counts(audited: Audited) -> dict[str, int]:
    """Rows by the worst that a law about single rows says of each."""
    failed = np.union1d(audited.prompts.error_rows, audited.generations.error_rows)
    warned = np.setdiff1d(np.union1d(audited.prompts.warning_rows, audited.generations.warning_rows), failed)
    judged = audited.generations.rows
    return {
        "judged": judged,
        "passed": judged - len(failed) - len(warned),
        "warned": len(warned),
        "failed": len(failed),
    }


def answer(audited: Audited) -> Answer:
    """The verdict on the file. A line that could not be read is a reason to look, as a warning is."""
    samples = sample_counts(audited)
    if not samples["judged"]:
        return "nothing_judged"
    states = {verdict.status for verdict in law_verdicts(audited)}
    if "failed" in states or samples["failed"]:
        return "fail"
    return "warn" if "warned" in states or samples["warned"] or audited.refused_count else "pass"


def nothing_there(audited: Audited) -> str | None:
    """That a file holds nothing at all, in words; None where it does."""
    if audited.lines or audited.refused_count or audited.without_output:
        return None
    return "Standard input was empty." if audited.path == STDIN else "The file holds no rows."


@dataclass(frozen=True, slots=True)
class WorstSample:
    """A sample, and what laws say of it."""

    sample_id: str
    line: int
    breaks: list[str]
    remarks: list[str]
    """Laws that it does not break and that remark on it."""


def worst_samples(audited: Audited, count: int = EXAMPLES) -> list[WorstSample]:
    """The samples that break the most laws, then those that have a remark."""
    findings = _of_rows(audited, _findings(audited))
    if findings.is_empty():
        return []
    law, error = pl.col("law"), pl.col("severity") == "error"
    ranked = (
        findings.group_by("row", maintain_order=True)
        .agg(
            pl.col("sample_id").first(),
            law.filter(error).unique(maintain_order=True).alias("breaks"),
            law.filter(~error & ~law.is_in(law.filter(error).implode())).unique(maintain_order=True).alias("remarks"),
        )
        .sort([pl.col("breaks").list.len(), "row"], descending=[True, False])
        .head(count)
    )
    return [
        WorstSample(r["sample_id"], audited.lines[r["row"]], r["breaks"], r["remarks"])
        for r in ranked.iter_rows(named=True)
    ]


def file_findings(audited: Audited) -> list[Json]:
    """What the laws about the whole file found: law, effect, detail, and the lines of the sample that it names."""
    return list(_file_findings(audited))


def _findings(audited: Audited) -> pl.DataFrame:
    """The findings about rows and about the file, with their row; null where they name none."""
    parts = [
        report.findings.with_columns(pl.Series("row", report.finding_rows, dtype=pl.Int64))
        for report in (audited.prompts, audited.generations)
    ]
    return pl.concat(parts).with_columns(pl.when(pl.col("row") < len(audited.lines)).then("row"))


def _of_rows(audited: Audited, findings: pl.DataFrame) -> pl.DataFrame:
    """Those about single rows; a law about the whole file may have some too, each of which is broken by itself."""
    row_laws = [verdict.law.name for verdict in law_verdicts(audited) if verdict.law.scope == "row"]
    of_rows, error = pl.col("law").is_in(row_laws), pl.col("severity") == "error"
    # Of millions of quarantined samples those are looked for that such a law names, and not the other way round.
    named = findings.filter(~of_rows & error)["sample_id"].unique().implode()
    broken = pl.concat(
        names.filter(names.is_in(named))
        for names in (audited.prompts.quarantined_names, audited.generations.quarantined_names)
    )
    return findings.filter(of_rows | (error & pl.col("sample_id").is_in(broken.unique().implode())))


def _law(audited: Audited, verdict: Verdict, findings: pl.DataFrame) -> Json:
    own = findings.filter(pl.col("law") == verdict.law.name)
    own = own.sort(pl.col("severity") != "error", maintain_order=True).head(EXAMPLES)
    law: Json = {
        "name": verdict.law.name,
        "effect": verdict.effect,
        "judged": verdict.judged,
        "violations": verdict.violations,
        "share": round(verdict.share, 6),
        "examples": [
            {
                "sample_id": row["sample_id"],
                "line": None if row["row"] is None else audited.lines[row["row"]],
                "index": row["index"],
                "detail": row["detail"],
            }
            for row in own.iter_rows(named=True)
        ],
    }
    if verdict.reason is not None:
        law["reason"] = verdict.reason
    return law


def _by_sample(findings: pl.DataFrame) -> dict[str, dict[str, str]]:
    """Each sample's laws with the worst severity; a sample id that stands in several rows has those of all."""
    by_sample: dict[str, dict[str, str]] = {}
    for sample, law, severity in findings.select("sample_id", "law", "severity").iter_rows():
        laws = by_sample.setdefault(sample, {})
        if laws.get(law) != "error":
            laws[law] = severity
    return by_sample


def _file_findings(audited: Audited) -> Iterator[Json]:
    lines: dict[str, list[int]] = {}
    for sample, row in audited.places.iter_rows():
        lines.setdefault(sample, []).append(audited.lines[row])
    for report in (audited.prompts, audited.generations):
        for verdict in report.verdicts:
            if verdict.law.scope != "partition" or verdict.status not in ("warned", "failed"):
                continue
            own = report.findings.filter(pl.col("law") == verdict.law.name)
            for sample, detail in own.select("sample_id", "detail").iter_rows():
                said = f"{sample}: {detail}"
                yield _file_finding(verdict, said, lines.get(sample, []))
            if len(own) < verdict.violations:
                yield _file_finding(verdict, verdict.summary, [])


def _file_finding(verdict: Verdict, detail: str, lines: list[int]) -> Json:
    return {"law": verdict.law.name, "effect": verdict.effect, "detail": detail, "lines": lines}
