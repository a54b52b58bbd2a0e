"""Figures for Prometheus: what a run does now, and what there is of every partition.

What belongs here: which figures, and writing them in Prometheus' text format. Not here: where they come from
(``generation.progress``, ``recorded``), alerts of Prometheus (``deploy/prometheus``), Dagster.

A file is written under another name and renamed, as node_exporter's textfile collector wants it.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from eagle3_assets.generation.progress import Progress, Throttle
from eagle3_assets.generation.sealed import Pointer
from eagle3_assets.partitions import Partition

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

PAUSE_S = 5.0
"""Least seconds between two writes; Prometheus looks every 15 to 60."""

Found = Literal["passed", "warned", "failed", "not_judged", "no_result"]
"""What a check said last; ``no_result`` where it was to run and has not said anything."""


class MetricsError(Exception):
    """Figures cannot be written; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One metric with its samples."""

    name: str
    meaning: str
    samples: Sequence[tuple[Mapping[str, str], float]]
    """Labels and value."""
    counter: bool = False
    """Whether it only grows, from 0 at the start of a run."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What is known of one partition without judging anything."""

    partition: Partition
    sealed: Pointer | None
    damaged: bool = False
    materialized: Mapping[str, float] = field(default_factory=dict)
    """By asset, when Dagster recorded it last, as seconds since the epoch."""
    output_tokens: int | None = None
    """Of the last recorded ``raw_generations``."""
    checks: Mapping[tuple[str, str], Found] = field(default_factory=dict)
    """By asset and check."""


@contextmanager
def measured(
    directory: str | None, partition: Partition, warn: Callable[[str], object]
) -> Iterator[Callable[[Progress], None]]:
    """Keeps a partition's file up to date while it is generated, and says in it when that has ended.

    No run fails for its figures: what keeps them from being written is warned of once.

    Args:
        directory: ``metrics.directory`` of the config; without one nothing is written.
        partition: which.
        warn: is told why there is no file.

    Yields:
        what takes the snapshots, as often as they come.
    """
    if directory is None:
        yield lambda _: None
        return
    path = Path(directory) / f"eagle3_{partition.key}.prom"
    last: Progress | None = None
    warned = False

    def write(now: Progress | None, *, running: bool) -> None:
        nonlocal warned
        try:
            write_figures(generation_figures(partition, now, running=running, at=time.time()), path)
        except MetricsError as error:
            if not warned:
                warn(f"metrics.directory: {error}; the run goes on without")
            warned = True

    throttled = Throttle(lambda now: write(now, running=True), first_s=PAUSE_S, longest_s=PAUSE_S)

    def take(now: Progress) -> None:
        nonlocal last
        last = now
        throttled(now)

    try:
        yield take
    finally:
        write(last, running=False)


def generation_figures(partition: Partition, now: Progress | None, *, running: bool, at: float) -> list[Figure]:
    """The figures of a run. What is so at a moment (speed, requests under way, servers) ends with it.

    Args:
        partition: that it generates.
        now: how far it is; None where it had nothing to ask for.
        running: whether it still generates.
        at: when, as seconds since the epoch.
    """
    of = _labels(partition)

    def one(name: str, meaning: str, value: float, *, counter: bool = False) -> Figure:
        return Figure(f"eagle3_generation_{name}", meaning, [(of, value)], counter)

    figures = [
        one("running", "1 while the partition is generated; 1 stays behind a process that was killed.", running),
        one("last_update_timestamp_seconds", "When this file was written.", at),
        one(
            "failed_limit",
            "Share of failed rows above which the partition is refused: 1 - coverage.",
            _limit(partition),
        ),
    ]
    if now is None:
        return figures
    figures += [
        one("partition_rows", "Rows of the partition that were or will be asked for.", now.kept + now.total),
        one("earlier_failures", "Rows that failed in earlier runs, which this one does not ask for.", now.kept_failed),
        one("rows", "Rows that this run has to bring to an end.", now.total),
        one("rows_done", "Rows that it has brought to an end.", now.done, counter=True),
        Figure(
            "eagle3_generation_failures",
            "Rows of this run that failed, by reason.",
            [({**of, "reason": reason}, count) for reason, count in now.failures.items()],
            counter=True,
        ),
        one("retries", "Requests of this run that were sent again.", now.retries, counter=True),
        one("output_tokens", "Output tokens of this run.", now.tokens, counter=True),
    ]
    servers = [({**of, "server": server.endpoint}, server) for server in now.servers]
    figures.append(
        Figure(
            "eagle3_generation_server_evictions",
            "How often this run left the server out.",
            [(labels, server.evictions) for labels, server in servers],
            counter=True,
        )
    )
    if not running:
        return figures
    if now.eta_s is not None:
        figures.append(one("left_seconds", "Seconds left at the recent speed in rows.", now.eta_s))
    return [
        *figures,
        one("output_tokens_per_second", "Over the last two minutes.", now.recent_tokens_per_s),
        one("in_flight", "Requests under way.", now.in_flight),
        Figure(
            "eagle3_generation_server_up",
            "Whether this run sends the server requests now.",
            [(labels, server.live) for labels, server in servers],
        ),
        Figure(
            "eagle3_generation_server_in_flight",
            "Requests of this run under way there.",
            [(labels, server.in_flight) for labels, server in servers],
        ),
    ]


