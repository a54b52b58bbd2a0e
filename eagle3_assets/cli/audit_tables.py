"""What a person reads of an audit.

What belongs here: tables and sentences. Not here: what they say (``audit.report``). Texts from a file are not to be
trusted: all of them are made visible before they get here, and rich is given no markup to read.
"""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
from rich.table import Table
from rich.text import Text

from eagle3_assets.audit.auditing import Audited
from eagle3_assets.audit.chat_dumps import LOSSES, UNFAITHFUL, ChatDump
from eagle3_assets.audit.report import answer, file_findings, law_verdicts, sample_counts, worst_samples
from eagle3_assets.cli.tables import MARKS
from eagle3_assets.interchange import Row, read_rows
from eagle3_assets.tokens.evidence import collect_evidence, worst_first
from eagle3_assets.tokens.laws.base import counted
from eagle3_assets.tokens.safe_text import visible
from eagle3_assets.tokens.verdict import Status, Verdict

SHOWN = 5

_ANSWERS = {
    "pass": ("PASS", "bold green", "every law that could be judged holds"),
    "warn": ("WARN", "bold yellow", "no law is broken; a person should look at what is named below"),
    "fail": ("FAIL", "bold red", "at least one law is broken"),
    "nothing_judged": ("NOTHING JUDGED", "bold red", "nothing can be said of this file"),
}


_UNVERIFIED = "Ordinary ids are not verified by these laws: replay of this pipeline's own data asks the target."
"""What a person must not take from a file that passes."""

_WORST_FIRST: tuple[Status, ...] = ("failed", "warned", "passed", "not_judged")


def audit_tables(audited: Audited, *, every_law: bool = False) -> Iterator[Table | Text]:
    """All that is printed of one file, in order.

    Args:
        audited: the file.
        every_law: whether laws that were not judged are listed one by one.
    """
    word, style, meaning = _ANSWERS[answer(audited)]
    counts = sample_counts(audited)
    verdicts = law_verdicts(audited)
    silent = sum(verdict.status == "not_judged" for verdict in verdicts)
    yield Text.assemble(
        (word, style),
        f" {visible(str(audited.path))}: {meaning} ({len(verdicts) - silent} laws judged, {silent} could not be)",
    )
    judged, refused = counted(counts["judged"], "sample"), counted(audited.refused_count, "line")
    numbers = (
        f"{judged} judged: {counts['passed']:,} passed, {counts['warned']:,} with a warning,"
        f" {counts['failed']:,} failed; {refused} refused"
    )
    yield Text(numbers)
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
    yield Text("\nLaws", style="italic")
    yield _laws(verdicts, every_law=every_law)
    yield from _worst(audited)
    yield from _context(audited)
    if word != "FAIL":
        yield Text(f"\n{_UNVERIFIED}")
    yield Text.assemble("\n", (word, style), f" {numbers}{_next(audited) if word != 'PASS' else ''}")


def _places(lines: list[int]) -> str:
    named = ", ".join(map(str, lines))
    return f" ({'line' if len(lines) == 1 else 'lines'} {named})" if lines else ""


def _laws(verdicts: Sequence[Verdict], *, every_law: bool) -> Table:
    """What is broken first; names are never cut, and what is said is wrapped by words."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for verdict in sorted(verdicts, key=lambda v: _WORST_FIRST.index(v.status)):
        if verdict.status != "not_judged" or every_law:
            table.add_row(MARKS[verdict.status], _law(verdict))
    silent = Counter(v.reason or "" for v in verdicts if v.status == "not_judged")
    if silent and not every_law:
        numbered = silent.most_common()
        reasons = "; ".join(f"{reason} ({number})" if number > 1 else reason for reason, number in numbered)
        said = f"{counted(silent.total(), 'law')} not judged (--all lists them): {reasons}"
        table.add_row(MARKS["not_judged"], Text(visible(said)))
    return table


def _law(verdict: Verdict) -> Text:
    """A law that holds in one line, one that does not with what is wrong below its name."""
    name = (verdict.law.name, "bold")
    if verdict.status == "not_judged":
        return Text.assemble(name, f": {visible(verdict.reason or '')}")
    if verdict.status == "passed":
        partly = f"; {visible(verdict.reason)}" if verdict.reason else ""
        return Text.assemble(name, f": {verdict.judged:,} judged{partly}")
    return Text.assemble(name, f": {verdict.judged:,} judged, effect {verdict.effect}\n{visible(verdict.summary)}")


def _next(audited: Audited) -> str:
    """The command with which a person goes on."""
    file = shlex.quote(str(audited.path))
    for sample, _, _ in worst_samples(audited, SHOWN):
        if visible(sample) == sample and _can_be_decoded(audited.path):
            return f". Look at one: eagle3-assets decode {visible(file)} --id {shlex.quote(sample)} --tokenizer DIR"
    return f". All that was found: eagle3-assets audit {visible(file)} --json"


def _can_be_decoded(path: Path) -> bool:
    """Whether ``decode`` takes the file: by its name, and by its first row."""
    if path.suffix != ".jsonl":
        return False
    with path.open("rb") as file:
        return isinstance(next(read_rows(file), None), Row)


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
