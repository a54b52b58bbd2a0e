"""``eagle3-assets check-config``: a config before anything is made of it.

What belongs here: the command. Not here: looking (``config_check``), its tables (``check_config_tables``).
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from eagle3_assets.cli.terminal import ERROR, OWN_PROCESS, console, say, writer
from eagle3_assets.cli.tokenizers import before_loading

EXAMPLE_CHARACTERS = 600
"""Of each message of an example; ``eagle3-assets prompt`` shows all."""


def check_config(
    ctx: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The config; without it $EAGLE3_CONFIG, or the demo's.")
    ] = None,
    count: Annotated[
        int, typer.Option("-n", min=1, max=100_000, metavar="N", help="How many rows of each dataset to look at.")
    ] = 200,
) -> None:
    """Validates a config on this machine: target, sources, formats, prompts, and what they would come to.

    The tokenizer is loaded and its structural tokens are tried. Of each dataset the first rows are read, rendered and
    judged by the laws about prompts; one prompt is shown. Prompts and tokens of the whole are extrapolated from these.

    Nothing is stored and nobody is asked: no server, no Hub, no weights are loaded.

    Exit code 0: nothing is wrong. 1: something is, or a source is not there; all that could be checked was. 2: the
    config itself is wrong, and nothing was checked.
    """
    from eagle3_assets.cli.check_config_tables import (
        datasets_table,
        engine_table,
        estimate_text,
        findings,
        target_table,
    )
    from eagle3_assets.cli.partitions import open_project
    from eagle3_assets.config import config_path
    from eagle3_assets.config_check import check_datasets, check_engine, check_metrics, check_target
    from eagle3_assets.decoding import Decoder
    from eagle3_assets.prompt_views import abridged, prompt_lines

    project = open_project(file)
    settings = project.config.target
    directory = Path(settings.tokenizer or settings.model)
    trust = settings.trust_remote_code
    before_loading(directory, "the config's target", trust=trust, own_process=ctx.obj == OWN_PROCESS)
    out = console()
    out.print(f"Config: {file or config_path()}", markup=False, highlight=False)
    target = check_target(project)
    out.print(target_table(settings, target))
    out.print(engine_table(project.config))
    checked = list(check_datasets(project, target.loaded, count))
    out.print(datasets_table(checked))
    if in_all := estimate_text(checked):
        out.print(in_all, markup=False, highlight=False)
    for one in checked:
        for line in findings(one):
            out.print(line)
    write = writer(sys.stdout)
    for one in checked:
        if one.example and target.loaded:
            out.print(f"\nA prompt of {one.dataset.name}:", markup=False, highlight=False)
            sys.stdout.flush()
            decoder = Decoder(target.loaded.tokenizer, target.loaded.profile)
            for piece in abridged(prompt_lines(one.example, decoder), EXAMPLE_CHARACTERS):
                write(piece)
    faults = [*target.faults, *check_engine(project.config), *check_metrics(project.config)]
    faults += [f"{one.dataset.name}: {fault}" for one in checked for fault in one.faults]
    for fault in faults:
        say(f"WRONG {fault}", style=ERROR)
    if faults:
        raise typer.Exit(1)
    say("Nothing is wrong with this config, as far as it was looked at. No server was asked, nothing was stored.")
