"""The commands about partitions: what there is, making it, how long it is, and the UI for all of that.

What belongs here: ``materialize``, ``demo``, ``stats``, ``datasets``, ``ui``. Not here: running (``running``), tables.
"""

import json
import logging
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from eagle3_assets.cli.decode import decode, loaded_target
from eagle3_assets.cli.page import HtmlOption, write_page_of
from eagle3_assets.cli.terminal import ERROR, OWN_PROCESS, WARNING, console, messages_beside_runs, say, waiting

if TYPE_CHECKING:
    import polars as pl

    from eagle3_assets.generating import Wishes
    from eagle3_assets.generation.progress import Progress
    from eagle3_assets.inspecting import PartitionLengths
    from eagle3_assets.partitions import Partition
    from eagle3_assets.project import Project
    from eagle3_assets.resources import ProgressListener
    from eagle3_assets.running import PartitionRun
    from eagle3_assets.storage.files import StorageError

ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The config; without it $EAGLE3_CONFIG, or the demo's.")
]
PartitionArguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="PARTITION...", help="Partition keys; a dataset's name is all its shards."),
]
AllOption = Annotated[bool, typer.Option("--all", help="Every partition but the trials.")]


BESIDE_SPEED = 80
"""Columns that name, bar, counts and time take in the line of a bar."""


