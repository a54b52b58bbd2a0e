"""What choosing a draft vocabulary costs, compared with reading the tokens once and with doing it id by id.

What belongs here: a generated file of outputs, these runs, each a process of its own, and the report. Not here: judging
partitions, which comes before it (``law_speed``).

Usage: python -m benchmarks.draft_vocabulary [--full] [--write] [--note TEXT]
"""

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.page import machine, write_part
from benchmarks.usage import cpu_s, peak_mib
from eagle3_assets.contract import ROW_GROUP_ROWS
from eagle3_assets.exports.vocabulary import vocabulary_files, vocabulary_record
from eagle3_assets.frames import batches
from eagle3_assets.tokens.columns import Ids, TokenColumn
from eagle3_assets.tokens.vocabulary import choose, count_ids, coverage

ROOT = Path(__file__).parent.parent
VOCAB_SIZE = 163_840
QUICK, FULL = (5_000, 1_000, 4_000), (100_000, 1_000, 32_000)
"""Rows, tokens of each, draft ids."""
TIMES = 3
"""How often each run but the slow one is repeated: the median counts."""
RUNS = {
    "read": "reading the ids, batch by batch",
    "vectorised": "`draft_vocabulary` without judging: that, counting, choosing, coverage, the files' bytes",
    "loop": "the usual way: that, a `Counter` of each row's ids, each of V ids looked up in a list of D",
}
PART = """\
## The draft vocabulary

What it costs to choose {draft:,} of {vocab:,} ids by {rows:,} outputs of {tokens:,} tokens ({million:,.0f}M), compared
with reading the ids once. The last row is how trainers do it, written anew here: rows are counted one after the other,
and membership is looked up in a list, which costs V x D; it was run once. Each run is a process of its own; CPU is of
all threads, user and system, without imports, the median of {times}; the peak (VmHWM) is of the whole process, the
highest. All choose the same ids. Written by `benchmarks/draft_vocabulary.py`:

```bash
{command}
```

{machine}

| | CPU s | times reading | peak MiB |
|---|--:|--:|--:|
{runs}
"""


@dataclass(frozen=True, slots=True)
class Result:
    """What one run took."""

    cpu_s: float
    peak_mib: float
    chosen: str
    """Hash of the chosen ids; empty where none were."""


def write(path: Path, rows: int, tokens: int) -> None:
    """Writes outputs whose ids are as frequent as words, the frequent ones anywhere in the vocabulary."""
    random = np.random.default_rng(0)
    ranks = np.minimum(random.zipf(1.2, rows * tokens), VOCAB_SIZE) - 1
    ids = random.permutation(VOCAB_SIZE).astype(np.int32)[ranks]
    column = pl.Series("output_ids", ids).reshape((rows, tokens)).arr.to_list()
    column.to_frame().write_parquet(path, compression="zstd", compression_level=3, row_group_size=ROW_GROUP_ROWS)


def outputs(path: Path) -> Iterator[TokenColumn]:
    """The file's rows, batch by batch."""
    return (TokenColumn.from_series(batch["output_ids"]) for batch in batches(pl.scan_parquet(path)))


def vectorised(path: Path, draft: int) -> list[int]:
    """As the asset does it."""
    counts = np.zeros(VOCAB_SIZE, np.int64)
    for column in outputs(path):
        counts += count_ids(column.values, VOCAB_SIZE)
    made = choose(counts, (), draft)
    deque(coverage(made), maxlen=0)
    vocabulary_files(made, vocabulary_record(made, "plain", "", {"d": made.tokens}))
    chosen: list[int] = made.ids.tolist()
    return chosen


def loop(path: Path, draft: int) -> list[int]:
    """As trainers do it."""
    counter: Counter[int] = Counter()
    for column in outputs(path):
        for number in range(len(column)):
            row: Ids = column.row(number)
            ids, counts = np.unique(row, return_counts=True)
            counter.update(dict(zip(ids.tolist(), counts.tolist(), strict=True)))
    ranked = sorted(counter, key=lambda token: (-counter[token], token))[:draft]
    ranked += [token for token in range(draft) if token not in counter][: draft - len(ranked)]
    ranked.sort()
    in_draft = [token in ranked for token in range(VOCAB_SIZE)]
    return [token for token, drafted in enumerate(in_draft) if drafted]


def measured(run: str, path: Path, draft: int) -> Result:
    """Does one run in this process."""
    import torch  # noqa: F401 - importing it is no part of what is measured

    before = cpu_s()
    chosen: list[int] = []
    if run == "read":
        deque(outputs(path), maxlen=0)
    else:
        chosen = (vectorised if run == "vectorised" else loop)(path, draft)
    taken = cpu_s() - before
    return Result(taken, peak_mib(), hashlib.sha256(repr(chosen).encode()).hexdigest() if chosen else "")


def measure(rows: int, tokens: int, draft: int, times: int = TIMES) -> dict[str, list[Result]]:
    """Runs everything on a generated file of that size, and says on standard error how it goes."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "outputs.parquet"
        write(path, rows, tokens)
        taken: dict[str, list[Result]] = {run: [] for run in RUNS}
        for turn in range(times):  # in turn, so that what else the machine does meets all of them
            for run in RUNS:
                if run == "loop" and turn:
                    continue
                command = [sys.executable, "-m", "benchmarks.draft_vocabulary", "--run", run, str(path), str(draft)]
                said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout  # noqa: S603 - our own
                taken[run].append(Result(**json.loads(said)))
                print(f"{run}: {said.strip()}", file=sys.stderr, flush=True)
    return taken


def report(
    taken: Mapping[str, Sequence[Result]], rows: int, tokens: int, draft: int, command: str, note: str | None = None
) -> str:
    """The part of the page.

    Raises:
        ValueError: two ways chose other ids.
    """
    if len({result.chosen for each in taken.values() for result in each if result.chosen}) > 1:
        raise ValueError("not all ways chose the same ids")
    cpu = {run: statistics.median(r.cpu_s for r in each) for run, each in taken.items()}
    peak = {run: max(r.peak_mib for r in each) for run, each in taken.items()}
    return PART.format(
        rows=rows,
        tokens=tokens,
        million=rows * tokens / 1e6,
        vocab=VOCAB_SIZE,
        draft=draft,
        times=TIMES,
        command=command,
        machine="\n".join([machine(("polars", "numpy", "torch")), *([f"- {note}"] if note else [])]),
        runs="\n".join(
            f"| {said} | {cpu[run]:.2f} | {cpu[run] / cpu['read']:.1f} | {peak[run]:,.0f} |"
            for run, said in RUNS.items()
        ),
    )


def main() -> None:
    """Measures, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the figures that docs/benchmarks.md shows")
    parser.add_argument("--write", action="store_true", help="write the report into docs/benchmarks.md as well")
    parser.add_argument("--note", help="a line for the report about this run, such as what else the machine did")
    parser.add_argument("--run", nargs=3, metavar=("RUN", "FILE", "DRAFT_IDS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run, path, draft = arguments.run
        result = measured(run, Path(path), int(draft))
        print(json.dumps({name: getattr(result, name) for name in Result.__slots__}))
        return
    size = FULL if arguments.full else QUICK
    command = "make bench" + (" BENCH=full" if arguments.full else "")
    part = report(measure(*size), *size, command, arguments.note)
    print(part)
    if arguments.write:
        write_part("draft_vocabulary", part)


if __name__ == "__main__":
    main()
