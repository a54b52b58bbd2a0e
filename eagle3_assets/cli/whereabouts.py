"""``eagle3-assets whereabouts``: where every source row and every prompt of partitions went, by id and added up.

What belongs here: the command. Not here: following (``whereabouts``), tables (``export_tables``).
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from eagle3_assets.cli.decode import loaded_target
from eagle3_assets.cli.left_out import print_left_out
from eagle3_assets.cli.partitions import (
    AllOption,
    ConfigOption,
    PartitionArguments,
    chosen,
    nothing_generated,
    open_project,
)
from eagle3_assets.cli.terminal import ERROR, OWN_PROCESS, WARNING, console, place_given, say

if TYPE_CHECKING:
    from eagle3_assets.prompts.rows import NotedRow
    from eagle3_assets.whereabouts import Whereabouts


def whereabouts(
    ctx: typer.Context,
    partitions: PartitionArguments = None,
    every: AllOption = False,
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
    its partition, its id (of a refused row, file:row), and the file and row that it is in, or the reason why it is in
    none. Then the totals, which add up. A row that cannot be read is refused in every shard of its dataset, as nothing
    tells which one it would belong to.

    A partition of which nothing is generated is named with the laws about prompts that refuse it, where some do; with
    --all so are those that cannot be read.

    Exit code 0: all is accounted for. 1: something does not add up, a partition cannot be read, or the export is older
    than the data. 2: nothing could be said, as nothing is generated, or no prompt and no refused row has that id.
    """
    from eagle3_assets.cli.export_tables import source_table, whereabouts_table
    from eagle3_assets.exports.manifest import read_manifest
    from eagle3_assets.generation.sealed import read_current
    from eagle3_assets.storage.files import StorageError
    from eagle3_assets.tokens.laws.base import counted
    from eagle3_assets.usable import UNREADABLE, PartitionState
    from eagle3_assets.whereabouts import held_back, refused_rows
    from eagle3_assets.whereabouts import whereabouts as follow

    project = open_project(config)
    keys = list(dict.fromkeys(chosen(project, partitions or [], every=every, trials=False)))
    target = loaded_target(project.config.target, own_process=ctx.obj == OWN_PROCESS)
    exported = None if export is None else {one.partition for one in read_manifest(place_given(export)).partitions}
    out, shown, faulty, fates, left_out = console(), 0, False, Counter[str](), []
    for key in keys:
        partition = project.partition(key)
        if exported is not None and key not in exported:
            say(f"{export}: is an export without {key}", style=WARNING)
        try:
            if read_current(project.layout.generations(key)) is None:
                why = held_back(project, partition, target)
                if every:
                    left_out.append(PartitionState(key, "missing", why))
                    continue
                if why:
                    raise StorageError(f"{key}: nothing is generated of it: {' '.join(why)}")
            found = follow(project, partition, target, place_given(export) if export else project.layout.export(key))
            for line in () if totals else _lines(found, refused_rows(project, partition), frozenset(ids or ())):
                typer.echo(line)
                shown += 1
        except UNREADABLE as error:
            if not every:
                raise
            left_out.append(PartitionState(key, "unreadable", (str(error),)))
            continue
        fates.update(found.fates)
        if not ids and found.source is not None:
            out.print(source_table(found.source))
        if not ids:
            out.print(whereabouts_table(f"prompts of {key}, from {counted(found.used_rows, 'row')}", found.fates))
        for refusal in found.refusals:
            say(f"{key} is refused as training data: {refusal}", style=WARNING)
        for fault in found.faults:
            say(f"{key}: {fault}", style=ERROR)
        faulty |= bool(found.faults)
    if {one.state for one in left_out} == {"missing"} and len(left_out) == len(keys):
        print_left_out([one for one in left_out if one.why], "generated")
        raise nothing_generated(project)
    if ids and not totals and not shown:
        raise typer.BadParameter(f"no prompt and no refused row there has the id {', '.join(ids)}")
    if len(keys) > 1 and not ids:
        out.print(whereabouts_table(f"prompts of {counted(len(keys) - len(left_out), 'partition')}", fates))
    if print_left_out(left_out, "generated") or faulty:
        raise typer.Exit(1)


def _lines(found: "Whereabouts", refused: "Iterator[NotedRow]", ids: frozenset[str]) -> Iterator[str]:
    from eagle3_assets.tokens.safe_text import visible

    asked = set(map(visible, ids))

    def named(*names: str | None) -> bool:
        return not asked or any(name is not None and visible(name) in asked for name in names)

    def line(*fields: str) -> str:
        return "\t".join(map(visible, fields))

    for row in refused:
        place = f"{row.source}:{row.row}"
        if named(place, row.conversation_id):
            yield line("refused_row", found.partition, place, row.reason)
    columns = ("fate", "sample_id", "conversation_id", "file", "row", "reason")
    for fate, sample, conversation, file, row, reason in found.prompts.select(columns).iter_rows():
        if named(sample, conversation):
            yield line(fate, found.partition, sample, reason or "" if file is None else f"{file}:{row}")
