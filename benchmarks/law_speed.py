"""What judging a partition costs, compared with reading its file once.

What belongs here: running the runs of ``law_runs``, and the report. Not here: what they judge.

Usage: python -m benchmarks.law_speed [--full] [--write] [--note TEXT]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.page import machine, write_part

ROOT = Path(__file__).parent.parent
QUICK, FULL = (5_000, 1_000), (100_000, 1_000)
"""Rows and tokens of each."""
TIMES = 3
"""How often each run is repeated: the median counts."""
DEAREST = 10
"""Laws whose cost is said by name."""
LIMIT, ROOM_MIB = 4, 2_048
"""What the laws on ids may take: times reading, and peak."""
ON_IDS = {"outputs": "laws on the ids of outputs", "prompts": "laws on the ids of prompts"}
DECODING = {"calls": "laws that decode every tool call", "sample": "laws that decode whole outputs, of a sample"}
ELSEWHERE = {"the target's tokenizer is not at hand", "the declared tools are not at hand"}
"""Why laws that decode are not judged on ids alone."""
PART = """\
## The laws

What the laws cost on {rows:,} samples of {tokens:,} tokens (a fifth of them prompt), compared with reading that parquet
file once with polars, batch by batch. Each run is a process of its own; CPU is of all threads, user and system, without
imports, the median of {times}; the peak (VmHWM) is of the whole process, the highest. Written by
`benchmarks/law_speed.py`:

```bash
{command}
```

{machine}

| | laws | CPU s | times reading | peak MiB |
|---|--:|--:|--:|--:|
{ids}

The laws on ids shall together take at most {limit} times reading and {room:,} MiB: this run {verdict}. Round by round
they took {rounds} times. The prompts of inert text that
`prompt_injection` compares with were rendered before. Not judged, as nothing of the kind is in these rows:
{missing}.

Laws that decode need the tokenizer, here that of the demo target, of 2,048 ids, on outputs made of Python's sources:

| | laws | rows judged | CPU s | peak MiB |
|---|--:|--:|--:|--:|
{decoding}

Those of a sample cost the same whatever the partition's size, but for drawing the sample.
"""


@dataclass(frozen=True, slots=True)
class Result:
    """What one run took."""

    cpu_s: float
    peak_mib: float
    spent: Mapping[str, float]
    """CPU seconds in each law, by its name."""
    judged: Mapping[str, int]
    """Rows that each law judged, by its name."""
    not_judged: Mapping[str, str]
    """Why laws were not, by name."""


def measure(rows: int, tokens: int) -> dict[str, list[Result]]:
    """Runs everything on generated partitions of that size, and says on standard error how it goes."""
    with tempfile.TemporaryDirectory() as directory:
        _run("write", directory, str(rows), str(tokens))
        runs = ("read", *ON_IDS, *DECODING)
        taken: dict[str, list[Result]] = {run: [] for run in runs}
        for _ in range(TIMES):  # in turn, so that what else the machine does meets all of them
            for run in runs:
                taken[run].append(Result(**json.loads(_run(run, directory))))
                said = f"{run}: {taken[run][-1].cpu_s:.2f} CPU-s, {taken[run][-1].peak_mib:,.0f} MiB"
                print(said, file=sys.stderr, flush=True)
    return taken


def report(taken: Mapping[str, Sequence[Result]], rows: int, tokens: int, command: str, note: str | None = None) -> str:
    """The part of the page."""
    results = {run: _together(each) for run, each in taken.items()}
    rounds = [sum(taken[run][n].cpu_s for run in ON_IDS) / taken["read"][n].cpu_s for n in range(TIMES)]
    read = results["read"]
    on_ids = [results[run] for run in ON_IDS]
    lines = [("reading the file", 0, read.cpu_s, read.peak_mib)]
    lines += [(said, len(r.judged), r.cpu_s, r.peak_mib) for r, said in zip(on_ids, ON_IDS.values(), strict=True)]
    together = sum(len(r.judged) for r in on_ids), sum(r.cpu_s for r in on_ids), max(r.peak_mib for r in on_ids)
    lines.append(("**all laws on ids**", *together))
    missing = [name for r in on_ids for name, why in r.not_judged.items() if why not in ELSEWHERE]
    decoding = [
        f"| {said} | {len(r.judged)} | {max(r.judged.values()):,} | {r.cpu_s:.2f} | {r.peak_mib:,.0f} |"
        for r, said in ((results[run], said) for run, said in DECODING.items())
    ]
    return PART.format(
        rows=rows,
        tokens=tokens,
        times=TIMES,
        command=command,
        machine="\n".join([machine(("polars", "numpy", "tokenizers")), *([f"- {note}"] if note else [])]),
        ids="\n".join(
            f"| {said} | {laws or ''} | {cpu:.2f} | {cpu / read.cpu_s:.2f} | {peak:,.0f} |"
            for said, laws, cpu, peak in lines
        ),
        limit=LIMIT,
        room=ROOM_MIB,
        verdict="; ".join(
            f"{'keeps to' if kept else 'misses'} the {what}"
            for what, kept in (("time", together[1] <= LIMIT * read.cpu_s), ("memory", together[2] <= ROOM_MIB))
        ),
        rounds=", ".join(f"{ratio:.2f}" for ratio in rounds),
        missing=", ".join(f"`{name}`" for name in missing),
        decoding="\n".join(decoding),
    )


def dearest(taken: Mapping[str, Sequence[Result]]) -> str:
    """The laws on ids that cost most, for a person who looks for what made them slower."""
    spent = [(s, law) for run in ON_IDS for law, s in _together(taken[run]).spent.items()]
    return ", ".join(f"{law} {s:.2f}" for s, law in sorted(spent, reverse=True)[:DEAREST])


def _run(run: str, directory: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks.law_runs", run, directory, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    if done.returncode:
        raise SystemExit(f"{run}: failed\n{done.stderr}")
    return done.stdout


def _together(results: Sequence[Result]) -> Result:
    cpu_s, peak_mib = statistics.median(r.cpu_s for r in results), max(r.peak_mib for r in results)
    spent = {law: statistics.median(r.spent[law] for r in results) for law in results[0].spent}
    return Result(cpu_s, peak_mib, spent, results[0].judged, results[0].not_judged)


def main() -> None:
    """Measures, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the figures that docs/benchmarks.md shows")
    parser.add_argument("--write", action="store_true", help="write the report into docs/benchmarks.md as well")
    parser.add_argument("--note", help="a line for the report about this run, such as what else the machine did")
    arguments = parser.parse_args()
    rows, tokens = FULL if arguments.full else QUICK
    command = "make bench" + (" BENCH=full" if arguments.full else "")
    taken = measure(rows, tokens)
    part = report(taken, rows, tokens, command, arguments.note)
    print(part)
    print(f"dearest laws, CPU-s: {dearest(taken)}", file=sys.stderr)
    if arguments.write:
        write_part("law_speed", part)


if __name__ == "__main__":
    main()
