"""Several runs on the same servers: how many requests are under way at once, and how much of the servers is used.

What belongs here: runs that divide mock servers by ``engine.share_servers``. Not here: what one request costs
(``client_cost``).

Usage: python -m benchmarks.shared_servers [--full] [--write] [--postgres URL]
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

import dagster as dg

from benchmarks.client_cost import Case, drawn, mock_server
from benchmarks.mock_server import CONTEXT, STOP, VOCAB
from benchmarks.page import machine, write_part
from eagle3_assets.config import Sampling, SglangEngineSettings
from eagle3_assets.engines.base import Request
from eagle3_assets.engines.sglang import SglangEngine
from eagle3_assets.sharing import SlotShare
from eagle3_assets.target import ModelFacts

RUNS = (1, 2, 4, 8)
SERVERS = 2
LIMIT = 16
"""Requests that each server takes at once."""
LATENCY_S = 0.4

PART = """\
## Several runs on the same servers, instance in {storage}

{servers} mock servers take {limit} requests at once each, an answer takes {latency:g} s. The same requests are asked
for by one run, or by several that start together and divide them; all runs have `engine.share_servers` on and one
Dagster instance. Written by `benchmarks/shared_servers.py`:

```bash
{command}
```

{machine}

| runs | requests | most at once, each server | of ideal, median | lowest |
|--:|--:|---|--:|--:|
{runs}

*Of ideal*: the sum of all latencies over the requests that the servers take, divided by the time from the first run's
start to the last one's end. Times measured: {times} for each line.
"""


@dataclass(frozen=True, slots=True)
class Shared:
    """What came of some runs together."""

    runs: int
    requests: int
    seconds: float
    peaks: tuple[int, ...]
    """The most requests at once, of each server."""
    latency_s: float
    """Sum over all requests."""

    @property
    def of_ideal(self) -> float:
        """Share of the servers that was used, 0 to 1."""
        return self.latency_s / (SERVERS * LIMIT) / self.seconds


async def _run(instance: dg.DagsterInstance, urls: Sequence[str], requests: Sequence[Request]) -> None:
    run = instance.add_run(dg.DagsterRun(job_name="partition"))
    settings = SglangEngineSettings(kind="sglang", endpoints=tuple(urls), share_servers=True)
    share = SlotShare(instance, run.run_id)
    engine = SglangEngine(settings, ModelFacts(VOCAB, CONTEXT, (STOP,)), share=share)
    await engine.start()
    try:
        # As the generation loop does: no more than the servers take, the next when one has ended.
        window = asyncio.Semaphore(engine.capacity)

        async def ask(request: Request) -> None:
            async with window:
                await engine.generate(request)

        await asyncio.gather(*map(ask, requests))
    finally:
        await engine.close()


def measure(runs: int, requests: int, postgres: str | None = None) -> Shared:
    """Has so many runs ask for so many requests in all, on servers of their own.

    Args:
        runs: that share the servers.
        requests: of all runs together.
        postgres: URL of the database of the Dagster instance; without, it is on SQLite.
    """
    case = Case(requests, LIMIT, 4, LATENCY_S)
    asked = [Request(f"{n}", f"{n}", [10_000 + n], Sampling(max_new_tokens=64), n) for n in range(requests)]
    storage = {"storage": {"postgres": {"postgres_url": postgres}}} if postgres else None
    with ExitStack() as stack:
        urls = [stack.enter_context(mock_server(case))[0] for _ in range(SERVERS)]
        home = stack.enter_context(tempfile.TemporaryDirectory())
        instance = stack.enter_context(dg.DagsterInstance.local_temp(home, overrides=storage))

        async def together() -> float:
            # A process of its own has threads of its own, and no run waits for another's.
            asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(runs))
            began = time.monotonic()
            await asyncio.gather(*(_run(instance, urls, asked[i::runs]) for i in range(runs)))
            return time.monotonic() - began

        seconds = asyncio.run(together())
        seen = [drawn(url) for url in urls]
    return Shared(
        runs=runs,
        requests=requests,
        seconds=seconds,
        peaks=tuple(int(one["peak"]) for one in seen),
        latency_s=sum(one["seconds"] for one in seen),
    )


def report(taken: Sequence[Sequence[Shared]], command: str, storage: str = "SQLite") -> str:
    """The part of the page."""
    lines = []
    for each in taken:
        peaks = ", ".join(str(max(one.peaks[server] for one in each)) for server in range(SERVERS))
        shares = [one.of_ideal for one in each]
        lines.append(
            f"| {each[0].runs} | {each[0].requests:,} | {peaks} | {statistics.median(shares):.1%} | {min(shares):.1%} |"
        )
    return PART.format(
        servers=SERVERS,
        limit=LIMIT,
        latency=LATENCY_S,
        storage=storage,
        command=command,
        machine=machine(("dagster", "aiohttp")),
        runs="\n".join(lines),
        times=len(taken[0]),
    )


def main() -> None:
    """Measures, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the figures that docs/benchmarks.md shows")
    parser.add_argument("--write", action="store_true", help="write the report into docs/benchmarks.md as well")
    parser.add_argument("--postgres", metavar="URL", help="of the instance's database; needs dagster-postgres")
    arguments = parser.parse_args()
    requests, times = (3200, 2) if arguments.full else (640, 1)
    taken = []
    for runs in RUNS:
        taken.append([measure(runs, requests, arguments.postgres) for _ in range(times)])
        print(taken[-1], file=sys.stderr, flush=True)
    if arguments.postgres:
        name, storage = "shared_servers_postgres", "Postgres"
        command = f"python -m benchmarks.shared_servers{' --full' * arguments.full} --postgres URL"
    else:
        name, storage = "shared_servers", "SQLite"
        command = f"make bench{' BENCH=full' * arguments.full}"
    part = report(taken, command, storage)
    print(part)
    if arguments.write:
        write_part(name, part)


if __name__ == "__main__":
    main()
