"""``eagle3-assets replay``: the target scores what is recorded as its own.

What belongs here: the command. Not here: running (``running``), scoring (``replaying``), tables.
"""

from typing import Annotated

import typer

from eagle3_assets.cli.partitions import AllOption, ConfigOption, PartitionArguments, chosen, open_project
from eagle3_assets.cli.terminal import console, waiting


def replay(
    partitions: PartitionArguments = None,
    every: AllOption = False,
    samples: Annotated[
        int, typer.Option(min=1, metavar="N", help="Outputs to score of each partition, always the same ones.")
    ] = 100,
    config: ConfigOption = None,
) -> None:
    """Has the target score prompt and output of a sample of each partition: are these tokens its own?

    It costs the engine one reading of each sampled prompt and output, and 16 short answers to calibrate by, which are
    not kept; so it does not run with materialize. The result is the check `replayed` of raw_generations, on the
    instance that the UI shows.

    Exit code 0: all that was scored is what the target emits. 1: something is not, or a partition could not be judged.
    2: nothing could be done.
    """
    from eagle3_assets.cli.tables import remarks
    from eagle3_assets.running import persistent_instance
    from eagle3_assets.running import replay as run

    project = open_project(config)
    keys = chosen(project, partitions or [], every=every, trials=False)
    with persistent_instance() as instance, waiting("scoring ..."):
        runs = list(run(project, keys, instance, samples=samples))
    out = console()
    for line in remarks(runs, every=True):
        out.print(line)
    if any(check.status == "warned" for made in runs for check in made.checks):
        out.print("See a sample, id by id: eagle3-assets decode PARTITION --id SAMPLE --ids", highlight=False)
    if not all(made.succeeded and all(check.status == "passed" for check in made.checks) for made in runs):
        raise typer.Exit(1)
