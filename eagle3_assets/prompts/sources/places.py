"""Which files a source has: a file, a directory, a glob, a snapshot of the Hugging Face Hub, or a list of these.

What belongs here: finding and naming files. Not here: opening them (``reading``), downloading (``hub``).
"""

import glob
import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from eagle3_assets.config import HUB_SCHEME, without_secrets
from eagle3_assets.prompts.sources.hub import HubError, local_snapshot
from eagle3_assets.tokens.safe_text import visible

TAKEN_ENDINGS = re.compile(r".*\.(?:(?:jsonl|ndjson|json)(?:\.(?:gz|zst|zstd))?|parquet)", re.IGNORECASE | re.DOTALL)
"""Of the files that a directory gives. A file or glob gives every file that it names, whatever its ending."""


class PromptSourceError(Exception):
    """A source that cannot be read, or not to its end; the text names the file."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of a source."""

    name: str
    """Relative to the source, with slashes: what rows are named by, and what files are sorted by."""
    path: Path


@dataclass(frozen=True, slots=True)
class Found:
    """The files of a source."""

    files: tuple[SourceFile, ...]
    """In the order in which they are read: of each entry sorted by name."""
    left_out: tuple[str, ...]
    """What lies there and is not read, and why: hidden files, other endings, linked directories."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """What one path or address of a source gives."""

    root: Path
    """Names are relative to it."""
    names: list[str]
    left_out: list[str]
    label: str | None = None
    """Stands for the root where there are several entries; None for a place in the file system."""


def find(source: Sequence[str]) -> Found:
    """The files of a source.

    Names are relative to the directory, to the part of a glob before its first wildcard, or to the Hub's repository; a
    single file's is its own name. Of several entries, names are relative to what the entries have in common, and a file
    which two of them give is read once.

    Args:
        source: absolute paths, directories, globs and addresses of the Hub, as the config has them.

    Raises:
        PromptSourceError: there is no such place, or no file in it.
    """
    entries = [_entry(place) for place in source]
    if len(entries) == 1:
        prefixes = [""]
    else:
        places = [entry.root for entry in entries if entry.label is None]
        common = os.path.commonpath(places) if places else ""
        prefixes = [entry.label or Path(os.path.relpath(entry.root, common)).as_posix() for entry in entries]
        prefixes = ["" if prefix == "." else f"{prefix}/" for prefix in prefixes]
    files: dict[Path, SourceFile] = {}
    left_out: list[str] = []
    for entry, prefix in zip(entries, prefixes, strict=True):
        before = {path.resolve(): file for path, file in files.items()}
        for name in entry.names:
            path = entry.root / name
            same = before.get(path.resolve()) if before else None
            if same is None:
                files[path] = SourceFile(prefix + name, path)
            elif same.name != prefix + name:
                left_out.append(f"{prefix}{name} (a link to the same file as {same.name})")
        left_out += [prefix + name for name in entry.left_out]
    _require_names(files.values())
    return Found(tuple(files.values()), tuple(left_out))


def _require_names(files: Iterable[SourceFile]) -> None:
    """Rows are accounted for by their file's name, and a change of a file is told by it."""
    named: dict[str, SourceFile] = {}
    for file in files:
        if not file.name.isprintable():
            raise PromptSourceError(f"{visible(str(file.path))!r}: the file's name is no printable text; rename it")
        first = named.setdefault(file.name, file)
        if first is not file:
            raise PromptSourceError(
                f"{first.path} and {file.path} would both be called {file.name}; put them into two datasets"
            )


def _entry(place: str) -> _Entry:
    try:
        entry = _of_hub(place) if place.startswith(HUB_SCHEME) else _of_path(Path(place))
    except HubError as error:
        raise PromptSourceError(f"{without_secrets(place)}: {error}") from None
    except OSError as error:
        raise PromptSourceError(f"{place}: the dataset's source cannot be read: {error.strerror or error}") from None
    if not entry.names:
        seen = f"; left out: {', '.join(entry.left_out[:5])}" if entry.left_out else ""
        raise PromptSourceError(f"{place}: the dataset's source has no file to read{seen}")
    return entry


def _of_path(path: Path) -> _Entry:
    if path.is_dir():
        return _Entry(path, *_of_directory(path))
    root, below = _literal(path)
    if glob.has_magic(str(below)) and not path.exists():
        return _of_glob(root, below)
    if not stat.S_ISREG(path.stat().st_mode):  # which says why where it cannot be found
        raise OSError(None, "is neither a file nor a directory")
    return _Entry(path.parent, [path.name], [])


def _of_directory(root: Path) -> tuple[list[str], list[str]]:
    names: list[str] = []
    left_out: list[str] = []

    def failed(error: OSError) -> None:
        raise error

    for folder, below, files in os.walk(root, onerror=failed):
        for name in list(below):
            path = Path(folder) / name
            if name.startswith(".") or path.is_symlink():
                below.remove(name)
                why = "hidden" if name.startswith(".") else "a link to a directory"
                left_out.append(f"{path.relative_to(root).as_posix()}/ ({why})")
        for name in files:
            relative = (Path(folder) / name).relative_to(root).as_posix()
            if name.startswith("."):
                left_out.append(f"{relative} (hidden)")
            elif not (Path(folder) / name).is_file():
                left_out.append(f"{relative} (no regular file)")
            elif not TAKEN_ENDINGS.fullmatch(name):
                left_out.append(f"{relative} (no ending of a data file)")
            else:
                names.append(relative)
    return sorted(names), sorted(left_out)


def _literal(path: Path) -> tuple[Path, Path]:
    """A path cut before its first wildcard; the name of a directory that is there is none."""
    root = Path(path.anchor)
    for i, part in enumerate(path.parts[1:], start=1):
        if glob.has_magic(part) and not (root / part).is_dir():
            return root, Path(*path.parts[i:])
        root /= part
    return root, Path()


def _of_glob(root: Path, below: Path) -> _Entry:
    if not root.is_dir():
        root.stat()
        raise NotADirectoryError(None, f"{root} is not a directory")
    # `**` alone stands for every file below; elsewhere two stars are one.
    parts = [part if part == "**" else re.sub(r"\*+", "*", part) for part in below.parts]
    pattern = Path(*parts, "*") if parts[-1] == "**" else Path(*parts)
    # Unlike `glob.iglob`, this goes into no linked directory by `**`, so that links in a circle end.
    names = {path.relative_to(root) for path in root.glob(str(pattern)) if path.is_file()}
    hidden = {name for name in names if _is_hidden(name, parts)}
    return _Entry(
        root,
        sorted(name.as_posix() for name in names - hidden),
        sorted(f"{name.as_posix()} (hidden)" for name in hidden),
    )


def _is_hidden(name: Path, pattern: Iterable[str]) -> bool:
    """Whether a part of a name begins with a dot that no part of the pattern asks for."""
    asked = [part for part in pattern if part.startswith(".")]
    return any(part.startswith(".") and not any(fnmatchcase(part, wanted) for wanted in asked) for part in name.parts)


def _of_hub(address: str) -> _Entry:
    snapshot = local_snapshot(address)
    entry = _of_path(snapshot.root / snapshot.path)
    base = entry.root.relative_to(snapshot.root).as_posix()
    prefix = "" if base == "." else f"{base}/"
    return _Entry(
        snapshot.root,
        [prefix + name for name in entry.names],
        [prefix + name for name in entry.left_out],
        label=snapshot.repository,
    )