def materialize(
    partitions: PartitionArguments = None,
    every: AllOption = False,
    trials: Annotated[bool, typer.Option("--trials", help="With --all: the trials too.")] = False,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Ask failed prompts again.")] = False,
    retry_broken: Annotated[
        bool, typer.Option("--retry-broken", help="Ask again for rows that break a law about single rows.")
    ] = False,
    regenerate: Annotated[
        bool, typer.Option("--regenerate", help="Generate everything anew, in files beside the old ones.")
    ] = False,
    accept_environment: Annotated[
        bool, typer.Option("--accept-environment", help="Go on although engine, versions or flags have changed.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Makes and checks partitions: prompts to training samples, on the Dagster instance that the UI shows.

    What is generated already is kept: only what is missing is asked. The instance is $DAGSTER_HOME, or .eagle3/dagster
    below this folder.

    Exit code 0: all made, no law blocked or refused. 1: a partition failed or was refused; the others were made. 2:
    nothing could be done.
    """
    from eagle3_assets.generating import Wishes

    project = open_project(config)
    keys = chosen(project, partitions or [], every=every, trials=trials)
    runs = _materialize(project, keys, Wishes(retry_failed, retry_broken, regenerate, accept_environment))
    _show_checks(runs)
    if not all(run.good for run in runs):
        raise typer.Exit(1)


def demo(ctx: typer.Context) -> None:
    """Makes every partition of the packaged demo, trials included, and shows checks, lengths and five outputs.

    The target is a tiny model which shows structure and is no useful assistant. Exit codes as of materialize.
    """
    from eagle3_assets.config import config_path, load_config
    from eagle3_assets.generating import Wishes
    from eagle3_assets.project import Project
    from eagle3_assets.running import HOME_VARIABLE

    os.environ.pop("EAGLE3_CONFIG", None)  # what runs later in this process shall see the same config
    project = Project(load_config(config_path()))
    out = console()
    out.print("The demo's target is a tiny model that shows structure: what it says is no use to anyone.\n")
    runs = _materialize(project, list(project.partitions), Wishes())
    _show_checks(runs)
    stored = ((project.partition(run.partition), _statistics(project, run.partition)) for run in runs)
    _show_lengths([(partition, frame) for partition, frame in stored if frame is not None])
    first = runs[0].partition
    out.print(f"\nFive outputs of {first}, over its lengths (eagle3-assets decode {first} --spread):\n")
    sys.stdout.flush()
    if any(check.asset == "raw_generations" for check in runs[0].checks):
        decode(ctx, first, count=5, spread=True)
    places = f"\nData: {project.layout.root}\nDagster instance: {os.environ[HOME_VARIABLE]} (see it with: make ui)"
    out.print(places, markup=False)
    if not all(run.good for run in runs):
        raise typer.Exit(1)


def stats(
    ctx: typer.Context,
    partitions: PartitionArguments = None,
    every: AllOption = False,
    html: HtmlOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON for each partition; docs/looking.md says what is in it.")
    ] = False,
    turns: Annotated[bool, typer.Option("--turns", help="In the table, a row for each turn too.")] = False,
    config: ConfigOption = None,
) -> None:
    """Shows how long outputs are, in tokens: whole, reasoning, and what follows it; and a histogram on a log axis.

    Of what is sealed now, counted and judged anew, whatever was materialized of it before.

    Exit code 1: a law refuses one of the partitions, or it cannot be judged; its lengths are shown, or its page is
    written, all the same; or, with --all, one cannot be read, which is named. 2: a named partition is not sealed, or
    cannot be read; or its page cannot be made. With --all, those that are sealed are shown; 2 where none is.
    """
    from eagle3_assets.generation.sealed import CURRENT
    from eagle3_assets.inspecting import partition_lengths
    from eagle3_assets.storage.files import is_stored
    from eagle3_assets.usable import UNREADABLE

    project = open_project(config)
    keys = chosen(project, partitions or [], every=every, trials=False)
    if html is not None and (every or len(keys) > 1 or as_json or turns):
        raise typer.BadParameter("--html writes the page of one partition, and nothing else")
    if as_json and turns:
        raise typer.BadParameter("--turns is of the table; --json has each turn anyway")
    target = loaded_target(project.config.target, own_process=ctx.obj == OWN_PROCESS)
    if html is not None:
        if not write_page_of(project, keys[0], target, html):
            raise typer.Exit(1)
        return
    made, missing, unreadable = [], [], []
    with waiting("counting and judging ..."):
        for key in keys:
            try:
                if every and not is_stored(project.layout.generations(key) / CURRENT):
                    missing.append(key)
                else:
                    made.append(partition_lengths(project, project.partition(key), target))
            except UNREADABLE as error:
                if not every:
                    raise
                unreadable.append(f"{key} is unreadable: {error}")
    if len(missing) == len(keys):
        raise nothing_generated(project)
    if as_json:
        for one in made:
            typer.echo(_lengths_json(one))
    else:
        _show_lengths([(one.partition, one.statistics) for one in made], turns=turns, histograms=True)
    for one in made:
        if one.why:
            say(f"{one.partition.key} is {one.state}: {'; '.join(one.why)}", style=ERROR)
    for lost in unreadable:
        say(lost, style=ERROR)
    if missing:
        say(f"not made yet: {', '.join(missing)}")
    if unreadable or any(one.why for one in made):
        raise typer.Exit(1)


def datasets(config: ConfigOption = None) -> None:
    """Shows every dataset's partitions and what is generated of them."""
    from eagle3_assets.cli.tables import partitions_table
    from eagle3_assets.generation.errors import SealedError
    from eagle3_assets.generation.sealed import Sealed, read_current

    project = open_project(config)
    damaged: list[SealedError] = []

    def found(key: str) -> Sealed | str | None:
        try:
            return read_current(project.layout.generations(key))
        except SealedError as error:
            damaged.append(error)
            return "damaged"

    console().print(partitions_table([(p, found(p.key)) for p in project.partitions.values()]))
    for error in damaged:
        say(str(error), style=ERROR)
    if orphans := project.orphans():
        say(f"orphaned, of no dataset or shard count in the config; not read, not deleted: {', '.join(orphans)}")
    if damaged:
        raise typer.Exit(1)


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="On 127.0.0.1.")] = 3000,
    host: Annotated[
        str, typer.Option(help="Another address to listen on. The UI asks nobody for a password.")
    ] = "127.0.0.1",
    config: ConfigOption = None,
) -> None:
    """Opens the Dagster UI, webserver and daemon, on the instance that materialize uses. Ctrl-C ends it."""
    from eagle3_assets.config import CONFIG_VARIABLE, load_config
    from eagle3_assets.running import require_instance

    if config:
        os.environ[CONFIG_VARIABLE] = str(config.resolve())
    load_config()  # a wrong config is better said here than by a UI without assets
    _require_free(host, port)
    require_instance()
    say(f"Dagster UI: http://{host}:{port}")
    command = ["dagster", "dev", "--module-name", "eagle3_assets.definitions", "--host", host, "--port", str(port)]
    os.execv(sys.executable, [sys.executable, "-m", *command])  # noqa: S606 - our own interpreter, no shell


def open_project(config: Path | None) -> "Project":
    """The project of a config file, or of the one that is found without."""
    from eagle3_assets.config import load_config
    from eagle3_assets.project import Project

    return Project(load_config(config))


def chosen(project: "Project", keys: Sequence[str], *, every: bool, trials: bool) -> list[str]:
    """The partitions that a person named, one by one or by their dataset, or all; no trial but by its own key.

    Raises:
        UnknownPartitionError: one of them does not exist.
    """
    from eagle3_assets.partitions import dataset_partitions

    if every == bool(keys):
        raise typer.BadParameter("name partitions, or give --all")
    if every:
        return [key for key, partition in project.partitions.items() if trials or not partition.trial]
    shards = {
        dataset.name: [one.key for one in dataset_partitions(dataset) if not one.trial]
        for dataset in project.config.datasets
    }
    return [found for key in keys for found in shards.get(key) or [project.partition(key).key]]


def nothing_generated(project: "Project") -> "StorageError":
    """What a command that shows all partitions says where there is nothing to show."""
    from eagle3_assets.storage.files import StorageError

    first = next(key for key, partition in project.partitions.items() if not partition.trial)
    return StorageError(
        f"{project.layout.root}: nothing is generated yet, trials aside; materialize first, such as:"
        f" eagle3-assets materialize {first}"
    )


