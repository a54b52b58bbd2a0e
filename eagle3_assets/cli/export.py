"""``eagle3-assets export`` and ``verify``: partitions to a directory that trainers read, and such a directory checked.

What belongs here: the commands. Not here: exporting (``exporting``), formats and laws (``exports``).
"""

from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from eagle3_assets.cli.decode import loaded_target
from eagle3_assets.cli.left_out import print_left_out
from eagle3_assets.cli.partitions import AllOption, ConfigOption, PartitionArguments, chosen, open_project
from eagle3_assets.cli.terminal import ERROR, OWN_PROCESS, console, place_given, say

if TYPE_CHECKING:
    from eagle3_assets.exports.manifest import Manifest

DirectoryArgument = Annotated[
    str, typer.Argument(metavar="DIR", help="An export: a directory, or an object store's URL.")
]


def export(
    ctx: typer.Context,
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="DIR", help="An empty directory or an earlier export; may be an object store's URL."
        ),
    ],
    partitions: PartitionArguments = None,
    every: AllOption = False,
    form: Annotated[
        str | None, typer.Option("--format", help="jsonl, speculators, parquet, raw-responses, lossy-conversations.")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option("--max-length", metavar="N", help="The trainer's own; longer samples are left out.")
    ] = None,
    eval_share: Annotated[
        float | None, typer.Option("--eval-share", metavar="S", help="Share of conversations held out.")
    ] = None,
    cut_off: Annotated[
        str | None, typer.Option("--cut-off", help="Outputs that the cap ended: keep, drop or mask.")
    ] = None,
    vocabulary: Annotated[
        bool | None,
        typer.Option("--vocabulary/--no-vocabulary", help="With a draft vocabulary of what is trained on."),
    ] = None,
    draft_vocab_size: Annotated[
        int | None, typer.Option("--draft-vocab-size", metavar="D", help="Ids of that vocabulary.")
    ] = None,
    push: Annotated[
        str | None,
        typer.Option(
            "--push",
            metavar="OWNER/NAME",
            help="Then upload it to that dataset of the Hub: made private if it is not there, else left as it is.",
        ),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Writes training samples in a format that trainers read, every law applied anew and checked on the files.

    What is not given is the config's section `export`. An interrupted export goes on where it ended.

    With --all, partitions that cannot be exported are left out and named; one that is named must be exported.

    Exit code 0: the export is whole, and only partitions of which nothing is generated yet are left out. 1: it is
    whole, and others are left out, or it has no rows to train on. 2: nothing, or not all, could be exported, or it
    could not be uploaded; the text says why.
    """
    from eagle3_assets.config import Export
    from eagle3_assets.exporting import export as write
    from eagle3_assets.exports.derived import untrainable
    from eagle3_assets.exports.pushing import push as upload
    from eagle3_assets.exports.pushing import require_pushable

    into = place_given(to)
    if push is not None:
        require_pushable(into, push)
    project = open_project(config)
    keys = list(dict.fromkeys(chosen(project, partitions or [], every=every, trials=False)))
    given = {
        "format": form,
        "max_length": max_length,
        "eval_share": eval_share,
        "cut_off": cut_off,
        "vocabulary": vocabulary,
        "draft_vocab_size": draft_vocab_size,
    }
    try:
        settings = Export.model_validate(
            project.config.export.model_dump() | {key: value for key, value in given.items() if value is not None}
        )
    except ValidationError as error:
        fault = error.errors()[0]
        raise typer.BadParameter(f"--{str(fault['loc'][0]).replace('_', '-')}: {fault['msg']}") from None
    # The vocabulary's files are torch's, so it must not be kept out.
    target = loaded_target(project.config.target, own_process=ctx.obj == OWN_PROCESS and not settings.vocabulary)
    made = write(project, target, [project.partition(key) for key in keys], into, settings, say, leave_out=every)
    _show(made.manifest)
    at_fault = print_left_out(made.left_out, "exported")
    if why := untrainable(made.manifest):
        say(why, style=ERROR)
        raise typer.Exit(1)
    if push is not None:
        say(f"{to}: uploaded to {upload(into, push)}")
    if at_fault:
        raise typer.Exit(1)


def verify(directory: DirectoryArgument) -> None:
    """Checks a whole export without the project that made it: hashes, laws, and where every prompt went.

    Exit code 0: it is as it was made. 1: something is wrong with it. 2: it is no export.
    """
    from eagle3_assets.exports.verifying import verify as check
    from eagle3_assets.tokens.safe_text import visible

    found = check(place_given(directory))
    _show(found.manifest)
    out = console()
    for figures in found.laws:
        out.print(f"law {visible(figures.sentence)}", highlight=False, markup=False)
    for one in found.vocabulary:
        out.print(f"vocabulary {visible(one.sentence)}", highlight=False, markup=False)
    if found.manifest.lossy:
        out.print("lossy: the ids are lost, so no law about them can be judged", highlight=False)
    if left_out := found.manifest.left_out:
        named = ", ".join(f"{partition} ({state})" for partition, state in left_out.items())
        out.print(f"left out when it was exported: {visible(named)}", highlight=False, markup=False)
    if found.others:
        out.print(
            f"not of the export, not looked into: {visible(', '.join(found.others))}", highlight=False, markup=False
        )
    for fault in found.faults:
        say(fault, style=ERROR)
    if found.faults:
        raise typer.Exit(1)
    out.print("The export is as it was made.")


def _show(manifest: "Manifest") -> None:
    from eagle3_assets.cli.export_tables import fates_table, lengths_table

    out = console()
    out.print(fates_table([(one.partition, one.fates, one.prompts) for one in manifest.partitions]))
    out.print(lengths_table(manifest))
