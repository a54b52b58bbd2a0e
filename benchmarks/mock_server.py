"""A stand-in for an SGLang server that costs as little as can be: answers are made beforehand and patched.

What belongs here: the wire, latency, answers that are a pure function of prompt and seed. Not here: faults (the tests'
fault server has those), any client.

Usage: python -m benchmarks.mock_server [--ids 200] [--latency 0.2] [--sigma 1.0] [--running 256]
It prints its URL, and serves until its standard input is closed.
"""

import argparse
import asyncio
import json
import math
import random
import sys
from zlib import crc32

VOCAB = 163_840
CONTEXT = 32_768
STOP = 99_999
KINDS = 256
"""Different outputs made beforehand; their first ids are patched, so that hardly any two are the same."""
LATENCIES = 4096

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_LOST = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


class Answers:
    """What the server says. Ids have five digits each, so that an answer's length is known before its content."""

    def __init__(self, ids: int, running: int) -> None:
        """Makes the answers.

        Args:
            ids: of each output, the stop id included; three at least.
            running: requests at once, as ``/server_info`` tells.
        """
        numbers = random.Random(1)  # noqa: S311 - the same outputs in every process
        self._tails = [[numbers.randrange(10_000, STOP) for _ in range(ids - 3)] + [STOP] for _ in range(KINDS)]
        self._plain = [("," + ",".join(map(str, tail)) + "]").encode() for tail in self._tails]
        self._logprobs = [
            ("," + ",".join(f"[-0.5,{token},null]" for token in tail) + "]").encode() for tail in self._tails
        ]
        self._ids = ids
        self._chat = json.dumps(
            {
                "id": "chat",
                "object": "chat.completion",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "word" * ids},
                             "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 100, "completion_tokens": ids, "total_tokens": 100 + ids},
            }
        ).encode()  # fmt: skip
        model = {"model_path": "/models/mock", "tokenizer_path": "/models/mock", "is_generation": True,
                 "weight_version": "default", "preferred_sampling_params": None}  # fmt: skip
        server = {"model_path": "/models/mock", "version": "0.5.23", "context_length": CONTEXT, "dtype": "bfloat16",
                  "max_running_requests": running}  # fmt: skip
        self._pages = {
            b"/health": b"",
            b"/model_info": json.dumps(model).encode(),
            b"/server_info": json.dumps(server).encode(),
        }

    def page(self, path: bytes) -> bytes | None:
        """The body of a GET, or None where there is no such page."""
        return self._pages.get(path)

    def chat(self) -> bytes:
        """The body of an OpenAI-style chat completion."""
        return self._chat

    def generation(self, number: int, prompt_tokens: int, *, logprobs: bool) -> bytes:
        """The body of a ``/generate``.

        Args:
            number: 32 bits that decide the output.
            prompt_tokens: to be reported.
            logprobs: whether the request wants them.
        """
        kind = number % KINDS
        first, second = 10_000 + number % 89_989, 10_000 + (number >> 8) % 89_989
        body = b'{"text":"","output_ids":[%d,%d' % (first, second) + self._plain[kind]
        body += (
            b',"meta_info":{"id":"m","finish_reason":{"type":"stop","matched":%d},"prompt_tokens":%d,'
            b'"completion_tokens":%d,"cached_tokens":0,"weight_version":"default","weight_versions":'
            b'[{"version":"default","start":0,"end":%d}],"num_retractions":0,"reasoning_tokens":0,"e2e_latency":0.2'
        ) % (STOP, prompt_tokens, self._ids, self._ids)
        if logprobs:
            body += b',"output_token_logprobs":[[-0.5,%d,null],[-0.5,%d,null]' % (first, second) + self._logprobs[kind]
        return body + b"}}"


