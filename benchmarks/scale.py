"""What a corpus of so many samples needs, by arithmetic, from figures that were measured for one of everything.

What belongs here: pure functions, and the Markdown tables that are written with them and read back. Not here: measuring
(``growth``).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

TOKENS = 1_000
"""Of the sample that sizes and times are given for, prompt and output together."""
OUTPUT_TOKENS = 800
"""Of these, the output."""

UNITS = {
    "run_bytes": "bytes that a run of the job `partition` adds to an instance on SQLite",
    "run_rows": "rows that it adds there",
    "run_bytes_postgres": "bytes that it adds to an instance on Postgres, indexes among them",
    "run_cpu_s": "CPU seconds of a run that generates next to nothing",
    "client_ms": "CPU milliseconds of the client for a sample",
    "laws_ms": "CPU milliseconds of all laws on ids for a sample",
    "source_us": "CPU microseconds for a source row of another shard, a JSON line, for the first run that reads it",
    "known_source_us": "the same for every later run",
    "parquet_us": "CPU microseconds for such a row of a Parquet file, for the first run that reads it",
    "known_parquet_us": "the same for every later run",
    "missing_ms": "CPU milliseconds of `plan` for a shard that is not made yet",
    "prompts_bytes": "bytes of a sample in `prompts`",
    "tokenized_prompts_bytes": "bytes of a sample in `tokenized_prompts`",
    "raw_generations_bytes": "bytes of a sample in `raw_generations`",
    "training_samples_bytes": "bytes of a sample in `training_samples`",
    "export_jsonl_bytes": "bytes of a sample in an export, `jsonl`",
    "export_parquet_bytes": "bytes of a sample in an export, `parquet`",
    "corpus_summary_ms": "CPU milliseconds of `corpus_summary` for a partition",
    "draft_vocabulary_ms": "CPU milliseconds of `draft_vocabulary` for a partition",
    "plan_ms": "CPU milliseconds of `plan` for a partition",
}
"""What is measured, and of what."""
STORED = ("prompts_bytes", "tokenized_prompts_bytes", "raw_generations_bytes", "training_samples_bytes")
OF_ALL = ("corpus_summary_ms", "draft_vocabulary_ms", "plan_ms")

Figures = Mapping[str, float]
"""By the names of ``UNITS``."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """How a corpus is cut."""

    samples: int
    shard_rows: int
    """Samples in a partition."""
    datasets: int
    """Of the same size, each with sources of its own."""

    @property
    def partitions(self) -> int:
        """In all datasets, without trials. Each is one run of the job ``partition`` at least."""
        return self.datasets * ceil(self.samples / self.datasets / self.shard_rows)


CORPORA = (
    Corpus(1_000_000, 10_000, 1),
    Corpus(1_000_000, 10_000, 10),
    Corpus(100_000_000, 10_000, 100),
    Corpus(100_000_000, 100_000, 1),
    Corpus(100_000_000, 100_000, 100),
)
"""That ``docs/scale.md`` shows."""


@dataclass(frozen=True, slots=True)
class Servers:
    """What generates a corpus, in figures that others have published; none was measured here."""

    setup: str
    gpus: int
    tokens_per_s: float
    """Output tokens per second of all together."""
    gpu_hour: float
    """Price in US dollars."""
    source: str

    @property
    def price_per_hour(self) -> float:
        """Of all GPUs, in US dollars."""
        return self.gpus * self.gpu_hour


SERVERS = (
    Servers(
        "Kimi K2 on H200s, prefill apart, expert parallelism",
        gpus=128,
        tokens_per_s=288_000,
        gpu_hour=2.3,
        source="https://lmsys.org/blog/2025-07-20-k2-large-scale-ep",
    ),
    Servers(
        "DeepSeek-V3 on H100s, tensor parallelism alone",
        gpus=16,
        # Of each of the two nodes 22,282, divided by how many times as fast expert parallelism is.
        tokens_per_s=2 * 22_282 / 5.2,
        # What the source's own figures come to: 0.20 dollars * 22,300 * 3,600 / 1e6 / 8.
        gpu_hour=2.0,
        source="https://lmsys.org/blog/2025-05-05-large-scale-ep",
    ),
)
"""That ``docs/scale.md`` shows: what is possible, and what one begins with. Both with prompts of 2,000 tokens."""


def instance_bytes(corpus: Corpus, figures: Figures, kind: str = "run_bytes") -> float:
    """Of the Dagster instance when each partition was run once."""
    return corpus.partitions * figures[kind]


def stored_bytes(corpus: Corpus, figures: Figures) -> float:
    """Of the assets that hold a row for each sample; an export comes on top."""
    return corpus.samples * sum(figures[name] for name in STORED)


def source_cpu_s(corpus: Corpus, figures: Figures) -> float:
    """What runs spend on source rows that are not theirs, as JSON lines: a dataset's first run parses them all."""
    of_others = corpus.samples / corpus.datasets - corpus.shard_rows
    later = corpus.partitions - corpus.datasets
    return of_others * (corpus.datasets * figures["source_us"] + later * figures["known_source_us"]) / 1e6


def client_cpu_s(corpus: Corpus, figures: Figures) -> float:
    """Of asking and of judging, for all samples, whoever generates."""
    return corpus.samples * (figures["client_ms"] + figures["laws_ms"]) / 1_000


