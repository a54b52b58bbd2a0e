"""What generating costs on the client's side, compared with a bare loop and with a pool of threads in the same run.

What belongs here: which clients run against which mock server, and the report. Not here: clients, server.

Usage: python -m benchmarks.client_cost [--full] [--write] [--note TEXT]
The short form takes a few minutes. Every client is a process of its own; the mock server's work is not counted.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.page import machine, write_part

ROOT = Path(__file__).parent.parent
PAIRS = ("ours", "bare", "threads")
CLIENTS = {
    "ours": "eagle3_assets: engine, loop, journal, sealed file",
    "bare": "bare aiohttp loop: no retry, no journal, no check",
    "threads": "pool of threads, one for each request in flight, on the chat endpoint: text, no ids",
    "dagster": "one row through the whole job",
}
PART = """\
## The client

What generating costs on the client's side, against a mock server on the same machine that answers like SGLang 0.5.23.
All clients were measured in the same run, each in a process of its own. Written by `benchmarks/client_cost.py`:

```bash
{command}
```

{machine}

Clients:

{clients}

### Speed

{speed}

*Of ideal*: of `in flight / latency`, where latency is the mean of those that the server drew.
*Samples/s* is of asking alone. *CPU* is of all threads, user and system, and has everything in it: reading prompts,
journal, sealing; Python's imports are left out for every client. *Heavy tail*: lognormal with the same mean, sigma 1.
*Mock* and *others* are the processor cores that the server and everything else on the machine used meanwhile: where all
together come near the number of cores, the figures are worse than they should be, and only the comparison counts.

### Memory

Peak of the whole process, and what it grew for each prompt more than in the line before.

{memory}

### Dagster's own cost

What a run costs before it generates much: the whole job on one prompt, every asset and every check,
{dagster}, Dagster's imports and a new instance included.
"""
TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Case:
    """One mock server, and the clients that are run against it one after the other."""

    prompts: int
    in_flight: int
    ids: int
    latency_s: float
    sigma: float = 0.0
    """Of the logarithm of the latency; 0 for a fixed one."""
    clients: tuple[str, ...] = PAIRS

    @property
    def name(self) -> str:
        """For the report."""
        tail = ", heavy tail" if self.sigma else ""
        return f"{self.latency_s * 1000:.0f} ms{tail}, {self.ids:,} ids, {self.in_flight} in flight"


@dataclass(frozen=True, slots=True)
class Result:
    """What one client did in one case."""

    case: Case
    client: str
    samples: int
    seconds: float
    whole_seconds: float
    cpu_ms: float
    peak_mib: float
    ideal_s: float
    """The sum of all latencies over the requests in flight: no client can be faster. 0 without latency."""
    mock_cores: float
    """Processor cores that the mock server used."""
    other_cores: float
    """Processor cores that everything else on the machine used meanwhile, from the client's start to its end."""

    @property
    def rate(self) -> float:
        """Samples per second while asking."""
        return self.samples / self.seconds


