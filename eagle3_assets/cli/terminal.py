"""What all commands share: messages, colours, and one way of failing.

What belongs here: the terminal as such. Not here: any command.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import typer
from rich.console import Console
from rich.style import Style
from typer.core import TyperGroup

from eagle3_assets.cli.fitting import FittingTables

if TYPE_CHECKING:
    from upath import UPath

    from eagle3_assets.decoding import Piece

OWN_PROCESS: Final = "own process"
"""The context's object where the command is all that its process does: it may change what the process imports."""

READER_GONE = 141
"""128 + SIGPIPE, as a shell says it: whoever read the output has closed it."""

INTERRUPTED = 130
"""128 + SIGINT."""

PIPE_WIDTH = 200
"""Columns of tables in what is no terminal."""

_KEPT: Final = {
    **dict.fromkeys(("materialize", "demo"), "; what was generated is kept, and the next materialize goes on from it"),
    "export": "; files that are complete are kept, and the next export goes on from them",
}
"""What an interrupted command leaves to go on from, by its name."""

ERROR, WARNING = "red", "yellow"
_STYLES = {"heading": "bold", "reasoning": "yellow", "tools": "green", "structural": "cyan", "unknown": "bold red"}


class Commands(TyperGroup):
    """All commands, with one way of failing: what a person can put right is one message, anything else a traceback."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - click's own type, which typer does not export
        """Runs a command and turns its errors into a message and an exit code."""
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:  # closed by whoever began the process, as `>&-` does
                setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # one that is not UTF-8 shows what it cannot as escapes
        try:
            try:
                return super().invoke(ctx)
            except KeyboardInterrupt:
                say(f"interrupted{_KEPT.get(ctx.invoked_subcommand, '')}", style=WARNING)
                raise typer.Exit(INTERRUPTED) from None
            except SystemExit as end:  # the tokenizer decodes in most commands, and its code may be the target's own
                from eagle3_assets.target import ended_by_code

                say(str(ended_by_code(end)), style=ERROR)
                raise typer.Exit(2) from None
            except Exception as error:
                if not isinstance(error, _explained_errors()):
                    raise
                say(str(error), style=ERROR)
                raise typer.Exit(2) from None
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            _give_up_stdout()
            raise typer.Exit(READER_GONE) from None
        except OSError as error:
            if error.filename is not None:  # else it is of a stream
                raise
            _give_up_stdout()
            say(f"the output cannot be written: {error.strerror or error}", style=ERROR)
            raise typer.Exit(2) from None


def _give_up_stdout() -> None:
    """What is still buffered must not fail once more, neither now nor when the interpreter closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def writer(stream: TextIO) -> Callable[["Piece"], None]:
    """What puts pieces on stdout: in colour where there are colours, else nothing but the text."""
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
        typer.BadParameter: it is empty, no such store can be used, or credentials stand in the URL.
    """
    from eagle3_assets.config.addresses import fault_of_store
    from eagle3_assets.files import place_of

    if not text.strip():
        raise typer.BadParameter("no place is named: the text is empty")
    if "://" in text and (fault := fault_of_store(text)):
        raise typer.BadParameter(fault)
    return place_of(text)


def has_colours(stream: TextIO) -> bool:
    """Whether a stream gets colours and other styles: the one rule of all commands.

    A terminal does, unless it is a dumb one; FORCE_COLOR is a wish for them anywhere, and NO_COLOR forbids them.
    """
    console = Console(file=stream)
    return console.is_terminal and console.color_system is not None and not console.no_color


def _explained_errors() -> tuple[type[Exception], ...]:
    """Errors whose text tells a person what to do. Imported when there is one."""
    from eagle3_assets.audit.sources import AuditError
    from eagle3_assets.config import ConfigError
    from eagle3_assets.exports.errors import ExportError
    from eagle3_assets.generation.errors import GenerationError
    from eagle3_assets.interchange import InterchangeError
    from eagle3_assets.metrics import MetricsError
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
        MetricsError,
        PromptSourceError,
        RefusedPartitionError,
        SourceError,
        StorageError,
        TargetError,
        UnknownPartitionError,
        VocabularyError,
    )


def console() -> Console:
    """Where tables and sentences go: as wide as COLUMNS or the terminal.

    In a pipe or a file tables have room for nearly all columns, and a sentence is one line, however long.
    """
    asked = os.environ.get("COLUMNS", "")
    width = int(asked) if asked.isdecimal() and int(asked) else None
    piped = width is None and not sys.stdout.isatty()
    made = _console(sys.stdout, PIPE_WIDTH if piped else width, whole_lines=piped)
    made.push_render_hook(FittingTables())
    return made


def messages() -> Console:
    """What goes to a person beside the output: bars and what they stand among."""
    return _console(sys.stderr)


@contextmanager
def messages_beside_runs() -> Iterator[Console]:
    """The same while Dagster runs: it has its steps' standard error go into a file, where no bar is drawn."""
    if not sys.stderr.isatty():
        yield messages()
        return
    with os.fdopen(
        os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding, errors=sys.stderr.errors
    ) as terminal:
        yield _console(terminal)


def waiting(text: str) -> AbstractContextManager[object]:
    """Says what takes its time, to who sits at a terminal."""
    return messages().status(text) if sys.stderr.isatty() else nullcontext()


class _OwnConsole(Console):
    def on_broken_pipe(self) -> None:
        """Leaves it to :class:`Commands` that the reader is gone; rich would end the process as if all were wrong."""
        raise  # rich calls this while it handles the error


def _console(stream: TextIO, width: int | None = None, *, whole_lines: bool = False) -> Console:
    # Without a height, rich takes 80 columns where TERM is dumb, whatever width is given.
    return _OwnConsole(
        file=stream,
        width=width,
        height=width and 25,
        soft_wrap=whole_lines,
        color_system="auto" if has_colours(stream) else None,
    )
