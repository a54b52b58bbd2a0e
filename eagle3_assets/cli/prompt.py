"""``eagle3-assets prompt``: what the target is given, message by message.

What belongs here: the command. Not here: choosing prompts and the form in which they are shown (``prompt_views``).
"""

import sys
from typing import Annotated

import typer

from eagle3_assets.cli.decode import IdsOption, SpreadOption, loaded_target
from eagle3_assets.cli.partitions import ConfigOption, open_project
from eagle3_assets.cli.terminal import OWN_PROCESS, place_given, say, writer


def prompt(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="PARTITION|SAMPLE_ID",
            help="A partition's key, or the id of a sample, which is looked for in all partitions.",
        ),
    ],
    count: Annotated[
        int, typer.Option("-n", min=1, metavar="N", help="How many prompts; with --id, all of those.")
    ] = 5,
    spread: SpreadOption = False,
    sample_ids: Annotated[
        list[str] | None,
        typer.Option("--id", help="This sample; may be given several times. Shown in the partition's order."),
    ] = None,
    ids: IdsOption = False,
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE", help="Write a page of these prompts there instead; it opens from disk."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON for each prompt; docs/looking.md says what is in it.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Shows the prompts of tokenized_prompts: the text and ids that each message became, and why one is refused.

    Every structural token is shown, in colour at a terminal. The tools that a prompt declares stand where the template
    puts them, mostly before the first message.

    Exit code 0: what is shown is what source, template and tokenizer give now. 1: of a prompt it is not, which is said
    at it. 2: nothing to show, or a sample asked for is not there.
    """
    from eagle3_assets.decoding import Decoder
    from eagle3_assets.pages.prompts import prompts_page
    from eagle3_assets.prompt_views import partition_of, prompt_json, prompt_lines, stored_prompts
    from eagle3_assets.sample_sources import Choice, SourceError
    from eagle3_assets.storage.files import write_page

    if html is not None and (ids or as_json):
        raise SourceError("--html does not go with --ids or --json: its page has the ids")
    place = None if html is None else place_given(html)
    project = open_project(config)
    chosen, asked = project.partitions.get(name), tuple(sample_ids or ())
    if chosen is None:
        chosen, asked = partition_of(project, name), (name, *asked)
    if spread and asked:
        raise SourceError("--spread and the id of a sample exclude each other")
    target = loaded_target(project.config.target, own_process=ctx.obj == OWN_PROCESS)
    decoder = Decoder(target.tokenizer, target.profile)
    views = stored_prompts(project, chosen, target, Choice(count, spread, asked))
    if place is not None:
        shown = list(views)
        page = prompts_page(chosen.key, shown, decoder)
        write_page(page, place)
        say(f"{html}: {len(shown)} prompts of {chosen.key}, {len(page.encode()) / 1_000:,.0f} kB")
        if any(view.changed for view in shown):
            raise typer.Exit(1)
        return
    write = writer(sys.stdout)
    changed = False
    for view in views:
        changed |= view.changed
        if as_json:
            typer.echo(prompt_json(view, decoder, ids=ids))
            continue
        for piece in prompt_lines(view, decoder, ids=ids):
            write(piece)
    if changed:
        raise typer.Exit(1)
