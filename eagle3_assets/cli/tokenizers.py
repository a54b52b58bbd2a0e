"""What commands that load a tokenizer share.

What belongs here: saying whose code runs, keeping the load short, the vocabulary size beside a tokenizer. Not here:
loading itself (``target``).
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from eagle3_assets.cli.terminal import WARNING, say
from eagle3_assets.remote_code import RemoteCodeError, code_files, warning


def vocab_size_beside(directory: Path) -> int | None:
    """The vocabulary size of a model's config beside the tokenizer, None where there is no such config."""
    try:
        config = json.loads((directory / "config.json").read_text(encoding="utf-8"))
        size = config.get("text_config", config).get("vocab_size")
    except (OSError, ValueError, AttributeError):
        return None
    return size if isinstance(size, int) and size > 0 else None


def before_loading(directory: Path, chosen_by: str, *, trust: bool, own_process: bool) -> None:
    """Says which tokenizer is used and whose code will run, and keeps torch out where that is safe."""
    say(f"tokenizer: {directory} ({chosen_by})")
    if trust:
        # What is named here is read again when it is loaded; a file that nobody can read is an error there.
        with suppress(OSError, RemoteCodeError):
            say(f"WARNING: trusting remote code of {directory}: {warning(code_files(directory))}", style=WARNING)
    elif own_process and "torch" not in sys.modules:
        # Where transformers finds torch, loading any tokenizer imports it: more than a second for nothing. Code that a
        # tokenizer brings may need it; the process of a test, or of another command, may need it later.
        sys.modules["torch"] = None  # type: ignore[assignment] # Python's own way of saying: not to be imported
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
