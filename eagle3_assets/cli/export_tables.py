"""What the terminal prints of exports: where prompts went, and how long the rows are.

What belongs here: rich tables. Not here: counting, commands.
"""

from collections.abc import Mapping, Sequence

from rich.table import Table

from eagle3_assets.exports.manifest import Manifest
from eagle3_assets.exports.selection import FATES, SPLITS
from eagle3_assets.prompts.rows import Accounts
from eagle3_assets.whereabouts import MEANINGS


def fates_table(partitions: Sequence[tuple[str, Mapping[str, int], int]]) -> Table:
    """Fates down, partitions across, given the key, the counts by fate and the number of prompts of each."""
    table = Table()
    table.add_column("where the prompts went")
    for key, _, _ in partitions:
        table.add_column(key, justify="right", overflow="fold")
    for fate in FATES:
        if any(fate in counts for _, counts, _ in partitions):
            table.add_row(fate, *(f"{counts.get(fate, 0):,}" for _, counts, _ in partitions))
    table.add_section()
    table.add_row("prompts", *(f"{prompts:,}" for _, _, prompts in partitions))
    return table


def lengths_table(manifest: Manifest) -> Table:
    """Rows and lengths by side of the split and partition."""
    table = Table(title=f"Exported as {manifest.format}", title_justify="left")
    for name in ("side", "partition"):
        table.add_column(name, overflow="fold")
    for name in ("rows", "tokens", "trained", "median", "p95", "longest"):
        table.add_column(name, justify="right")
    for split in SPLITS:
        for partition, one in manifest.lengths(split):
            cells = (one.rows, one.tokens, one.trained_tokens, one.median, one.p95, one.longest)
            table.add_row(split, partition, *(f"{cell:,}" for cell in cells))
    return table


def source_table(accounts: Accounts) -> Table:
    """Where the rows of a source ended."""
    table = Table()
    table.add_column("rows of the source")
    table.add_column("", justify="right")
    table.add_row("skipped", f"{accounts.skipped:,}")
    table.add_row("refused", f"{accounts.refused:,}")
    table.add_row("of other partitions", f"{accounts.elsewhere:,}")
    table.add_row("not in the sample", f"{accounts.left_out:,}")
    table.add_row("further samples of a prompt", f"{accounts.further_samples:,}")
    table.add_row("used", f"{accounts.used:,}")
    table.add_section()
    table.add_row("all", f"{accounts.rows:,}")
    return table


def whereabouts_table(heading: str, fates: Mapping[str, int]) -> Table:
    """Where prompts ended, given how many by fate, and what that means."""
    table = Table()
    table.add_column(heading)
    table.add_column("", justify="right")
    table.add_column("")
    for fate in MEANINGS:
        if fate in fates:
            table.add_row(fate, f"{fates[fate]:,}", MEANINGS[fate])
    table.add_section()
    table.add_row("all", f"{sum(fates.values()):,}", "")
    return table
