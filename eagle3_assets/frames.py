"""Stored frames read in batches: all of their rows, or an error.

What belongs here: reading on. Not here: what the rows are, where the file lies.
"""

from collections.abc import Iterator

import polars as pl

from eagle3_assets.contract import ROW_GROUP_ROWS


def batches(frame: pl.LazyFrame, rows: int = ROW_GROUP_ROWS) -> Iterator[pl.DataFrame]:
    """The rows in order, a few at a time.

    A file that is replaced while it is read can end polars' stream early and without a word: the rows are counted.

    Args:
        frame: of a stored file.
        rows: in a batch.

    Raises:
        polars.exceptions.ComputeError: the file cannot be read to its end, or has changed meanwhile.
    """
    expected = frame.select(pl.len()).collect().item()
    seen = 0
    for batch in frame.collect_batches(chunk_size=rows, maintain_order=True):
        seen += len(batch)
        yield batch
    if seen != expected:
        raise pl.exceptions.ComputeError(f"{seen:,} of {expected:,} rows could be read; was the file replaced?")
