"""What exact ids are worth to a drafter: the same drafter trained on an export, and on the same data over text.

What belongs here: which drafters are compared, running them, and the report. Not here: the data (``damaged_data``), the
drafter (``drafter``), counting (``acceptance``).

Usage: python -m benchmarks.drafter_learning [--full] [--write] [--note TEXT]
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.acceptance import Acceptance, replayed, total
from benchmarks.damaged_data import (
    Difference,
    Row,
    conversations,
    damaged,
    difference,
    kind_of,
    make_export,
)
from benchmarks.page import machine, write_part
from eagle3_assets.demo.corpus import KINDS

ROOT = Path(__file__).parent.parent
MODEL = ROOT / "eagle3_assets" / "demo" / "model"
PYTHON = ROOT / ".cache" / "trainers-venv" / "bin" / "python"
CHAIN = 5
"""As of ``drafter``."""
NAMES = {
    "exact": "**the export**",
    "encoded_again": "decoded and encoded again",
    "other_template": "another template (ChatML)",
    "parsed": "parsed, without reasoning",
}
PART = """\
## What exact ids are worth to a drafter

The same EAGLE-3 drafter of the demo target, trained on an export and on the same samples after the usual ways over
text: model, loss, shifting and optimizer of speculators {speculators}; one layer that sees three of the target's four,
{steps} steps of {rows} rows, {seeds} and the order of rows, all else equal. The labels are the
target's own distributions in every case, as EAGLE-3 has them: what differs is the contexts in which it learns them.
Measured is greedy speculative decoding of {held_out} held-out prompts (the export's `eval`) with chains of {chain}:
tokens per forward pass of the target, from 1 to {most}, mean of the seeds ± standard deviation. Written by
`benchmarks/drafter_learning.py`:

```bash
{command}
```

{machine}

| outputs | trained on | {kinds} | all | prompts changed | outputs changed | target's tokens kept | with a loss |
|---|---|{lines}--:|--:|--:|--:|--:|
{table}

*Parsed* is what a chat endpoint that parses leaves, rendered by the target's own template; *another template* has the
whole output as text in ChatML, as Qwen writes it. *Bigrams*: the id that came most often after the one before, in the
export. A drafter took {seconds:.0f} s to train (the median). Each also decoded a prompt round by round, the target
verifying every chain: in {same} of {decoded} cases output and rounds were those counted.
"""


@dataclass(frozen=True, slots=True)
class Size:
    """Of the benchmark."""

    prompts: int
    steps: int
    rows: int
    """In a step."""
    seeds: int
    data: Mapping[float, tuple[str, ...]]
    """For each temperature of the outputs, the ways over text that the export is compared with."""


QUICK = Size(100, 50, 2, 1, {0.0: ("other_template", "parsed")})
FULL = Size(320, 130, 2, 3, {0.0: ("encoded_again", "other_template", "parsed"), 1.0: ("encoded_again",)})


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table."""

    temperature: float | None
    """Of the outputs; None where nothing was learned."""
    name: str
    by_seed: list[dict[str, Acceptance]]
    """Of each held-out row, by its id."""
    differs: Difference | None = None

    def lengths(self, kind: str | None = None) -> list[float]:
        """Acceptance length of each seed, on one kind of prompts or on all."""
        return [
            total(counts for name, counts in one.items() if kind in (None, kind_of(name))).length
            for one in self.by_seed
        ]


@dataclass(frozen=True, slots=True)
class Result:
    """Of all drafters."""

    lines: list[Line]
    held_out: int
    seconds: list[float]
    """That each training took."""
    decoded: int
    """Outputs that were decoded round by round."""
    same: int
    """And came out as counted, in as many rounds."""


def measure(size: Size, processes: int) -> Result:
    """Makes the data, trains and measures every drafter, and says on standard error how it goes.

    Args:
        size: of the benchmark; the first of its temperatures is 0.
        processes: that train side by side, each with one thread.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL, local_files_only=True)
    samples = conversations(size.prompts)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        exports = {at: make_export(folder / f"{at:g}", samples, at) for at in size.data}
        held_out = exports[0.0].rows("eval")
        ways = {
            (at, way): rows
            for at, names in size.data.items()
            for way, rows in damaged(tokenizer, samples, exports[at].rows("train"), names).items()
        }
        files = {case: folder / f"{case[1]}-{case[0]:g}.jsonl" for case in ways}
        for case, rows in ways.items():
            _write(files[case], rows)
        _write(folder / "held_out.jsonl", held_out)
        jobs = [
            {"data": json.dumps(case), "train": str(path), "seed": seed, "steps": steps}
            for seed in range(size.seeds)
            for case, path, steps in [(None, "", 0), *((case, path, size.steps) for case, path in files.items())]
        ]
        plan = {"model": str(MODEL), "held_out": str(folder / "held_out.jsonl"), "rows": size.rows}
        with ThreadPoolExecutor(processes) as pool:
            shares = [(folder / f"plan-{n}.json", {**plan, "jobs": jobs[n::processes]}) for n in range(processes)]
            results = [one for share in pool.map(lambda share: _run(*share), shares) for one in share]
    measured: dict[tuple[float, str] | None, list[dict[str, Acceptance]]] = defaultdict(list)
    for one in results:
        case = json.loads(one["data"])
        counts = {name: Acceptance(*pair) for name, pair in one["held_out"].items()}
        measured[case and (case[0], case[1])].append(counts)
    exact = ways[0.0, "exact"]
    guesses = bigrams(exact)
    lines = [
        Line(None, "nothing: untrained", measured[None]),
        Line(0.0, "bigrams of the export", [{row.id: guessed(guesses, row) for row in held_out}]),
        *(
            Line(at, NAMES[way], measured[at, way], difference(ways[at, "exact"], rows))
            for (at, way), rows in ways.items()
        ),
    ]
    seconds = [one["seconds"] for one in results if one["steps"]]
    return Result(lines, len(held_out), seconds, len(results), sum(one["same"] for one in results))


def _write(path: Path, rows: Iterable[Row]) -> None:
    path.write_text("".join(row.line() + "\n" for row in rows), encoding="utf-8")


def _run(path: Path, plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Runs a plan of ``drafter`` in the trainers' environment."""
    path.write_text(json.dumps(plan), encoding="utf-8")
    command = [str(PYTHON), "-m", "benchmarks.drafter", str(path)]
    results = []
    with (
        path.with_suffix(".log").open("w+") as log,
        subprocess.Popen(  # noqa: S603 - our own
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        ) as process,
    ):
        for line in process.stdout or ():
            one = json.loads(line)
            results.append(one)
            length = total(Acceptance(*pair) for pair in one["held_out"].values()).length
            print(
                f"{one['data']} seed {one['seed']}: {length:.3f}, {one['seconds']:.0f} s", file=sys.stderr, flush=True
            )
        if process.wait():
            log.seek(0)
            raise RuntimeError(log.read())
    return results


def bigrams(rows: Iterable[Row]) -> dict[int, int]:
    """The id that comes most often after each id, where it has a loss."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for row in rows:
        ids = row.prompt_ids[-1:] + row.output_ids
        for before, after in pairwise(ids):
            counts[before][after] += 1
    return {before: after.most_common(1)[0][0] for before, after in counts.items()}


def guessed(guesses: Mapping[int, int], row: Row) -> Acceptance:
    """What a drafter saves that goes by the last id alone; it guesses -1 where it never saw that."""
    ids = row.prompt_ids + row.output_ids
    proposals: list[list[int]] = [[]]
    for last in ids[:-1]:
        chain = [last]
        for _ in range(CHAIN):
            chain.append(guesses.get(chain[-1], -1))
        proposals.append(chain[1:])
    return replayed(ids, len(row.prompt_ids), proposals)


def report(result: Result, size: Size, command: str, note: str | None = None) -> str:
    """The part of the page."""
    kinds = [kind for kind in KINDS if not math.isnan(result.lines[0].lengths(kind)[0])]
    return PART.format(
        speculators=_pinned("speculators"),
        steps=size.steps,
        rows=size.rows,
        seeds=f"{size.seeds} seed{'s' if size.seeds > 1 else ''} for the first weights",
        held_out=result.held_out,
        chain=CHAIN,
        most=CHAIN + 1,
        command=command,
        machine="\n".join([machine(("transformers",)), *([f"- {note}"] if note else [])]),
        kinds=" | ".join(kind.replace("_", " ") for kind in kinds),
        lines="--:|" * len(kinds),
        table="\n".join(_row(line, kinds) for line in result.lines),
        seconds=statistics.median(result.seconds),
        same=result.same,
        decoded=result.decoded,
    )


def _row(line: Line, kinds: Sequence[str]) -> str:
    at = "" if line.temperature is None else "greedy" if line.temperature == 0 else f"temperature {line.temperature:g}"
    differs = line.differs
    shares = (
        " | | | "
        if differs is None
        else f"{differs.prompts:.1%} | {differs.outputs:.1%} | {differs.kept:.1%} | {differs.trained:,}"
    )
    lengths = " | ".join(_mean(line.lengths(kind)) for kind in (*kinds, None))
    return f"| {at} | {line.name} | {lengths} | {shares} |"


def _mean(lengths: Sequence[float]) -> str:
    mean = f"{statistics.mean(lengths):.2f}"
    return f"{mean} ± {statistics.stdev(lengths):.2f}" if len(lengths) > 1 else mean


def _pinned(package: str) -> str:
    pins = (ROOT / "scripts" / "trainers" / "requirements-no-deps.txt").read_text(encoding="utf-8")
    return pins.split(f"{package}==")[1].split()[0]


def main() -> None:
    """Measures, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the figures that docs/benchmarks.md shows")
    parser.add_argument("--write", action="store_true", help="write the report into docs/benchmarks.md as well")
    parser.add_argument("--note", help="a line for the report about this run, such as what else the machine did")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="that train side by side")
    arguments = parser.parse_args()
    if not PYTHON.exists():
        raise SystemExit(f"there is no {PYTHON}: scripts/trainers/make-env makes it")
    size = FULL if arguments.full else QUICK
    command = "make bench-drafter" + (" BENCH=full" if arguments.full else "")
    part = report(measure(size, arguments.processes), size, command, arguments.note)
    print(part)
    if arguments.write:
        write_part("drafter_learning", part)


if __name__ == "__main__":
    main()
