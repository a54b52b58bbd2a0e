"""Python code that lies beside a target and runs where ``target.trust_remote_code`` is on.

What belongs here: finding it, hashing it, naming it. Not here: running it, which transformers does (``target``,
``engines``).
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

MAPS = ("tokenizer_config.json", "config.json")
"""Files whose ``auto_map`` says which classes are loaded from code."""


class RemoteCodeError(Exception):
    """Code would run that is not among the target's own files; the text names it."""


@dataclass(frozen=True, slots=True)
class CodeFile:
    """One file that may run."""

    name: str
    """Relative to the target's directory, with slashes; after ``model/`` or ``tokenizer/`` where there are two."""
    sha256: str
    loaded_as: tuple[str, ...]
    """What an ``auto_map`` loads from it: ``AutoTokenizer``; empty for one that only others can import."""

    def __str__(self) -> str:
        """Name, what is loaded from it, and the beginning of the hash."""
        loaded = f"{', '.join(self.loaded_as)}, " if self.loaded_as else ""
        return f"{self.name} ({loaded}sha256 {self.sha256[:16]})"


def code_files(model: Path, tokenizer: Path | None = None) -> tuple[CodeFile, ...]:
    """Every Python file in the directories of a target, sorted by name.

    All of them, since code that is loaded may import any of them.

    Args:
        model: directory of the checkpoint.
        tokenizer: directory of the tokenizer, where it is another one.

    Raises:
        RemoteCodeError: an ``auto_map`` names code of another repository, or a file that is not there.
        OSError: a file cannot be read.
    """
    if tokenizer is None or tokenizer == model:
        return tuple(_files(model, ""))
    return tuple(sorted([*_files(model, "model/"), *_files(tokenizer, "tokenizer/")], key=lambda file: file.name))


def hashes(code: Iterable[CodeFile]) -> dict[str, str]:
    """The sha256 of each file by its name."""
    return {file.name: file.sha256 for file in code}


def warning(code: Sequence[CodeFile]) -> str:
    """One sentence for logs, not yet safe to show: whose code runs."""
    named = ", ".join(map(str, code)) or "any code that it brings; no *.py lies there"
    return f"code that came with the target may run, with all your rights: {named}"


def _files(directory: Path, prefix: str) -> list[CodeFile]:
    loaded = _loaded_classes(directory)
    found = []
    for path in sorted(directory.rglob("*.py")):
        name = path.relative_to(directory).as_posix()
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        found.append(CodeFile(prefix + name, sha256, tuple(loaded.pop(name, ()))))
    if loaded:
        missing = ", ".join(sorted(loaded))
        raise RemoteCodeError(
            f"{directory}: its auto_map names {missing}, which is not there; copy it beside the model"
        )
    return found


def _loaded_classes(directory: Path) -> dict[str, list[str]]:
    """What is loaded from each file, by its name."""
    loaded: dict[str, list[str]] = {}
    for name in MAPS:
        try:
            config = json.loads((directory / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            continue  # a checkpoint need not have it, and loading says what is wrong with it
        mapped = config.get("auto_map") if isinstance(config, dict) else None
        if isinstance(mapped, list):  # a tokenizer's older form: the slow class, the fast one
            mapped = {"AutoTokenizer": mapped}
        for loaded_as, references in (mapped if isinstance(mapped, dict) else {}).items():
            for reference in references if isinstance(references, list) else [references]:
                if isinstance(reference, str):
                    file = _file_of(reference, directory / name)
                    if loaded_as not in loaded.setdefault(file, []):
                        loaded[file].append(loaded_as)
    return loaded


def _file_of(reference: str, where: Path) -> str:
    """The file of ``module.Class``."""
    if "--" in reference:
        raise RemoteCodeError(
            f"{where}: auto_map names {reference}, code of another repository, which nothing here has hashed; copy it"
            " beside the model and leave out what stands before the --"
        )
    return reference.rpartition(".")[0].replace(".", "/") + ".py"
