"""The prompts of a whole partition to ids, in several processes where a slow tokenizer makes them worth their start.

What belongs here: when they are worth it, the processes, the order of what they give, and their faults. Not here: what
is done with a few rows (``judging.tokenize``), Dagster.
"""

import os
import signal
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import get_context, parent_process
from threading import Thread

import polars as pl

from eagle3_assets.config import Eagle3Config
from eagle3_assets.frames import batches
from eagle3_assets.judging import tokenize
from eagle3_assets.partitions import Partition
from eagle3_assets.project import Project
from eagle3_assets.target import LoadedTarget, TargetError, load_target

WORTH_BYTES = 32 << 20
"""Of conversations as JSON: with fewer, two processes take longer to start than they save (docs/benchmarks.md)."""
MOST_PROCESSES = 8
"""Each holds a tokenizer of its own, some hundred MiB."""
_ROWS = 500
"""In a batch for a process: few enough that all of them end at about the same time."""


def tokenized(
    project: Project, partition: Partition, target: LoadedTarget, prompts: pl.LazyFrame
) -> Iterator[pl.DataFrame]:
    """``tokenized_prompts`` of a partition, some rows at a time, in the order of the prompts.

    A tokenizer that is Python code keeps one core busy; of a large partition, each core gets a process then. A fast
    tokenizer uses all cores by itself.

    Args:
        project: its config lowers laws.
        partition: that the prompts are of.
        target: its tokenizer and template.
        prompts: ``contract.PROMPTS``.

    Raises:
        TargetError: a process could not load the target as it is here, or was ended from outside.
    """
    processes = _processes(target, prompts)
    if processes == 1:
        yield from (tokenize(project, partition, target, rows) for rows in batches(prompts))
        return
    work = _Work(project.config, partition, _hashes(target))
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin, (work,))
    waiting: deque[Future[pl.DataFrame]] = deque()
    try:
        for rows in batches(prompts, _ROWS):
            waiting.append(pool.submit(_tokenize, rows))
            if len(waiting) > 2 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise TargetError(
            f"one of the {processes} processes that render prompts was ended from outside, mostly for want of memory:"
            " free some, or give the dataset more shards; then materialize tokenized_prompts again"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _processes(target: LoadedTarget, prompts: pl.LazyFrame) -> int:
    if target.tokenizer.is_fast:
        return 1
    size = prompts.select(pl.col("messages").str.len_bytes().sum()).collect().item()
    return min(MOST_PROCESSES, _cores()) if size >= WORTH_BYTES else 1


def _cores() -> int:
    """Those that this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _hashes(target: LoadedTarget) -> tuple[str, str]:
    return target.tokenizer_sha256, target.template_sha256


@dataclass
class _Work:
    """What a process is told when it begins."""

    config: Eagle3Config
    partition: Partition
    hashes: tuple[str, str]
    """Of the tokenizer and the template, as the partition's run has loaded them."""

    @cached_property
    def target(self) -> LoadedTarget:
        """Loaded with the first rows, so that what is wrong with it comes back as their error."""
        target = load_target(self.config.target)
        if _hashes(target) != self.hashes:
            raise TargetError("the target's tokenizer or template was changed meanwhile; materialize again")
        return target


_WORK: list[_Work] = []
"""Of this process, once it has begun."""


def _begin(work: _Work) -> None:
    _WORK.append(work)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes: the first one ends the others
    Thread(target=_end_with_the_first, daemon=True).start()


def _end_with_the_first() -> None:
    """A process that waits for work does not notice by itself that nobody is left to give any."""
    first = parent_process()
    if first is not None:
        first.join()
    os._exit(1)


def _tokenize(rows: pl.DataFrame) -> pl.DataFrame:
    [work] = _WORK
    return tokenize(Project(work.config), work.partition, work.target, rows)
