"""Which conversation each row of a source file is of, as hashes: what tells rows of other shards without parsing them.

What belongs here: the index of one file, what decides it, and keeping it. Not here: reading rows, and what follows from
the hashes (``rows``).

An index is only ever a cache: what is read with it is what would be read without. It is believed of a file with the
same sha256 alone, which shows when the file was read to its end; then a reading that went by another content's is
void (:class:`StaleIndexError`). One that is damaged, or was made in another way, is as good as none.
"""

import hashlib
import io
from array import array
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict
from upath import UPath

from eagle3_assets.config import Dataset
from eagle3_assets.files import read_bytes
from eagle3_assets.identity import digest
from eagle3_assets.prompts.sources import FileState, SourceFile
from eagle3_assets.storage.files import StorageError, write_bytes
from eagle3_assets.storage.layout import Layout

READER = "9"
"""Changes when the same source gives other prompts than before."""


class StaleIndexError(Exception):
    """Rows were taken by the index of other rows than those of the file. It is dropped: they are to be read again."""


def fingerprint(dataset: Dataset, skip: int, limit: int | None) -> str:
    """What decides the index of a file beside its content.

    Args:
        dataset: that the file belongs to.
        skip: rows at the file's beginning that are left out.
        limit: most rows that are read after those.
    """
    seed = None if dataset.sample is None else dataset.sample_seed
    return digest([READER, dataset.format, dataset.ignore_keys, dataset.turns, seed, skip, limit])


@dataclass(frozen=True, slots=True)
class RowIndex:
    """Of one file."""

    state: FileState
    """Of the file that it was made of."""
    fingerprint: str
    ranks: pl.DataFrame
    """A row for each row that is neither skipped nor behind the limit, in their order; see :class:`Ranks`."""


class Ranks:
    """The hashes of a file's rows while they are gathered."""

    def __init__(self, *, sampled: bool) -> None:
        self._conversations = array("Q")
        # Without a sample it is 0 in every row.
        self._samples = array("Q" if sampled else "B")
        self._unknown = array("Q")

    def add(self, ranks: tuple[int, int] | None) -> None:
        """Adds the next row.

        Args:
            ranks: the ``stable_rank`` of its conversation and the ``sample_rank``; None where it cannot be read, and so
                has to be read again to say why.
        """
        if ranks is None:
            self._unknown.append(len(self._conversations))
        conversation, sample = ranks or (0, 0)
        self._conversations.append(conversation)
        self._samples.append(sample)

    def frame(self) -> pl.DataFrame:
        """Columns ``conversation`` (UInt64, null where unknown) and ``sample`` (UInt64; without a sample UInt8)."""
        columns = {"conversation": self._conversations, "sample": self._samples}
        made = pl.DataFrame({name: np.frombuffer(of, dtype=of.typecode) for name, of in columns.items()})
        unknown = pl.Series(np.frombuffer(self._unknown, dtype=np.uint64))
        return made.with_columns(made["conversation"].scatter(unknown, None))


_SCHEMAS = tuple(pl.Schema({"conversation": pl.UInt64(), "sample": kind}) for kind in (pl.UInt64(), pl.UInt8()))
"""Of :meth:`Ranks.frame`."""


class _Head(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    fingerprint: str
    state: FileState


class RowIndexes:
    """Those of one dataset's files, where they are stored. Of two that store one at once, the later one's stays."""

    def __init__(self, layout: Layout, dataset: Dataset) -> None:
        """Reads none yet."""
        self._layout, self._dataset = layout, dataset
        self._dropped: set[str] = set()

    def find(self, file: SourceFile, decided_by: str) -> RowIndex | None:
        """The index that a file seems to have, by its name and size.

        Args:
            file: that is about to be read.
            decided_by: the fingerprint that the index must have.
        """
        found = None if file.name in self._dropped else self._found(file.name)
        if found is None or found.fingerprint != decided_by:
            return None
        with suppress(OSError):  # the reading says what is wrong
            return found if file.path.stat().st_size == found.state.size else None
        return None

    def keep(self, index: RowIndex) -> None:
        """Keeps an index that was made, for those who read the file next."""
        # What cannot be stored is as good as none; what the run itself writes to the same storage says what is wrong.
        with suppress(StorageError):
            write_bytes(_encoded(index), self._place(index.state.name))
            self._dropped.discard(index.state.name)

    def drop(self, name: str) -> None:
        """Never gives the index of a file again, until another is kept."""
        self._dropped.add(name)

    def _found(self, name: str) -> RowIndex | None:
        with suppress(OSError, ValueError):
            return _decoded(read_bytes(self._place(name)))
        return None

    def _place(self, name: str) -> UPath:
        return self._layout.row_index(self._dataset.name, name)


class RememberedIndexes(RowIndexes):
    """Stored ones, and in memory those that were made since: nothing is written. Nine bytes a row, 16 with a sample."""

    def __init__(self, layout: Layout, dataset: Dataset) -> None:
        """Reads none yet."""
        super().__init__(layout, dataset)
        self._made: dict[str, RowIndex] = {}

    def keep(self, index: RowIndex) -> None:
        """Keeps an index in memory."""
        self._made[index.state.name] = index
        self._dropped.discard(index.state.name)

    def _found(self, name: str) -> RowIndex | None:
        return self._made.get(name) or super()._found(name)


def _encoded(index: RowIndex) -> bytes:
    """Three parts: the sha256 of the rest, so that no damage is ever parsed; what the index is of; the ranks."""
    ranks = io.BytesIO()
    index.ranks.write_ipc(ranks, compression="zstd")
    head = _Head(fingerprint=index.fingerprint, state=index.state).model_dump_json()
    content = head.encode() + b"\n" + ranks.getvalue()
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def _decoded(stored: bytes) -> RowIndex:
    """An index again.

    Raises:
        ValueError: it is none, or damaged.
    """
    said, _, content = stored.partition(b"\n")
    if hashlib.sha256(content).hexdigest().encode() != said:
        raise ValueError("is damaged")
    written, _, stored_ranks = content.partition(b"\n")
    head = _Head.model_validate_json(written)
    try:
        ranks = pl.read_ipc(stored_ranks)
    except pl.exceptions.PolarsError as error:  # of a version whose files this one's polars does not know
        raise ValueError(f"cannot be read: {error}") from None
    if ranks.schema not in _SCHEMAS:
        raise ValueError("has other columns")
    return RowIndex(head.state, head.fingerprint, ranks)
