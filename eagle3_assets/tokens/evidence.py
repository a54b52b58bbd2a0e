"""What a finding looks like in its sample: the ids around the offender, and their text.

What belongs here: windows of ids, decoded, and their rendering for people. Not here: which samples offend (``judge``).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

import polars as pl

from eagle3_assets.tokens.codec import marked
from eagle3_assets.tokens.columns import HUGE_ID, NULL_ID, TokenColumn
from eagle3_assets.tokens.context import Context
from eagle3_assets.tokens.laws import LAWS
from eagle3_assets.tokens.safe_text import markdown_code

BOUNDARY = "¦"
"""Stands between the prompt's ids and the output's."""

_OF_PROMPTS = {law.name for law in LAWS if law.asset == "tokenized_prompts"}
_SHOWN_CHARACTERS = 400


@dataclass(frozen=True)
class Evidence:
    """One finding with its surroundings."""

    sample_id: str
    law: str
    severity: str
    index: int | None
    """Of the offending id in the output, or in the prompt for laws about prompts; None where there is no single one."""
    detail: str
    before: tuple[int, ...]
    """Ids before the offender; for the first ids of an output, the end of its prompt is among them."""
    offender: int | None
    """The offending id; None where there is no single one, and then the window is the output's end."""
    after: tuple[int, ...]
    boundary: int | None
    """How many ids of the window belong to the prompt, where the output begins inside it."""
    text: str
    """The window decoded, structural tokens visible, the offender in brackets; untrusted. Empty with no tokenizer."""

    @property
    def ids_line(self) -> str:
        """The window as one line of ids: ``163606 ¦ [163586] 163588``."""
        ids = [
            *map(_number, self.before),
            *([f"[{_number(self.offender)}]"] if self.offender is not None else []),
            *map(_number, self.after),
        ]
        if self.boundary is not None:
            ids.insert(self.boundary, BOUNDARY)
        return " ".join(ids)


def worst_first(findings: pl.DataFrame) -> pl.DataFrame:
    """Findings with those that break a law before remarks, else in their order: who looks at few sees the errors."""
    return findings.sort(pl.col("severity") != "error", maintain_order=True)


def collect_evidence(
    findings: pl.DataFrame,
    batches: Iterable[pl.DataFrame],
    context: Context,
    *,
    limit: int = 5,
    around: int = 5,
) -> list[Evidence]:
    """Looks up the first findings in their samples.

    Args:
        findings: ``contract.SAMPLE_FINDINGS``, as in a report.
        batches: rows among which the samples are; columns ``sample_id``, ``prompt_ids`` and, for laws about outputs,
            ``output_ids``.
        context: for the tokenizer, without which there is no text.
        limit: most findings to look up, one for each sample and law.
        around: ids to show on each side of the offender.

    Returns:
        Errors first, else in the findings' order. A sample that is in no batch, or was named without an id, comes
        without ids.
    """
    chosen = worst_first(findings).unique(["sample_id", "law"], keep="first", maintain_order=True).head(limit)
    wanted = chosen["sample_id"].drop_nulls().unique().to_list()
    rows: dict[str, tuple[list[int], list[int]]] = {}
    for batch in batches:
        part = batch.filter(pl.col("sample_id").is_in(wanted))
        if len(part):
            prompts, outputs = _ids(part, "prompt_ids"), _ids(part, "output_ids")
            for number, sample in enumerate(part["sample_id"]):
                rows.setdefault(sample, (prompts.row(number).tolist(), outputs.row(number).tolist()))
    return [_evidence(finding, rows, context, around) for finding in chosen.iter_rows(named=True)]


def evidence_markdown(evidence: Iterable[Evidence]) -> str:
    """A Markdown table of evidence, safe for a page: every text from a sample is inert code."""
    lines = ["| sample | law | at | what | ids | text |", "|---|---|---|---|---|---|"]
    for item in evidence:
        cells = (
            markdown_code(item.sample_id, in_table=True),
            item.law,
            "" if item.index is None else str(item.index),
            markdown_code(item.detail, in_table=True),
            markdown_code(item.ids_line, in_table=True),
            markdown_code(item.text[:_SHOWN_CHARACTERS], in_table=True),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _ids(frame: pl.DataFrame, column: str) -> TokenColumn:
    series = frame[column] if column in frame.columns else pl.Series(column, [None] * len(frame), pl.List(pl.Int32))
    return TokenColumn.from_series(series)


def _evidence(
    finding: dict[str, object], rows: dict[str, tuple[list[int], list[int]]], context: Context, around: int
) -> Evidence:
    sample, law, index = str(finding["sample_id"] or ""), str(finding["law"]), finding["index"]
    prompt, output = rows.get(sample, ([], []))
    if law in _OF_PROMPTS:
        output = []
    place = index if isinstance(index, int) else None
    base = 0 if law in _OF_PROMPTS else len(prompt)
    ids = prompt + output
    at = None if place is None or not 0 <= base + place < len(ids) else base + place
    middle = len(ids) if at is None else at
    start = max(0, middle - around)
    before, after = ids[start:middle], [] if at is None else ids[at + 1 : at + 1 + around]
    shown = len(before) + (at is not None) + len(after)
    boundary = base - start if law not in _OF_PROMPTS and 0 < base - start <= shown else None
    return Evidence(
        sample_id=sample,
        law=law,
        severity=str(finding["severity"]),
        index=place,
        detail=str(finding["detail"]),
        before=tuple(before),
        offender=None if at is None else ids[at],
        after=tuple(after),
        boundary=boundary,
        text=_text(before, None if at is None else ids[at], after, context),
    )


def _text(before: list[int], offender: int | None, after: list[int], context: Context) -> str:
    if context.tokenizer is None or not (before or offender is not None):
        return ""
    marked = "" if offender is None else f" ⟦{_decoded([offender], context)}⟧ "
    return f"{_decoded(before, context)}{marked}{_decoded(after, context)}"


def _decoded(ids: list[int], context: Context) -> str:
    """Text of ids; those that the tokenizer has none for stand as they do wherever outputs are shown."""
    codec = context.codec
    if codec is None:
        return ""
    runs = groupby(ids, key=codec.has_text)
    return "".join(codec.text(list(run)) if known else marked(map(_number, run)) for known, run in runs)


def _number(token: int) -> str:
    """An id as its file has it: what stands for one that is none is not shown as a number."""
    return {NULL_ID: "null", HUGE_ID: "(over 63 bits)"}.get(token, str(token))