def partition_figures(states: Sequence[PartitionState], at: float) -> list[Figure]:
    """The figures of partitions as they are stored.

    Args:
        states: one for each.
        at: when they were looked at, as seconds since the epoch.
    """
    known = [(_labels(state.partition), state) for state in states]
    sealed = [(of, state.sealed) for of, state in known if state.sealed is not None]
    checks = [
        (of, asset, check, found) for of, state in known for (asset, check), found in sorted(state.checks.items())
    ]
    return [
        Figure("eagle3_state_timestamp_seconds", "When partitions were looked at.", [({}, at)]),
        Figure(
            "eagle3_partition_sealed",
            "Whether generations are sealed.",
            [(of, state.sealed is not None) for of, state in known],
        ),
        Figure(
            "eagle3_partition_damaged",
            "Whether the sealed file or its pointer cannot be read.",
            [(of, state.damaged) for of, state in known],
        ),
        Figure(
            "eagle3_partition_rows",
            "Prompts of the sealed file by what became of them.",
            [
                ({**of, "outcome": outcome}, getattr(pointer, outcome))
                for of, pointer in sealed
                for outcome in ("generated", "failed", "refused")
            ],
        ),
        Figure(
            "eagle3_partition_failed_limit",
            "Share of failed rows above which the partition is refused: 1 - coverage.",
            [(of, _limit(state.partition)) for of, state in known],
        ),
        Figure(
            "eagle3_partition_sealed_timestamp_seconds",
            "When it was sealed.",
            [(of, datetime.fromisoformat(pointer.sealed_at).timestamp()) for of, pointer in sealed],
        ),
        Figure(
            "eagle3_partition_output_tokens",
            "Output tokens, as Dagster recorded them.",
            [(of, state.output_tokens) for of, state in known if state.output_tokens is not None],
        ),
        Figure(
            "eagle3_partition_materialized_timestamp_seconds",
            "When Dagster recorded the asset last.",
            [
                ({**of, "asset": asset}, when)
                for of, state in known
                for asset, when in sorted(state.materialized.items())
            ],
        ),
        Figure(
            "eagle3_partition_checks",
            "Checks by what Dagster recorded of them last; nothing is judged anew.",
            [
                ({**of, "status": status}, sum(found == status for found in state.checks.values()))
                for of, state in known
                for status in ("passed", "warned", "failed", "not_judged", "no_result")
            ],
        ),
        Figure(
            "eagle3_partition_check_found",
            "1 for each check that failed or warned.",
            [
                ({**of, "asset": asset, "check": check, "status": found}, 1)
                for of, asset, check, found in checks
                if found in ("failed", "warned")
            ],
        ),
    ]


def figures_text(figures: Sequence[Figure]) -> str:
    """Figures in Prometheus' text format.

    Raises:
        MetricsError: the extra is missing.
    """
    registry = _registry(figures)
    from prometheus_client import generate_latest

    return generate_latest(registry).decode()


def write_figures(figures: Sequence[Figure], path: Path) -> None:
    """Writes figures into a file, whole or not at all.

    Raises:
        MetricsError: the extra is missing, or the file cannot be written.
    """
    registry = _registry(figures)
    from prometheus_client import write_to_textfile

    try:
        write_to_textfile(str(path), registry)
    except OSError as error:
        raise MetricsError(f"{path}: cannot be written: {error.strerror}") from None


def _registry(figures: Sequence[Figure]) -> "CollectorRegistry":
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
        from prometheus_client.registry import Collector
    except ImportError:
        raise MetricsError("prometheus_client is not installed; install the extra: pip install '.[metrics]'") from None

    def family(figure: Figure) -> Metric:
        names = list(figure.samples[0][0]) if figure.samples else []
        kind = CounterMetricFamily if figure.counter else GaugeMetricFamily
        made = kind(figure.name, figure.meaning, labels=names)
        for labels, value in figure.samples:
            made.add_metric(list(labels.values()), float(value))
        return made

    class Fixed(Collector):
        def collect(self) -> Iterator[Metric]:
            yield from map(family, figures)

    registry = CollectorRegistry()
    registry.register(Fixed())
    return registry


def _labels(partition: Partition) -> dict[str, str]:
    return {"dataset": partition.dataset.name, "partition": partition.key}


def _limit(partition: Partition) -> float:
    return 1.0 - partition.dataset.coverage
