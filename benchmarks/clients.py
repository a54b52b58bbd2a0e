"""The clients that are compared, each run as a process of its own that measures itself.

What belongs here: the whole generation path of this project, a bare aiohttp loop, a plain pool of threads, and a run of
the job through Dagster. Not here: which of them run with which figures, and the report (``client_cost``).

Usage: python -m benchmarks.clients {ours,bare,threads,dagster} URL PROMPTS IN_FLIGHT
It prints one JSON object. PROMPTS is a directory that ``write_prompts`` filled.
"""

import argparse
import asyncio
import http.client
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.mock_server import CONTEXT, STOP, VOCAB
from benchmarks.usage import cpu_s, peak_mib

PROMPT_IDS = 100
IDS_FILE, TEXT_FILE = "prompts.parquet", "prompts.jsonl"


def write_prompts(directory: Path, count: int) -> None:
    """Writes seeded prompts: ids as rows of ``tokenized_prompts``, and texts as chat messages."""
    import polars as pl

    from eagle3_assets.contract import TOKENIZED_PROMPTS

    numbers = random.Random(3)  # noqa: S311 - the same prompts in every run
    rows = ([numbers.randrange(10_000, STOP) for _ in range(PROMPT_IDS)] for _ in range(count))
    prompts = pl.DataFrame(
        {
            "sample_id": [f"conversation-{n}:0:0" for n in range(count)],
            "prompt_ids": pl.Series(rows, dtype=pl.List(pl.Int32)),
            "prompt_tokens": PROMPT_IDS,
            "thinking": True,
            "status": "ready",
            "reason": None,
        },
    ).cast(TOKENIZED_PROMPTS)
    prompts.write_parquet(directory / IDS_FILE, row_group_size=2000)
    with (directory / TEXT_FILE).open("w") as file:
        for n in range(count):
            content = " ".join(numbers.choices(("alpha", "beta", "gamma", "delta"), k=PROMPT_IDS))
            message = {"role": "user", "content": content}
            file.write(json.dumps({"id": f"conversation-{n}", "messages": [message]}) + "\n")


def ours(url: str, prompts: Path, in_flight: int, work: Path) -> tuple[int, float]:
    """The path of ``raw_generations``: the engine, the loop, the journal, the sealed file."""
    import polars as pl

    from eagle3_assets.config import Sampling, SglangEngineSettings
    from eagle3_assets.engines.sglang import SglangEngine
    from eagle3_assets.generation.loop import generate_partition
    from eagle3_assets.identity import Identity
    from eagle3_assets.target import ModelFacts

    settings = SglangEngineSettings(kind="sglang", endpoints=(url,), max_in_flight=in_flight)
    sampling = Sampling(max_new_tokens=4096)

    async def run() -> tuple[int, float]:
        engine = SglangEngine(settings, ModelFacts(VOCAB, CONTEXT, (STOP,)))
        description = await engine.start()
        identity = Identity(
            weights=description.weights,
            tokenizer="t",
            chat_template="c",
            thinking=True,
            sampling=sampling,
            stop_token_ids=(STOP,),
        )
        outcome = await generate_partition(
            directory=work / "data",
            journal_directory=work / "journal",
            prompts=pl.scan_parquet(prompts / IDS_FILE),
            identity=identity,
            description=description,
            engine=engine,
            logprob_share=settings.logprob_share,
            progress=lambda _: None,
        )
        await engine.close()
        return outcome.generated, outcome.seconds

    return asyncio.run(run())


def bare(url: str, prompts: Path, in_flight: int, work: Path) -> tuple[int, float]:
    """Workers that post and write what comes: no retry, no journal, no check. What a client must at least do."""
    import aiohttp
    import polars as pl

    done = 0

    def requests() -> Iterator[tuple[str, list[int]]]:
        for batch in pl.scan_parquet(prompts / IDS_FILE).select("sample_id", "prompt_ids").collect_batches():
            yield from batch.iter_rows()

    async def worker(session: aiohttp.ClientSession, todo: Iterator[tuple[str, list[int]]], path: Path) -> None:
        nonlocal done
        with path.open("a") as file:
            for number, (name, ids) in enumerate(todo):
                sampling = {"max_new_tokens": 4096, "temperature": 1.0, "sampling_seed": number}
                async with session.post("/generate", json={"input_ids": ids, "sampling_params": sampling}) as response:
                    reply = await response.json()
                file.write(json.dumps({"id": name, "output_ids": reply["output_ids"]}) + "\n")
                done += 1

    async def run() -> None:
        todo = requests()
        timeout = aiohttp.ClientTimeout(total=None)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(url, connector=connector, timeout=timeout) as session:
            await asyncio.gather(*(worker(session, todo, work / "outputs.jsonl") for _ in range(in_flight)))

    began = time.monotonic()
    asyncio.run(run())
    return done, time.monotonic() - began


