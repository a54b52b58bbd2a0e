"""What only a real SGLang server can show: true ids, equal to the embedded engine's, and what becomes of its faults."""

import asyncio
import json
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest
import yaml

from eagle3_assets.config import Sampling, SglangEngineSettings, TransformersEngineSettings, load_config
from eagle3_assets.engines.base import Description, Request, RequestRefusedError, Scores
from eagle3_assets.engines.sglang import SglangEngine
from eagle3_assets.engines.sglang.client import Client, open_session
from eagle3_assets.engines.sglang.wire import request_body
from eagle3_assets.engines.transformers import TransformersEngine
from eagle3_assets.generating import identity_of
from eagle3_assets.generation.loop import Outcome, RetryPolicy
from eagle3_assets.generation.progress import Progress
from eagle3_assets.generation.sealed import scan_sealed
from eagle3_assets.project import Project
from eagle3_assets.replaying import replay, score_rows
from eagle3_assets.running import materialize
from eagle3_assets.storage.files import scan_parquet, sealed_generations
from eagle3_assets.target import load_target, read_model_facts
from eagle3_assets_tests.conftest import DEMO
from eagle3_assets_tests.generation.fake import generate as generate_partition
from eagle3_assets_tests.real_sglang.server import RealServer

# Servers start in a minute, and a busy machine takes several for a corpus.
pytestmark = [pytest.mark.sglang, pytest.mark.timeout(1800)]

Pair = tuple[RealServer, RealServer]

MODEL = DEMO / "model"
WHOLE = ("function_calling", "reasoning-00of02", "reasoning-01of02", "chat")


def demo_project(folder: Path, engine: dict[str, Any]) -> Project:
    """The packaged demo with another engine, storing below a folder; greedy throughout.

    Two engines draw differently from the same seed, so only greedy outputs can be compared.
    """
    settings = yaml.safe_load((DEMO / "eagle3.yaml").read_text(encoding="utf-8"))
    settings |= {"engine": engine, "storage": {"root": str(folder / "data")}}
    for dataset in settings["datasets"]:
        dataset["source"] = str(DEMO / dataset["source"])
        dataset["sampling"]["temperature"] = 0.0
    folder.mkdir(exist_ok=True)
    path = folder / "eagle3.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return Project(load_config(path))


def settings_of(*servers: RealServer, **others: Any) -> SglangEngineSettings:
    endpoints = tuple(server.url for server in servers)
    return SglangEngineSettings.model_validate({"kind": "sglang", "endpoints": endpoints, **others})


@dataclass(frozen=True)
class Made:
    """What the pipeline made of the demo with one engine."""

    project: Project
    broken: dict[str, set[str]]
    """Checks and steps that failed, by partition."""

    def rows(self) -> pl.DataFrame:
        """Every row of the corpus, in the order of the partitions."""
        return pl.concat([scan_sealed(sealed_generations(self.project.layout, key)).collect() for key in WHOLE])


def make(folder: Path, engine: dict[str, Any]) -> Made:
    """Materializes the demo; its trials hold the same prompts and are left out."""
    project = demo_project(folder, engine)
    with dg.DagsterInstance.ephemeral() as instance:
        runs = list(materialize(project, WHOLE, instance))
    assert len(runs) == len(WHOLE)
    broken = {
        run.partition: {f.split(":")[0] for f in run.failures} | {c.name for c in run.checks if c.status == "failed"}
        for run in runs
    }
    return Made(project, broken)


