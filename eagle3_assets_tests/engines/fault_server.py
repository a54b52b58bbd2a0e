"""A server that speaks SGLang's ``/generate`` and does on demand what a real one will not: every way to fail.

It answers ``[prompt's length, prompt's last id, STOP]``, as ``generation.fake`` does; ids that it shall score have a
log-probability of -0.5 each, the likeliest -0.25. It runs in a thread of its own.
"""

import asyncio
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Self

from aiohttp import web

from eagle3_assets_tests.generation.fake import STOP

Body = dict[str, Any]
Fault = Callable[[Body, int], str | None]
"""Given a request and how often this prompt was asked before, the name of what to do, or None to answer."""

STATUS_FAULTS: dict[str, tuple[int, Any]] = {
    "500": (500, {"error": {"message": "scheduler died"}}),
    "502": (502, "Bad Gateway"),
    "408": (408, {"error": "slow"}),
    "429": (429, {"error": {"message": "too many requests"}}),
    "503": (503, {"error": {"message": "queue is full"}}),
    "400 nested": (400, {"error": {"message": "too long for me"}}),
    "400 object": (400, {"object": "error", "message": "too long for me", "code": 400}),
    "400 text": (400, {"error": "too long for me"}),
    "422 plain": (422, "too long for me"),
}

REPLY_FAULTS: dict[str, Callable[[Body, Body], Any]] = {
    # What the parser must not take.
    "list": lambda _, reply: [reply],
    "null ids": lambda _, reply: reply | {"output_ids": None},
    "text ids": lambda _, reply: reply | {"output_ids": ["7", "8"]},
    "null in ids": lambda _, reply: reply | {"output_ids": [7, None, STOP]},
    "float ids": lambda _, reply: reply | {"output_ids": [7.5]},
    "no meta": lambda _, reply: {"output_ids": reply["output_ids"]},
    "null finish": lambda _, reply: _meta(reply, finish_reason=None),
    "counts as text": lambda _, reply: _meta(reply, completion_tokens="3"),
    "other logprob ids": lambda _, reply: _meta(reply, output_token_logprobs=[[-0.5, 9, None]] * 3),
    "short logprobs": lambda _, reply: _meta(reply, output_token_logprobs=[[-0.5, 9, None]]),
    "abort": lambda _, reply: _meta(reply, finish_reason={"type": "abort", "message": "Aborted"}),
    "abort 400": lambda _, reply: _meta(
        reply, finish_reason={"type": "abort", "message": "too long for me", "status_code": 400}
    ),
    # What it must pass on for the laws to judge.
    "wrong prompt tokens": lambda _, reply: _meta(reply, prompt_tokens=reply["meta_info"]["prompt_tokens"] + 1),
    "echo": lambda body, reply: reply | {"output_ids": body["input_ids"][-5:] + reply["output_ids"]},
    "nan stop": lambda _, reply: _meta(reply, finish_reason={"type": "stop", "matched": "NaN happened"}),
    "stop list": lambda _, reply: _meta(reply, finish_reason={"type": "stop", "matched": [3, STOP]}),
    "two weights": lambda _, reply: _meta(
        reply,
        weight_versions=[{"version": "1", "start": 0, "end": 2}, {"version": "2", "start": 2, "end": 3}],
        weight_version="2",
    ),
    "null logprob": lambda _, reply: _meta(
        reply, output_token_logprobs=[[None, token, None] for token in reply["output_ids"]]
    ),
    "no logprobs": lambda _, reply: _meta(reply, output_token_logprobs=None),
    # What a reply with scores must not be.
    "one place less": lambda _, reply: _meta(
        reply, input_token_logprobs=reply["meta_info"]["input_token_logprobs"][1:]
    ),
    "other scored ids": lambda _, reply: _meta(
        reply, input_token_logprobs=[[-0.5, 1, None]] * len(reply["meta_info"]["input_token_logprobs"])
    ),
    "null score": lambda _, reply: _meta(
        reply, input_token_logprobs=[[None, i, None] for _, i, _ in reply["meta_info"]["input_token_logprobs"]]
    ),
    "null best": lambda _, reply: _meta(
        reply, input_top_logprobs=[None] * len(reply["meta_info"]["input_top_logprobs"])
    ),
    "no best": lambda _, reply: _meta(reply, input_top_logprobs=None),
    "fewer best": lambda _, reply: _meta(reply, input_top_logprobs=reply["meta_info"]["input_top_logprobs"][:-1]),
    "cut prompt": lambda _, reply: _meta(reply, prompt_tokens=reply["meta_info"]["prompt_tokens"] - 1),
}


