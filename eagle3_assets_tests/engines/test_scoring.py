"""Scoring recorded outputs: by the embedded engine on a tiny model, by the SGLang engine on a server with faults."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
import pytest

from eagle3_assets.config import Sampling, SglangEngineSettings, TransformersEngineSettings
from eagle3_assets.contract import TokenIds
from eagle3_assets.engines import scoring
from eagle3_assets.engines.base import (
    EngineError,
    EngineUnavailableError,
    Request,
    RequestRefusedError,
    Scores,
    ScoringEngine,
    TransientEngineError,
)
from eagle3_assets.engines.sglang import Pace, SglangEngine
from eagle3_assets.engines.sglang.wire import read_scores
from eagle3_assets.engines.transformers import TransformersEngine
from eagle3_assets.generation.loop import RetryPolicy
from eagle3_assets.replaying import calibrated, score_rows
from eagle3_assets.target import ModelFacts
from eagle3_assets.tokens.laws.replay import LEAST_TOLERANCE
from eagle3_assets_tests.engines.conftest import CONTEXT, VOCAB
from eagle3_assets_tests.engines.fault_server import FaultServer
from eagle3_assets_tests.generation.fake import STOP

Pair = tuple[list[int], list[int]]
SOON = RetryPolicy(attempts=3, first_wait_s=0.01, longest_wait_s=0.02)


def embedded(checkpoint: Path, batch_size: int = 32) -> TransformersEngine:
    return TransformersEngine(checkpoint, TransformersEngineSettings(batch_size=batch_size, device="cpu", threads=1))


def over_http(server: FaultServer) -> SglangEngine:
    settings = SglangEngineSettings(endpoints=(server.url,), unavailable_wait_s=5.0)
    return SglangEngine(settings, ModelFacts(VOCAB, CONTEXT, (STOP,)), Pace(first_probe_s=0.05, check_every_s=0.1))


def ask(
    engine: TransformersEngine | SglangEngine, pairs: Sequence[Pair], *, start: bool = True
) -> list[Scores | BaseException]:
    async def run() -> list[Scores | BaseException]:
        if start:
            await engine.start()
        try:
            return await asyncio.gather(*(engine.score(*pair) for pair in pairs), return_exceptions=True)
        finally:
            await engine.close()

    return asyncio.run(run())


def pairs_of(count: int) -> list[Pair]:
    numbers = random.Random(0)  # noqa: S311 - test data
    return [
        tuple([numbers.randrange(10, VOCAB) for _ in range(numbers.randrange(1, 30))] for _ in range(2))  # type: ignore[misc]
        for _ in range(count)
    ]


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as made:
        made.server_info = {**(made.server_info or {}), "context_length": CONTEXT}
        yield made


def test_scores_are_what_was_recorded_at_generation(checkpoint: Path) -> None:
    sampling = Sampling(temperature=1.0, max_new_tokens=20)
    greedy = Sampling(temperature=0.0, max_new_tokens=20)

    async def run() -> None:
        engine = embedded(checkpoint)
        assert isinstance(engine, ScoringEngine)
        await engine.start()
        for kind in (sampling, greedy):
            requests = [Request(f"{n}", f"{n}", p, kind, n, want_logprobs=True) for n, (p, _) in enumerate(pairs_of(8))]
            made = await asyncio.gather(*map(engine.generate, requests))
            scored = await asyncio.gather(
                *(
                    engine.score(request.prompt_ids, reply.output_ids)
                    for request, reply in zip(requests, made, strict=True)
                )
            )
            for reply, scores in zip(made, scored, strict=True):
                assert scores.logprobs == pytest.approx(reply.output_logprobs, abs=1e-4)
                assert all(one <= best for one, best in zip(scores.logprobs, scores.best, strict=True))
                if kind is greedy:
                    assert scores.logprobs == scores.best
        await engine.close()

    asyncio.run(run())


def test_a_score_does_not_depend_on_its_batch(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = pairs_of(20)
    alone = ask(embedded(checkpoint, batch_size=1), pairs)
    for most in (scoring.MOST_LOGITS, 3 * 50 * VOCAB):
        monkeypatch.setattr(scoring, "MOST_LOGITS", most)
        for one, other in zip(alone, ask(embedded(checkpoint), pairs), strict=True):
            assert isinstance(one, Scores) and isinstance(other, Scores)
            assert other.logprobs == pytest.approx(one.logprobs, abs=1e-4)
            assert other.best == pytest.approx(one.best, abs=1e-4)


def test_a_batch_is_as_large_as_its_logits_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [scoring.Scored([1] * 5, [2] * 5), scoring.Scored([1] * 10, [2] * 10), scoring.Scored([1] * 15, [2] * 15)]
    for most, size in ((1, 1), (2 * 20 * VOCAB, 2), (3 * 30 * VOCAB - 1, 2), (3 * 30 * VOCAB, 3)):
        monkeypatch.setattr(scoring, "MOST_LOGITS", most)
        assert scoring.first_batch(rows, 32, VOCAB) == size
    assert scoring.first_batch(rows, 2, VOCAB) == 2


@pytest.mark.parametrize(
    ("prompt_ids", "output_ids", "said"),
    [
        ([], [1], "the prompt is empty"),
        ([1], [], "there is no output to score"),
        ([1, VOCAB], [1], f"id {VOCAB} is outside the target's vocabulary of {VOCAB}"),
        ([1], [-1], "id -1 is outside"),
        ([1] * 60, [1] * 5, f"prompt and output have 65 ids, the target's context holds {CONTEXT}"),
    ],
)
def test_what_cannot_be_scored_is_refused_and_never_sent(
    checkpoint: Path, server: FaultServer, prompt_ids: list[int], output_ids: list[int], said: str
) -> None:
    for engine in (embedded(checkpoint), over_http(server)):
        refused, fine = ask(engine, [(prompt_ids, output_ids), ([1], [2])])
        assert isinstance(refused, RequestRefusedError) and said in str(refused)
        assert isinstance(fine, Scores)
    assert len(server.bodies) == 1


def test_a_context_that_is_just_full_is_scored(checkpoint: Path) -> None:
    [scores] = ask(embedded(checkpoint), [([1] * (CONTEXT - 5), [2] * 5)])
    assert isinstance(scores, Scores) and len(scores.logprobs) == 5


def test_an_engine_that_is_not_started_says_so(checkpoint: Path, server: FaultServer) -> None:
    for engine in (embedded(checkpoint), over_http(server)):
        [answer] = ask(engine, [([1], [2])], start=False)
        assert isinstance(answer, EngineUnavailableError)


def test_who_waits_when_the_engine_closes_is_told(checkpoint: Path) -> None:
    async def run() -> list[Scores | BaseException]:
        engine = embedded(checkpoint, batch_size=1)
        await engine.start()
        waiting = [asyncio.create_task(engine.score(*pair)) for pair in pairs_of(30)]
        await asyncio.sleep(0)
        await engine.close()
        return await asyncio.gather(*waiting, return_exceptions=True)

    answers = asyncio.run(run())
    assert any(isinstance(answer, TransientEngineError) for answer in answers)
    assert all(isinstance(answer, Scores | TransientEngineError) for answer in answers)


def test_weights_that_are_no_numbers_are_refused(checkpoint: Path) -> None:
    async def run() -> None:
        engine = embedded(checkpoint)
        await engine.start()
        assert engine._loaded is not None
        engine._loaded.model.lm_head.weight.data.fill_(float("nan"))
        with pytest.raises(RequestRefusedError, match="NaN or infinite at output token 0"):
            await engine.score([1, 2], [3])
        engine._loaded.model.lm_head = None
        with pytest.raises(Exception, match="a batch of 1 prompts of up to 3 tokens failed: TypeError"):
            await engine.score([1, 2], [3])
        await engine.close()

    asyncio.run(run())


def test_the_request_generates_nothing_and_asks_from_the_first_output_id(server: FaultServer) -> None:
    [scores] = ask(over_http(server), [([5, 6, 7], [8, 9])])
    assert scores == Scores([-0.5, -0.5], [-0.25, -0.25])
    [body] = server.bodies
    assert body["rid"].startswith("score-")
    assert body["input_ids"] == [5, 6, 7, 8, 9]
    assert (body["return_logprob"], body["logprob_start_len"], body["top_logprobs_num"]) == (True, 2, 1)
    assert (body["sampling_params"]["max_new_tokens"], body["sampling_params"]["temperature"]) == (0, 0.0)


FAULTS = [
    "500", "502", "429", "503", "reset", "truncated", "no json", "empty", "list", "no meta", "null finish", "abort",
    "one place less", "other scored ids", "null score", "null best", "no best", "fewer best", "cut prompt",
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_reply_that_is_no_score_costs_a_second_attempt(server: FaultServer, fault: str) -> None:
    server.fault = lambda *_: fault if len(server.bodies) == 1 else None  # every request has a name of its own
    assert score_all(over_http(server), [([5, 6], [7, 8, 9])]) == [Scores([-0.5] * 3, [-0.25] * 3)]
    assert len(server.bodies) == 2


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("other scored ids", "the scores are of other ids than the output's (2 and 2 of them, the output has 2)"),
        ("null score", "not every id of the output has a score"),
        ("cut prompt", "scored 2 ids where 3 were sent"),
        ("abort", "aborted while scoring: Aborted"),
        ("abort 400", "aborted while scoring: too long for me"),
        ("400 text", "status 400: too long for me"),
    ],
)
def test_a_fault_that_stays_is_the_sample_s_own(server: FaultServer, fault: str, said: str) -> None:
    server.fault = lambda body, _: fault if len(body["input_ids"]) == 3 else None
    bad, good = score_all(over_http(server), [([5], [7, 8]), ([5], [7, 8, 9])])
    assert isinstance(bad, str) and said in bad
    assert isinstance(good, Scores)


def test_a_server_that_goes_is_left_out_and_the_other_scores(server: FaultServer) -> None:
    with FaultServer() as other:
        other.server_info = server.server_info
        settings = SglangEngineSettings(endpoints=(server.url, other.url), unavailable_wait_s=5.0)
        engine = SglangEngine(settings, ModelFacts(VOCAB, CONTEXT, (STOP,)), Pace(first_probe_s=0.05))
        other.on_request = lambda count: other.soon(0.0, other.down) if count == 1 else None
        other.delay_s = 0.2
        scores = score_all(engine, pairs_of(20))
    assert all(isinstance(one, Scores) for one in scores)
    assert other.bodies  # it had some of them


def test_a_body_that_is_no_json_is_told() -> None:
    with pytest.raises(TransientEngineError, match="s: malformed scores"):
        read_scores(b"\xff", [1], [2], "s")


@pytest.mark.parametrize(
    ("fault", "said"),
    [("400 text", "status 400: too long for me"), ("no logprobs", "the engine gave no log-probabilities")],
)
def test_without_an_answer_there_is_no_tolerance(server: FaultServer, fault: str, said: str) -> None:
    server.fault = lambda *_: fault
    with pytest.raises(EngineError, match=f"to calibrate the tolerance: .*{said}"):
        tolerance_on(over_http(server))


def test_the_tolerance_is_what_generating_and_scoring_differ_by(checkpoint: Path, server: FaultServer) -> None:
    assert tolerance_on(over_http(server)) == tolerance_on(embedded(checkpoint)) == LEAST_TOLERANCE
    rough = TransformersEngineSettings(device="cpu", threads=1, dtype="bfloat16")
    assert 0.01 < tolerance_on(TransformersEngine(checkpoint, rough)) < 2.0
    assert tolerance_on(embedded(checkpoint), prompts=0) == LEAST_TOLERANCE


def tolerance_on(engine: TransformersEngine | SglangEngine, prompts: int = 20) -> float:
    rows = pl.DataFrame({"prompt_ids": [p for p, _ in pairs_of(prompts)]}, schema={"prompt_ids": TokenIds})

    async def run() -> float:
        await engine.start()
        try:
            return await calibrated(engine, rows, SOON)
        finally:
            await engine.close()

    return asyncio.run(run())


def score_all(engine: SglangEngine, pairs: Sequence[Pair]) -> list[Scores | str]:
    rows = pl.DataFrame({"prompt_ids": [p for p, _ in pairs], "output_ids": [o for _, o in pairs]})

    async def run() -> list[Scores | str]:
        await engine.start()
        try:
            return await score_rows(engine, rows, SOON)
        finally:
            await engine.close()

    return asyncio.run(run())