def _require_free(host: str, port: int) -> None:
    """Refuses a taken port: Dagster would say so in passing and go on without a UI."""
    try:
        with socket.create_server((host, port)):
            return
    except OSError as error:
        raise typer.BadParameter(f"port {port} of {host} cannot be used: {error.strerror}; give another one") from None


def _materialize(project: "Project", keys: Sequence[str], wishes: "Wishes") -> "list[PartitionRun]":
    from eagle3_assets.running import materialize as run
    from eagle3_assets.running import persistent_instance

    with persistent_instance() as instance, messages_beside_runs() as screen, _bar(screen, len(keys)) as listener:
        return list(run(project, keys, instance, listener=listener, wishes=wishes))


@contextmanager
def _bar(screen: Console, partitions: int) -> "Iterator[ProgressListener]":
    """A bar for a partition: prompts rendered, judged, then outputs; on a pipe, a line when it is generated."""
    from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    from eagle3_assets.engines.log import heard
    from eagle3_assets.resources import ProgressListener

    live = screen.file.isatty()
    bars = Bars(
        TextColumn("{task.description:<24}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} {task.fields[speed]}", markup=False),
        TimeRemainingColumn(),
        console=screen,
        disable=not live,
    )
    tasks: dict[str, TaskID] = {}
    doing: dict[str, str] = {}

    def task(partition: str, what: str, total: int) -> TaskID:
        if partition not in tasks:
            tasks[partition] = bars.add_task(f"[{len(tasks) + 1}/{partitions}] {partition}", total=total, speed="")
        elif doing[partition] != what:
            # The time that is left is not that of what was done before.
            bars.reset(tasks[partition], total=total, speed="")
        doing[partition] = what
        return tasks[partition]

    def tell_prompts(partition: str, what: str, done: int, total: int) -> None:
        bars.update(task(partition, what, total), completed=done, speed=f"prompts {what}")

    def tell(partition: str, now: "Progress") -> None:
        speed = speed_text(now, room=screen.width - BESIDE_SPEED)
        bars.update(task(partition, "generated", now.total), completed=now.done, total=now.total, speed=speed)
        if not live and now.done == now.total:
            screen.print(Text(f"{partition}: {now.line()}"), soft_wrap=True)

    def show(level: int, line: str) -> None:
        # That a server is gone has to be seen where somebody waits for it.
        screen.print(Text(line, style=WARNING if level >= logging.WARNING else ""), soft_wrap=True)

    with bars, heard(show):
        yield ProgressListener(tell, tell_prompts)


def speed_text(now: "Progress", room: int) -> str:
    """What stands beside the bar: speed and failures, and in how many characters there are also the servers."""
    speed = f"{now.recent_tokens_per_s:,.0f} tokens/s" + (f", {now.failed} failed" if now.failed else "")
    whole = f"{speed}; {now.servers_text()}"
    return whole if now.servers and len(whole) <= room else speed


def _show_checks(runs: "Sequence[PartitionRun]") -> None:
    from eagle3_assets.cli.tables import checks_table, remarks

    out = console()
    out.print(checks_table(runs))
    for line in remarks(runs):
        out.print(line)


def _statistics(project: "Project", key: str) -> "pl.DataFrame | None":
    from eagle3_assets.storage.files import is_stored, scan_parquet

    path = project.layout.asset_file("length_statistics", key)
    return scan_parquet(path, asset="length_statistics").collect() if is_stored(path) else None


def _show_lengths(
    made: "Sequence[tuple[Partition, pl.DataFrame]]", *, turns: bool = False, histograms: bool = False
) -> None:
    from eagle3_assets.cli.tables import endings_text, histogram_table, lengths_table

    out = console()
    out.print(lengths_table([(partition.key, frame) for partition, frame in made], turns=turns))
    for partition, frame in made:
        out.print(f"{partition.key}: {_verdict(partition, frame)}", highlight=False, markup=False)
        output = frame.row(0, named=True)
        if histograms and output["samples"]:
            out.print(histogram_table(output, out.options))
            out.print(f"  {endings_text(output)}\n", highlight=False, markup=False)


def _verdict(partition: "Partition", frame: "pl.DataFrame") -> str:
    from eagle3_assets.tokens.lengths import length_verdict

    return length_verdict(frame, partition.dataset.length_band, partition.dataset.name)


def _lengths_json(made: "PartitionLengths") -> str:
    """A partition's statistics in one line; docs/looking.md says what is in it."""
    partition = made.partition
    return json.dumps(
        {
            "partition": partition.key,
            "dataset": partition.dataset.name,
            "state": made.state,
            "why": made.why,
            "verdict": _verdict(partition, made.statistics),
            "expected": partition.dataset.length_band.model_dump(mode="json"),
            "statistics": made.statistics.to_dicts(),
        }
    )