def cases(*, full: bool) -> list[Case]:
    """What is measured."""
    small, many = (2_000, 20_000) if full else (1_000, 4_000)
    found = [
        Case(small, 256, 200, 0.0),
        Case(many, 256, 200, 0.0),
        Case(many, 256, 1_000, 0.0),
        Case(small, 256, 2_000, 0.0),
        Case(many // (1 if full else 2), 64, 200, 0.2),
        Case(many, 256, 200, 0.2),
        Case(many, 256, 1_000, 0.2),
        Case(many, 256, 200, 0.2, sigma=1.0),
        Case(1, 1, 200, 0.0, clients=("dagster",)),
    ]
    if full:
        found += [Case(many, 64, 200, 0.2, sigma=1.0), Case(10 * many, 256, 200, 0.0, clients=("ours",))]
    return found


@contextmanager
def mock_server(case: Case) -> Iterator[tuple[str, int]]:
    """A server of its own process for one case: URL and process id."""
    arguments = ["--ids", case.ids, "--latency", case.latency_s, "--sigma", case.sigma, "--running", case.in_flight]
    command = [sys.executable, "-m", "benchmarks.mock_server", *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603 - our own
        assert server.stdin is not None and server.stdout is not None  # noqa: S101 - for the type checker
        try:
            yield server.stdout.readline().strip(), server.pid
        finally:
            server.stdin.close()


def drawn(url: str) -> dict[str, float]:
    """What a mock server was asked since the last call; see ``mock_server.Latency.drawn``."""
    with urllib.request.urlopen(f"{url}/drawn") as reply:  # noqa: S310 - our own server
        return dict(json.loads(reply.read()))


def measure(case: Case, prompts: Path) -> Iterator[Result]:
    """Runs the clients of one case."""
    with mock_server(case) as (url, pid):
        for client in case.clients:
            began, busy, mock, own = time.monotonic(), _busy_s(), _process_s(pid), _children_s()
            command = [sys.executable, "-m", "benchmarks.clients", client, url, str(prompts), str(case.in_flight)]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own
            if done.returncode:
                raise SystemExit(f"{client}, {case.name}: failed\n{done.stderr}")
            figures = json.loads(done.stdout.splitlines()[-1])
            mock, own = _process_s(pid) - mock, _children_s() - own
            others = max(0.0, _busy_s() - busy - mock - own) / (time.monotonic() - began)
            yield Result(
                case,
                client,
                **figures,
                ideal_s=drawn(url)["seconds"] / case.in_flight,
                mock_cores=mock / figures["seconds"],
                other_cores=others,
            )


def write_prompts(directory: Path, count: int) -> Path:
    """Seeded prompts, made in a process of its own; see ``clients.write_prompts``."""
    place = directory / str(count)
    if not place.exists():
        place.mkdir()
        code = "import sys; from pathlib import Path; from benchmarks.clients import write_prompts as w;"
        code += "w(Path(sys.argv[1]), int(sys.argv[2]))"
        subprocess.run([sys.executable, "-c", code, str(place), str(count)], cwd=ROOT, check=True)  # noqa: S603 - our own
    return place


def report(results: list[Result], command: str, note: str | None = None) -> str:
    """The part of the page.

    Args:
        results: of all cases.
        command: that makes them.
        note: what else a reader has to know of this run.
    """
    return PART.format(
        command=command,
        machine="\n".join([machine(("aiohttp", "msgspec", "polars", "dagster")), *([f"- {note}"] if note else [])]),
        clients="\n".join(f"- **{name}**: {CLIENTS[name]}" for name in PAIRS),
        speed="\n".join(_speed_table(results)),
        memory="\n".join(_memory_table(results)),
        dagster="".join(_dagster(results)),
    )


def _speed_table(results: Iterable[Result]) -> list[str]:
    lines = [
        "| case | prompts | client | samples/s | of ideal | of bare | CPU ms/sample | mock | others |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    bare = {r.case: r.rate for r in results if r.client == "bare"}
    for r in (r for r in results if len(r.case.clients) > 1):
        ideal = f"{r.ideal_s / r.seconds:.1%}" if r.ideal_s else ""
        lines.append(
            f"| {r.case.name} | {r.samples:,} | {r.client} | {r.rate:,.0f} | {ideal} | {r.rate / bare[r.case]:.0%} "
            f"| {r.cpu_ms:.2f} | {r.mock_cores:.2f} | {r.other_cores:.2f} |"
        )
    return lines


def _memory_table(results: Iterable[Result]) -> list[str]:
    lines = [
        "| client | prompts of 200 ids | peak MiB | KiB per prompt more |",
        "|---|--:|--:|--:|",
    ]
    for client in PAIRS:
        before: Result | None = None
        for r in results:
            if r.client == client and (r.case.ids, r.case.latency_s) == (200, 0.0):
                grown = ""
                if before is not None:
                    grown = f"{1024 * (r.peak_mib - before.peak_mib) / (r.samples - before.samples):.2f}"
                lines.append(f"| {client} | {r.samples:,} | {r.peak_mib:,.0f} | {grown} |")
                before = r
    return lines


def _dagster(results: Iterable[Result]) -> Iterator[str]:
    for r in results:
        if r.client == "dagster":
            yield f"took {r.whole_seconds:.1f} s and {r.cpu_ms / 1000:.1f} s of CPU"


def _busy_s() -> float:
    """CPU seconds of the whole machine so far."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / TICK


def _process_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def _children_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def main() -> None:
    """Measures, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the figures that docs/benchmarks.md shows; 15 minutes")
    parser.add_argument("--write", action="store_true", help="write the report into docs/benchmarks.md as well")
    parser.add_argument("--note", help="a line for the report about this run, such as what else the machine did")
    arguments = parser.parse_args()
    results = run(cases(full=arguments.full))
    command = "make bench" + (" BENCH=full" if arguments.full else "")
    part = report(results, command, arguments.note)
    print(part)
    if arguments.write:
        write_part("client_cost", part)


def run(todo: Iterable[Case]) -> list[Result]:
    """Measures the cases one after the other, and says on standard error how it goes."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as directory:
        for case in todo:
            for result in measure(case, write_prompts(Path(directory), case.prompts)):
                results.append(result)
                said = f"{case.name}: {result.client}: {result.rate:,.0f} samples/s, {result.cpu_ms:.2f} CPU ms each"
                print(said, file=sys.stderr, flush=True)
    return results


if __name__ == "__main__":
    main()
