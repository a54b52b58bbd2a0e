"""What all commands share: messages, colours, and one way of failing.

What belongs here: the terminal as such. Not here: any command.
"""

import os
import sys
from collections.abc import Callable
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, Final, TextIO

import typer
from rich.console import Console
from rich.style import Style
from typer.core import TyperGroup

if TYPE_CHECKING:
    from upath import UPath

    from eagle3_assets.decoding import Piece

OWN_PROCESS: Final = "own process"
"""The context's object where the command is all that its process does: it may change what the process imports."""

READER_GONE = 141
"""128 + SIGPIPE, as a shell says it: whoever read the output has closed it."""

INTERRUPTED = 130
"""128 + SIGINT."""

ERROR, WARNING = "red", "yellow"
_STYLES = {"heading": "bold", "reasoning": "yellow", "tools": "green", "structural": "cyan", "unknown": "bold red"}


class Commands(TyperGroup):
    """All commands, with one way of failing: what a person can put right is one message, anything else a traceback."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's own type, which typer does not export
        """Runs a command and turns its errors into a message and an exit code."""
        try:
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:
                say("interrupted; what was generated is kept, and the next materialize goes on from it", style=WARNING)
                raise typer.Exit(INTERRUPTED) from None
            except Exception as error:
                if not isinstance(error, _explained_errors()):
                    raise
                say(str(error), style=ERROR)
                raise typer.Exit(2) from None
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            # What is still buffered must not fail once more when the interpreter closes stdout.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(READER_GONE) from None


def writer(stream: TextIO) -> Callable[["Piece"], None]:
    """What puts pieces on stdout: in colour for a person at a terminal, else nothing but the text."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 shows what it cannot as escapes
    styles = {kind: Style.parse(style) for kind, style in _STYLES.items()} if has_colours(stream) else {}

    def write(piece: "Piece") -> None:
        # Only the style is rich's: its console would read markup, wrap lines and expand tabs in model text.
        style = styles.get(piece.kind)
        stream.write(style.render(piece.text) if style else piece.text)

    return write


def say(text: str, *, style: str | None = None) -> None:
    """A message on stderr, made safe: it may name files or quote lines that others wrote."""
    from eagle3_assets.decoding import shown_text

    sys.stdout.flush()  # so that both streams, going to one place, keep their order
    shown = shown_text(text)
    typer.echo(Style.parse(style).render(shown) if style and has_colours(sys.stderr) else shown, err=True)


def place_given(text: str) -> "UPath":
    """The place that a person named: a path, or an object store's URL.

    Raises:
        typer.BadParameter: no such store can be used, or credentials stand in the URL.
    """
    from eagle3_assets.config.addresses import fault_of_store
    from eagle3_assets.files import place_of

    if "://" in text and (fault := fault_of_store(text)):
        raise typer.BadParameter(fault)
    return place_of(text)


def has_colours(stream: TextIO) -> bool:
    """Whether a person sees it in colours; a pipe is no terminal, although rich takes FORCE_COLOR for one."""
    console = Console(file=stream)
    return stream.isatty() and console.color_system is not None and not console.no_color


def _explained_errors() -> tuple[type[Exception], ...]:
    """Errors whose text tells a person what to do. Imported when there is one."""
    from eagle3_assets.audit.sources import AuditError
    from eagle3_assets.config import ConfigError
    from eagle3_assets.exports.errors import ExportError
    from eagle3_assets.generation.errors import GenerationError
    from eagle3_assets.interchange import InterchangeError
    from eagle3_assets.partitions import UnknownPartitionError
    from eagle3_assets.prompts.rows import PromptSourceError
    from eagle3_assets.sample_sources import SourceError
    from eagle3_assets.storage.files import StorageError
    from eagle3_assets.target import TargetError
    from eagle3_assets.tokens.vocabulary import VocabularyError
    from eagle3_assets.training import RefusedPartitionError

    return (
        AuditError,
        ConfigError,
        ExportError,
        GenerationError,
        InterchangeError,
        PromptSourceError,
        RefusedPartitionError,
        SourceError,
        StorageError,
        TargetError,
        UnknownPartitionError,
        VocabularyError,
    )


def console() -> Console:
    """Where tables go: as wide as the terminal, and wide enough for all columns in a pipe or a file."""
    made = Console()
    return made if made.is_terminal else Console(width=200)
