"""``eagle3-assets metrics``: the state of all partitions as figures for Prometheus.

What belongs here: the command. Not here: which figures (``metrics``), where they come from (``recorded``).
"""

import time
from pathlib import Path
from typing import Annotated

import typer

from eagle3_assets.cli.partitions import ConfigOption, open_project
from eagle3_assets.cli.terminal import ERROR, say


def metrics(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Replaced as a whole; node_exporter reads *.prom. - for stdout.")
    ],
    config: ConfigOption = None,
) -> None:
    """Writes the state of every partition but the trials in Prometheus' text format. Needs the extra metrics.

    What is sealed comes from the files; when assets were made and what checks said, from the Dagster instance, as it
    was recorded. Nothing is judged anew.

    Exit code 1: written, and the sealed file of a partition is damaged.
    """
    from eagle3_assets.metrics import figures_text, partition_figures, write_figures
    from eagle3_assets.recorded import partition_states
    from eagle3_assets.running import existing_instance

    project = open_project(config)
    with existing_instance() as instance:
        states = partition_states(project, instance)
    figures = partition_figures(states, time.time())
    if str(file) == "-":
        typer.echo(figures_text(figures), nl=False)
    else:
        write_figures(figures, file)
    damaged = [state.partition.key for state in states if state.damaged]
    if damaged:
        say(f"damaged: {', '.join(damaged)}; eagle3-assets datasets says how", style=ERROR)
        raise typer.Exit(1)
