"""How many rows a source has, without reading it to its end.

What belongs here: counting what is cheap to count, extrapolating the rest. Not here: reading rows for their content.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from eagle3_assets.prompts.sources.places import SourceFile
from eagle3_assets.prompts.sources.reading import OpenSource

LOOKED_AT_BYTES = 16 << 20
"""Of the content of a file; what is read ahead of the rows is little beside it."""
LOOKED_AT_FILES = 8
"""Files that are opened, spread over the source; the others are taken to be as dense."""


@dataclass(frozen=True, slots=True)
class RowEstimate:
    """How many rows there are."""

    rows: int
    exact: bool
    """Whether they were counted."""


def estimate_rows(files: Sequence[SourceFile]) -> RowEstimate:
    """The rows of a source, empty lines not counted.

    Raises:
        PromptSourceError: a file cannot be read, or is damaged at its beginning.
    """
    step = -(-len(files) // LOOKED_AT_FILES)
    opened = [(file.path.stat().st_size, _of_file(file)) for file in files[::step]]
    rows = sum(counted.rows for _, counted in opened)
    if step == 1:
        return RowEstimate(rows, all(counted.exact for _, counted in opened))
    size = sum(size for size, _ in opened)
    whole = sum(file.path.stat().st_size for file in files)
    return RowEstimate(round(rows * whole / size) if size else rows, exact=False)


def _of_file(file: SourceFile) -> RowEstimate:
    rows = size = 0
    with OpenSource(file) as source:
        if source.is_parquet:
            return RowEstimate(pl.scan_parquet(file.path, glob=False).select(pl.len()).collect().item(), exact=True)
        for row in source.rows():
            rows += 1
            size += len(row.raw) if isinstance(row.raw, bytes) else 0
            if size >= LOOKED_AT_BYTES:
                share = source.read_share
                return RowEstimate(round(rows / share), exact=False) if share < 1 else RowEstimate(rows, exact=False)
    return RowEstimate(rows, exact=True)
