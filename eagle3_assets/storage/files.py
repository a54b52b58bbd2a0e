"""Files that are there whole or not at all: parquet, pages, and text that is written as it comes.

What belongs here: writing one file safely and saying what went wrong. Not here: which file (``layout``), Dagster.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

import polars as pl
from upath import UPath

from eagle3_assets.contract import ROW_GROUP_ROWS, SCHEMAS
from eagle3_assets.files import ZSTD_LEVEL, exists, local_path, make_directory, publish, read_bytes
from eagle3_assets.generation.sealed import Sealed, read_current
from eagle3_assets.storage.layout import Layout


class StorageError(Exception):
    """Nothing could be written or read; the text names the path and the reason."""


@contextmanager
def writing_text(path: UPath) -> Iterator[TextIO]:
    """A text file to write to, which gets its name when all is written; on an error nothing changes.

    Raises:
        StorageError: the disk is full, the place is read-only or unreachable; what stood at ``path`` is unchanged.
    """
    try:
        with _published(path) as unfinished, unfinished.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise _not_written(path, error) from error


def write_parquet(data: pl.DataFrame | pl.LazyFrame, path: UPath) -> None:
    """Streams a frame into a file under a temporary name, and gives it its name when it is on disk.

    Raises:
        StorageError: the disk is full, the place is read-only or unreachable; what stood at ``path`` is unchanged.
    """
    try:
        with _published(path) as unfinished:
            data.lazy().sink_parquet(
                unfinished, compression="zstd", compression_level=ZSTD_LEVEL, row_group_size=ROW_GROUP_ROWS
            )
    except (OSError, pl.exceptions.ComputeError) as error:
        # polars wraps what the disk says into a ComputeError, whose text alone tells it from a fault in the query.
        if isinstance(error, pl.exceptions.ComputeError) and "os error" not in str(error):
            raise
        raise _not_written(path, error) from error


def write_page(page: str, path: UPath) -> None:
    """Writes a page as UTF-8; see :func:`write_bytes`."""
    write_bytes(page.encode(), path)


def write_bytes(content: bytes, path: UPath) -> None:
    """Writes a file, whole or not at all; of two that write it at once, the later one's stays.

    Raises:
        StorageError: as of :func:`writing_text`.
    """
    try:
        with _published(path) as unfinished:
            unfinished.write_bytes(content)
    except OSError as error:
        raise _not_written(path, error) from error


@contextmanager
def _published(path: UPath) -> Iterator[Path]:
    """Where to write what gets its name in the end; nothing is left of it on an error."""
    place = local_path(path)
    make_directory(path.parent)
    with TemporaryDirectory(dir=place.parent if place is not None else None, prefix=".writing-") as scratch:
        unfinished = Path(scratch) / path.name
        yield unfinished
        publish(unfinished, path)


def _not_written(path: UPath, error: Exception) -> StorageError:
    said = getattr(error, "strerror", None) or str(error)
    return StorageError(f"{path}: cannot be written: {said}; what was there before is unchanged")


def is_stored(path: UPath) -> bool:
    """Whether there is a file, or a directory with anything in it.

    Raises:
        StorageError: the place cannot be reached.
    """
    try:
        return exists(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be reached: {error}") from error


def scan_parquet(path: UPath, *, asset: str) -> pl.LazyFrame:
    """A file as a lazy frame, its footer read so that a damaged file is noticed here.

    A local file is read lazily; one on an object store is fetched and held in memory, compressed, while it is used.

    Raises:
        StorageError: there is no such file, or it is no parquet.
    """
    place = local_path(path)
    try:
        lazy = pl.scan_parquet(read_bytes(path) if place is None else place, glob=False)
        schema = lazy.collect_schema()
    except FileNotFoundError:
        raise StorageError(f"{path}: there is no such file; materialize {asset} of this partition first") from None
    except (OSError, pl.exceptions.PolarsError) as error:
        raise StorageError(f"{path}: is no readable parquet file ({error}); materialize {asset} again") from error
    expected = SCHEMAS[asset]
    wrong = sorted(name for name in expected.keys() | schema.keys() if expected.get(name) != schema.get(name))
    if wrong:
        raise StorageError(
            f"{path}: its columns differ from this version's {asset} ({', '.join(wrong)}); materialize it again"
        )
    return lazy


@contextmanager
def naming_damage(layout: Layout, partition: str) -> Iterator[None]:
    """For reading what is stored of a partition: turns polars' error about a damaged file into one that names it.

    A file whose footer is whole opens well, and what polars says when it comes to the damage tells no file. So on such
    an error alone, the partition's files are read once more to find it.

    Raises:
        StorageError: the file is damaged; anything else that was raised is passed on.
    """
    try:
        yield
    except pl.exceptions.PolarsError as error:
        for asset, path in _stored(layout, partition):
            if damage := _damage(path):
                again = "raw_generations with regenerate" if asset == "raw_generations" else f"{asset} again"
                raise StorageError(
                    f"{path}: is damaged and cannot be read to its end ({damage}); restore it from a copy, or"
                    f" materialize {again}"
                ) from error
        raise


def _stored(layout: Layout, partition: str) -> Iterator[tuple[str, UPath]]:
    sealed = read_current(layout.generations(partition))
    if sealed:
        yield "raw_generations", sealed.path
    for asset in SCHEMAS:
        path = layout.asset_file(asset, partition)
        if is_stored(path):
            yield asset, path


def _damage(path: UPath) -> str | None:
    place = local_path(path)
    try:
        for _ in pl.scan_parquet(read_bytes(path) if place is None else place, glob=False).collect_batches():
            pass
    except (OSError, pl.exceptions.PolarsError) as error:
        return str(error)
    return None


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
