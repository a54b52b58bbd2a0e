"""``eagle3-assets summary``: all partitions together, as the asset ``corpus_summary`` has them.

What belongs here: the command and its table. Not here: summing up (``summary``), the page (``pages.corpus``).
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from eagle3_assets.cli.decode import loaded_target
from eagle3_assets.cli.partitions import ConfigOption, open_project
from eagle3_assets.cli.terminal import OWN_PROCESS, console, place_given, say, waiting

if TYPE_CHECKING:
    import polars as pl

_COUNTS = ("samples", "tokens", "median", "p95")
_SHARES = ("share_under_500", "reasoning_share", "drift_share", "cut_off_share")
_LEFT_OUT = ("quarantined", "failed", "refused")
_NO_FAULT = ("complete", "missing", "trial")
"""States that say what they mean by their name."""
_STYLES = {"refused": "bold red", "unreadable": "bold red", "stale": "yellow", "incomplete": "yellow"}


def summary(
    ctx: typer.Context,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="A line of JSON for each dataset and one for all; docs/data.md says what is in it."
        ),
    ] = False,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write the page there instead; it opens from disk.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Sums up all partitions: what counts, what is refused, stale or missing, and what all of it will be.

    Judges every partition anew, whatever was said before; stores nothing. Trials never count, and no partition that a
    law refuses.

    Exit code 0: summed up. 1: a partition is refused or cannot be read. 2: nothing could be said.
    """
    from eagle3_assets.pages.corpus import corpus_page
    from eagle3_assets.running import measured_throughput
    from eagle3_assets.storage.files import write_page
    from eagle3_assets.summary import partition_states, summarize, summary_verdict

    if html and as_json:
        raise typer.BadParameter("--html writes the page, and nothing else")
    project = open_project(config)
    target = loaded_target(project.config.target, own_process=ctx.obj == OWN_PROCESS)
    speed = measured_throughput(project.config.engine.kind, target.tokenizer_sha256)
    with waiting("judging partitions ..."):
        made = summarize(project, target, speed)
    whole = made.row(-1, named=True)
    if html:
        page = corpus_page(made)
        write_page(page, place_given(html))
        say(f"{html}: {len(whole['partitions'])} partitions, {len(page.encode()) / 1_000:,.0f} kB")
    elif as_json:
        for row in made.iter_rows(named=True):
            typer.echo(json.dumps(row))
    else:
        out = console()
        out.print(summary_table(made))
        for line in _remarks(whole):
            out.print(line)
        out.print(summary_verdict(made), highlight=False, markup=False)
        if whole["to_generate"] and whole["throughput"]:
            out.print(f"Time at {whole['throughput']}.", highlight=False, markup=False)
    if {"refused", "unreadable"} & partition_states(whole).keys():
        raise typer.Exit(1)


def summary_table(made: "pl.DataFrame") -> Table:
    """Datasets down, and all of them where there are several.

    Args:
        made: ``contract.CORPUS_SUMMARY``.
    """
    table = Table(
        title="Corpus",
        title_justify="left",
        caption="drift: of a sample, outputs that decoding and encoding again would change; held up: prompts that"
        " materializing brings no usable output; to come: those that it sends",
        caption_justify="left",
    )
    table.add_column("dataset", overflow="fold")
    table.add_column("counted", justify="right")
    for name in (*_COUNTS, *(share.removesuffix("_share").replace("share_", "") for share in _SHARES), *_LEFT_OUT):
        table.add_column(name.replace("_", " "), justify="right")
    table.add_column("laws warned", overflow="fold")
    table.add_column("held up", justify="right")
    table.add_column("to come", justify="right")
    rows = made.to_dicts()
    for row in rows[:-1]:
        table.add_row(Text(row["dataset"]), *_cells(row))
    if len(rows) > 2:
        table.add_section()
        table.add_row("all", *_cells(rows[-1]))
    return table


def _cells(row: Mapping[str, Any]) -> list[str]:
    from eagle3_assets.summary import COUNTED, partition_states
    from eagle3_assets.tokens.wording import percent

    states = partition_states(row)
    counted = sum(len(keys) for state, keys in states.items() if state in COUNTED)
    of = sum(len(keys) for state, keys in states.items() if state not in ("trial", "orphaned"))
    return [
        f"{counted}/{of}",
        *("" if row[name] is None else f"{row[name]:,}" for name in _COUNTS),
        *("" if row[name] is None else percent(row[name]) for name in _SHARES),
        *(f"{row[name]:,}" for name in _LEFT_OUT),
        ", ".join(f"{found['law']} ({found['partitions']})" for found in row["laws_warned"]),
        f"{row['held_up']:,}",
        "unknown" if row["to_generate"] is None else f"{row['to_generate']:,}",
    ]


def _remarks(whole: Mapping[str, Any]) -> list[Text]:
    """A line for each partition with something the matter, and one for each other state with all its partitions."""
    from eagle3_assets.summary import partition_states
    from eagle3_assets.tokens.safe_text import visible

    lines = [
        Text.assemble((p["state"], _STYLES.get(p["state"], "")), f" {p['partition']}: {visible('; '.join(p['why']))}")
        for p in whole["partitions"]
        if p["state"] not in (*_NO_FAULT, "orphaned")
    ]
    return lines + [
        Text(f"{state}, not counted: {', '.join(keys)}")
        for state, keys in partition_states(whole).items()
        if state in ("missing", "trial", "orphaned")
    ]
