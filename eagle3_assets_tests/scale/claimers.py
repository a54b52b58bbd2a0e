"""Runs that claim shares of a server at the same moment: a process of its own, as ``sharer``.

``python -m eagle3_assets_tests.scale.claimers RUNS LIMIT``: prints what each run was given, a JSON list.
"""

import json
import sys
import threading
import uuid

import dagster as dg

from eagle3_assets.engines.base import Standing
from eagle3_assets.sharing import SlotShare


def claim_at_once(instance: dg.DagsterInstance, runs: int, limit: int) -> list[int]:
    """What each of so many runs gets of a server that none has used before; each wants all that the server takes.

    Raises:
        RuntimeError: a run's claim failed.
    """
    standing = Standing(f"http://127.0.0.1/{uuid.uuid4()}", limit, allowed=0, in_flight=0, wanted=limit)
    ids = [instance.add_run(dg.DagsterRun(job_name="partition")).run_id for _ in range(runs)]
    shares = [SlotShare(instance, run_id) for run_id in ids]
    at_once = threading.Barrier(runs)
    given: list[int] = []

    def claim(share: SlotShare) -> None:
        at_once.wait()
        given.append(share.settle([standing])[standing.endpoint])

    threads = [threading.Thread(target=claim, args=[share]) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for share in shares:
        share.release()
    if len(given) < runs:
        raise RuntimeError(f"{runs - len(given)} of {runs} runs got no answer")
    return given


if __name__ == "__main__":
    with dg.DagsterInstance.get() as here:
        print(json.dumps(claim_at_once(here, int(sys.argv[1]), int(sys.argv[2]))))