def threads(url: str, prompts: Path, in_flight: int, work: Path) -> tuple[int, float]:
    """A pool of threads on the chat endpoint, as today's scripts do it: text in, text out, a line for each.

    On the standard library's ``http.client`` with one kept connection a thread, which is cheaper than their clients.
    """
    place, local, lock, done = urlsplit(url), threading.local(), threading.Lock(), 0

    def ask(line: str) -> str:
        row = json.loads(line)
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection(place.hostname or "", place.port)
        body = json.dumps({"model": "m", "messages": row["messages"], "max_tokens": 4096, "temperature": 1.0})
        local.connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        reply = json.loads(local.connection.getresponse().read())
        answer = {"role": "assistant", "content": reply["choices"][0]["message"]["content"]}
        return json.dumps({"id": row["id"], "messages": [*row["messages"], answer]})

    began = time.monotonic()
    with (
        (prompts / TEXT_FILE).open() as source,
        (work / "outputs.jsonl").open("w") as file,
        ThreadPoolExecutor(in_flight) as pool,
    ):

        def write(line: str) -> None:
            nonlocal done
            with lock:
                file.write(line + "\n")
                done += 1

        for future in [pool.submit(lambda line: write(ask(line)), line) for line in source]:
            future.result()
    return done, time.monotonic() - began


def dagster(url: str, prompts: Path, in_flight: int, work: Path) -> tuple[int, float]:  # noqa: ARG001
    """The whole job on one row of the demo's prompts, as ``eagle3-assets materialize`` runs it: what a run costs.

    The answers are no tokens of the demo's target, so the laws find much to say, as they do on any broken data.
    """
    import dagster as dg

    from eagle3_assets.config import load_config
    from eagle3_assets.project import Project
    from eagle3_assets.running import materialize

    config = work / "eagle3.yaml"
    engine = {"kind": "sglang", "endpoints": [url], "max_in_flight": in_flight}
    row = {"messages": [{"role": "user", "content": "Hello!"}]}
    (work / "prompts.jsonl").write_text(json.dumps(row) + "\n")
    dataset = {"name": "d", "source": "prompts.jsonl", "sampling": {"max_new_tokens": 512}}
    storage = {"root": str(work / "data")}
    values = {"target": {"model": "demo"}, "engine": engine, "storage": storage, "datasets": [dataset]}
    config.write_text(json.dumps(values))  # which is YAML too
    (work / "instance").mkdir()
    overrides = {"telemetry": {"enabled": False}}
    began = time.monotonic()
    with dg.DagsterInstance.local_temp(str(work / "instance"), overrides=overrides) as instance:
        (run,) = materialize(Project(load_config(config)), ["d"], instance)
    return run.generated or 0, time.monotonic() - began


CLIENTS: dict[str, Callable[[str, Path, int, Path], tuple[int, float]]] = {
    "ours": ours,
    "bare": bare,
    "threads": threads,
    "dagster": dagster,
}
"""Each takes URL, prompts, requests in flight and a directory to write to, and returns how many samples it got and the
seconds from the first request to the last answer."""


def measured(client: str, url: str, prompts: Path, in_flight: int) -> dict[str, float]:
    """Runs a client in this process.

    Returns:
        ``samples``; ``seconds`` of asking and ``whole_seconds`` with what comes before and after; ``cpu_ms`` of a
        sample, user and system, of all threads; ``peak_mib`` of this process, imports included.
    """
    with tempfile.TemporaryDirectory() as work:
        import aiohttp  # noqa: F401 - importing is no part of a client's work
        import polars  # noqa: F401

        import eagle3_assets.engines.sglang
        import eagle3_assets.generation.loop  # noqa: F401

        began, before = time.monotonic(), cpu_s()
        samples, seconds = CLIENTS[client](url, prompts, in_flight, Path(work))
        whole, cpu = time.monotonic() - began, cpu_s() - before
    return {
        "samples": samples,
        "seconds": seconds,
        "whole_seconds": whole,
        "cpu_ms": 1000 * cpu / max(samples, 1),
        "peak_mib": peak_mib(),
    }


def main() -> None:
    """Runs one client and prints what it measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("client", choices=CLIENTS)
    parser.add_argument("url")
    parser.add_argument("prompts", type=Path)
    parser.add_argument("in_flight", type=int)
    arguments = parser.parse_args()
    print(json.dumps(measured(arguments.client, arguments.url, arguments.prompts, arguments.in_flight)))


if __name__ == "__main__":
    main()
