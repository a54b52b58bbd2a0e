"""The Dagster UI as a person uses it: materialize, backfill, read checks, follow a red one to its sample."""

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from eagle3_assets.config import load_config
from eagle3_assets.partitions import shard_of, stable_rank
from eagle3_assets.project import Project
from eagle3_assets.storage.files import sealed_generations, write_parquet
from eagle3_assets_tests.conftest import demo_rows, write_project
from eagle3_assets_tests.served import served
from eagle3_assets_tests.ui.pictures import picture

pytestmark = pytest.mark.ui

SIZE: ViewportSize = {"width": 1440, "height": 1000}
IN_TIME_MS = 180_000
"""More than two runs of the embedded engine take on a busy machine."""
OURS = re.compile(r"http://127\.0\.0\.1:|data:|blob:")
SHARDS = ("calls-00of02", "calls-01of02")


@dataclass(frozen=True, slots=True)
class Site:
    """A served project."""

    base: str
    folder: Path

    def open(self, page: Page, path: str) -> None:
        page.goto(self.base + path)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    rows = demo_rows("function_calling", 10)
    rows += [twin(next(row for row in rows if shard_of(stable_rank(row["id"]), 2) == shard), shard) for shard in (0, 1)]
    band = {"length_band": {"median": [400, 600]}}
    write_project(folder, rows, dataset={"name": "calls", "shards": 2, **band})
    with served(folder) as api:
        yield Site(api.base, folder)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which nothing goes wrong, and which asks nobody but the webserver."""
    opened = browser.new_page(viewport=SIZE)
    complaints: list[str] = []
    opened.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("request", lambda asked: complaints.append(asked.url) if not OURS.match(asked.url) else None)
    yield opened
    assert complaints == []
    opened.close()


def twin(row: dict[str, Any], shard: int) -> dict[str, Any]:
    """The same prompt under another id of the same shard, so that a law has something to show."""
    names = (f"asked-twice-{number}" for number in count())
    return {**row, "id": next(name for name in names if shard_of(stable_rank(name), 2) == shard)}


def pick(page: Page, typed: str, partitions: int) -> None:
    """Picks all partitions whose keys hold a text, in the dialog that launches runs."""
    page.get_by_text("Select a partition or create one").click()
    page.get_by_role("menu").get_by_role("textbox").or_(page.locator("input:focus")).first.fill(typed)
    page.get_by_role("menuitem").filter(has_text=f"Select all ({partitions})").click()
    page.get_by_text("Launch runs to materialize").click()  # closes the list


def launch(page: Page, button: str) -> None:
    """Launches, and waits until the server has heard of it."""
    page.get_by_role("button", name=button).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def wait_for(file: Path, page: Page) -> None:
    """Until a run has written a file; what a page shows of a run's metadata is not always seen without a reload."""
    deadline = time.monotonic() + IN_TIME_MS / 1_000
    while not file.exists():
        assert time.monotonic() < deadline, f"{file.name} was not made"
        page.wait_for_timeout(500)


def test_one_partition_of_an_asset_from_its_page(site: Site, page: Page) -> None:
    site.open(page, "/assets/prompts")
    expect(page.get_by_text("Conversations of the source dataset, normalised")).to_be_visible()
    expect(page.get_by_text("conversation, turn and sample index: unique in a dataset")).to_be_visible()
    page.get_by_role("button", name="Materialize…").first.click()
    pick(page, "trial", 1)
    launch(page, "Launch 1 run")
    # Its end is seen without a reload; what it made, on the asset's page.
    site.open(page, "/runs")
    expect(page.get_by_text("Success").first).to_be_visible(timeout=IN_TIME_MS)
    site.open(page, "/assets/prompts?view=partitions&partition=calls-trial")
    expect(page.get_by_role("cell", name="rows_with_tools")).to_be_visible()


@pytest.fixture(scope="module")
def backfilled(site: Site, browser: Browser) -> Site:
    """The site after a person had both shards of its dataset made."""
    page = browser.new_page(viewport=SIZE)
    site.open(page, "/asset-groups")
    page.get_by_role("button", name="Materialize all…").first.click()
    pick(page, "calls-0", 2)
    expect(page.get_by_text("2 partitions")).to_be_visible()
    launch(page, "Launch backfill")
    site.open(page, "/runs?tab=backfills")
    expect(page.get_by_text("2 partitions")).to_be_visible(timeout=IN_TIME_MS)
    expect(page.get_by_text("Success").first).to_be_visible(timeout=IN_TIME_MS)
    site.open(page, "/assets/training_samples?view=partitions")
    expect(page.get_by_text("Materialized (2)")).to_be_visible(timeout=IN_TIME_MS)
    page.close()
    return site


