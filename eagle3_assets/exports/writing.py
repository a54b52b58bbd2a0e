"""The directory of an export: files that are there whole or not at all, and an export that goes on where it ended.

What belongs here: names, hashes, what is kept and what is removed. Not here: what is in the files (``formats``), which
rows (``selection``).
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import BaseModel, ValidationError
from upath import UPath

from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.manifest import CARD, MANIFEST, SPLITS, DataFile, Hashed, Manifest, read_manifest
from eagle3_assets.exports.vocabulary import FOLDER as VOCABULARY
from eagle3_assets.files import (
    delete,
    exists,
    local_path,
    make_directory,
    names_in,
    publish,
    read_bytes,
    reading,
    write_bytes,
    write_text,
)

UNFINISHED = ".unfinished.json"
"""Lists the files of an export that has not ended."""

_DATA_FOLDERS = (*SPLITS, "index")
_FOLDERS = (*_DATA_FOLDERS, VOCABULARY)


class _Unfinished(BaseModel):
    files: tuple[DataFile, ...] = ()
    others: tuple[str, ...] = ()
    """Paths of further files that an earlier export made."""


def sha256_of(path: UPath) -> Hashed:
    """A file's hash and size; its ``path`` is the name alone.

    Raises:
        OSError: it cannot be read.
    """
    with reading(path) as file:
        digest = hashlib.sha256()
        size = 0
        while piece := file.read(1 << 20):
            digest.update(piece)
            size += len(piece)
    return Hashed(path=path.name, size_bytes=size, sha256=digest.hexdigest())


class ExportDirectory:
    """An export while it is made."""

    def __init__(self, place: UPath) -> None:
        """Takes a directory: an empty one, or one with an export of this version, whole or not.

        Nothing is changed before :meth:`begin`.

        Raises:
            ExportError: it holds what no export made, or cannot be read.
        """
        self.place = UPath(place)
        found = self._found()
        self._known = {file.path: file for file in found.files}
        self._others = set(found.others)
        strangers = sorted(self._listed() - self._known.keys() - self._others)
        if strangers:
            raise ExportError(
                f"{self.place}: holds {strangers[0]}, which is of no export, and a trainer might read it;"
                " give an empty directory"
            )
        self._made: dict[str, DataFile] = {}

    def begin(self) -> None:
        """From here on the directory holds no whole export."""
        with self._writing():
            for folder in _DATA_FOLDERS:
                make_directory(self.place / folder)
            self._note()
            delete(self.place / MANIFEST)

    def kept(self, path: str, content: str) -> DataFile | None:
        """The file of that path, if an earlier run wrote it of the same content and it is whole."""
        known = self._known.get(path)
        if known is None or known.content != content:
            return None
        try:
            found = sha256_of(self.place / path)
        except OSError:
            return None
        if (found.sha256, found.size_bytes) != (known.sha256, known.size_bytes):
            return None
        self._made[path] = known
        return known

    def add(self, path: str, write: Callable[[Path], None], check: Callable[[Path], None]) -> Hashed:
        """Writes a file under a temporary name, checks it there, and gives it its name.

        Args:
            path: in the export.
            write: fills a local file.
            check: reads it back, and raises what keeps it from getting its name.

        Raises:
            ExportError: the disk is full, the place is read-only or unreachable.
        """
        local = local_path(self.place)
        with self._writing(), TemporaryDirectory(dir=local, prefix=".writing-") as scratch:
            temporary = Path(scratch) / Path(path).name
            write(temporary)
            check(temporary)
            hashed = sha256_of(UPath(temporary))
            publish(temporary, self.place / path)
        return hashed.model_copy(update={"path": path})

    def done(self, file: DataFile) -> None:
        """Notes a file, so that a later run keeps it."""
        self._made[file.path] = file
        with self._writing():
            self._note()

    def add_small(self, path: str, content: bytes) -> Hashed:
        """Writes a small file.

        Raises:
            ExportError: as of :meth:`add`.
        """
        self._others.add(path)
        with self._writing():
            self._note()
            make_directory((self.place / path).parent)
            write_bytes(self.place / path, content)
            return sha256_of(self.place / path).model_copy(update={"path": path})

    def finish(self, manifest: Manifest, card: str) -> None:
        """Removes what an earlier export left and this one does not have, and writes card and manifest.

        Raises:
            ExportError: as of :meth:`add`.
        """
        ours = {file.path for file in (*manifest.files, *manifest.beside)}
        ours |= {one.index.path for one in manifest.partitions}
        with self._writing():
            for path in (self._listed() | self._others) - ours:
                delete(self.place / path)
            write_text(self.place / CARD, card)
            write_text(self.place / MANIFEST, manifest.model_dump_json(indent=1) + "\n")
            delete(self.place / UNFINISHED)

    def note_other(self, path: str) -> None:
        """Notes a file that is no data, before it is written."""
        self._others.add(path)
        with self._writing():
            self._note()

    def _note(self) -> None:
        files: Mapping[str, DataFile] = {**self._known, **self._made}
        note = _Unfinished(files=tuple(files.values()), others=tuple(sorted(self._others)))
        write_text(self.place / UNFINISHED, note.model_dump_json())

    def _found(self) -> _Unfinished:
        try:
            if exists(self.place / UNFINISHED):
                return _Unfinished.model_validate_json(read_bytes(self.place / UNFINISHED))
            if not exists(self.place / MANIFEST):
                return _Unfinished()
        except (OSError, ValidationError) as error:
            raise ExportError(f"{self.place}: cannot be read as an export: {error}; give an empty directory") from None
        manifest = read_manifest(self.place)
        others = [file.path for file in manifest.beside] + [one.index.path for one in manifest.partitions]
        return _Unfinished(files=manifest.files, others=tuple(others))

    def _listed(self) -> set[str]:
        """Files in the folders that trainers read, relative to the export."""
        return listed(self.place)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ExportError(
                f"{self.place}: cannot be written: {error.strerror or error}; what is complete is kept, export again"
            ) from error


def listed(place: UPath) -> set[str]:
    """The files in an export's folders, by path there; what is being written is none."""
    return {f"{folder}/{name}" for folder in _FOLDERS for name in names_in(place / folder) if not name.startswith(".")}