@pytest.fixture(scope="session")
def made(servers: Pair, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The demo by real SGLang."""
    endpoints = [server.url for server in servers]
    settings = {"kind": "sglang", "endpoints": endpoints, "logprob_share": 1.0, "want_text": True}
    return make(tmp_path_factory.mktemp("sglang"), settings)


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The demo by the embedded engine."""
    return make(tmp_path_factory.mktemp("embedded"), {"kind": "transformers", "threads": 1, "logprob_share": 1.0})


def test_every_demo_partition_is_generated_and_breaks_no_law_but_what_the_model_breaks(
    made: Made, embedded: Made
) -> None:
    print(f"\nbroken by the tiny model, under either engine: {embedded.broken}")
    assert made.broken == embedded.broken
    rows = made.rows()
    assert rows["status"].unique().to_list() == ["generated"]
    assert rows["endpoint"].n_unique() == 2
    assert (rows["server_prompt_tokens"] == rows["prompt_ids"].list.len()).all()
    assert (rows["completion_tokens"] == rows["output_ids"].list.len()).all()
    assert rows["output_logprobs"].is_not_null().all() and rows["text"].is_not_null().all()
    tokens, seconds = float(rows["completion_tokens"].sum()), float(rows["latency_s"].sum())
    print(f"{len(rows)} samples, {tokens:,.0f} tokens, {tokens / seconds:.0f} tokens/s for each request in flight")


def test_greedy_ids_and_their_probabilities_are_those_of_the_embedded_engine(made: Made, embedded: Made) -> None:
    theirs, ours = made.rows(), embedded.rows()
    assert theirs.select("sample_id", "prompt_ids").equals(ours.select("sample_id", "prompt_ids"))
    both = pl.DataFrame({"sample": ours["sample_id"], "ours": ours["output_ids"], "theirs": theirs["output_ids"]})
    differing = both.filter(pl.col("ours") != pl.col("theirs"))
    print(f"\n{1 - len(differing) / len(both):.1%} of {len(both)} samples are equal token for token")
    for sample, a, b in differing.iter_rows():
        first = next(i for i, (x, y) in enumerate(zip([*a, None], [*b, None], strict=False)) if x != y)
        print(f"{sample} differs from output index {first} on, of {len(a)} and {len(b)}")
    assert not len(differing)
    apart = (ours["output_logprobs"].explode() - theirs["output_logprobs"].explode()).abs().to_numpy().max()
    print(f"log-probabilities differ by {apart:.1e} at most")
    assert apart < 1e-3


def start(engine: SglangEngine) -> Description:
    return asyncio.run(engine.start())


def generate(
    made: Made, folder: Path, engine: SglangEngine, during: Callable[[Progress], None] | None = None
) -> tuple[Outcome, pl.DataFrame]:
    """Generates the demo's longest partition once more, beside the pipeline."""
    description = start(engine)
    target = load_target(made.project.config.target)
    identity = identity_of(target, description, thinking=True, sampling=Sampling(max_new_tokens=768, temperature=0.0))
    outcome = generate_partition(
        directory=folder / "data",
        journal_directory=folder / "journal",
        prompts=scan_parquet(
            made.project.layout.asset_file("tokenized_prompts", "reasoning-00of02"), asset="tokenized_prompts"
        ),
        identity=identity,
        description=description,
        engine=engine,
        progress=during,
    )
    return outcome, scan_sealed(outcome.sealed).collect()


def check_as_before(made: Made, rows: pl.DataFrame) -> None:
    """The same ids as the undisturbed run gave."""
    assert rows["status"].unique().to_list() == ["generated"]
    before = scan_sealed(sealed_generations(made.project.layout, "reasoning-00of02")).collect()
    assert rows.select("sample_id", "output_ids").equals(before.select("sample_id", "output_ids"))


def once_underway(action: Callable[[], object], server: RealServer | None = None) -> Callable[[Progress], None]:
    """Does something in a thread as soon as a few samples are finished, and the server, if given, works on others."""
    done = threading.Event()

    def listen(progress: Progress) -> None:
        busy = server is None or any(one.in_flight and one.endpoint == server.url for one in progress.servers)
        if progress.done >= 1 and busy and not done.is_set():
            done.set()
            threading.Thread(target=action).start()

    return listen


def test_aborted_requests_are_sent_again(made: Made, pair: Pair, tmp_path: Path) -> None:
    abort = json.dumps({"rid": "", "abort_all": True}).encode()
    engine = SglangEngine(settings_of(pair[0]), read_model_facts(MODEL))
    statuses: list[int] = []
    outcome, rows = generate(
        made, tmp_path, engine, once_underway(lambda: statuses.append(pair[0].post("/abort_request", abort)))
    )
    assert statuses == [200]
    assert outcome.retries >= 1 and outcome.failures == {}
    check_as_before(made, rows)


def test_the_server_refuses_what_the_engine_never_sends_and_the_engine_caps_instead(pair: Pair) -> None:
    settings = settings_of(pair[0])
    facts = read_model_facts(MODEL)
    long = Request("k", "s", [100] * (facts.context_length - 30), Sampling(max_new_tokens=200, temperature=0.0), 0)
    too_long = Request("k", "s", [100] * (facts.context_length + 1), Sampling(max_new_tokens=1), 0)

    async def ask() -> None:
        async with open_session(settings, {}) as session:
            client = Client(session, pair[0].url)
            with pytest.raises(RequestRefusedError, match="status 400: Requested token count exceeds the model's max"):
                await client.generate(request_body(long, 200))
            with pytest.raises(RequestRefusedError, match="is longer than the model's context length"):
                await client.generate(request_body(too_long, 1))
        engine = SglangEngine(settings, facts)
        await engine.start()
        reply = await engine.generate(long)
        assert reply.finish_type == "length" and reply.finish_length == len(reply.output_ids)
        assert 0 < len(reply.output_ids) < 30
        print(f"\nroom for 30, {reply.finish_length} of them used")
        await engine.close()

    asyncio.run(ask())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_one_server_of_two_ends_midway_and_the_other_finishes(
    made: Made, pair: Pair, tmp_path: Path, number: signal.Signals
) -> None:
    engine = SglangEngine(settings_of(*pair), read_model_facts(MODEL))
    outcome, rows = generate(made, tmp_path, engine, once_underway(lambda: pair[1].send(number), pair[1]))
    pair[1].stop()
    assert outcome.failures == {}
    check_as_before(made, rows)
    assert (outcome.retries > 0) == (number is signal.SIGKILL)  # after SIGTERM a server finishes what it has
    print(f"\n{outcome.retries} requests sent again; answers by server: {rows['endpoint'].value_counts().rows()}")


def test_scores_are_those_of_the_embedded_engine_and_its_replay_passes(made: Made, embedded: Made, pair: Pair) -> None:
    rows = made.rows().head(40)
    facts = read_model_facts(MODEL)
    engines = SglangEngine(settings_of(*pair), facts), TransformersEngine(MODEL, TransformersEngineSettings(threads=1))

    async def ask(engine: SglangEngine | TransformersEngine) -> list[Scores | str]:
        await engine.start()
        try:
            return await score_rows(engine, rows, RetryPolicy())
        finally:
            await engine.close()

    theirs, ours = (asyncio.run(ask(engine)) for engine in engines)
    apart = 0.0
    for one, other in zip(theirs, ours, strict=True):
        assert isinstance(one, Scores) and isinstance(other, Scores)
        for a, b in ((one.logprobs, other.logprobs), (one.best, other.best)):
            assert len(a) == len(b)
            apart = max(apart, *(abs(x - y) for x, y in zip(a, b, strict=True)))
    print(f"\nscores of {len(rows)} outputs differ by {apart:.1e} at most")
    assert apart < 1e-3

    for source, project in (("its own", made.project), ("the embedded engine's", embedded.project)):
        settings = settings_of(*pair)
        for key in WHOLE:
            partition, sealed = project.partition(key), sealed_generations(project.layout, key)
            engine = SglangEngine(settings, facts)
            replayed = replay(project, partition, load_target(project.config.target), engine, sealed, samples=10)
            verdict = replayed.judged.report["replayed"]
            print(
                f"{key}, {source} outputs: {verdict.summary} tolerance {replayed.judged.context.replay_tolerance:.1e}"
            )
            assert (verdict.status, verdict.judged) == ("passed", 10)


def test_an_output_that_fills_the_context_cannot_be_scored_by_the_server(pair: Pair) -> None:
    facts = read_model_facts(MODEL)

    async def ask(spare: int) -> Scores:
        engine = SglangEngine(settings_of(pair[0]), facts)
        await engine.start()
        try:
            return await engine.score([100] * (facts.context_length - 20 - spare), [100] * 20)
        finally:
            await engine.close()

    with pytest.raises(RequestRefusedError, match=r"Input length .2046 tokens. exceeds the maximum allowed length"):
        asyncio.run(ask(2))
    assert len(asyncio.run(ask(8)).logprobs) == 20
