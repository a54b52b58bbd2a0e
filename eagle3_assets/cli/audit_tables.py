"""What a person reads of an audit.

What belongs here: tables and sentences. Not here: what they say (``audit.report``). Texts from a file are not to be
trusted: all of them are made visible before they get here, and rich is given no markup to read.
"""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from eagle3_assets.audit.auditing import Audited
from eagle3_assets.audit.chat_dumps import LOSSES, UNFAITHFUL, ChatDump
from eagle3_assets.audit.report import answer, file_findings, law_verdicts, nothing_there, sample_counts, worst_samples
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


def audit_tables(audited: Audited, *, every_law: bool = False) -> Iterator["Table | Text | Laws"]:
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
    if nothing := nothing_there(audited):
        yield Text(nothing)
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


class Laws:
    """Marks and what is said beside each: wrapped by words in a terminal, whole lines where no line is wrapped."""

    def __init__(self) -> None:
        self.rows: list[tuple[Text, Text]] = []

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Either form."""
        beside = max((mark.cell_len for mark, _ in self.rows), default=0) + 2
        if options.no_wrap:
            for mark, said in self.rows:
                first, *others = said.split("\n")
                yield Text.assemble(mark, " " * (beside - mark.cell_len), first)
                yield from (Text(" " * beside) + line for line in others)
            return
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        yield table


def _laws(verdicts: Sequence[Verdict], *, every_law: bool) -> Laws:
    """What is broken first; names are never cut."""
    laws = Laws()
    for verdict in sorted(verdicts, key=lambda v: _WORST_FIRST.index(v.status)):
        if verdict.status != "not_judged" or every_law:
            laws.rows.append((MARKS[verdict.status], _law(verdict)))
    silent = Counter(v.reason or "" for v in verdicts if v.status == "not_judged")
    if silent and not every_law:
        numbered = silent.most_common()
        reasons = "; ".join(f"{reason} ({number})" if number > 1 else reason for reason, number in numbered)
        said = f"{counted(silent.total(), 'law')} not judged (--all lists them): {reasons}"
        laws.rows.append((MARKS["not_judged"], Text(visible(said))))
    return laws


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
    for sample in (one.sample_id for one in worst_samples(audited, SHOWN)):
        if _can_be_decoded(audited.path):
            shown = shlex.quote(visible(sample))
            return f". Look at one: eagle3-assets decode {visible(file)} --id {shown} --tokenizer DIR"
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
    for column in ("sample", "line", "breaks", "remark of"):
        table.add_column(column, overflow="fold")
    for one in worst:
        table.add_row(Text(visible(one.sample_id)), str(one.line), ", ".join(one.breaks), ", ".join(one.remarks))
    yield table


def _context(audited: Audited) -> Iterator[Text]:
    """Each law's first offender, and the first sample that it only remarks on, with the ids around and their text."""
    for report in (audited.prompts, audited.generations):
        first = worst_first(report.findings).unique(["law", "severity"], keep="first", maintain_order=True)
        first = first.filter(pl.col("sample_id").is_in(audited.offenders["sample_id"].to_list()))
        for item in collect_evidence(first, [audited.offenders], audited.context, limit=len(first)):
            at = "" if item.index is None else f" at {item.index}"
            remark = "remark of " if item.severity == "warning" else ""
            yield Text.assemble(
                f"\n{remark}",
                (item.law, "bold"),
                f" {visible(item.sample_id)}{at}: {visible(item.detail)}\n  {item.ids_line}",
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
