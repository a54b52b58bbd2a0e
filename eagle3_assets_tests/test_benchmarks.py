"""The benchmarks run from end to end. What it measures is no test's affair: a busy machine would decide it."""

import re
import subprocess
import sys

import pytest

from benchmarks.client_cost import Case, cases, report, run


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
    found = re.findall(r"^(\w+) +([\d,]+) prompts +[\d,]+/s +[\d,]+ MiB$", said, re.MULTILINE)
    assert [name for name, _ in found] == ["plain", "render", "tokenized_prompts", "tenth"]
    assert [count for _, count in found[:3]] == ["300"] * 3
    assert 200 < int(found[3][1]) < 400
