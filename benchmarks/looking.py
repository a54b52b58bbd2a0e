"""What looking at a large partition costs: its length statistics and its page, compared with reading its file once.

What belongs here: these runs, each a process of its own, and the report. Not here: the generated partition
(``law_runs``), what each law costs (``law_speed``).

Usage: python -m benchmarks.looking [--full] [--write] [--note TEXT]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from benchmarks.law_runs import MODEL, TEXTS, TOOL, demo_target, outputs_file, prompts_file, write
from benchmarks.page import machine, write_part
from benchmarks.usage import cpu_s, peak_mib
from eagle3_assets.config import Dataset, LengthBand, Target
from eagle3_assets.frames import batches
from eagle3_assets.inspecting import inspect_rows
from eagle3_assets.pages.page import preview_page
from eagle3_assets.partitions import Partition
from eagle3_assets.target import LoadedTarget, load_target
from eagle3_assets.tokens.context import Context, PromptIndex
from eagle3_assets.tokens.facts import OUTPUT_COLUMNS, output_facts
from eagle3_assets.tokens.judge import judge_generations
from eagle3_assets.tokens.lengths import length_statistics
from eagle3_assets.tokens.verdict import Report

ROOT = Path(__file__).parent.parent
QUICK, FULL = (5_000, 1_000), (100_000, 1_000)
"""Rows and tokens of each."""
TIMES = 3
"""How often each run is repeated: the median counts."""
RUNS = {
    "read": "reading the columns that statistics are made of",
    "statistics": "`length_statistics`: reading them, sections, statistics",
    "page": "the page, verdicts and findings of all laws there already: statistics, choosing and decoding samples",
    "judging": "judging by every law alone, the index of the current prompts included",
    "whole": "`decoded_previews` whole: judging by every law, then that page",
}
PART = """\
## Looking

What it costs to look at {rows:,} samples of {tokens:,} tokens (a fifth of them prompt), compared with reading the
columns that statistics are made of once, batch by batch. Each run is a process of its own; CPU is of all threads, user
and system, without imports, the median of {times}; the peak (VmHWM) is of the whole process, the highest. Written by
`benchmarks/looking.py`:

```bash
{command}
```

{machine}

| | CPU s | times reading | peak MiB |
|---|--:|--:|--:|
{runs}

Of {laws} laws {judged} judged something: the report has {findings:,} findings. The page holds {shown} samples in
{kb:,.0f} kB, however many there are to choose from. Nothing keeps findings between assets: checks keep verdicts, and
the page judges anew, as the last row has it.
"""


@dataclass(frozen=True, slots=True)
class Result:
    """What one run took."""

    cpu_s: float
    peak_mib: float
    samples: int
    """Of the partition, or on the page."""
    page_bytes: int = 0
    laws: int = 0
    """Of the report."""
    judged: int = 0
    """Of them those that could say something."""
    findings: int = 0
    """Of the report."""


def measured(run: str, directory: Path) -> Result:
    """Does one run in this process."""
    target = load_target(Target(model=str(MODEL)))
    scanned = pl.scan_parquet(outputs_file(directory, TEXTS))
    columns = scanned.select(OUTPUT_COLUMNS)
    partition = Partition("large", Dataset(name="large", source=("none.jsonl",)), 0, trial=False)
    report = judged(directory, target) if run == "page" else None
    before = cpu_s()
    samples, page = 0, ""
    if run == "read":
        samples = scanned.select(pl.len()).collect().item()
        deque(batches(columns), maxlen=0)
    elif run == "statistics":
        samples = length_statistics(output_facts(batches(columns), target.profile))["samples"][0]
    else:
        report = report or judged(directory, target)
        if run != "judging":
            inspection = inspect_rows(partition, target, scanned, report)
            samples, page = len(inspection.samples), preview_page(inspection, target)
    spent = cpu_s() - before
    if report is None:
        return Result(spent, peak_mib(), samples)
    some = sum(verdict.status != "not_judged" for verdict in report.verdicts)
    return Result(spent, peak_mib(), samples, len(page.encode()), len(report.verdicts), some, len(report.findings))


def judged(directory: Path, target: LoadedTarget) -> Report:
    """Every law over the outputs, as ``decoded_previews`` judges them: prompts, tools and tokenizer are known."""
    columns = ("sample_id", "status", "prompt_ids")
    prompts = pl.scan_parquet(prompts_file(directory, TEXTS)).select(columns)
    context = Context(
        target.profile,
        tokenizer=target.tokenizer,
        complete_records=True,
        length_band=LengthBand(median=(1, 10**6)),
        current_prompts=PromptIndex.of(batches(prompts)),
        declared_tools=dict.fromkeys(prompts.select("sample_id").collect()["sample_id"], (TOOL,)),
    )
    return judge_generations(batches(pl.scan_parquet(outputs_file(directory, TEXTS))), context)


def measure(rows: int, tokens: int, times: int = TIMES) -> dict[str, list[Result]]:
    """Runs everything on a generated partition of that size, and says on standard error how it goes."""
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory), TEXTS, demo_target(), rows, tokens)
        taken: dict[str, list[Result]] = {run: [] for run in RUNS}
        for _ in range(times):  # in turn, so that what else the machine does meets all of them
            for run in RUNS:
                command = [sys.executable, "-m", "benchmarks.looking", "--run", run, directory]
                said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout  # noqa: S603 - our own
                taken[run].append(Result(**json.loads(said)))
                print(f"{run}: {said.strip()}", file=sys.stderr, flush=True)
    return taken


def report(taken: Mapping[str, Sequence[Result]], rows: int, tokens: int, command: str, note: str | None = None) -> str:
    """The part of the page."""
    cpu = {run: statistics.median(r.cpu_s for r in each) for run, each in taken.items()}
    peak = {run: max(r.peak_mib for r in each) for run, each in taken.items()}
    page = taken["whole"][0]
    return PART.format(
        rows=rows,
        tokens=tokens,
        times=TIMES,
        command=command,
        machine="\n".join([machine(("polars", "numpy")), *([f"- {note}"] if note else [])]),
        runs="\n".join(
            f"| {said} | {cpu[run]:.2f} | {cpu[run] / cpu['read']:.2f} | {peak[run]:,.0f} |"
            for run, said in RUNS.items()
        ),
        laws=page.laws,
        judged=page.judged,
        findings=page.findings,
        shown=page.samples,
        kb=page.page_bytes / 1_000,
    )


def main() -> None:
    """Measures, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the figures that docs/benchmarks.md shows")
    parser.add_argument("--write", action="store_true", help="write the report into docs/benchmarks.md as well")
    parser.add_argument("--note", help="a line for the report about this run, such as what else the machine did")
    parser.add_argument("--run", nargs=2, metavar=("RUN", "DIRECTORY"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run, directory = arguments.run
        result = measured(run, Path(directory))
        print(json.dumps({name: getattr(result, name) for name in Result.__slots__}))
        return
    rows, tokens = FULL if arguments.full else QUICK
    command = "make bench" + (" BENCH=full" if arguments.full else "")
    part = report(measure(rows, tokens), rows, tokens, command, arguments.note)
    print(part)
    if arguments.write:
        write_part("looking", part)


if __name__ == "__main__":
    main()
