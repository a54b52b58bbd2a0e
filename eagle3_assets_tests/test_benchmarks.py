"""The benchmarks run from end to end. What it measures is no test's affair: a busy machine would decide it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import draft_vocabulary, law_speed, looking, prompt_rendering
from benchmarks.client_cost import Case, cases, report, run
from benchmarks.page import PAGE, write_part
from eagle3_assets.tokens.laws import LAWS


@pytest.mark.slow
def test_the_benchmark_measures_every_client_and_writes_its_page() -> None:
    todo = [
        Case(40, 8, 20, 0.0),
        Case(60, 8, 200, 0.0),
        Case(120, 8, 200, 0.0),
        Case(60, 8, 20, 0.02, sigma=1.0),
        Case(1, 1, 200, 0.0, clients=("dagster",)),
    ]
    results = run(todo)
    assert [r.samples for r in results] == [40] * 3 + [60] * 3 + [120] * 3 + [60] * 3 + [1]
    assert all(r.cpu_ms > 0 and r.peak_mib > 10 and r.seconds <= r.whole_seconds for r in results)
    assert all(0 < r.ideal_s < r.seconds for r in results if r.case.latency_s)
    page = report(results, "make bench")
    rows = [line for line in page.splitlines() if re.match(r"\| \d+ ms", line)]
    assert [row.split(" | ")[2] for row in rows] == ["ours", "bare", "threads"] * 4
    assert len(re.findall(r"^\| (?:ours|bare|threads) \|", page, re.MULTILINE)) == 6
    assert "{" not in page


def test_the_long_form_has_all_that_the_short_one_has() -> None:
    short, full = ({(c.in_flight, c.ids, c.latency_s, c.sigma) for c in cases(full=full)} for full in (False, True))
    assert short < full


@pytest.mark.slow
def test_the_benchmark_of_rendering_makes_the_same_prompts_in_every_case() -> None:
    command = [sys.executable, "-m", "benchmarks.prompt_rendering", "--rows", "300"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.findall(r"^(\w+) +([\d,]+) prompts +[\d,]+/s +[\d.]+ CPU s +[\d,]+ MiB$", said, re.MULTILINE)
    assert [name for name, _ in found] == list(prompt_rendering.CASES)
    counts = {name: int(count.replace(",", "")) for name, count in found}
    assert 200 < counts.pop("tenth") < 400
    assert counts == {name: 300 * prompt_rendering.TIMES.get(name, 1) for name in counts}


@pytest.mark.slow
def test_the_laws_are_measured_and_all_that_can_be_are_judged() -> None:
    results = law_speed.measure(300, 300)
    assert all(r.cpu_s > 0 and r.peak_mib > 50 for rounds in results.values() for r in rounds)
    judged = [name for rounds in results.values() for name in rounds[0].judged]
    assert len(judged) == len(set(judged))
    part = law_speed.report(results, 300, 300, "make bench")
    missing = set(re.findall(r"`(\w+)`", part.split("Not judged")[1].split("\n\n")[0]))
    without_tokenizer = {"tokenizer_canary", "tools_rendered"}
    assert {*judged, *missing, *without_tokenizer} == {law.name for law in LAWS}
    assert "| **all laws on ids** |" in part


@pytest.mark.slow
def test_looking_is_measured_and_the_page_is_as_large_for_many_samples_as_for_some() -> None:
    some, many = looking.measure(300, 100, times=1), looking.measure(1_500, 100, times=1)
    assert all(r.cpu_s > 0 for rounds in many.values() for r in rounds)
    assert many["statistics"][0].samples == 1_500
    assert many["page"][0].samples < 100
    assert many["page"][0].page_bytes < 1.2 * some["page"][0].page_bytes
    part = looking.report(many, 1_500, 100, "make bench")
    assert "{" not in part


@pytest.mark.slow
def test_the_vocabulary_is_measured_and_every_way_chooses_the_same() -> None:
    results = draft_vocabulary.measure(600, 200, 500, times=1)
    assert {name: rounds[0].chosen for name, rounds in results.items()} == dict.fromkeys(
        ("vectorised", "loop"), results["vectorised"][0].chosen
    ) | {"read": ""}
    assert "{" not in draft_vocabulary.report(results, 600, 200, 500, "make bench")


def test_each_part_of_the_page_is_written_alone(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text("# All\n\n<!-- a -->\nold\n<!-- end of a -->\n\n<!-- b -->\n<!-- end of b -->\n\nend\n")
    write_part("b", "## B\n", page)
    write_part("a", "## A\n", page)
    write_part("a", "## A again\n", page)
    marked = "<!-- a -->\n\n## A again\n\n<!-- end of a -->\n\n<!-- b -->\n\n## B\n\n<!-- end of b -->\n"
    assert page.read_text() == f"# All\n\n{marked}\nend\n"
    with pytest.raises(ValueError, match="must have the marks <!-- c --> and <!-- end of c --> once each"):
        write_part("c", "## C\n", page)


def test_the_real_page_has_a_part_for_each_benchmark(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    for name in (
        "drafter_learning",
        "client_cost",
        "shared_servers",
        "law_speed",
        "looking",
        "draft_vocabulary",
        "prompt_rendering",
        "repetition_rates",
    ):
        write_part(name, f"## {name} anew", page)
    assert re.findall("^## .*", page.read_text(encoding="utf-8"), re.MULTILINE) == [
        "## drafter_learning anew",
        "## client_cost anew",
        "## shared_servers anew",
        "## law_speed anew",
        "## looking anew",
        "## draft_vocabulary anew",
        "## prompt_rendering anew",
        "## repetition_rates anew",
    ]
