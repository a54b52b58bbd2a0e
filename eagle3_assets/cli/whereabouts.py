"""``eagle3-assets whereabouts``: where every source row and every prompt of a partition went, by id and added up.

What belongs here: the command. Not here: following (``whereabouts``), tables (``export_tables``).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from eagle3_assets.cli.decode import loaded_target
from eagle3_assets.cli.partitions import ConfigOption, open_project
from eagle3_assets.cli.terminal import ERROR, OWN_PROCESS, WARNING, console, place_given, say

if TYPE_CHECKING:
    from eagle3_assets.prompts.rows import NotedRow
    from eagle3_assets.whereabouts import Whereabouts


def whereabouts(
    ctx: typer.Context,
    partition: Annotated[str, typer.Argument(metavar="PARTITION", help="Its key.")],
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="Only this sample or conversation, or refused row, as file:row; may be given several times.",
        ),
    ] = None,
    totals: Annotated[bool, typer.Option("--totals", help="The totals alone, without a line for each prompt.")] = False,
    export: Annotated[
        str | None, typer.Option("--export", metavar="DIR", help="The export to look into; else training_export's.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Shows where every source row and every prompt went: refused, failed, quarantined, filtered, exported.

    A line on stdout for each refused row of the source and for each prompt, its fields parted by tabs: where it went,
    its id (of a refused row, file:row), and the file and row that it is in, or the reason why it is in none. Then the
    totals, which add up.

    Exit code 0: all is accounted for. 1: something does not add up, or the export is older than the data. 2: nothing
    could be said, or no prompt and no refused row has that id.
    """
    from eagle3_assets.exports.manifest import read_manifest
    from eagle3_assets.whereabouts import refused_rows
    from eagle3_assets.whereabouts import whereabouts as follow

    project = open_project(config)
    chosen = project.partition(partition)
    target = loaded_target(project.config.target, own_process=ctx.obj == OWN_PROCESS)
    place = project.layout.export(partition) if export is None else place_given(export)
    if export is not None and partition not in {one.partition for one in read_manifest(place).partitions}:
        say(f"{export}: is an export without {partition}", style=WARNING)
    found = follow(project, chosen, target, place)
    if not totals:
        shown = 0
        for line in _lines(found, refused_rows(project, chosen), frozenset(ids or ())):
            typer.echo(line)
            shown += 1
        if ids and not shown:
            raise typer.BadParameter(f"{partition} has no prompt and no refused row of {', '.join(ids)}")
    if not ids:
        _show_totals(found)
    for refusal in found.refusals:
        say(f"{partition} is refused as training data: {refusal}", style=WARNING)
    for fault in found.faults:
        say(fault, style=ERROR)
    if found.faults:
        raise typer.Exit(1)


def _lines(found: "Whereabouts", refused: "Iterator[NotedRow]", ids: frozenset[str]) -> Iterator[str]:
    from eagle3_assets.tokens.safe_text import visible

    def line(*fields: str) -> str:
        return "\t".join(map(visible, fields))

    for row in refused:
        place = f"{row.source}:{row.row}"
        if not ids or ids & {place, row.conversation_id}:
            yield line("refused_row", place, row.reason)
    columns = ("fate", "sample_id", "conversation_id", "file", "row", "reason")
    for fate, sample, conversation, file, row, reason in found.prompts.select(columns).iter_rows():
        if not ids or ids & {sample, conversation}:
            yield line(fate, sample, reason or "" if file is None else f"{file}:{row}")


def _show_totals(found: "Whereabouts") -> None:
    from eagle3_assets.cli.export_tables import source_table, whereabouts_table

    out = console()
    if found.source is not None:
        out.print(source_table(found.source))
    out.print(whereabouts_table(found))