class Latency:
    """How long each answer takes: always the same, or lognormal around the same mean."""

    def __init__(self, mean_s: float, sigma: float) -> None:
        """Draws the latencies.

        Args:
            mean_s: seconds.
            sigma: of the logarithm; 0 for no variation. With 1, one answer in a hundred takes six times the mean.
        """
        numbers = random.Random(2)  # noqa: S311 - the same latencies in every process
        draws = [mean_s * math.exp(sigma * numbers.gauss(0, 1)) for _ in range(LATENCIES)]
        scale = mean_s * LATENCIES / sum(draws) if mean_s else 0.0
        self._draws = [draw * scale for draw in draws]
        self._total_s, self._requests = 0.0, 0
        self._under_way, self._peak = 0, 0

    def begins(self) -> None:
        """Notes a request."""
        self._under_way += 1
        self._peak = max(self._peak, self._under_way)

    def ends(self) -> None:
        """Notes its answer."""
        self._under_way -= 1

    def of(self, number: int) -> float:
        """Seconds to wait before the answer that a number stands for."""
        seconds = self._draws[(number >> 16) % LATENCIES]
        self._total_s += seconds
        self._requests += 1
        return seconds

    def drawn(self) -> dict[str, float]:
        """``requests`` since the last call, ``seconds``, the sum of their latencies, and ``peak``, the most at once.

        The seconds shared by the requests in flight are the least time a client can need.
        """
        drawn = {"requests": self._requests, "seconds": self._total_s, "peak": self._peak}
        self._total_s, self._requests, self._peak = 0.0, 0, self._under_way
        return drawn


class Connection(asyncio.Protocol):
    """One connection: one request after another, as HTTP/1.1 clients do."""

    def __init__(self, answers: Answers, latency: Latency) -> None:
        """A connection that nobody uses yet."""
        self._answers = answers
        self._latency = latency
        self._data = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keeps the transport."""
        assert isinstance(transport, asyncio.WriteTransport)  # noqa: S101 - for the type checker
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers when a request is whole."""
        self._data = self._data + data if self._data else data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._data[:end]
        at = head.lower().find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self._data) < end + 4 + length:
            return
        body, self._data = self._data[end + 4 :], b""
        self._answer(head.split(b" ", 2)[1], body)

    def _answer(self, path: bytes, body: bytes) -> None:
        if path == b"/generate":
            # The key that a client sends along is its own affair: prompt and seed decide.
            start = body.find(b'"input_ids"')
            prompt = body[start : body.find(b"]", start)]
            seed = body[body.rfind(b'"sampling_seed"') :].rstrip(b"}")
            number = crc32(seed, crc32(prompt.replace(b" ", b"")))
            wanted = b'"return_logprob":true' in body
            reply = self._answers.generation(number, prompt.count(b",") + 1, logprobs=wanted)
        elif path == b"/v1/chat/completions":
            number, reply = crc32(body), self._answers.chat()
        elif path == b"/drawn":
            return self._write(json.dumps(self._latency.drawn()).encode())
        else:
            page = self._answers.page(path)
            return self._send(_LOST) if page is None else self._write(page)
        seconds = self._latency.of(number)
        self._latency.begins()
        if seconds:
            asyncio.get_running_loop().call_later(seconds, self._answered, reply)
        else:
            self._answered(reply)
        return None

    def _answered(self, reply: bytes) -> None:
        self._latency.ends()
        self._write(reply)

    def _write(self, body: bytes) -> None:
        self._send(_HEAD % len(body) + body)

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


async def serve(answers: Answers, latency: Latency) -> None:
    """Serves on a free port until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(answers, latency), "127.0.0.1", 0, backlog=4096)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


def main() -> None:
    """Reads the arguments and serves."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, default=200, help="output ids of each answer")
    parser.add_argument("--latency", type=float, default=0.0, help="mean seconds until an answer")
    parser.add_argument("--sigma", type=float, default=0.0, help="of the logarithm of the latency; 0 for a fixed one")
    parser.add_argument("--running", type=int, default=256, help="requests at once, as told to clients")
    arguments = parser.parse_args()
    asyncio.run(serve(Answers(arguments.ids, arguments.running), Latency(arguments.latency, arguments.sigma)))


if __name__ == "__main__":
    main()
