"""Whether the files of a source are still what they were when rows were taken from them.

What belongs here: what is remembered of a file, and comparing it with what is there. Not here: reading rows.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from eagle3_assets.prompts.sources.places import PromptSourceError, SourceFile


class FileState(BaseModel):
    """What is remembered of one file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    size: int
    """Bytes on disk."""
    modified_ns: int
    """Nanoseconds since 1970."""
    sha256: str | None
    """Of the file as it lies on disk, as ``sha256sum`` shows it; None where the limit was reached before it."""
    format: str | None
    """What its rows were read as; None likewise, and where no row could be read."""


def unread(file: SourceFile) -> FileState:
    """The state of a file that no row was taken from.

    Raises:
        PromptSourceError: it is gone.
    """
    try:
        stat = file.path.stat()
    except OSError as error:
        raise PromptSourceError(f"{file.path}: cannot be read: {error.strerror or error}") from None
    return FileState(name=file.name, size=stat.st_size, modified_ns=stat.st_mtime_ns, sha256=None, format=None)


def differences(before: Sequence[FileState], files: Sequence[SourceFile], *, limited: bool = False) -> list[str]:
    """How files differ from what they were, one line each; nothing where they are the same.

    Size and time of change tell that a file is the same; where they differ, its content is hashed again.

    Args:
        before: in reading order.
        files: those that are there now, likewise.
        limited: whether a limit ended the reading: then what comes after the last file that was read may change.

    Raises:
        PromptSourceError: a file cannot be read.
    """
    if limited:
        before = [state for state in before if state.sha256 is not None]
        read = {state.name for state in before}
        files = files[: max((i for i, file in enumerate(files, start=1) if file.name in read), default=0)]
    known = {state.name: state for state in before}
    now = {file.name: file for file in files}
    changed = [f"{name} is gone" for name in known if name not in now]
    changed += [f"{name} is new" for name in now if name not in known]
    for name, state in known.items():
        if name in now and state.sha256 is not None and _other_content(now[name].path, state):
            changed.append(f"{name} has another content")
    if not changed and list(known) != list(now):
        changed.append("the files come in another order")
    return changed


def _other_content(path: Path, state: FileState) -> bool:
    try:
        stat = path.stat()
        if stat.st_size != state.size:
            return True
        if stat.st_mtime_ns == state.modified_ns:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() != state.sha256
    except OSError as error:
        raise PromptSourceError(f"{path}: cannot be read: {error.strerror or error}") from None
