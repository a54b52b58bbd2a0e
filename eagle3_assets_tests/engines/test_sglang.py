"""The SGLang engine through the real loop, against servers that fail in every way: each prompt ends in one true row."""

import asyncio
import logging
import random
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from eagle3_assets.config import Sampling, SglangEngineSettings, Target
from eagle3_assets.engines.base import Description, EngineUnavailableError, Request, RequestRefusedError, ServerLoad
from eagle3_assets.engines.create import create_engine
from eagle3_assets.engines.sglang import Pace, SglangEngine, client
from eagle3_assets.generation.errors import GenerationStoppedError
from eagle3_assets.generation.loop import Outcome, RetryPolicy
from eagle3_assets.target import ModelFacts, read_model_facts
from eagle3_assets_tests.conftest import DEMO
from eagle3_assets_tests.engines.fault_server import Body, FaultServer
from eagle3_assets_tests.generation.fake import CONTEXT, STOP, VOCAB, check_whole, prompt_frame, sealed_rows
from eagle3_assets_tests.generation.fake import run as run_loop

MODEL = ModelFacts(VOCAB, CONTEXT, (STOP,))
PACE = Pace(
    first_probe_s=0.05,
    longest_probe_s=0.1,
    check_every_s=0.1,
    first_pause_s=0.01,
    longest_pause_s=0.1,
    remind_every_s=0.3,
)
SOON = RetryPolicy(attempts=6, first_wait_s=0.01, longest_wait_s=0.05)


def engine_of(*servers: FaultServer, model: ModelFacts = MODEL, **settings: Any) -> SglangEngine:
    endpoints = tuple(server.url for server in servers)
    values = {"kind": "sglang", "endpoints": endpoints, "unavailable_wait_s": 5.0, **settings}
    return SglangEngine(SglangEngineSettings.model_validate(values), model, PACE)


def describe(engine: SglangEngine) -> Description:
    return asyncio.run(engine.start())


def generate(base: Path, prompts: pl.DataFrame, engine: SglangEngine, **others: Any) -> Outcome:
    """Starts the engine in one event loop and generates in another."""
    arguments: dict[str, Any] = {"description": describe(engine), "retry": SOON}
    return run_loop(base, prompts, engine, **(arguments | others))  # type: ignore[arg-type]


def once(name: str) -> Any:
    return lambda _, before: name if before == 0 else None


def at_length(length: int, name: str) -> Any:
    """For prompts of that length, always."""
    return lambda body, _: name if len(body["input_ids"]) == length else None


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as made:
        yield made


@pytest.fixture
def other() -> Iterator[FaultServer]:
    with FaultServer() as made:
        yield made


def test_every_parameter_is_explicit_and_the_reply_becomes_the_row(tmp_path: Path, server: FaultServer) -> None:
    prompts = prompt_frame(30, refused={3})
    outcome = generate(tmp_path, prompts, engine_of(server), logprob_share=1.0)
    rows = sealed_rows(tmp_path)
    check_whole(rows, prompts)
    assert (outcome.generated, outcome.retries) == (29, 0)
    body = next(body for body in server.bodies if body["input_ids"] == prompts["prompt_ids"][0].to_list())
    key, nonce = body["rid"].rsplit("-", 1)
    assert key == rows["request_key"][0] and len(nonce) == 8
    assert (body["stream"], body["return_logprob"]) == (False, True)
    seed = body["sampling_params"].pop("sampling_seed")
    assert 0 <= seed < 2**63
    assert body["sampling_params"] == {
        "max_new_tokens": 8,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "min_new_tokens": 0,
        "n": 1,
        "stop_token_ids": [STOP],
        "ignore_eos": False,
        "skip_special_tokens": False,
        "no_stop_trim": True,
    }
    first = rows.row(0, named=True)
    assert (first["endpoint"], first["weight_version"], first["text"]) == (server.url, "default", None)
    assert (first["finish_type"], first["matched_stop"], first["cached_tokens"]) == ("stop", str(STOP), 0)
    assert (first["output_logprobs"], first["logprob_kind"]) == ([-0.5] * 3, "model")
    assert first["latency_s"] > 0


