"""``--html`` of ``decode`` and ``stats``: the page of a partition, written where a person wants it.

What belongs here: that option. Not here: the page (``pages``), what is on it (``inspecting``).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from eagle3_assets.cli.terminal import ERROR, place_given, say

if TYPE_CHECKING:
    from eagle3_assets.project import Project
    from eagle3_assets.target import LoadedTarget

HtmlOption = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="Write the partition's page there instead; it opens from disk."),
]


def write_page_of(project: "Project", key: str, target: "LoadedTarget", to: str, asked_for: Sequence[str] = ()) -> bool:
    """Makes a partition's page anew, from what is sealed and the prompts that are stored.

    Args:
        project: that the partition is of.
        key: the partition's.
        target: that made it.
        to: path or URL of the page; what is there is replaced.
        asked_for: ids of samples to show besides.

    Returns:
        Whether the partition may be used; why not is said.

    Raises:
        StorageError: nothing is sealed, prompts are not stored, a file is damaged, or the page cannot be written.
        SourceError: a sample that was asked for has no output.
    """
    from eagle3_assets.inspecting import inspect_partition
    from eagle3_assets.pages.page import preview_page
    from eagle3_assets.storage.files import naming_damage, write_page
    from eagle3_assets.training import read_stored, refusals

    place = place_given(to)
    partition = project.partition(key)
    stored = read_stored(project, key)
    with naming_damage(project.layout, key):
        inspection = inspect_partition(
            project, partition, target, stored.prompts, stored.tokenized, stored.sealed, asked_for
        )
        why = refusals(stored, inspection.report)
    page = preview_page(inspection, target)
    write_page(page, place)
    say(f"{to}: {len(inspection.samples)} samples of {key}, {len(page.encode()) / 1_000:,.0f} kB")
    if why:
        say(f"{key} is refused: {'; '.join(why)}", style=ERROR)
    return not why
