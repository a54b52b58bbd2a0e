"""An engine without a model: what it answers follows from the prompt, and faults come as told."""

import asyncio
from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any

import polars as pl
from upath import UPath

from eagle3_assets.config import Sampling
from eagle3_assets.contract import TOKENIZED_PROMPTS
from eagle3_assets.engines.base import Description, Generation, Request
from eagle3_assets.generation.loop import Outcome, RetryPolicy, generate_partition
from eagle3_assets.generation.sealed import read_current, scan_sealed
from eagle3_assets.identity import Identity, ids_sha256

STOP = 1
VOCAB = 100
CONTEXT = 50
DESCRIPTION = Description("sha256:w", (STOP,), VOCAB, CONTEXT, {"engine": "fake", "versions": {"torch": "2.13"}})
IDENTITY = Identity(
    weights="sha256:w",
    tokenizer="t",
    chat_template="c",
    thinking=True,
    sampling=Sampling(max_new_tokens=8, seed=3),
    stop_token_ids=(STOP,),
)
OTHER_IDENTITY = IDENTITY.model_copy(update={"sampling": Sampling(max_new_tokens=9, seed=3)})
AT_ONCE = RetryPolicy(attempts=4, first_wait_s=0.0, longest_wait_s=0.0)

Fault = Callable[[int], Exception | None]
"""Given how often this sample was asked for before, the error to raise, or None to answer."""


class FakeEngine:
    """Answers ``[prompt's length, its last id, STOP]``."""

    def __init__(self, capacity: int = 8, faults: dict[str, Fault] | None = None, delay: float = 0.0) -> None:
        self.capacity = capacity
        self.faults = faults or {}
        self.delay = delay
        self.asked: Counter[str] = Counter()
        self.seeds: dict[str, int] = {}
        self.logprobs: set[str] = set()
        self.in_flight = self.most_in_flight = self.most_tasks = 0
        self.alive = True
        self.reply: dict[str, Any] = {}

    async def start(self) -> Description:
        return DESCRIPTION

    async def generate(self, request: Request) -> Generation:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        self.most_tasks = max(self.most_tasks, len(asyncio.all_tasks()))
        try:
            # Answers come out of order: even samples wait longer than odd ones.
            await asyncio.sleep(self.delay * (1 + len(request.prompt_ids) % 3))
            before = self.asked[request.sample_id]
            self.asked[request.sample_id] += 1
            self.seeds[request.sample_id] = request.seed
            if request.want_logprobs:
                self.logprobs.add(request.sample_id)
            fault = self.faults.get(request.sample_id)
            error = fault(before) if fault else None
            if error is not None:
                raise error
            return answer(request, **self.reply)
        finally:
            self.in_flight -= 1

    async def healthy(self) -> bool:
        return self.alive

    async def close(self) -> None:
        return


def answer(request: Request, **changes: Any) -> Generation:
    output = [len(request.prompt_ids), request.prompt_ids[-1], STOP]
    values: dict[str, Any] = {
        "output_ids": output,
        "completion_tokens": len(output),
        "finish_type": "stop",
        "matched_stop": STOP,
        "finish_length": None,
        "prompt_tokens": len(request.prompt_ids),
        "endpoint": "fake",
        "latency_s": 0.25,
        "output_logprobs": [-0.5] * len(output) if request.want_logprobs else None,
        "logprob_kind": "model" if request.want_logprobs else None,
    }
    return Generation(**(values | changes))


def prompt_frame(count: int, start: int = 0, refused: AbstractSet[int] = frozenset()) -> pl.DataFrame:
    """Prompts ``s<start>`` and so on, of different lengths; some refused before generation."""
    rows = [
        {
            "sample_id": f"s{i}",
            "prompt_ids": [2 + (i * 7 + k) % 90 for k in range(1 + i % 20)],
            "prompt_tokens": 1 + i % 20,
            "thinking": True,
            "status": "refused" if i in refused else "ready",
            "reason": "prompt_injection" if i in refused else None,
        }
        for i in range(start, start + count)
    ]
    return pl.DataFrame(rows, schema=TOKENIZED_PROMPTS)


def generate(**arguments: Any) -> Outcome:
    """Generates a partition in an event loop of its own."""
    return asyncio.run(generate_partition(**arguments))


def run(
    base: Path,
    prompts: pl.DataFrame,
    engine: FakeEngine | None = None,
    identity: Identity = IDENTITY,
    **others: Any,
) -> Outcome:
    """Generates into ``base/data`` with the journal in ``base/journal``."""
    arguments: dict[str, Any] = {
        "directory": base / "data",
        "journal_directory": base / "journal",
        "prompts": prompts.lazy(),
        "identity": identity,
        "description": DESCRIPTION,
        "engine": engine or FakeEngine(),
        "retry": AT_ONCE,
    }
    return generate(**(arguments | others))


def sealed_rows(base: Path) -> pl.DataFrame:
    """All rows of the current file."""
    sealed = read_current(UPath(base / "data"))
    assert sealed is not None
    return scan_sealed(sealed).collect()


def check_whole(rows: pl.DataFrame, prompts: pl.DataFrame) -> None:
    """Every prompt has exactly one row, in order, and every output is the one that belongs to its prompt."""
    assert rows["sample_id"].to_list() == prompts["sample_id"].to_list()
    assert rows["request_key"].n_unique() == len(rows)
    for row, ids in zip(rows.iter_rows(named=True), prompts["prompt_ids"], strict=True):
        if row["status"] == "generated":
            assert row["prompt_ids"] == ids.to_list()
            assert row["output_ids"] == [len(ids), ids[-1], STOP]
            assert row["ids_sha256"] == ids_sha256(row["prompt_ids"], row["output_ids"])
        else:
            assert row["output_ids"] is None and row["reason"]
