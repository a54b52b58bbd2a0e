"""``eagle3-assets vocabulary``: the drafter's vocabulary of all partitions, as the asset ``draft_vocabulary`` has it.

What belongs here: the command and its table. Not here: counting (``vocabularies``), choosing (``tokens.vocabulary``),
files (``exports.vocabulary``).
"""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from eagle3_assets.cli.decode import loaded_target
from eagle3_assets.cli.left_out import print_left_out
from eagle3_assets.cli.partitions import ConfigOption, open_project
from eagle3_assets.cli.terminal import OWN_PROCESS, console, place_given, say, waiting
from eagle3_assets.tokens.wording import percent

if TYPE_CHECKING:
    import polars as pl


def vocabulary(
    ctx: typer.Context,
    size: Annotated[
        int | None, typer.Option("--size", metavar="D", min=1, help="Draft ids; else export.draft_vocab_size.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="DIR", help="Write the files that trainers read there.")
    ] = None,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Write the page there; it opens from disk.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Chooses the drafter's ids by how often each is trained on in all partitions, and shows what they cover.

    Judges every partition anew, whatever was said before. Trials never count, and no partition that a law refuses. An
    export has the vocabulary of what it holds itself; this one is of everything.

    Exit code 0: chosen. 1: chosen, but a partition is refused or cannot be read. 2: nothing could be counted.
    """
    from eagle3_assets.exports.vocabulary import FILES, require_torch, vocabulary_files, write_vocabulary
    from eagle3_assets.pages.coverage import coverage_page
    from eagle3_assets.storage.files import write_page
    from eagle3_assets.tokens.vocabulary import vocabulary_verdict
    from eagle3_assets.vocabularies import corpus_vocabulary

    project = open_project(config)
    if to:
        require_torch()
    # The files are torch's, so it must not be kept out.
    target = loaded_target(project.config.target, own_process=ctx.obj == OWN_PROCESS and not to)
    with waiting("judging and counting partitions ..."):
        made = corpus_vocabulary(project, target, size or project.config.export.draft_vocab_size)
    out = console()
    out.print(sizes_table(made.table()))
    at_fault = print_left_out(made.left_out, "counted")
    out.print(vocabulary_verdict(made.vocabulary), highlight=False, markup=False)
    if to:
        write_vocabulary(vocabulary_files(made.vocabulary, made.record), place_given(to))
        say(f"{to}: {', '.join(FILES)}")
    if html is not None:
        write_page(coverage_page(made), place_given(html))
        say(f"{html}: the page")
    if at_fault:
        raise typer.Exit(1)


def sizes_table(table: "pl.DataFrame") -> Table:
    """Sizes down, datasets across, all of them last where there are several.

    Args:
        table: ``contract.DRAFT_VOCABULARY``.
    """
    shown = Table(
        title="Coverage of the trained tokens by size of the draft vocabulary",
        title_justify="left",
        caption="knee: beyond it an id adds less than the average seen one",
        caption_justify="left",
    )
    names = table["dataset"].unique(maintain_order=True).to_list()
    names = names[:1] if len(names) == 2 else names
    shown.add_column("draft ids", justify="right")
    for name in names:
        shown.add_column(name or "all", justify="right", overflow="fold")
    shown.add_column("")
    shares = {(row["dataset"], row["draft_ids"]): row["coverage"] for row in table.iter_rows(named=True)}
    for size, mark in table.select("draft_ids", "mark").unique(maintain_order=True).iter_rows():
        cells = [percent(shares[name, size], 2) for name in names]
        shown.add_row(f"{size:,}", *cells, Text(mark or "", style="bold" if mark == "chosen" else ""))
    return shown
