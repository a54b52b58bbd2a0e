"""Tables in the room that there is: a number is never cut, and a name never folded to a few letters.

What belongs here: the form of any table at any width. Not here: any table (``tables`` and its neighbours).
"""

from collections.abc import Iterable, Iterator
from copy import copy
from textwrap import wrap

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

NAME_WIDTH = 24
"""Text is folded to no fewer cells than these, in a table."""

_BETWEEN, _INDENT = "   ", 2


class FittingTables(RenderHook):
    """Has a console print every table with a header by :class:`Fitting`."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """What is printed instead."""
        return [Fitting(one) if isinstance(one, Table) and one.show_header else one for one in renderables]


class Fitting:
    """A table as it is where it fits; else with narrow headers and folded text; else a block for each row."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Chooses by the console's width."""
        table, room = self._table, options.max_width
        if Measurement.get(console, options.update(max_width=10_000), table).maximum <= room:
            yield table
            return
        narrow = copy(table)
        narrow.columns = [_narrow(column, console) for column in table.columns]
        needed = sum(_needed(column, console) for column in narrow.columns)
        frame = Measurement.get(console, options.update(max_width=10_000), _empty(narrow)).maximum
        if needed + frame <= room:
            yield narrow
        else:
            yield from _blocks(table, console, options)


def _empty(table: Table) -> Table:
    """The same without content: as wide as borders and padding."""
    empty = copy(table)
    empty.title = empty.caption = None
    empty.columns = [Column(no_wrap=True) for _ in table.columns]
    empty.rows = []
    return empty


def _text(cell: object, console: Console) -> Text:
    return cell if isinstance(cell, Text) else console.render_str(str(cell), highlight=False)


def _widest(column: Column, console: Console) -> int:
    return max((_text(cell, console).cell_len for cell in column.cells), default=0)


def _narrow(column: Column, console: Console) -> Column:
    """Figures whole under a header of several lines; text is folded."""
    made, header = copy(column), _text(column.header, console).plain
    if column.justify == "right":
        width = max(_widest(column, console), *map(len, header.split(" ")))
        made.header, made.no_wrap = "\n".join(wrap(header, width)), True
    else:
        made.overflow = "fold"
    return made


def _needed(column: Column, console: Console) -> int:
    """Cells that a column made narrow must have."""
    widest = max(_widest(column, console), *map(len, _text(column.header, console).plain.split("\n")))
    return widest if column.justify == "right" else min(widest, NAME_WIDTH)


def _blocks(table: Table, console: Console, options: ConsoleOptions) -> Iterator[Text | Padding]:
    """A line for the first cell of each row; below it the others that are not empty, each after its column's name."""
    first, *others = table.columns
    names = [_text(column.header, console) for column in others]
    cells = [[_text(cell, console) for cell in column.cells] for column in others]
    if table.title:
        yield Text(str(table.title), style="italic")
    for at, heading in enumerate(first.cells):
        shown = _text(heading, console).copy()
        if shown.plain:
            shown.stylize("bold")
            yield shown
        items = [
            Text.assemble((f"{name.plain} ", "dim"), column[at])
            for name, column in zip(names, cells, strict=True)
            if column[at].plain
        ]
        for line in _packed(items, options.max_width - _INDENT):
            # Where no line is wrapped, padding would cut one that is too long.
            yield Text(" " * _INDENT) + line if options.no_wrap else Padding(line, (0, 0, 0, _INDENT))
    if table.caption:
        yield Text(str(table.caption), style="dim")


def _packed(items: Iterable[Text], room: int) -> Iterator[Text]:
    """Items in lines, none of them broken that has room in one."""
    line = Text()
    for item in items:
        if line and line.cell_len + len(_BETWEEN) + item.cell_len > room:
            yield line
            line = Text()
        line = Text.assemble(line, _BETWEEN if line else "", item)
    if line:
        yield line
