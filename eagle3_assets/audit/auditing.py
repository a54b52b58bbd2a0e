"""One file judged from beginning to end.

What belongs here: feeding what is read to the laws, keeping what a person is shown later. Not here: reading
(``sources``), the laws, the forms of the result (``report``).

What is kept of a file does not grow with its tokens: some 150 bytes for each row, and the first findings.
"""

from array import array
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from eagle3_assets.audit.chat_dumps import ChatDump
from eagle3_assets.audit.sources import AuditError, Part, read_parts
from eagle3_assets.interchange import Refusal
from eagle3_assets.tokens.batch import FAILED, GENERATED, REFUSED
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.judge import Judge
from eagle3_assets.tokens.laws.base import counted
from eagle3_assets.tokens.laws.partition import CONSERVATION
from eagle3_assets.tokens.verdict import Report
from eagle3_assets.tokens.wording import percent

FINDINGS_KEPT = 10_000
"""Findings of each law that are named; the rest is counted."""
REFUSED_TOLERATED = 0.01
"""Share of refused lines from which the file is not what was generated: a dataset's own limit for rows left out."""
REFUSED_NAMED = 1_000
"""Refused lines that are named; the rest is counted."""


@dataclass(frozen=True)
class Audited:
    """What judging a file has found."""

    path: Path
    context: Context
    prompts: Report
    """The laws about prompts, over the rows that have one."""
    generations: Report
    """The laws about outputs. Of a file that is torn, or much of which was refused, ``conservation`` is broken: rows of
    it are lost."""
    lines: "array[int]"
    """Each row's line, in the order in which the reports number rows."""
    places: pl.DataFrame
    """``sample_id`` and ``row`` of the samples that laws about the whole file name."""
    offenders: pl.DataFrame
    """``sample_id``, ``prompt_ids`` and ``output_ids`` of each law's first offenders."""
    refused: list[Refusal]
    """Lines that hold no row, the first of them."""
    refused_count: int
    without_output: dict[str, int]
    """Rows that say themselves that they have no output, by their state; no law about outputs sees them."""
    chats: ChatDump | None
    """What has been lost, where lines are chat completions."""


def audit_file(path: Path, context: Context) -> Audited:
    """Judges a file.

    Args:
        path: JSON lines, packed or not, or parquet.
        context: the target. Its limit for quarantined rows should be 0: nobody leaves rows of this file out.

    Raises:
        AuditError: the file cannot be read, or is torn before anything could be.
    """
    prompts = Judge("tokenized_prompts", context, keep=FINDINGS_KEPT)
    generations = Judge("raw_generations", context, keep=FINDINGS_KEPT)
    lines = array("q")
    refused: list[Refusal] = []
    refused_count = 0
    without_output: Counter[str] = Counter()
    torn: str | None = None
    chats = ChatDump(context)
    for part in read_parts(path):
        torn = part.torn
        refused += part.refused[: max(0, REFUSED_NAMED - len(refused))]
        refused_count += len(part.refused)
        for number, line, turns in part.chats:
            chats.add(number, line, turns)
        if part.frame.is_empty():
            continue
        lines.extend(part.lines)
        prompts.add(_with_output(part))
        generations.add(part.frame)
        without_output.update(_states(part))
    if torn is not None and not lines and not refused_count:
        raise AuditError(f"{path}: {torn}")
    judged = generations.report()
    for lost in filter(None, (torn, _much_refused(refused_count, len(lines)))):
        judged = _rows_lost(judged, lost)
    whole = [v.law.name for v in judged.verdicts if v.law.scope == "partition"]
    return Audited(
        path=path,
        context=context,
        prompts=prompts.report(),
        generations=judged,
        lines=lines,
        places=generations.places(judged.findings.filter(pl.col("law").is_in(whole))["sample_id"].unique()),
        offenders=pl.concat([prompts.offenders, generations.offenders], how="diagonal_relaxed"),
        refused=refused,
        refused_count=refused_count,
        without_output=dict(without_output),
        chats=chats if chats.lines else None,
    )


def _much_refused(refused: int, read: int) -> str | None:
    """What is to be said of a file of which more than a few lines hold no row; None where that is not so."""
    share = refused / max(1, refused + read)
    if not read or share <= REFUSED_TOLERATED:
        return None
    return (
        f"{refused:,} of {counted(refused + read, 'line')} ({percent(share, 2)}) could not be read as rows and were not"
        f" judged: more than {percent(REFUSED_TOLERATED)}, so that what was judged is not the file"
    )


def _rows_lost(report: Report, reason: str) -> Report:
    """The report of a file of which rows are missing: whatever the others say, they are not all of them."""
    verdicts = [
        replace(
            verdict,
            status="failed",
            violations=verdict.violations + 1,
            details=(reason, *(verdict.details if verdict.violations else ())),
            refuses=True,
        )
        if verdict.law is CONSERVATION
        else verdict
        for verdict in report.verdicts
    ]
    return replace(report, verdicts=tuple(verdicts))


def _states(part: Part) -> list[str]:
    """What the rows without an output say of themselves."""
    if "status" not in part.frame.columns:
        return []
    states = part.frame["status"].cast(pl.String).fill_null("no state").to_list()
    return [state if state in (FAILED, REFUSED) else "another state" for state in states if state != GENERATED]


def _with_output(part: Part) -> pl.DataFrame:
    """The rows as laws about prompts see them: the prompt of a row that has no output is no matter of this file."""
    frame = part.frame
    if "status" not in frame.columns or "prompt_ids" not in frame.columns:
        return frame
    return frame.with_columns(pl.when(pl.col("status") == GENERATED).then("prompt_ids"))