def test_the_corpus_is_summed_up_from_its_page(backfilled: Site, browser: Browser, page: Page) -> None:
    backfilled.open(page, "/assets/corpus_summary")
    expect(page.get_by_text("All partitions together")).to_be_visible()
    file = backfilled.folder / "data" / "corpus_summary" / "corpus.html"
    wait_for(file, page)  # the backfill of everything ends with it
    file.unlink()
    page.get_by_role("button", name="Materialize").first.click()
    wait_for(file, page)
    backfilled.open(page, "/runs")
    expect(page.get_by_text("Started", exact=True)).to_have_count(0, timeout=IN_TIME_MS)
    backfilled.open(page, "/assets/corpus_summary")
    plot = page.get_by_role("img", name="lengths by dataset")
    expect(plot.first).to_be_visible()
    expect(page.get_by_text("2 of 2 partitions count: 12 samples").first).to_be_visible()
    assert plot.first.evaluate("image => image.complete && image.naturalWidth") > 100

    opened = browser.new_page(viewport=SIZE)
    complaints: list[str] = []
    opened.on("console", lambda said: complaints.append(said.text))
    opened.on("request", lambda asked: complaints.append(asked.url) if asked.url != file.as_uri() else None)
    opened.goto(file.as_uri())
    expect(opened.get_by_text("2 of 2 partitions count: 12 samples")).to_be_visible()
    assert opened.locator("tr[data-partition]").evaluate_all("rows => rows.map(r => r.dataset.state)") == [
        "complete",
        "complete",
    ]
    assert opened.locator("polyline[data-dataset=calls]").evaluate("line => line.getTotalLength()") > 100
    assert complaints == []
    opened.close()


def test_previews_are_read_in_place(backfilled: Site, page: Page) -> None:
    backfilled.open(page, f"/assets/decoded_previews?view=partitions&partition={SHARDS[0]}")
    expect(page.get_by_role("cell", name="preview_5")).to_be_visible()
    # In place, structural tokens and all, and not behind a click.
    expect(page.get_by_text("<|im_end|>").first).to_be_visible()
    assert page.get_by_text("Show Markdown").count() == 0
    picture(page, "previews")
    for width in (1440, 1400, 1366, 1280):
        page.set_viewport_size({"width": width, "height": 1000})
        preview = page.get_by_role("cell", name="preview_5").locator("xpath=following-sibling::td[1]").bounding_box()
        assert preview is not None and preview["x"] + preview["width"] <= width - 24, f"previews are cut at {width}"


def test_lengths_have_a_plot_and_a_verdict(backfilled: Site, page: Page) -> None:
    backfilled.open(page, f"/assets/length_statistics?view=partitions&partition={SHARDS[0]}")
    plot = page.get_by_role("img", name="histogram")
    expect(plot).to_be_visible()
    assert plot.evaluate("image => image.complete && image.naturalWidth") > 100
    expect(page.get_by_text(re.compile(r"median \d+ is outside 400-600"))).to_be_visible()


def test_from_a_warning_to_its_sample_in_one_command(backfilled: Site, page: Page) -> None:
    backfilled.open(page, "/assets/raw_generations?view=checks")
    page.get_by_text("duplicates", exact=True).first.click()
    expect(page.get_by_text("1 prompt equal to an earlier one")).to_be_visible()
    expect(page.get_by_role("columnheader", name="sample_id")).to_be_visible()
    picture(page, "check")
    page.get_by_text("Show Markdown").click()
    expect(page.get_by_role("dialog").get_by_text("<|im_end|>").first).to_be_visible()
    page.get_by_role("button", name="Close").click()
    command = page.get_by_text(re.compile("eagle3-assets decode .* --id asked-twice-")).inner_text()
    arguments = [*shlex.split(command)[1:], "--config", str(backfilled.folder / "eagle3.yaml")]
    shown = subprocess.run(
        [sys.executable, "-m", "eagle3_assets.cli", *arguments], capture_output=True, text=True, check=True
    )
    assert "asked-twice-" in shown.stdout and "<|im_end|>" in shown.stdout


def test_a_refused_partition_says_why_on_its_page_and_is_not_done(backfilled: Site, page: Page) -> None:
    project = Project(load_config(backfilled.folder / "eagle3.yaml"))
    sealed = sealed_generations(project.layout, SHARDS[1])
    rows = pl.read_parquet(str(sealed.path))
    write_parquet(rows.with_columns(output_ids=pl.col("output_ids").list.reverse()), sealed.path)
    try:
        backfilled.open(page, "/assets/training_samples")
        page.get_by_role("button", name="Materialize…").first.click()
        pick(page, SHARDS[1], 1)
        launch(page, "Launch 1 run")
        backfilled.open(page, "/runs")
        expect(page.get_by_text("Failure").first).to_be_visible(timeout=IN_TIME_MS)
        backfilled.open(page, f"/assets/training_samples?view=partitions&partition={SHARDS[1]}")
        expect(page.get_by_text("Failed (1)")).to_be_visible()
        expect(page.get_by_text("refused: nothing is written")).to_be_visible()
        expect(page.get_by_role("cell", name="stored_as_captured", exact=True)).to_be_visible()
        expect(page.get_by_text("retry_broken")).to_be_visible()
        expect(page.get_by_text(re.compile(f"^eagle3-assets decode {SHARDS[1]} --ids --id "))).to_be_visible()
    finally:
        write_parquet(rows, sealed.path)


def test_a_check_has_a_history_per_partition(backfilled: Site, page: Page) -> None:
    backfilled.open(page, "/assets/raw_generations?view=checks&checkDetail=stop_token_last")
    page.get_by_role("tab", name="Execution history").click()
    for shard in SHARDS:
        expect(page.get_by_text(shard).first).to_be_visible()
