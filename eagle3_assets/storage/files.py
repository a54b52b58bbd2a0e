"""Parquet files that are there whole or not at all.

What belongs here: writing one file safely and saying what went wrong. Not here: which file (``layout``), Dagster.
"""

import os
from pathlib import Path

import polars as pl
from upath import UPath

from eagle3_assets.contract import ROW_GROUP_ROWS
from eagle3_assets.generation.sealed import Sealed, read_current
from eagle3_assets.storage.layout import Layout

COMPRESSION_LEVEL = 3


class StorageError(Exception):
    """Nothing could be written or read; the text names the path and the reason."""


def write_parquet(data: pl.DataFrame | pl.LazyFrame, path: UPath) -> None:
    """Streams a frame into a file under a temporary name, and gives it its name when it is on disk.

    On an object store the file is written at its place: there a put is atomic, and a rename is a copy.

    Raises:
        StorageError: the disk is full, the place is read-only or unreachable; what stood at ``path`` is unchanged.
    """
    lazy = data.lazy()
    try:
        if path.protocol not in ("", "file", "local"):
            with path.open("wb") as file:
                lazy.sink_parquet(
                    file, compression="zstd", compression_level=COMPRESSION_LEVEL, row_group_size=ROW_GROUP_ROWS
                )
            return
        target = Path(path.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
        try:
            lazy.sink_parquet(
                partial, compression="zstd", compression_level=COMPRESSION_LEVEL, row_group_size=ROW_GROUP_ROWS
            )
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be written: {error.strerror or error}; what was there before is unchanged"
        ) from error


def scan_parquet(path: UPath, *, asset: str) -> pl.LazyFrame:
    """A file as a lazy frame, its metadata read so that a damaged file is noticed here.

    Raises:
        StorageError: there is no such file, or it is no parquet.
    """
    if not path.exists():
        raise StorageError(f"{path}: there is no such file; materialize {asset} of this partition first")
    try:
        lazy = pl.scan_parquet(str(path))
        lazy.collect_schema()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise StorageError(f"{path}: is no readable parquet file ({error}); materialize {asset} again") from error
    return lazy


def sealed_generations(layout: Layout, partition: str) -> Sealed:
    """The current sealed generations of a partition.

    Raises:
        StorageError: nothing is sealed yet.
        SealedError: the pointer or its file is damaged.
    """
    directory = layout.generations(partition)
    sealed = read_current(directory)
    if sealed is None:
        raise StorageError(f"{directory}: nothing is sealed; materialize raw_generations of {partition} first")
    return sealed
