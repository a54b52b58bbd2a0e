"""Partitions that a command takes no account of, each with the reason.

What belongs here: how they are printed. Not here: finding them (``usable``), commands.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from eagle3_assets.cli.terminal import console

if TYPE_CHECKING:
    from eagle3_assets.usable import PartitionState


def print_left_out(left_out: "Sequence[PartitionState]", done: str) -> bool:
    """Prints a line for each, and tells whether something is the matter with one of them.

    Args:
        left_out: partitions.
        done: what they were not, in a word.
    """
    from eagle3_assets.tokens.safe_text import visible
    from eagle3_assets.usable import AT_FAULT

    out = console()
    for one in left_out:
        style = "bold red" if one.state in AT_FAULT else ""
        why = f": {visible('; '.join(one.why))}" if one.why else f", not {done}"
        out.print(Text.assemble((one.state, style), f" {one.partition}{why}"), soft_wrap=True)
    return any(one.state in AT_FAULT for one in left_out)
