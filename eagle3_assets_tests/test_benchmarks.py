"""The benchmarks run from end to end. What it measures is no test's affair: a busy machine would decide it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import draft_vocabulary, growth, law_speed, looking, prompt_rendering, scale
from benchmarks.client_cost import Case, cases, report, run
from benchmarks.growth_measures import QUERIES
from benchmarks.page import PAGE, write_part
from eagle3_assets.tokens.laws import LAWS, laws_of


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
    assert re.fullmatch(r"(\w+ \d+\.\d\d(, |$)){10}", law_speed.dearest(results))


@pytest.mark.slow
def test_looking_is_measured_and_the_page_is_as_large_for_many_samples_as_for_some() -> None:
    some, many = looking.measure(300, 100, times=1), looking.measure(1_500, 100, times=1)
    assert all(r.cpu_s > 0 for rounds in many.values() for r in rounds)
    assert many["statistics"][0].samples == 1_500
    assert many["page"][0].samples < 100
    assert many["page"][0].page_bytes < 1.2 * some["page"][0].page_bytes
    assert many["whole"][0].laws == len(laws_of("raw_generations"))
    assert many["whole"][0].judged > 20
    assert many["whole"][0].page_bytes == many["page"][0].page_bytes, "a page of another report"
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
        "shared_servers_postgres",
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
        "## shared_servers_postgres anew",
        "## law_speed anew",
        "## looking anew",
        "## draft_vocabulary anew",
        "## prompt_rendering anew",
        "## repetition_rates anew",
    ]


@pytest.mark.slow
def test_growth_is_measured_for_one_of_everything() -> None:
    sizes = growth.Sizes(rows=40, source_rows=200, partitions=(2, 3), served=(20,))
    figures, fewer, ui = growth.measure(sizes, None)
    assert set(figures) == set(scale.UNITS) - {"run_bytes_postgres"}
    assert all(figure > 0 for figure in figures.values())
    assert set(fewer) == set(scale.OF_ALL)
    assert [(one.partitions, set(one.query_s)) for one in ui] == [(20, set(QUERIES))]
    part = growth.report(figures, fewer, ui, sizes, "make bench", ("dagster",))
    assert "{" not in part
    assert scale.read_figures(part).keys() == figures.keys()


def test_the_page_of_growth_multiplies_what_it_shows() -> None:
    page = growth.SCALE.read_text(encoding="utf-8")
    figures = scale.read_figures(page)
    assert set(figures) == set(scale.UNITS)
    assert f"\n{scale.corpora_table(figures)}\n" in page
    assert f"\n{scale.examples_table(figures)}\n" in page
    shown = scale.read_figures(scale.figures_table(growth.of_benchmarks(PAGE.read_text(encoding="utf-8"))))
    assert shown == {name: figures[name] for name in shown}, "docs/benchmarks.md has changed: measure growth anew"


def test_the_formulas_of_the_page_are_those_of_the_module() -> None:
    seconds, price, cores = re.findall(r"^\| [^|]+ \| `([^`]+ / [^`]+)` \|$", growth.SCALE.read_text(), re.MULTILINE)
    names = {"output_tokens": 5e9, "tokens_per_s": 48_000.0, "price_per_hour": 21.5, "output_tokens_of_a_sample": 800.0}
    names["client_ms"] = 0.66

    def said(formula: str) -> float:
        return float(eval(formula, {"__builtins__": {}}, names))  # noqa: S307 - three formulas of our own page

    assert said(seconds) == scale.generating_s(5e9, 48_000.0)
    assert said(price) == scale.cost_per_million(21.5, 48_000.0)
    assert said(cores) == scale.client_cores(48_000.0, 800.0, {"client_ms": 0.66})


def test_arithmetic_of_growth() -> None:
    corpus = scale.Corpus(samples=1_000_000, shard_rows=10_000, datasets=10)
    assert corpus.partitions == 100
    assert scale.Corpus(1_000_001, 10_000, 1).partitions == 101
    figures = dict.fromkeys(scale.UNITS, 0.0) | {"run_bytes": 2e6, "run_cpu_s": 5.0, "client_ms": 0.5, "laws_ms": 0.1}
    figures |= {"source_us": 100.0, "known_source_us": 2.0, "prompts_bytes": 100.0, "raw_generations_bytes": 1_000.0}
    figures |= {"plan_ms": 30.0}
    assert scale.instance_bytes(corpus, figures) == 200e6
    assert scale.stored_bytes(corpus, figures) == 1.1e9
    assert scale.runs_cpu_s(corpus, figures) == 500
    assert scale.client_cpu_s(corpus, figures) == pytest.approx(600)
    assert scale.source_cpu_s(corpus, figures) == pytest.approx(10 * 90_000 * 1e-4 + 90 * 90_000 * 2e-6)
    assert scale.source_cpu_s(scale.Corpus(10_000, 10_000, 1), figures) == 0
    assert scale.all_cpu_s(corpus, figures) == pytest.approx(3)
    assert scale.cost_per_million(3.6, 1_000) == pytest.approx(1.0)
    rows = {line.split(" | ")[0].strip("| *"): line for line in scale.examples_table(figures).splitlines()}
    # 128 GPUs at 2.3 dollars an hour for 288,000 tokens a second; 16 at 2 dollars for a fifth of 22,282 each eight.
    assert "**0.28 $** | **1.04 $**" in rows["a million output tokens"]
    assert "46 min, 227 $ | 26 h, 830 $" in rows["1,000,000 samples"]
    # A sample of 800 tokens costs the client half a millisecond.
    assert "**0.18** | **0.0054**" in rows["client cores** that asking keeps busy"]
    assert (scale.size(999.4), scale.size(1.2345e6), scale.size(3.2e12)) == ("999 B", "1.23 MB", "3.2 TB")
    assert (scale.hours(90), scale.hours(7_200), scale.hours(123_456 * 3_600)) == ("1.5 min", "2 h", "120,000 h")