def test_text_is_kept_where_it_is_wanted(tmp_path: Path, server: FaultServer) -> None:
    generate(tmp_path, prompt_frame(1), engine_of(server, want_text=True))
    assert sealed_rows(tmp_path)["text"].to_list() == ["what it said"]


@pytest.mark.parametrize(
    "fault",
    [
        "500", "502", "408", "429", "503", "reset", "truncated", "no json", "no text", "empty", "list", "null ids",
        "text ids", "null in ids", "float ids", "no meta", "null finish", "counts as text", "other logprob ids",
        "short logprobs", "abort",
    ],
)  # fmt: skip
def test_a_fault_that_passes_costs_a_second_attempt(tmp_path: Path, server: FaultServer, fault: str) -> None:
    server.fault = once(fault)
    prompts = prompt_frame(12)
    outcome = generate(tmp_path, prompts, engine_of(server), logprob_share=1.0)
    check_whole(sealed_rows(tmp_path), prompts)
    assert (outcome.generated, outcome.retries, outcome.failures) == (12, 12, {})


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("500", "status 500: scheduler died"),
        ("reset", "connection lost: "),
        ("truncated", "malformed reply: "),
        ("null ids", "malformed reply: Expected `array`, got `null` - at `$.output_ids`"),
        ("null in ids", "malformed reply: Expected `int`, got `null` - at `$.output_ids["),
        ("list", "malformed reply: Expected `object`, got `array`"),
        ("abort", "aborted after 3 tokens: Aborted"),
        ("other logprob ids", "the log-probabilities are of other ids than output_ids (3 and 3 of them)"),
    ],
)
def test_a_fault_that_stays_is_a_failed_row_with_its_reason(
    tmp_path: Path, server: FaultServer, fault: str, said: str
) -> None:
    server.fault = at_length(5, fault)
    outcome = generate(tmp_path, prompt_frame(10), engine_of(server), logprob_share=1.0)
    rows = sealed_rows(tmp_path)
    assert outcome.failures == {"no answer after 6 attempts": 1}
    assert rows["status"].to_list() == ["generated"] * 4 + ["failed"] + ["generated"] * 5
    assert said in rows["reason"][4] and server.url in rows["reason"][4]


@pytest.mark.parametrize("fault", ["400 nested", "400 object", "400 text", "422 plain", "abort 400"])
def test_a_refusal_in_any_of_its_shapes_is_a_failed_row_at_once(
    tmp_path: Path, server: FaultServer, fault: str
) -> None:
    server.fault = at_length(5, fault)
    outcome = generate(tmp_path, prompt_frame(10), engine_of(server))
    assert (outcome.failures, outcome.retries) == ({"refused by the engine": 1}, 0)
    row = sealed_rows(tmp_path).row(4, named=True)
    assert row["attempts"] == 1 and row["reason"].endswith(": too long for me")


@pytest.mark.parametrize(
    ("fault", "column", "value"),
    [
        ("wrong prompt tokens", "server_prompt_tokens", 6),
        ("echo", "output_ids", [30, 31, 32, 33, 34, 5, 34, STOP]),
        ("nan stop", "matched_stop", '"NaN happened"'),
        ("stop list", "matched_stop", f'"[3, {STOP}]"'),
        ("two weights", "weight_version", "1, 2"),
        ("no logprobs", "output_logprobs", None),
    ],
)
def test_what_the_laws_judge_is_stored_as_it_came(
    tmp_path: Path, server: FaultServer, fault: str, column: str, value: Any
) -> None:
    server.fault = at_length(5, fault)
    share = 1.0 if column == "output_logprobs" else 0.0
    generate(tmp_path, prompt_frame(5), engine_of(server), logprob_share=share)
    row = sealed_rows(tmp_path).row(4, named=True)
    assert (row["status"], row[column], row["attempts"]) == ("generated", value, 1)