def runs_cpu_s(corpus: Corpus, figures: Figures) -> float:
    """What the runs cost before they do anything."""
    return corpus.partitions * figures["run_cpu_s"]


def all_cpu_s(corpus: Corpus, figures: Figures) -> float:
    """Of ``corpus_summary``, ``draft_vocabulary`` and ``plan``, once each, beside judging the samples."""
    return corpus.partitions * sum(figures[name] for name in OF_ALL) / 1_000


def generating_s(output_tokens: float, tokens_per_s: float) -> float:
    """How long generating takes.

    Args:
        output_tokens: in all.
        tokens_per_s: output tokens per second of all servers together, above 0.
    """
    return output_tokens / tokens_per_s


def cost_per_million(price_per_hour: float, tokens_per_s: float) -> float:
    """What a million output tokens cost, in the currency of the price.

    Args:
        price_per_hour: of all GPUs that make up the throughput.
        tokens_per_s: output tokens per second of these, above 0.
    """
    return price_per_hour * 1_000_000 / (tokens_per_s * 3_600)


def client_cores(tokens_per_s: float, output_tokens: float, figures: Figures) -> float:
    """Cores that asking keeps busy.

    Args:
        tokens_per_s: output tokens per second of all servers together.
        output_tokens: of a sample.
        figures: as measured.
    """
    return tokens_per_s / output_tokens * figures["client_ms"] / 1_000


def figures_table(figures: Figures) -> str:
    """A Markdown table that :func:`read_figures` reads."""
    rows = (f"| `{name}` | {_shown(figures[name])} | {unit} |" for name, unit in UNITS.items() if name in figures)
    return "\n".join(("| name | figure | of what |", "|---|--:|---|", *rows))


def read_figures(page: str) -> dict[str, float]:
    """The figures of a page's table, as it shows them."""
    found = re.findall(r"^\| `(\w+)` \| ([\d,.]+) \| ", page, re.MULTILINE)
    return {name: float(number.replace(",", "")) for name, number in found if name in UNITS}


def corpora_table(figures: Figures, corpora: Sequence[Corpus] = CORPORA) -> str:
    """What each corpus needs, a Markdown table with a column for each."""
    rows = {
        "samples": [f"{c.samples:,}" for c in corpora],
        "datasets": [f"{c.datasets:,}" for c in corpora],
        "samples in a shard": [f"{c.shard_rows:,}" for c in corpora],
        "**partitions**, and runs": [f"**{c.partitions:,}**" for c in corpora],
        "instance on SQLite": [size(instance_bytes(c, figures)) for c in corpora],
    }
    if "run_bytes_postgres" in figures:
        rows["instance on Postgres"] = [size(instance_bytes(c, figures, "run_bytes_postgres")) for c in corpora]
    rows |= {
        "stored rows, without exports": [size(stored_bytes(c, figures)) for c in corpora],
        "an export as `jsonl`": [size(c.samples * figures["export_jsonl_bytes"]) for c in corpora],
        "an export as `parquet`": [size(c.samples * figures["export_parquet_bytes"]) for c in corpora],
        "asking and judging, CPU": [hours(client_cpu_s(c, figures)) for c in corpora],
        "starting runs, CPU": [hours(runs_cpu_s(c, figures)) for c in corpora],
        "reading source rows of other shards, CPU": [hours(source_cpu_s(c, figures)) for c in corpora],
        "`corpus_summary`, `draft_vocabulary` and `plan`, once each, CPU": [
            hours(all_cpu_s(c, figures)) for c in corpora
        ],
    }
    lines = [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]
    return "\n".join((lines[0], "|---|" + "--:|" * len(corpora), *lines[1:]))


def examples_table(figures: Figures, samples: Sequence[int] = (1_000_000, 100_000_000)) -> str:
    """Time, money and client cores of generating, a Markdown table with a column for each of ``SERVERS``."""
    speeds = [one.tokens_per_s for one in SERVERS]
    costs = [cost_per_million(one.price_per_hour, one.tokens_per_s) for one in SERVERS]
    rows = {
        "": [f"[{one.setup}]({one.source})" for one in SERVERS],
        "GPUs": [f"{one.gpus}" for one in SERVERS],
        "a GPU hour": [f"{one.gpu_hour:.2f} $" for one in SERVERS],
        "output tokens per second, together": [f"{speed:,.0f}" for speed in speeds],
        "**a million output tokens**": [f"**{cost:.2f} $**" for cost in costs],
    }
    for count in samples:
        output = count * OUTPUT_TOKENS
        rows[f"{count:,} samples"] = [
            f"{hours(generating_s(output, speed))}, {cost * output / 1e6:,.0f} $"
            for speed, cost in zip(speeds, costs, strict=True)
        ]
    rows["**client cores** that asking keeps busy"] = [
        f"**{client_cores(speed, OUTPUT_TOKENS, figures):.2g}**" for speed in speeds
    ]
    lines = [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]
    return "\n".join((lines[0], "|---|" + "--:|" * len(SERVERS), *lines[1:]))


def size(count: float) -> str:
    """Bytes in decimal units, to three digits."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1_000
    return f"{count:.3g} TB"


def hours(seconds: float) -> str:
    """Seconds as hours, to two digits; less than an hour as minutes."""
    return f"{float(f'{seconds / 3600:.2g}'):,.10g} h" if seconds >= 3_600 else f"{seconds / 60:.2g} min"


def _shown(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"
