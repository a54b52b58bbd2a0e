"""The directory of an export: files that are there whole or not at all, and an export that goes on where it ended.

What belongs here: names, hashes, what is kept and what is removed. Not here: what is in the files (``formats``), which
rows (``selection``), who may write (``locking``).

Only what a manifest or a note of an unfinished export names is an export's own: nothing else is replaced or deleted.
"""

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
from pydantic import BaseModel, ValidationError
from upath import UPath

from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.locking import LEASE, LOCK, only_writer
from eagle3_assets.exports.manifest import (
    CARD,
    FOLDERS,
    INDEX,
    MANIFEST,
    Checksum,
    DataFile,
    Hashed,
    Manifest,
    PathInExport,
    read_manifest,
)
from eagle3_assets.exports.selection import SPLITS
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
HIDDEN_STATES = "hidden_states"
"""Where speculators keeps hidden states of an export's rows, by their numbers."""

_SCRATCH = ".writing-"
_LEFT_OVER = re.compile(rf"{re.escape(_SCRATCH)}[a-z0-9_]{{8}}|\..+\.tmp")
"""What a killed export leaves: directories that it wrote in, and files that had no name yet."""


class _Unfinished(BaseModel):
    files: tuple[DataFile, ...] = ()
    others: tuple[PathInExport, ...] = ()
    """Paths of further files that it, or an earlier export, made or is about to make."""


def sha256_of(path: UPath) -> Checksum:
    """A file's hash and size.

    Raises:
        OSError: it cannot be read.
    """
    with reading(path) as file:
        digest = hashlib.sha256()
        size = 0
        while piece := file.read(1 << 20):
            digest.update(piece)
            size += len(piece)
    return Checksum(size_bytes=size, sha256=digest.hexdigest())


@contextmanager
def writing_into(place: UPath) -> Iterator["ExportDirectory"]:
    """A directory to export into, which no other export writes meanwhile.

    Takes an empty one, or one with an export of this version, whole or not. Until :meth:`ExportDirectory.begin` nothing
    is changed there.

    Raises:
        ExportError: it holds what no export made, cannot be read, or another process exports into it.
    """
    try:
        _require_directory(place)
    except OSError as error:
        raise ExportError(f"{place}: cannot be read: {error.strerror or error}") from error
    _found(place)  # before even a lock is put there
    with only_writer(place) as require:
        yield ExportDirectory(place, require)


class ExportDirectory:
    """An export while it is made, by its only writer; :func:`writing_into` opens it."""

    def __init__(self, place: UPath, require: Callable[[], None]) -> None:
        """Looks at what is there; ``require`` raises when another process may write there."""
        self.place = place
        self._require = require
        found = _found(place)
        self._known = {file.path: file for file in found.files}
        self._others = set(found.others)
        self._made: dict[str, DataFile] = {}

    def begin(self, files: Mapping[str, str], others: Iterable[str]) -> None:
        """From here on the directory holds no whole export.

        Args:
            files: every file of rows to be: path and content.
            others: paths of all further files that there may be.

        Raises:
            ExportError: something of somebody else is in the way; or as of :meth:`add`.
        """
        with self._writing():
            self._require_room(files, {*files, *others})
            self._others |= {*files, *others}
            # Before any of them is there: so a run that is ended at any time leaves nothing that it does not know.
            self._note()
            self._clear()
            for folder in (*SPLITS, INDEX):
                make_directory(self.place / folder)
            delete(self.place / MANIFEST)

    def _require_room(self, files: Mapping[str, str], paths: set[str]) -> None:
        for path in sorted(paths - self._known.keys() - self._others):
            if exists(self.place / path):
                raise ExportError(f"{self.place}: holds {path}, which is of no export; give an empty directory")
        if files != {path: file.content for path, file in self._known.items()} and names_in(self.place / HIDDEN_STATES):
            raise ExportError(
                f"{self.place}: {HIDDEN_STATES} holds what a trainer computed for the rows of the export that is there,"
                " by their numbers, and the rows would be others; delete it, or give another directory"
            )

    def kept(self, path: str, content: str) -> DataFile | None:
        """The file of that path, if an earlier run wrote it of the same content and it is whole."""
        known = self._known.get(path)
        if known is None or known.content != content:
            return None
        local = local_path(self.place / path)
        try:
            found = None if local is not None and local.is_symlink() else sha256_of(self.place / path)
        except OSError:
            return None
        if found is None or (found.sha256, found.size_bytes) != (known.sha256, known.size_bytes):
            return None
        self._made[path] = known
        return known

    def add(self, path: str, write: Callable[[Path], None], check: Callable[[Path], None]) -> Hashed:
        """Writes a file under a temporary name, checks it there, and gives it its name.

        Args:
            path: in the export, one of those it was begun with.
            write: fills a local file.
            check: reads it back, and raises what keeps it from getting its name.

        Raises:
            ExportError: the disk is full, the place is read-only or unreachable, or another process has taken it over.
        """
        local = local_path(self.place)
        with self._writing(), TemporaryDirectory(dir=local, prefix=_SCRATCH) as scratch:
            temporary = Path(scratch) / Path(path).name
            try:
                write(temporary)
            except pl.exceptions.PolarsError as error:  # what a full disk is to it, wherever it notices
                raise OSError(f"{path}: {str(error).strip().splitlines()[0]} (is the disk full?)") from error
            check(temporary)
            hashed = sha256_of(UPath(temporary))
            publish(temporary, self.place / path)
        return Hashed(path=path, **hashed.model_dump())

    def done(self, file: DataFile) -> None:
        """Notes a file, so that a later run keeps it."""
        self._made[file.path] = file
        with self._writing():
            self._note()

    def add_small(self, path: str, content: bytes) -> Hashed:
        """Writes a small file, one of those that the export was begun with.

        Raises:
            ExportError: as of :meth:`add`.
        """
        with self._writing():
            make_directory((self.place / path).parent)
            write_bytes(self.place / path, content)
            return Hashed(path=path, **sha256_of(self.place / path).model_dump())

    def finish(self, manifest: Manifest, card: str) -> None:
        """Removes what an earlier export left and this one does not have, and writes card and manifest.

        Raises:
            ExportError: as of :meth:`add`, or something of somebody else came meanwhile.
        """
        own = self._known.keys() | self._others
        with self._writing():
            _require_no_stranger(self.place, own)
            for path in sorted(own - set(manifest.paths)):
                delete(self.place / path)
            write_text(self.place / CARD, card)
            write_text(self.place / MANIFEST, manifest.model_dump_json(indent=1) + "\n")
            delete(self.place / UNFINISHED)

    def _note(self) -> None:
        files: Mapping[str, DataFile] = {**self._known, **self._made}
        note = _Unfinished(files=tuple(files.values()), others=tuple(sorted(self._others)))
        write_text(self.place / UNFINISHED, note.model_dump_json())

    def _clear(self) -> None:
        """Removes what was being written when an earlier export was killed; its lock is ours now."""
        local = local_path(self.place)
        for folder in ("", *FOLDERS) if local is not None else ():
            for path in Path(local or "", folder).glob(".*"):
                if not _LEFT_OVER.fullmatch(path.name):
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._require()
        try:
            yield
        except OSError as error:
            raise ExportError(
                f"{self.place}: cannot be written: {error.strerror or error}; what is complete is kept, export again"
            ) from error