def test_a_log_probability_that_is_no_number_stays_one(tmp_path: Path, server: FaultServer) -> None:
    server.fault = at_length(1, "null logprob")
    generate(tmp_path, prompt_frame(1), engine_of(server), logprob_share=1.0)
    assert sealed_rows(tmp_path)["output_logprobs"].explode().is_nan().all()


def test_a_slow_drip_is_waited_for_and_a_hang_is_not(tmp_path: Path, server: FaultServer) -> None:
    def fault(body: Body, before: int) -> str | None:
        return "drip" if len(body["input_ids"]) == 2 else "hang" if before == 0 else None

    server.fault = fault
    prompts = prompt_frame(4)
    outcome = generate(tmp_path, prompts, engine_of(server, request_timeout_s=0.2))
    check_whole(sealed_rows(tmp_path), prompts)
    assert (outcome.generated, outcome.retries) == (4, 3)


def test_a_prompt_that_would_take_the_server_down_is_never_sent(server: FaultServer) -> None:
    engine = engine_of(server)

    async def ask(ids: list[int]) -> None:
        await engine.start()
        try:
            await engine.generate(Request("k", "s", ids, Sampling(max_new_tokens=2), 0))
        finally:
            await engine.close()

    for ids, said in (([], "empty"), ([3, VOCAB], f"id {VOCAB} is outside"), ([-1], "id -1 is outside")):
        with pytest.raises(RequestRefusedError, match=said):
            asyncio.run(ask(ids))
    assert not server.bodies


@pytest.mark.parametrize("policy", ["cap", "refuse"])
def test_what_exceeds_the_context_follows_the_policy(tmp_path: Path, server: FaultServer, policy: str) -> None:
    assert server.server_info is not None
    server.server_info["context_length"] = 20
    prompts = prompt_frame(20)  # of 1 to 20 ids; with 8 new tokens those of 12 and more exceed the context
    outcome = generate(tmp_path, prompts, engine_of(server, beyond_context=policy))
    caps = {len(body["input_ids"]): body["sampling_params"]["max_new_tokens"] for body in server.bodies}
    if policy == "cap":
        assert caps == {length: min(8, 19 - length) for length in range(1, 19)}
        assert outcome.failures == {"refused by the engine": 1, "no room in the context": 1}
    else:
        assert caps == dict.fromkeys(range(1, 12), 8)
        assert outcome.failures == {"refused by the engine": 8, "no room in the context": 1}
        reason = sealed_rows(tmp_path)["reason"][12]
        assert reason.endswith("beyond the context: 13 prompt ids and max_new_tokens 8 in 20")


def test_two_servers_share_the_work_by_their_speed(tmp_path: Path, server: FaultServer, other: FaultServer) -> None:
    server.delay_s = other.delay_s = 0.01
    generate(tmp_path / "equal", prompt_frame(200), engine_of(server, other))
    assert abs(server.answered - other.answered) <= 20
    assert server.most_in_flight == other.most_in_flight == 8
    before = server.answered, other.answered
    other.delay_s = 0.05
    generate(tmp_path / "unequal", prompt_frame(200), engine_of(server, other))
    assert server.answered - before[0] > 2 * (other.answered - before[1]) > 0


def test_few_prompts_are_shared_too(tmp_path: Path, server: FaultServer, other: FaultServer) -> None:
    server.delay_s = 0.05
    other.health_delay_s = 0.2  # the first to answer must not get everything
    generate(tmp_path, prompt_frame(8), engine_of(server, other))
    assert (server.answered, other.answered) == (4, 4)


def test_no_server_gets_more_than_was_configured(tmp_path: Path, server: FaultServer) -> None:
    server.delay_s = 0.005
    generate(tmp_path, prompt_frame(50), engine_of(server, max_in_flight=3))
    assert server.most_in_flight == 3


def test_the_window_shrinks_to_what_the_server_bears_and_nothing_fails(tmp_path: Path, server: FaultServer) -> None:
    server.most, server.delay_s = 3, 0.01
    engine = engine_of(server)
    prompts = prompt_frame(150)
    outcome = generate(tmp_path, prompts, engine)
    check_whole(sealed_rows(tmp_path), prompts)
    assert outcome.generated == 150
    assert 5 <= outcome.retries < 75  # at eight at once without end it would be several hundred