def _meta(reply: Body, **changes: Any) -> Body:
    return reply | {"meta_info": reply["meta_info"] | changes}


class FaultServer:
    """One server. Its attributes may be changed while it runs."""

    def __init__(
        self,
        fault: Fault | None = None,
        *,
        delay_s: float = 0.0,
        most: int | None = None,
        key: str | None = None,
        certificate: ssl.SSLContext | None = None,
    ) -> None:
        """Not yet listening.

        Args:
            fault: what to do instead of answering.
            delay_s: of each answer.
            most: more requests at once are answered with 429.
            key: API key that requests must have.
            certificate: for https.
        """
        self.fault = fault
        self.delay_s = delay_s
        self.most = most
        self.key = key
        self.model_info: Body = {
            "model_path": "/models/t",
            "tokenizer_path": "/models/t",
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
        }
        self.server_info: Body | None = {
            "model_path": "/models/t",
            "version": "0.5.23",
            "context_length": 50,
            "max_running_requests": 8,
            "dtype": "float32",
            "random_seed": 4,
            "api_key": key,
        }
        self.health = 200
        self.health_delay_s = 0.0
        self.info_status = 200
        self.bodies: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.asked: Counter[str] = Counter()
        self.answered = self.in_flight = self.most_in_flight = 0
        self.on_request: Callable[[int], None] | None = None
        """Is told how many requests came so far."""
        self._certificate = certificate
        self._port = 0
        self._runner: web.AppRunner | None = None
        self._open: set[asyncio.Transport] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"{'https' if self._certificate else 'http'}://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def up(self) -> None:
        """Listens, on the same port as before."""
        self._do(self._up())

    def down(self) -> None:
        """Dies as after SIGKILL: nothing listens, every connection drops."""
        self._do(self._down())

    def restart(self, after_s: float = 0.0) -> None:
        """Dies, and comes back after a while."""
        self.down()
        time.sleep(after_s)
        self.up()

    def soon(self, seconds: float, action: Callable[[], None]) -> None:
        """Does something after a while, from another thread than the server's."""
        timer = threading.Timer(seconds, action)
        timer.daemon = True
        timer.start()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _up(self) -> None:
        app = web.Application(client_max_size=1 << 24)
        app.router.add_get("/health", self._health)
        app.router.add_get("/model_info", self._model_info)
        app.router.add_get("/server_info", self._server_info)
        app.router.add_post("/generate", self._generate)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, ssl_context=self._certificate, reuse_address=True)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def _down(self) -> None:
        runner, self._runner = self._runner, None
        if runner is None:
            return
        for site in list(runner.sites):
            await site.stop()
        for transport in list(self._open):
            transport.abort()
        await runner.cleanup()

    async def _health(self, _: web.Request) -> web.Response:
        await asyncio.sleep(self.health_delay_s)
        return web.Response(status=self.health)

    async def _model_info(self, request: web.Request) -> web.Response:
        return self._unauthorized(request) or web.json_response(self.model_info, status=self.info_status)

    async def _server_info(self, request: web.Request) -> web.Response:
        if self.server_info is None:
            raise web.HTTPNotFound
        return self._unauthorized(request) or web.json_response(self.server_info)

    def _unauthorized(self, request: web.Request) -> web.Response | None:
        self.headers.append(dict(request.headers))
        if self.key is None or self.key in (
            request.headers.get("Authorization", "").removeprefix("Bearer "),
            request.headers.get("X-Key"),
        ):
            return None
        return web.json_response({"error": "Unauthorized"}, status=401)

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._open.add(transport)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._answer(request)
        finally:
            self.in_flight -= 1
            self._open.discard(transport)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        refused = self._unauthorized(request)
        if refused:
            return refused
        body = await request.json()
        name = body["rid"].rsplit("-", 1)[0]
        before = self.asked[name]
        self.asked[name] += 1
        self.bodies.append(body)
        if self.on_request:
            self.on_request(len(self.bodies))
        if self.most is not None and self.in_flight > self.most:
            return web.json_response({"error": {"message": "too many requests"}}, status=429)
        fault = self.fault(body, before) if self.fault else None
        await asyncio.sleep(self.delay_s)
        if fault in STATUS_FAULTS:
            status, said = STATUS_FAULTS[fault]
            text = said if isinstance(said, str) else json.dumps(said)
            return web.Response(status=status, text=text, content_type="application/json")
        if fault == "key in error":
            return web.json_response({"error": f"bad key {self.key}"}, status=400)
        reply: Any = _scores(body) if "logprob_start_len" in body else _reply(body)
        if fault in REPLY_FAULTS:
            reply = REPLY_FAULTS[fault](body, reply)
        data = json.dumps(reply).encode()
        if fault in BODY_FAULTS:
            return await BODY_FAULTS[fault](request, data)
        assert fault is None or fault in REPLY_FAULTS, fault
        self.answered += 1
        return web.Response(body=data, content_type="application/json")


