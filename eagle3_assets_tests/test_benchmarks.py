"""The benchmark runs from end to end. What it measures is no test's affair: a busy machine would decide it."""

import re

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
