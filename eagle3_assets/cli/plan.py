"""``eagle3-assets plan``: what a materialization would cost, before it costs anything.

What belongs here: the command. Not here: counting (``survey``), the estimate (``planning``), its words
(``plan_tables``).
"""

import math
from typing import Annotated

import typer

from eagle3_assets.cli.decode import loaded_target
from eagle3_assets.cli.partitions import AllOption, ConfigOption, PartitionArguments, chosen, open_project
from eagle3_assets.cli.terminal import OWN_PROCESS, console, say, waiting


def plan(
    ctx: typer.Context,
    partitions: PartitionArguments = None,
    every: AllOption = False,
    tokens_per_second: Annotated[
        float | None,
        typer.Option(metavar="N", help="Output tokens per second to reckon with; else what a former run measured."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Says what materializing would cost: prompts, tokens, time. Generates nothing and stores nothing.

    Prompts are counted as tokenized_prompts has them; where that is missing or out of date, they are rendered and
    tokenized in memory. Output tokens are expected from what was generated of the dataset so far, its trial included;
    else from the dataset's length_band; else only a limit is known.

    Exit code 0: it can be generated. 1: materialize would refuse a partition as it is, or nothing can be said of it.
    2: nothing can be said of any.
    """
    from eagle3_assets.cli.plan_tables import plan_remarks, plan_table, planned, throughput_text
    from eagle3_assets.generation.errors import GenerationError
    from eagle3_assets.prompts.rows import PromptSourceError
    from eagle3_assets.running import measured_throughput
    from eagle3_assets.survey import Survey

    if tokens_per_second is not None and not 0 < tokens_per_second < math.inf:
        raise typer.BadParameter("--tokens-per-second must be a number above 0")
    project = open_project(config)
    keys = list(dict.fromkeys(chosen(project, partitions or [], every=every, trials=False)))
    target = loaded_target(project.config.target, own_process=ctx.obj == OWN_PROCESS)
    measured = None if tokens_per_second else measured_throughput(project.config.engine.kind, target.tokenizer_sha256)
    plans, faults = [], dict[str, None]()
    counting = Survey(project, target)
    with waiting("counting prompts ..."):
        for partition in map(project.partition, keys):
            try:
                plans.append(planned(counting.of(partition)))
            except (GenerationError, PromptSourceError) as error:  # of this one: the others have their plan
                faults[f"{partition.dataset.name}: no plan, {error}"] = None
    for fault in faults:
        say(fault, style="red")
    if not plans:
        raise typer.Exit(2)
    speed = tokens_per_second or (measured.tokens_per_s if measured else None)
    out = console()
    out.print(plan_table(plans, speed))
    for line in plan_remarks(plans):
        out.print(line)
    if any(one.expected.tokens for one in plans):
        out.print(throughput_text(plans, tokens_per_second, measured))
    out.print("This was a dry run: nothing was generated, nothing was stored.")
    if faults or any(one.counted.blocked for one in plans):
        raise typer.Exit(1)