async def _hang(*_: object) -> web.StreamResponse:
    await asyncio.sleep(3600)
    return web.Response()


async def _reset(request: web.Request, data: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": str(len(data))})
    await response.prepare(request)
    await response.write(data[: len(data) // 2])
    await asyncio.sleep(0.01)
    assert request.transport is not None
    request.transport.abort()
    return response


async def _drip(request: web.Request, data: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": str(len(data))})
    await response.prepare(request)
    for start in range(0, len(data), 40):
        await response.write(data[start : start + 40])
        await asyncio.sleep(0.03)
    return response


async def _truncated(_: web.Request, data: bytes) -> web.StreamResponse:
    return web.Response(body=data[: len(data) // 2], content_type="application/json")


async def _no_json(*_: object) -> web.StreamResponse:
    return web.Response(text="<html>It works!</html>")


async def _no_text(*_: object) -> web.StreamResponse:
    return web.Response(body=b'{"output_ids": [1], "text": "\xff\xfe"}')


async def _empty(*_: object) -> web.StreamResponse:
    return web.Response(body=b"")


BODY_FAULTS: dict[str, Callable[[web.Request, bytes], Awaitable[web.StreamResponse]]] = {
    "hang": _hang,
    "reset": _reset,
    "drip": _drip,
    "truncated": _truncated,
    "no json": _no_json,
    "no text": _no_text,
    "empty": _empty,
}


def _reply(body: Body) -> Body:
    prompt = body["input_ids"]
    output = [len(prompt), prompt[-1], STOP]
    logprobs = [[-0.5, token, None] for token in output] if body["return_logprob"] else None
    return {
        "text": "what it said",
        "output_ids": output,
        "meta_info": {
            "id": body["rid"],
            "finish_reason": {"type": "stop", "matched": STOP},
            "prompt_tokens": len(prompt),
            "completion_tokens": len(output),
            "cached_tokens": 0,
            "weight_version": "default",
            "weight_versions": [{"version": "default", "start": 0, "end": len(output)}],
            "output_token_logprobs": logprobs,
            "e2e_latency": 0.01,
        },
    }


def _scores(body: Body) -> Body:
    """As the real server answers: the place before the first scored id comes first, without a value."""
    before, *scored = body["input_ids"][body["logprob_start_len"] :]
    return {
        "text": "",
        "output_ids": [],
        "meta_info": {
            "id": body["rid"],
            "finish_reason": {"type": "length", "length": 0},
            "prompt_tokens": len(body["input_ids"]),
            "completion_tokens": 0,
            "input_token_logprobs": [[None, before, None], *([-0.5, token, None] for token in scored)],
            "input_top_logprobs": [None, *([[-0.25, 9, None]] for _ in scored)],
        },
    }
