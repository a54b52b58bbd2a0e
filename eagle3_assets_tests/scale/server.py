"""A server that speaks SGLang's ``/generate`` for the demo target: run as a process, so that it can be killed.

``python -m eagle3_assets_tests.scale.server PORT DELAY_SECONDS``. An answer is reasoning, text and the stop token, and
follows from the prompt's ids and the seed alone, as a server's does that is deterministic. ``/asked`` counts requests.
"""

import asyncio
import random
import sys
from collections import Counter
from zlib import crc32

from aiohttp import web

from eagle3_assets_tests.conftest import DEMO

WORDS = ("river", "light", "seven", "paper", "garden", "quiet", "northern", "market", "silver", "window", "early")
RUNNING = 8
"""Requests at once, as told to clients."""


class Target:
    """What the demo target says here."""

    def __init__(self) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(DEMO / "model" / "tokenizer.json"))
        self._end_of_reasoning, self._stop = self._tokenizer.encode("</think><|im_end|>", add_special_tokens=False).ids

    def output(self, prompt: list[int], seed: int) -> list[int]:
        draw = random.Random(crc32(f"{prompt} {seed}".encode()))  # noqa: S311 - the same in every process
        return [*self._said(draw), self._end_of_reasoning, *self._said(draw), self._stop]

    def _said(self, draw: random.Random) -> list[int]:
        ids: list[int] = self._tokenizer.encode(" ".join(draw.choices(WORDS, k=8)), add_special_tokens=False).ids
        return ids

    def reply(self, body: dict[str, object]) -> dict[str, object]:
        prompt, sampling = body["input_ids"], body["sampling_params"]
        assert isinstance(prompt, list) and isinstance(sampling, dict)
        output = self.output(prompt, sampling["sampling_seed"])
        logprobs = [[-0.5, token, None] for token in output] if body["return_logprob"] else None
        return {
            "output_ids": output,
            "meta_info": {
                "finish_reason": {"type": "stop", "matched": self._stop},
                "prompt_tokens": len(prompt),
                "completion_tokens": len(output),
                "weight_version": "default",
                "output_token_logprobs": logprobs,
            },
        }


def application(delay_s: float) -> web.Application:
    target = Target()
    asked: Counter[int] = Counter()
    at_once: Counter[str] = Counter()

    async def generate(request: web.Request) -> web.Response:
        body = await request.json()
        at_once["now"] += 1
        at_once["most"] = max(at_once["most"], at_once["now"])
        try:
            await asyncio.sleep(delay_s)
        finally:
            at_once["now"] -= 1
        asked[crc32(f"{body['input_ids']} {body['sampling_params']['sampling_seed']}".encode())] += 1
        return web.json_response(target.reply(body))

    async def said(request: web.Request) -> web.Response:
        pages = {
            "/health": {},
            "/asked": {"answered": asked.total(), "again": asked.total() - len(asked), "most": at_once["most"]},
            "/model_info": {
                "model_path": "/models/demo",
                "tokenizer_path": "/models/demo",
                "weight_version": "default",
            },
            "/server_info": {"version": "0.5.23", "context_length": 2048, "max_running_requests": RUNNING},
        }
        return web.json_response(pages[request.path])

    app = web.Application()
    app.router.add_post("/generate", generate)
    for path in ("/health", "/asked", "/model_info", "/server_info"):
        app.router.add_get(path, said)
    return app


if __name__ == "__main__":
    web.run_app(application(float(sys.argv[2])), host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
