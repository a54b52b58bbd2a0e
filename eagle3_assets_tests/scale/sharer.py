"""A run that shares a server with others: a process of its own, since Dagster on Postgres has its own environment.

``python -m eagle3_assets_tests.scale.sharer SERVER REQUESTS``: says what it has done, and
goes on with each line that it reads.
"""

import asyncio
import logging
import sys
import uuid

import dagster as dg

from benchmarks.mock_server import CONTEXT, STOP, VOCAB
from eagle3_assets.config import Sampling, SglangEngineSettings
from eagle3_assets.engines.base import Request
from eagle3_assets.engines.sglang import SglangEngine
from eagle3_assets.sharing import SlotShare
from eagle3_assets.target import ModelFacts


async def _run(instance: dg.DagsterInstance, server: str, number: int) -> None:
    run_id = str(uuid.uuid4())
    instance.add_run(dg.DagsterRun(job_name="partition", run_id=run_id))
    settings = SglangEngineSettings(kind="sglang", endpoints=(server,), share_servers=True)
    engine = SglangEngine(settings, ModelFacts(VOCAB, CONTEXT, (STOP,)), share=SlotShare(instance, run_id))
    await engine.start()
    await _done("started")
    sampling = Sampling(max_new_tokens=64)
    requests = (Request(f"{n}", f"{n}", [10_000 + n], sampling, n) for n in range(number))
    await asyncio.gather(*map(engine.generate, requests))
    await _done("answered")
    await engine.close()
    print("closed", flush=True)


async def _done(what: str) -> None:
    print(what, flush=True)
    await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    with dg.DagsterInstance.get() as here:
        asyncio.run(_run(here, sys.argv[1], int(sys.argv[2])))