def _listed(place: UPath) -> set[str]:
    """The files in an export's folders, by path there; what is being written is none."""
    return {f"{folder}/{name}" for folder in FOLDERS for name in names_in(place / folder) if not name.startswith(".")}


def _require_directory(place: UPath) -> None:
    """A local place is a directory or can become one, and so are an export's folders in it, none of them a link."""
    local = local_path(place)
    if local is None:
        return
    if local.is_symlink() and not local.exists():
        raise ExportError(f"{place}: is a link to {local.readlink()}, which is not there; make that, or give another")
    if local.exists() and not local.is_dir():
        raise ExportError(f"{place}: is a file; give a directory")
    for folder in FOLDERS:
        if (local / folder).is_symlink() or ((local / folder).exists() and not (local / folder).is_dir()):
            raise ExportError(f"{place}: holds {folder}, which is no directory of its own; give an empty directory")


def _found(place: UPath) -> _Unfinished:
    """What is there of an export, and nothing else that could be taken for a part of it.

    Raises:
        ExportError: something else is there, or it cannot be read.
    """
    try:
        return _read(place)
    except OSError as error:
        raise ExportError(f"{place}: cannot be read: {error.strerror or error}") from error


def _read(place: UPath) -> _Unfinished:
    try:
        note = _Unfinished.model_validate_json(read_bytes(place / UNFINISHED))
    except FileNotFoundError:
        note = None
    except ValidationError as error:
        said = error.errors()[0]["msg"]
        raise ExportError(
            f"{place / UNFINISHED}: cannot be read as the note of an export ({said}); give an empty directory"
        ) from None
    if note is None and not exists(place / MANIFEST):
        begun = {LOCK, LEASE, f".{UNFINISHED}.tmp"}
        if others := [name for name in names_in(place) if name not in begun]:
            raise ExportError(f"{place}: holds {others[0]}, and no export; give an empty directory, or an export's")
        return _Unfinished()
    if note is None:
        manifest = read_manifest(place)
        note = _Unfinished(files=manifest.files, others=manifest.paths)
    _require_no_stranger(place, {file.path for file in note.files} | set(note.others))
    return note


def _require_no_stranger(place: UPath, own: set[str]) -> None:
    if strangers := sorted(_listed(place) - own):
        raise ExportError(
            f"{place}: holds {strangers[0]}, which is of no export, and a trainer might read it; move it away, or give"
            " an empty directory"
        )
