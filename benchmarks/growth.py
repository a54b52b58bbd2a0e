"""What grows with the number of samples and partitions, measured for one of everything, and projected by ``scale``.

What belongs here: how much is measured, and the report. Not here: measuring (``growth_measures``), the arithmetic
(``scale``).

Usage: python -m benchmarks.growth [--full] [--write] [--postgres URL]
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchmarks.growth_measures import (
    CHARACTERS,
    MISSING,
    PROMPTS_A_SHARD,
    QUERIES,
    RUNS,
    TIMES,
    Served,
    corpus_costs,
    missing_ms,
    run_growth,
    sample_bytes,
    served,
    source_costs,
)
from benchmarks.page import PAGE, machine, write_part
from benchmarks.scale import OUTPUT_TOKENS, TOKENS, Figures, corpora_table, examples_table, figures_table, read_figures

SCALE = PAGE.parent / "scale.md"

PART = """\
## Measured

For samples of {tokens:,} tokens, a fifth of them prompt. Written by `benchmarks/growth.py`:

```bash
{command}
```

{machine}

{figures}

- *Runs*: {runs} of the job `partition` on {prompts} of the demo's prompts each, every asset and every check, after a
  first one. {postgres}
- *Samples*: {rows:,} with ids as frequent as words (Zipf, 163,840 of them), packed as the assets are; texts, of prompts
  and in the `jsonl`, are {characters} characters of Python's sources for each id.
- *Source rows*: {source_rows:,} of them, of which a shard takes hardly any.
- *Shards not made yet*: {missing} of as many rows. The first parses all of them; each renders and tokenizes its
  own, which is most of it.
- *Of all partitions*: of {most} with five short samples each; with {fewest}: {fewer}.
- `run_cpu_s`, `client_ms` (of 1,000 output ids) and `laws_ms` are those of [benchmarks](benchmarks.md).

### The Dagster UI

A dataset of so many partitions, all materialized, on SQLite; the webserver answers what its pages ask for, the fastest
of {times}:

{ui}

## Projected

{corpora}

### Time, money and client cores

For samples with {output} output tokens, on servers as others have published them; none of it was measured here. It is
rather the best case: prompts of 2,000 tokens, few output tokens, every place taken. For Kimi K2 all GPUs are counted,
those that only read prompts too, where the source counts the 96 that generate (0.21 $). For DeepSeek-V3 it is
generating alone, reading prompts comes on top; a GPU hour is what the source's own price of a million tokens implies.
Put your own figures into the formulas [above](#time-and-money).

{examples}
"""


def of_benchmarks(page: str) -> dict[str, float]:
    """Figures that other benchmarks wrote: ``client_ms``, ``laws_ms`` and ``run_cpu_s``."""
    patterns = {
        "client_ms": r"^\| 0 ms, 1,000 ids, 256 in flight \| [\d,]+ \| ours \|[^|]*\|[^|]*\|[^|]*\| ([\d.]+) ",
        "laws_ms": r"^\| \*\*all laws on ids\*\* \| \d+ \| ([\d.]+) ",
        "run_cpu_s": r"took [\d.]+ s and ([\d.]+) s of CPU",
    }
    found = {}
    for name, pattern in patterns.items():
        said = re.search(pattern, page, re.MULTILINE)
        if said is None:
            raise ValueError(f"{PAGE}: {name} is not found where it was")
        found[name] = float(said[1])
    judged = re.search(r"^What the laws cost on ([\d,]+) samples of 1,000 tokens", page, re.MULTILINE)
    if judged is None:
        raise ValueError(f"{PAGE}: it is not found of how many samples the laws' time is")
    return {**found, "laws_ms": 1_000 * found["laws_ms"] / int(judged[1].replace(",", ""))}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    rows: int
    source_rows: int
    partitions: tuple[int, int]
    served: tuple[int, ...]


QUICK, FULL = Sizes(500, 5_000, (10, 40), (200,)), Sizes(2_000, 20_000, (50, 200), (1_000, 10_000))


def report(
    figures: Figures, fewer: dict[str, float], ui: list[Served], sizes: Sizes, command: str, versions: tuple[str, ...]
) -> str:
    """The part of the page."""
    lines = ["| | " + " | ".join(f"{one.partitions:,} partitions" for one in ui) + " |", "|---|" + "--:|" * len(ui)]
    lines.append("| definitions, MB | " + " | ".join(f"{one.snapshot_bytes / 1e6:.2f}" for one in ui) + " |")
    lines.append("| making them, CPU s | " + " | ".join(f"{one.definitions_cpu_s:.2f}" for one in ui) + " |")
    lines += [f"| {name}, s | " + " | ".join(f"{one.query_s[name]:.2f}" for one in ui) + " |" for name in QUERIES]
    given = "run_bytes_postgres" in figures
    table = figures_table(figures)
    return PART.format(
        tokens=TOKENS,
        command=command,
        machine=machine(versions),
        figures=table,
        runs=RUNS,
        times=TIMES,
        prompts=f"about {PROMPTS_A_SHARD}",
        postgres="On Postgres by `pg_database_size`." if given else "Postgres was not measured.",
        rows=sizes.rows,
        characters=CHARACTERS,
        source_rows=sizes.source_rows,
        missing=MISSING,
        fewest=sizes.partitions[0],
        most=sizes.partitions[1],
        fewer=", ".join(f"{value:.3g} ms (`{name.removesuffix('_ms')}`)" for name, value in fewer.items()),
        ui="\n".join(lines),
        # As the table shows them, so that a reader finds the same.
        corpora=corpora_table(read_figures(table)),
        examples=examples_table(read_figures(table)),
        output=OUTPUT_TOKENS,
    )


def measure(sizes: Sizes, postgres: str | None) -> tuple[dict[str, float], dict[str, float], list[Served]]:
    """Measures everything, and says on standard error how it goes.

    Returns:
        the figures; those of fewer partitions; what the UI took.
    """
    figures = of_benchmarks(PAGE.read_text(encoding="utf-8"))
    fewer = corpus_costs(sizes.partitions[0])
    steps: tuple[Callable[[], Mapping[str, float]], ...] = (
        lambda: sample_bytes(sizes.rows),
        lambda: source_costs(sizes.source_rows),
        lambda: {"missing_ms": missing_ms(sizes.source_rows)},
        lambda: corpus_costs(sizes.partitions[1]),
        lambda: run_growth(postgres),
    )
    for step in steps:
        figures |= step()
        print(figures, file=sys.stderr, flush=True)
    return figures, fewer, [served(partitions) for partitions in sizes.served]


def main() -> None:
    """Measures, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the figures that docs/scale.md shows")
    parser.add_argument("--write", action="store_true", help="write the report into docs/scale.md as well")
    parser.add_argument("--postgres", metavar="URL", help="of an empty database; needs dagster-postgres")
    arguments = parser.parse_args()
    sizes = FULL if arguments.full else QUICK
    figures, fewer, ui = measure(sizes, arguments.postgres)
    versions = ("dagster", "polars", *(("dagster-postgres",) if arguments.postgres else ()))
    command = (
        "python -m benchmarks.growth --full --write --postgres URL" if arguments.postgres else "make bench BENCH=full"
    )
    part = report(figures, fewer, ui, sizes, command, versions)
    print(part)
    if arguments.write:
        write_part("growth", part, SCALE)


if __name__ == "__main__":
    main()
