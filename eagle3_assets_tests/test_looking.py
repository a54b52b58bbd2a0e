"""The page about looking at data: its commands run on demo data, and the keys that it names are those there are."""

import json
import re
import shlex
from pathlib import Path

import dagster as dg
import polars as pl
import pytest
from typer.testing import CliRunner

from eagle3_assets.build import build_defs
from eagle3_assets.cli import app
from eagle3_assets.config import CONFIG_VARIABLE
from eagle3_assets.jobs import PARTITION_JOB
from eagle3_assets.pages.rendering import own_file
from eagle3_assets_tests.conftest import demo_rows, write_project

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "looking.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    blocks = re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    return [line.removeprefix(".venv/bin/eagle3-assets ") for block in blocks for line in block.splitlines()]


def told_keys(command: str) -> dict[str, set[str]]:
    """The keys of the table about a command's JSON, and what is named in backticks beside each."""
    table = PAGE.partition(f"`{command} --json` writes one line")[2].partition("\n\n|")[2].partition("\n\n")[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()[2:]]
    named = [[set(re.findall(r"`(\w+)`", cell)) for cell in (row[0], " ".join(row[1:]))] for row in rows]
    return {key: beside for keys, beside in named for key in keys}


def documented_keys() -> set[str]:
    """The keyboard's keys on the page of a partition."""
    bullet = PAGE.partition("- Keys: ")[2].partition("\n\n")[0]
    arrows = {"ArrowLeft", "ArrowRight"} if "walk with the arrow keys" in PAGE else set()
    return set(re.findall(r"`(.)`", bullet)) | arrows


def test_every_command_of_the_page_runs_and_gives_the_documented_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "eagle3.yaml"))
    project = write_project(tmp_path, demo_rows("function_calling", 3), dataset={"name": "function_calling"})
    chain = {dg.AssetKey(name) for name in ("prompts", "tokenized_prompts", "raw_generations")}
    job = build_defs(project).resolve_job_def(PARTITION_JOB)
    with dg.DagsterInstance.ephemeral() as instance:
        quick = job.get_subset(asset_selection=chain, asset_check_selection=set())
        quick.execute_in_process(instance=instance, partition_key="function_calling")

    sample = pl.read_parquet(str(project.layout.asset_file("prompts", "function_calling")))["sample_id"][0]

    def run(line: str) -> str:
        result = CliRunner().invoke(app, shlex.split(line.replace("SAMPLE", sample)))
        assert result.exit_code == 0, (line, result.output, result.exception)
        return result.stdout

    said = {line: run(line) for line in commands()}
    assert {line.split()[0] for line in said} == {"stats", "decode", "prompt"}
    assert (tmp_path / "page.html").stat().st_size > 10_000
    options = {"stats": "", "decode": " -n 1 --ids --prompt", "prompt": " -n 1 --ids"}
    for command, more in options.items():
        line = json.loads(run(f"{command} function_calling --json{more}"))
        told = told_keys(command)
        assert set(line) == set(told)
        if command == "stats":
            assert set(line["expected"]) == told["expected"] - {"length_band", "low", "high"}
            assert line["state"] in told["state"]
        if command == "prompt":
            assert set(line["parts"][0]) == told["parts"]


def test_the_keys_of_the_page_are_the_documented_ones() -> None:
    handlers = own_file("preview.js").partition("const keys = {")[2].partition("\n};")[0]
    handled = {quoted or name for quoted, name in re.findall(r'^  (?:"(.)"|(\w+)):', handlers, re.MULTILINE)}
    assert documented_keys() == handled
    shown = set(re.findall(r"<kbd>(.*?)</kbd>", own_file("preview.html.j2")))
    arrows = {"&larr;": "ArrowLeft", "&rarr;": "ArrowRight"}
    assert {arrows.get(key, key) for key in shown} - {"Esc"} == handled - {"?"}
