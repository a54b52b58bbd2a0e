"""The formats of prompt datasets, by name.

What belongs here: telling a format, and a row of it as a dialogue. Not here: files, which turns are generated.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from eagle3_assets.prompts.conversation import Dialogue, RefusedRowError, from_openai

FORMAT_NAMES: tuple[str, ...] = (
    "openai",
    "sharegpt",
    "glaive",
    "mixture-of-thoughts",
    "openthoughts",
    "alpaca",
    "plain",
    "prompts",
)


@dataclass(frozen=True, slots=True)
class Detection:
    """What rows look like."""

    format: str | None
    """The name of the format; None where none fits."""
    counts: dict[str, int]
    """Rows of each format."""

    def report(self) -> str:
        """What was found, in words."""
        return ", ".join(f"{rows:,} rows like {name}" for name, rows in self.counts.items()) or "no row is like any"


def read(format: str, row: Any) -> Dialogue:  # noqa: A002, ANN401 - parsed JSON
    """A row as a dialogue.

    Raises:
        RefusedRowError: it is not a row of this format.
    """
    if format != "openai":
        raise RefusedRowError(f"rows of the format {format} are not read yet")
    return from_openai(row)


def detect(rows: Iterable[Any]) -> Detection:
    """The format that rows are in."""
    found = sum(isinstance(row, dict) and "messages" in row for row in rows)
    return Detection("openai" if found else None, {"openai": found} if found else {})
