"""What the terminal prints: tables of checks, lengths and datasets.

What belongs here: rich tables of what others found out. Not here: finding it out, commands.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from rich.console import ConsoleOptions
from rich.table import Table
from rich.text import Text

from eagle3_assets.generation.sealed import Sealed
from eagle3_assets.partitions import Partition
from eagle3_assets.running import PartitionRun
from eagle3_assets.tokens.lengths import merged, present_sections
from eagle3_assets.tokens.safe_text import excerpt, visible
from eagle3_assets.tokens.verdict import Status
from eagle3_assets.tokens.wording import percent

SHOWN = 140
"""Characters of what is shown of a commonest reason, its counts included."""

MARKS: dict[Status, Text] = {
    "passed": Text("ok", style="green"),
    "warned": Text("warn", style="yellow"),
    "failed": Text("FAIL", style="bold red"),
    "not_judged": Text("n/j", style="dim"),
}
"""How a law's status is shown."""

MOST_BARS, BAR_CELLS = 20, 40


def checks_table(runs: Sequence[PartitionRun]) -> Table:
    """Laws down, partitions across. ``n/j`` is not judged; an empty place is a check that did not run."""
    table = Table(title="Checks", title_justify="left", caption="n/j: not judged", caption_justify="left")
    table.add_column("check")
    for run in runs:
        table.add_column(run.partition, overflow="fold")
    names = dict.fromkeys((check.asset, check.name) for run in runs for check in run.checks)
    before = None
    for asset, name in names:
        if asset != before:
            table.add_section()
            table.add_row(Text(asset, style="bold"))
            before = asset
        marks = [
            next((MARKS[c.status] for c in run.checks if (c.asset, c.name) == (asset, name)), Text("")) for run in runs
        ]
        table.add_row(Text(f"  {name}"), *marks)
    return table


def remarks(runs: Sequence[PartitionRun], *, every: bool = False) -> list[Text]:
    """A line for each check that warned or failed (or for every one), and for each failure."""
    lines = [
        Text.assemble(MARKS[check.status], f" {run.partition} {check.name}: {visible(check.said)}")
        for run in runs
        for check in run.checks
        if every or check.status in ("warned", "failed")
    ]
    lines += [
        Text.assemble((f"FAILED {run.partition} ", "bold red"), visible(failure, keep_lines=True))
        for run in runs
        for failure in run.failures or ([] if run.succeeded else ["the run failed; its log is in the Dagster UI"])
    ]
    return lines + [Text(line) for run in runs if (line := _counts(run))]


def _counts(run: PartitionRun) -> str | None:
    """What became of a partition's prompts, and why most of those without an output have none."""
    parts = []
    if run.generated is not None and run.kept is not None:
        parts = [f"{run.generated:,} generated now", f"{run.kept:,} kept from before"]
    parts += [f"{run.failed:,} failed"] if run.failed else []
    parts += [f"{run.refused:,} refused and never sent"] if run.refused else []
    said = [", ".join(parts)] if parts else []
    said += [f"commonest reason, {excerpt(run.commonest_reason, SHOWN)}"] if run.commonest_reason else []
    return f"{run.partition}: {'; '.join(said)}" if said else None


def lengths_table(statistics: Sequence[tuple[str, pl.DataFrame]], *, turns: bool = False) -> Table:
    """Length statistics, one row per partition and section, and for each turn where they are asked for."""
    table = Table(title="Lengths in tokens", title_justify="left", caption_justify="left")
    columns = ("samples", "tokens", "mean", "min", "median", "p95", "max", "share_under_500", "cut_off_share")
    table.add_column("partition")
    table.add_column("section")
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    for partition, frame in statistics:
        table.add_section()
        for row in present_sections(frame).iter_rows(named=True):
            if row["turn"] is not None and not turns:
                table.caption = "of all turns together; with --turns, of each"
                continue
            whole = row["section"] == "output"
            name = partition if row["turn"] is None else f"  turn {row['turn']}"
            table.add_row(Text(name if whole else ""), row["section"], *(_figure(row[c], c) for c in columns))
    return table


def histogram_table(row: Mapping[str, Any], options: ConsoleOptions) -> Table:
    """Outputs by length, a bar for each bin; the bins of the median and of p95 are named.

    Args:
        row: of ``contract.LENGTH_STATISTICS``.
        options: of the console that it is for: bars take the room that there is, and characters that it can write.
    """
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    bins = merged(row["histogram"], MOST_BARS)
    rows = []
    for b in bins:
        last = b["high"] - 1
        span = f"{b['low']:,}" if last == b["low"] else f"{b['low']:,}-{last:,}"
        named = [f"{name} {row[name]:,}" for name in ("median", "p95") if b["low"] <= row[name] < b["high"]]
        rows.append((span, f"{b['samples']:,}", ", ".join(named)))
    most = max((b["samples"] for b in bins), default=0)
    beside = sum(max((len(cells[i]) for cells in rows), default=0) for i in range(3))
    cells = max(1, min(BAR_CELLS, options.max_width - beside - 2 * len(table.columns)))
    block = "#" if options.ascii_only else "\u2588"
    for b, (span, samples, marks) in zip(bins, rows, strict=True):
        table.add_row(span, samples, Text(block * _bar(b["samples"], most, cells), style="blue"), marks)
    return table


def endings_text(row: Mapping[str, Any]) -> str:
    """How outputs ended and what they call, in a line: ``ended by stop 38, length 2; 65% call tools, 31 calls``."""
    ended = ", ".join(f"{visible(f['finish_type'])} {f['samples']:,}" for f in row["finish_types"])
    return f"ended by {ended}; {percent(row['tool_call_share'])} call tools, {row['tool_calls']:,} calls"


def _bar(samples: int, most: int, cells: int) -> int:
    """Cells of a bar, of at most so many; what is there at all has one."""
    return max(1, round(samples / most * cells)) if samples else 0


def _figure(value: float | None, column: str) -> str:
    if value is None:
        return ""
    if "share" in column:
        return percent(value)
    return f"{value:,.1f}" if column == "mean" else f"{value:,}"


def partitions_table(rows: Sequence[tuple[Partition, Sealed | str | None]]) -> Table:
    """Every partition, where its prompts come from, and what is sealed of it; a text says that it is unreadable."""
    table = Table(title="Partitions", title_justify="left")
    for column in ("partition", "source", "thinking", "max new tokens"):
        table.add_column(column)
    for column in ("rows", "generated", "failed", "refused"):
        table.add_column(column, justify="right")
    for partition, sealed in rows:
        dataset = partition.dataset
        counts: tuple[str, ...] = (sealed,) if isinstance(sealed, str) else ()
        if isinstance(sealed, Sealed):
            pointer = sealed.pointer
            counts = tuple(f"{n:,}" for n in (pointer.rows, pointer.generated, pointer.failed, pointer.refused))
        table.add_row(
            Text(partition.key, style="dim" if partition.trial else ""),
            Text(", ".join(place.rstrip("/").rsplit("/", 1)[-1] for place in dataset.source)),
            "on" if dataset.thinking else "off",
            f"{dataset.sampling.max_new_tokens:,}",
            *counts,
        )
    return table
