"""What a person reads of an audit.

What belongs here: tables and sentences. Not here: what they say (``audit.report``). Texts from a file are not to be
trusted: all of them are made visible before they get here, and rich is given no markup to read.
"""

from collections.abc import Iterator

import polars as pl
from rich.table import Table
from rich.text import Text

from eagle3_assets.audit.auditing import Audited
from eagle3_assets.audit.chat_dumps import LOSSES, UNFAITHFUL, ChatDump
from eagle3_assets.audit.report import answer, file_findings, law_verdicts, sample_counts, worst_samples
from eagle3_assets.cli.tables import MARKS
from eagle3_assets.tokens.evidence import collect_evidence, worst_first
from eagle3_assets.tokens.laws.base import counted
from eagle3_assets.tokens.safe_text import visible

SHOWN = 5

_ANSWERS = {
    "pass": ("PASS", "bold green", "every law that could be judged holds"),
    "warn": ("WARN", "bold yellow", "no law is broken; a person should look at what is named below"),
    "fail": ("FAIL", "bold red", "at least one law is broken"),
    "nothing_judged": ("NOTHING JUDGED", "bold red", "nothing can be said of this file"),
}


def audit_tables(audited: Audited) -> Iterator[Table | Text]:
    """All that is printed of one file, in order."""
    word, style, meaning = _ANSWERS[answer(audited)]
    counts = sample_counts(audited)
    verdicts = law_verdicts(audited)
    silent = sum(verdict.status == "not_judged" for verdict in verdicts)
    yield Text.assemble(
        (word, style),
        f" {visible(str(audited.path))}: {meaning} ({len(verdicts) - silent} laws judged, {silent} could not be)",
    )
    yield Text(
        f"{counts['judged']:,} samples judged: {counts['passed']:,} passed, {counts['warned']:,} with a warning,"
        f" {counts['failed']:,} failed; {audited.refused_count:,} lines refused"
    )
    if audited.without_output:
        states = ", ".join(f"{number:,} {state}" for state, number in audited.without_output.items())
        yield Text(f"{counted(sum(audited.without_output.values()), 'row')} without an output not judged: {states}")
    yield from _refused(audited)
    if audited.chats is not None:
        yield from _chats(audited.chats)
    if not counts["judged"]:
        return
    for finding in file_findings(audited)[:SHOWN]:
        yield Text(f"{finding['law']}: {visible(finding['detail'])}{_places(finding['lines'])}")
    yield _laws(audited)
    yield from _worst(audited)
    yield from _context(audited)


def _places(lines: list[int]) -> str:
    named = ", ".join(map(str, lines))
    return f" ({'line' if len(lines) == 1 else 'lines'} {named})" if lines else ""


def _laws(audited: Audited) -> Table:
    table = Table(title="Laws", title_justify="left", caption="n/j: not judged", caption_justify="left")
    table.add_column("law")
    table.add_column("effect")
    for column in ("judged", "violations", "share"):
        table.add_column(column, justify="right")
    table.add_column("verdict")
    table.add_column("what", overflow="fold")
    for verdict in law_verdicts(audited):
        judged = verdict.status != "not_judged"
        said = verdict.reason or "" if verdict.status in ("passed", "not_judged") else verdict.summary
        table.add_row(
            verdict.law.name,
            verdict.effect,
            f"{verdict.judged:,}" if judged else "",
            f"{verdict.violations:,}" if judged else "",
            f"{verdict.share:.2%}" if judged else "",
            MARKS[verdict.status],
            Text(visible(said)),
        )
    return table


def _worst(audited: Audited) -> Iterator[Table]:
    worst = worst_samples(audited, SHOWN)
    if not worst:
        return
    table = Table(title="Worst samples", title_justify="left")
    for column in ("sample", "line", "laws"):
        table.add_column(column, overflow="fold")
    for sample, line, laws in worst:
        table.add_row(Text(visible(sample)), str(line), ", ".join(laws))
    yield table


def _context(audited: Audited) -> Iterator[Text]:
    """Each law's first offender with the ids around it, and their text where there is a tokenizer."""
    for report in (audited.prompts, audited.generations):
        first = worst_first(report.findings).unique("law", keep="first", maintain_order=True)
        first = first.filter(pl.col("sample_id").is_in(audited.offenders["sample_id"].to_list()))
        for item in collect_evidence(first, [audited.offenders], audited.context, limit=len(first)):
            at = "" if item.index is None else f" at {item.index}"
            yield Text.assemble(
                (f"\n{item.law}", "bold"), f" {visible(item.sample_id)}{at}: {visible(item.detail)}\n  {item.ids_line}"
            )
            if item.text:
                yield Text(f"  {visible(item.text)}")


def _refused(audited: Audited) -> Iterator[Text]:
    for refusal in audited.refused[:SHOWN]:
        of = "" if refusal.sample_id is None else f" (sample {visible(refusal.sample_id)})"
        yield Text(f"  line {refusal.line}{of}: {visible(refusal.reason)}")
    if audited.refused_count > SHOWN:
        yield Text(f"  and {audited.refused_count - SHOWN:,} more refused lines")


def _chats(chats: ChatDump) -> Iterator[Text]:
    found = chats.as_json()
    yield Text(
        f"\n{found['lines']:,} lines are chat completions, text without token ids ({found['turns']:,} turns of the"
        " assistant). Nobody can know that ids made of such text are the target's: generate again and keep the raw ids."
    )
    for name, count in found["lost"].items():
        if count:
            yield Text(f"  {count:,} of {found['turns']:,} turns: {LOSSES[name]}")
    again = found["retokenization"]
    if again is None:
        yield Text(
            "  How many cannot be tokenized again faithfully is not judged: the target's tokenizer is not at hand"
        )
        return
    yield Text(
        f"  {again['unfaithful']:,} of {again['turns']:,} turns cannot be tokenized again faithfully; of the other"
        f" {again['cannot_be_told']:,} it cannot be told"
    )
    for name, count in again["reasons"].items():
        if count:
            yield Text(f"    {count:,}: {UNFAITHFUL[name]}")