def test_a_dead_server_is_left_out_and_taken_back(
    tmp_path: Path, server: FaultServer, other: FaultServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.delay_s = other.delay_s = 0.01

    def die(count: int) -> None:
        if count == 40:
            threading.Thread(target=other.down).start()
            other.soon(0.5, other.up)

    other.on_request = die
    engine = engine_of(server, other)
    prompts = prompt_frame(1200)
    outcome = generate(tmp_path, prompts, engine)
    check_whole(sealed_rows(tmp_path), prompts)
    assert (outcome.generated, outcome.failures) == (1200, {})
    left_out = {one.endpoint: one.evictions for one in outcome.servers}
    assert left_out[server.url] == 0 < left_out[other.url]
    assert len(other.bodies) > 100
    said = [record.getMessage() for record in caplog.records]
    assert f"left out until it answers again: {other.url}: no connection: Connection refused" in said
    assert f"{other.url}: answers again" in said


def test_a_server_that_shuts_down_finishes_its_requests_and_gets_no_more(
    tmp_path: Path, server: FaultServer, other: FaultServer
) -> None:
    server.delay_s = 0.02
    other.delay_s = 0.4

    def drain(count: int) -> None:
        if count == 8:
            other.health = 503

    other.on_request = drain
    prompts = prompt_frame(200)
    outcome = generate(tmp_path, prompts, engine_of(server, other))
    check_whole(sealed_rows(tmp_path), prompts)
    assert (outcome.generated, outcome.retries) == (200, 0)
    assert (len(other.bodies), other.answered) == (8, 8)


def test_a_server_that_hangs_gives_its_requests_to_the_other(
    tmp_path: Path, server: FaultServer, other: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ASKING_TIMEOUT_S", 0.1)
    other.fault = lambda *_: "hang"

    def hang(_: int) -> None:
        other.health_delay_s = 10.0

    other.on_request = hang
    prompts = prompt_frame(50)
    outcome = generate(tmp_path, prompts, engine_of(server, other))
    check_whole(sealed_rows(tmp_path), prompts)
    assert (outcome.generated, outcome.retries) == (50, 8)


def test_the_only_server_away_for_a_while_costs_only_time(
    tmp_path: Path, server: FaultServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.delay_s = 0.005

    def die(count: int) -> None:
        if count == 50:
            threading.Thread(target=server.down).start()
            server.soon(1.5, server.up)

    server.on_request = die
    prompts = prompt_frame(200)
    outcome = generate(tmp_path, prompts, engine_of(server))
    check_whole(sealed_rows(tmp_path), prompts)
    assert (outcome.generated, outcome.failures) == (200, {})
    waiting = [r.getMessage() for r in caplog.records if "no server answers; waiting up to" in r.getMessage()]
    assert 2 <= len(waiting) <= 8


def test_every_server_gone_stops_the_run_and_the_next_one_asks_only_for_the_rest(
    tmp_path: Path, server: FaultServer, other: FaultServer
) -> None:
    server.delay_s = other.delay_s = 0.005

    def die(count: int) -> None:
        if count == 40:
            for one in (server, other):
                threading.Thread(target=one.down).start()

    server.on_request = die
    prompts = prompt_frame(200)
    with pytest.raises(GenerationStoppedError, match=r"no server has answered for 1 s .*run again to continue"):
        generate(tmp_path, prompts, engine_of(server, other, unavailable_wait_s=1.0))
    asked = len(server.bodies) + len(other.bodies)
    server.on_request = None
    server.up()
    other.up()
    outcome = generate(tmp_path, prompts, engine_of(server, other))
    check_whole(sealed_rows(tmp_path), prompts)
    assert outcome.kept >= asked - 16 and outcome.kept + outcome.generated == 200
    assert len(server.bodies) + len(other.bodies) == asked + outcome.generated


@pytest.mark.parametrize("in_flight", [1, 16])
def test_a_prompt_that_takes_the_server_down_fails_alone(tmp_path: Path, server: FaultServer, in_flight: int) -> None:
    restarts: list[threading.Thread] = []

    def poison(body: Body, _: int) -> str | None:
        if len(body["input_ids"]) != 7:
            return None
        restarts.append(threading.Thread(target=server.restart, args=(0.1,)))
        restarts[-1].start()
        return "hang"

    server.fault = poison
    # Those in flight with it are lost with the server time and again.
    server.delay_s = 0.05
    prompts = prompt_frame(60).filter(pl.col("prompt_tokens").ne(7) | pl.col("sample_id").eq("s6"))
    outcome = generate(tmp_path, prompts, engine_of(server, max_in_flight=in_flight))
    for restart in restarts:
        restart.join()
    assert (outcome.generated, outcome.failures) == (len(prompts) - 1, {"no answer after 6 attempts": 1})
    assert sealed_rows(tmp_path)["status"][6] == "failed"


def test_other_weights_midway_are_refused_by_name(
    tmp_path: Path, server: FaultServer, other: FaultServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.delay_s = other.delay_s = 0.01

    def update(count: int) -> None:
        if count == 20:
            other.model_info["weight_version"] = "2"

    other.on_request = update
    outcome = generate(tmp_path, prompt_frame(600), engine_of(server, other))
    assert outcome.generated == 600
    assert len(other.bodies) < 200
    said = f"not used any more: {other.url}: serves path:/models/t@2 now, and served path:/models/t@default before"
    assert said in caplog.text


def test_a_server_that_comes_back_with_other_flags_is_refused(
    tmp_path: Path, server: FaultServer, other: FaultServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.delay_s = other.delay_s = 0.01

    def swap(count: int) -> None:
        if count == 20:
            assert other.server_info is not None
            other.server_info["dtype"] = "bfloat16"
            threading.Thread(target=other.restart).start()

    other.on_request = swap
    outcome = generate(tmp_path, prompt_frame(400), engine_of(server, other))
    assert outcome.generated == 400
    assert "its version or flags are other than those recorded for this run" in caplog.text


def test_many_faults_at_once_lose_nothing(tmp_path: Path, server: FaultServer, other: FaultServer) -> None:
    draw = random.Random(7)  # noqa: S311 - a test's faults
    server.delay_s = other.delay_s = 0.005

    def fault(*_: object) -> str | None:
        value = draw.random()
        return "500" if value < 0.05 else "reset" if value < 0.06 else None

    server.fault = other.fault = fault

    def die(count: int) -> None:
        if count == 100:
            threading.Thread(target=other.down).start()

    other.on_request = die
    prompts = prompt_frame(1000)
    outcome = generate(tmp_path, prompts, engine_of(server, other))
    check_whole(sealed_rows(tmp_path), prompts)
    assert (outcome.generated, outcome.failures) == (1000, {})


@pytest.mark.parametrize("header", ["Authorization", "X-Key"])
def test_the_key_is_sent_and_told_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, header: str
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "sk-hunter2"  # noqa: S105 - a test's
    monkeypatch.setenv("SGLANG_KEY", secret)
    with FaultServer(at_length(3, "key in error"), key=secret) as server:
        engine = engine_of(server, api_key_env="SGLANG_KEY", api_key_header=header)
        description = describe(engine)
        outcome = generate(tmp_path, prompt_frame(10), engine)
        sent = f"Bearer {secret}" if header == "Authorization" else secret
        assert all(headers[header] == sent for headers in server.headers)
    assert outcome.failures == {"refused by the engine": 1}
    assert sealed_rows(tmp_path)["reason"][2].endswith("status 400: bad key ***")
    assert secret not in caplog.text + repr(description)
    assert all(secret.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_a_missing_or_wrong_key_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with FaultServer(key="right") as server:
        with pytest.raises(EngineUnavailableError, match=r"status 401: Unauthorized"):
            describe(engine_of(server))
        monkeypatch.delenv("SGLANG_KEY", raising=False)
        with pytest.raises(EngineUnavailableError, match="environment variable SGLANG_KEY, which is not set"):
            describe(engine_of(server, api_key_env="SGLANG_KEY"))
        monkeypatch.setenv("SGLANG_KEY", "wrong")
        with pytest.raises(EngineUnavailableError) as raised:
            describe(engine_of(server, api_key_env="SGLANG_KEY"))
        assert "status 401" in str(raised.value) and "wrong" not in str(raised.value)


def test_a_key_that_expires_midway_stops_the_run_and_blames_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_KEY", "right")
    with FaultServer(key="right", delay_s=0.01) as server:

        def expire(count: int) -> None:
            if count == 20:
                server.key = "another"

        server.on_request = expire
        engine = engine_of(server, api_key_env="SGLANG_KEY", unavailable_wait_s=0.5)
        with pytest.raises(GenerationStoppedError, match="status 401"):
            generate(tmp_path, prompt_frame(60), engine)
        server.key, server.on_request = "right", None
        outcome = generate(tmp_path, prompt_frame(60), engine_of(server, api_key_env="SGLANG_KEY"))
        assert outcome.kept + outcome.generated == 60 and outcome.kept >= 10


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a certificate for 127.0.0.1 that signs itself."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("authority")
    subprocess.run(
        [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-keyout", folder / "key.pem", "-out", folder / "cert.pem", "-days", "2", "-subj", "/CN=test",
         "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return folder


def test_https_with_an_authority_of_ones_own(tmp_path: Path, authority: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "cert.pem", authority / "key.pem")
    with FaultServer(certificate=context) as server:
        outcome = generate(tmp_path, prompt_frame(5), engine_of(server, ca_file=str(authority / "cert.pem")))
        assert outcome.generated == 5
        with pytest.raises(EngineUnavailableError, match="certificate verify failed"):
            describe(engine_of(server))
        with pytest.raises(EngineUnavailableError, match=r"engine\.ca_file: .* cannot be used"):
            describe(engine_of(server, ca_file=str(tmp_path / "none.pem")))


def test_the_description_says_what_the_server_is_and_holds_no_secret(server: FaultServer) -> None:
    assert server.server_info is not None
    server.server_info |= {"speculative_algorithm": "EAGLE3", "quantization": None, "api_key": "sk-hunter2"}
    server.model_info["preferred_sampling_params"] = '{"top_p": 0.9}'
    description = describe(engine_of(server))
    assert (description.weights, description.vocab_size) == ("path:/models/t@default", VOCAB)
    assert (description.context_length, description.stop_token_ids) == (50, (STOP,))
    assert description.environment == {
        "engine": "sglang",
        "version": "0.5.23",
        "dtype": "float32",
        "speculative_algorithm": "EAGLE3",
        "preferred_sampling_params": '{"top_p": 0.9}',
    }


@pytest.mark.parametrize(
    ("model", "info", "said"),
    [
        ({}, {"version": "0.5.4.post1"}, "runs SGLang 0.5.4.post1; 0.5.5 or newer is needed"),
        ({}, {"version": None}, "does not tell its version"),
        ({}, {"allow_auto_truncate": True}, "--allow-auto-truncate, which cuts prompts"),
        ({}, {"speculative_accept_threshold_single": 0.5}, "not the target's own"),
        ({"is_generation": False}, {}, "generates nothing"),
        ({"model_path": None}, {}, "is no SGLang server"),
        ({"vocab_size": 999}, {}, "serves a vocabulary of 999 ids, the target's config has 100"),
    ],
)
def test_a_server_that_must_not_be_used_is_refused_with_the_reason(
    server: FaultServer, model: Body, info: Body, said: str
) -> None:
    assert server.server_info is not None
    server.model_info |= model
    server.server_info |= info
    with pytest.raises(EngineUnavailableError) as raised:
        describe(engine_of(server))
    assert said in str(raised.value) and server.url in str(raised.value)


@pytest.mark.parametrize("name", ["model_path", "weight_version", "tokenizer_path", "context_length"])
def test_servers_that_disagree_are_refused_by_name(server: FaultServer, other: FaultServer, name: str) -> None:
    info = other.server_info if name == "context_length" else other.model_info
    assert info is not None
    info[name] = 30 if name == "context_length" else "else"
    with pytest.raises(EngineUnavailableError) as raised:
        describe(engine_of(server, other))
    assert all(part in str(raised.value) for part in ("do not serve the same", name, server.url, other.url))


def test_different_flags_on_servers_are_recorded(server: FaultServer, other: FaultServer) -> None:
    assert other.server_info is not None
    other.server_info["version"] = "0.5.9"
    assert describe(engine_of(server, other)).environment["version"] == ["0.5.23", "0.5.9"]


def test_no_server_at_the_start_is_waited_for_and_then_named(server: FaultServer) -> None:
    server.down()
    began = time.monotonic()
    with pytest.raises(EngineUnavailableError) as raised:
        describe(engine_of(server, unavailable_wait_s=0.5))
    assert 0.5 <= time.monotonic() - began < 2.0
    assert f"no server has answered for 0.5 s (engine.unavailable_wait_s): {server.url}: no conn" in str(raised.value)
    server.soon(0.3, server.up)
    assert describe(engine_of(server)).weights == "path:/models/t@default"


def test_a_name_that_nobody_knows_is_said() -> None:
    settings = SglangEngineSettings(kind="sglang", endpoints=("http://no-such-host.invalid:1",), unavailable_wait_s=0)
    with pytest.raises(EngineUnavailableError, match="no host of that name is known"):
        describe(SglangEngine(settings, MODEL, PACE))


def test_the_config_chooses_the_engine_and_the_targets_config_the_vocabulary(
    server: FaultServer, tmp_path: Path
) -> None:
    settings = SglangEngineSettings(kind="sglang", endpoints=(server.url,))
    engine = create_engine(settings, Target(model=str(DEMO / "model")), tmp_path)
    assert isinstance(engine, SglangEngine)
    assert asyncio.run(engine.start()).vocab_size == read_model_facts(DEMO / "model").vocab_size


def test_one_server_is_enough_to_start(tmp_path: Path, server: FaultServer, other: FaultServer) -> None:
    other.down()
    server.delay_s = 0.01
    other.soon(0.3, other.up)
    outcome = generate(tmp_path, prompt_frame(600), engine_of(server, other))
    assert outcome.generated == 600 and len(other.bodies) > 50


def test_a_router_without_servers_behind_it_is_waited_for(tmp_path: Path, server: FaultServer) -> None:
    """Its health says 200 with every worker dead, and it tells no version."""
    server.server_info = None

    def back() -> None:
        server.info_status, server.fault = 200, None

    def lose(count: int) -> None:
        if count == 30:
            server.info_status, server.fault = 503, lambda *_: "503"
            server.soon(0.6, back)

    server.on_request = lose
    engine = engine_of(server)
    environment = describe(engine).environment
    assert environment["version"] == "not told by the router"
    assert "a router may drop" in environment["sampling_parameters"]
    prompts = prompt_frame(100)
    outcome = generate(tmp_path, prompts, engine)
    check_whole(sealed_rows(tmp_path), prompts)
    assert outcome.generated == 100


def test_closing_ends_everything_and_may_be_done_twice(server: FaultServer) -> None:
    server.fault = lambda *_: "hang"

    async def use() -> None:
        engine = engine_of(server)
        await engine.start()
        assert await engine.healthy()
        asking = asyncio.create_task(engine.generate(Request("k", "s", [3], Sampling(max_new_tokens=2), 0)))
        while not server.in_flight:
            await asyncio.sleep(0.01)
        assert engine.servers == (ServerLoad(server.url, in_flight=1, live=True, evictions=0),)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert engine.servers == (ServerLoad(server.url, in_flight=0, live=True, evictions=0),)
        await engine.close()
        await engine.close()
        assert not await engine.healthy()
        with pytest.raises(EngineUnavailableError, match="not running"):
            await engine.generate(Request("k", "s", [3], Sampling(max_new_tokens=2), 0))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(use())
