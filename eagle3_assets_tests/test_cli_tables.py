"""Tables at any width, in any encoding, and in colours only where they are wished for."""

import os
import re
import subprocess
import sys
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import polars as pl
import pytest
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

from eagle3_assets.cli import app
from eagle3_assets.cli.fitting import NAME_WIDTH, FittingTables
from eagle3_assets.cli.summary import summary_table
from eagle3_assets.cli.tables import histogram_table, lengths_table
from eagle3_assets.cli.terminal import console
from eagle3_assets.tokens.lengths import length_statistics
from eagle3_assets_tests.conftest import ProjectMaker
from eagle3_assets_tests.pages.corpora import corpus
from eagle3_assets_tests.tokens.test_lengths import plain

STATISTICS = length_statistics(plain(7, 300, 471, 20_000, 1_234_567))
TABLES = {
    "lengths": lengths_table([("B5_openthoughts-00of16", STATISTICS), ("B1_glaive", STATISTICS)]),
    "summary": summary_table(corpus()),
}


def shown(table: Table, width: int) -> str:
    out = Console(file=StringIO(), width=width, color_system=None)
    out.push_render_hook(FittingTables())
    out.print(table)
    assert isinstance(out.file, StringIO)
    return out.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("name", TABLES)
def test_no_number_is_cut_and_no_name_folded_to_a_few_letters(name: str, width: int) -> None:
    table = TABLES[name]
    text = shown(table, width)
    assert "\u2026" not in text
    assert max(map(len, text.splitlines())) <= width
    for column in table.columns:
        for cell in map(str, column.cells):
            if column.justify == "right" or len(cell) <= NAME_WIDTH:
                assert re.search(rf"(?<![\w.,%]){re.escape(cell)}(?![\w.,%])", text), cell


def test_a_table_that_fits_is_left_alone_and_one_that_does_not_is_a_block_for_each_row() -> None:
    assert len(shown(TABLES["lengths"], 200).splitlines()) == 10  # title, header, two times two rows, and borders
    assert [line.rstrip() for line in shown(TABLES["lengths"], 60).splitlines()][1:4] == [
        "B5_openthoughts-00of16",
        "  section output   samples 5   tokens 1,255,345",
        "  mean 251,069.0   min 7   median 471   p95 1,234,567",
    ]


def test_a_reader_that_is_gone_before_a_table_is_no_fault_of_the_target(
    make_project: ProjectMaker, tmp_path: Path
) -> None:
    make_project([])
    reads, writes = os.pipe()
    os.close(reads)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "eagle3_assets.cli", "datasets", "--config", str(tmp_path / "eagle3.yaml")],
            stdout=writes,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writes)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_a_section_that_no_output_has_is_no_row_as_on_the_page() -> None:
    rows = shown(lengths_table([("d", length_statistics(plain(7, 300)))]), 200)
    assert "output" in rows
    assert "reasoning" not in rows


@pytest.mark.parametrize("width", [60, 80])
def test_a_histogram_takes_the_room_that_there_is(width: int) -> None:
    out = Console(file=StringIO(), width=width)
    out.print(histogram_table(STATISTICS.row(0, named=True), out.options))
    assert isinstance(out.file, StringIO)
    lines = out.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert any("median 471" in line for line in lines)


def test_turns_are_shown_when_they_are_asked_for() -> None:
    facts = plain(10, 20).with_columns(turn=pl.Series([1, 3], dtype=pl.Int32))
    made = [("d", length_statistics(facts))]
    assert "turn 1" not in shown(lengths_table(made), 200)
    assert "with --turns, of each" in shown(lengths_table(made), 200)
    assert "  turn 1" in shown(lengths_table(made, turns=True), 200)


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_a_pipe_is_plain_unless_colours_are_forced(
    environment: dict[str, str], coloured: bool, make_project: ProjectMaker, tmp_path: Path
) -> None:
    make_project()
    arguments = ["datasets", "--config", str(tmp_path / "eagle3.yaml")]
    runner = CliRunner(env={"TERM": "xterm", "FORCE_COLOR": None, "NO_COLOR": None, **environment})
    out = runner.invoke(app, arguments).stdout
    assert ("\x1b[" in out) == coloured
    assert "\u2502 d-trial" in re.sub(r"\x1b\[[0-9;]*m", "", out)


def test_a_sentence_in_a_pipe_is_one_line_and_no_cell_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    piped = TextIOWrapper(BytesIO(), encoding="utf-8")
    monkeypatch.setattr("sys.stdout", piped)
    sentence, name = "word " * 100, "n" * 250
    out = console()
    out.print(sentence, highlight=False)
    wide = Table(*(f"column {n}" for n in range(30)))
    wide.add_row("first", *[f"{n} {name}" for n in range(29)])
    out.print(wide)
    piped.flush()
    assert isinstance(piped.buffer, BytesIO)
    lines = piped.buffer.getvalue().decode().splitlines()
    assert lines[0] == sentence
    assert sum(name in line for line in lines) == 29


def test_what_an_encoding_does_not_have_is_escaped(
    make_project: ProjectMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(dataset={"source": "prömpts.jsonl"})
    ascii_only = TextIOWrapper(BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", ascii_only)
    app(["datasets", "--config", str(tmp_path / "eagle3.yaml")], standalone_mode=False)
    ascii_only.flush()
    assert isinstance(ascii_only.buffer, BytesIO)
    assert b"| pr\\xf6mpts.jsonl" in ascii_only.buffer.getvalue()

    out = Console(file=TextIOWrapper(BytesIO(), encoding="ascii"), width=80)
    out.print(histogram_table(STATISTICS.row(0, named=True), out.options))
