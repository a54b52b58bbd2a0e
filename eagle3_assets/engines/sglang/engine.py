"""The engine over SGLang servers.

What belongs here: keeping the engine's protocol, the guards before sending. Not here: servers and their faults
(``pool``), the wire format (``wire``).
"""

import asyncio
from dataclasses import dataclass
from typing import Any

import aiohttp

from eagle3_assets.config import SglangEngineSettings
from eagle3_assets.engines.base import (
    Description,
    EngineUnavailableError,
    Generation,
    Request,
    RequestRefusedError,
    Scores,
    ServerLoad,
    Share,
    require_known_ids,
    require_scorable,
)
from eagle3_assets.engines.sglang.client import Client, credentials, open_session
from eagle3_assets.engines.sglang.facts import Facts
from eagle3_assets.engines.sglang.managed import ManagedSglang
from eagle3_assets.engines.sglang.pool import Pace, Pool
from eagle3_assets.engines.sglang.wire import read_reply, read_scores, request_body, scores_body
from eagle3_assets.target import ModelFacts


@dataclass(frozen=True, slots=True)
class _Running:
    """What belongs to one event loop."""

    loop: asyncio.AbstractEventLoop
    pool: Pool
    attendant: asyncio.Task[None]
    """Closes pool and session when it is cancelled, at the latest with its loop."""


class SglangEngine:
    """Keeps the protocol ``Engine``. It may be used from one event loop after another, not from two at once."""

    def __init__(
        self,
        settings: SglangEngineSettings,
        model: ModelFacts,
        pace: Pace | None = None,
        server: ManagedSglang | None = None,
        share: Share | None = None,
    ) -> None:
        """Asks nobody yet.

        Args:
            settings: endpoints, key, limits.
            model: what the target's own config says; a server that says something else of its vocabulary is refused.
            pace: of probes and health checks.
            server: a managed one, which begins and ends with the engine, in place of the settings' endpoints.
            share: divides the endpoints among runs, where others use them too.
        """
        self._settings = settings
        self._model = model
        self._pace = pace or Pace()
        self._server = server
        self._share = share
        self._known: list[tuple[str, Facts]] = []
        self._description: Description | None = None
        self._running: _Running | None = None

    @property
    def capacity(self) -> int:
        """What all servers together take at most, those that are away included: they may come back."""
        if self._running is None:
            return max(1, len(self._settings.endpoints)) * (self._settings.max_in_flight or 1)
        return sum(server.window.ceiling for server in self._running.pool.servers)

    @property
    def servers(self) -> tuple[ServerLoad, ...]:
        """Each server now, in the config's order; empty while the engine is not running."""
        servers = self._running.pool.servers if self._running else []
        return tuple(ServerLoad(s.endpoint, s.in_flight, s.state == "live", s.evictions) for s in servers)

    async def start(self) -> Description:
        """Starts a managed server; asks every server what it is, and waits until one at least answers.

        Raises:
            EngineUnavailableError: none does, one must not be used, or two do not serve the same.
        """
        await self._pool()
        if self._description is None:
            self._description = self._describe()
        return self._description

    async def generate(self, request: Request) -> Generation:
        """Continues one prompt on the server with the most room.

        Log-probabilities are of kind ``model`` where sampling leaves the distribution as it is, else ``sampled``.

        Raises:
            RequestRefusedError: the prompt must not be sent, or the server says that it will never work.
            TransientEngineError: no usable reply this time.
            EngineUnavailableError: the engine was not started, or every server was gone for too long.
        """
        if self._description is None:
            raise EngineUnavailableError("the SGLang engine is not running: await start() first")
        body = request_body(request, self._cap(request, self._description))
        endpoint, reply, seconds = await (await self._pool()).send(body)
        return read_reply(reply, request, endpoint, seconds, want_text=self._settings.want_text)

    async def score(self, prompt_ids: list[int], output_ids: list[int]) -> Scores:
        """Scores an output on the server with the most room.

        Raises:
            RequestRefusedError: it must not be sent, or the server says that it will never work.
            TransientEngineError: no usable reply this time.
            EngineUnavailableError: the engine was not started, or every server was gone for too long.
        """
        if self._description is None:
            raise EngineUnavailableError("the SGLang engine is not running: await start() first")
        require_scorable(prompt_ids, output_ids, self._description)
        endpoint, reply, _ = await (await self._pool()).send(scores_body(prompt_ids, output_ids))
        return read_scores(reply, prompt_ids, output_ids, endpoint)

    async def healthy(self) -> bool:
        """Whether a server is in use, or comes back within the configured wait.

        A prompt that takes down one server after another then fails alone, and does not end the run.
        """
        return self._running is not None and await self._running.pool.some_live()

    async def close(self) -> None:
        """Ends probes and a managed server, and closes every connection."""
        running, self._running, self._description = self._running, None, None
        if running is not None and running.loop is asyncio.get_running_loop():
            running.attendant.cancel()
            await asyncio.wait([running.attendant])
        if self._server is not None:
            await self._server.stop()

    async def _pool(self) -> Pool:
        """The pool of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._running is None or self._running.loop is not loop:
            await self._open(loop)
        if self._running is None:
            raise EngineUnavailableError("the SGLang engine was closed")
        return self._running.pool

    async def _open(self, loop: asyncio.AbstractEventLoop) -> None:
        endpoints, wait_s = self._settings.endpoints, self._settings.unavailable_wait_s
        if self._server is not None:
            try:
                await self._server.ready()
            except BaseException:
                await self._server.stop()
                raise
            endpoints, wait_s = (self._server.endpoint,), wait_s + self._server.patience_s
        headers = credentials(self._settings)
        session = open_session(self._settings, headers)
        secrets = tuple(value.removeprefix("Bearer ") for value in headers.values())
        pool = Pool(
            (Client(session, endpoint, secrets) for endpoint in endpoints),
            max_in_flight=self._settings.max_in_flight,
            unavailable_wait_s=wait_s,
            pace=self._pace,
            share=self._share,
        )
        self._running = _Running(loop, pool, loop.create_task(_attend(session, pool, self._server)))
        await asyncio.sleep(0)  # the attendant has to be running for its cancellation to close anything
        try:
            self._known = await pool.open(self._known)
        except BaseException:
            await self.close()
            raise

    def _describe(self) -> Description:
        facts = [facts for _, facts in self._known]
        vocab_size = facts[0].vocab_size or self._model.vocab_size
        if vocab_size != self._model.vocab_size:
            raise EngineUnavailableError(
                f"{self._known[0][0]}: serves a vocabulary of {vocab_size:,} ids, the target's config has "
                f"{self._model.vocab_size:,}: it is another model"
            )
        return Description(
            weights=facts[0].weights,
            stop_token_ids=self._model.stop_token_ids,
            vocab_size=vocab_size,
            context_length=facts[0].context_length or self._model.context_length,
            # Endpoints are no part of it: each row names its own, and servers may come and go.
            environment={
                "engine": "sglang",
                **_merged([dict(one.environment) for one in facts]),
                **self._server_environment(),
            },
        )

    def _server_environment(self) -> dict[str, Any]:
        """What a managed server is given in environment variables, which may change numbers as flags do."""
        managed = self._settings.managed
        return {"server_environment": dict(managed.environment)} if managed and managed.environment else {}

    def _cap(self, request: Request, description: Description) -> int:
        """The ``max_new_tokens`` to send: servers refuse a request that might not fit, instead of capping it.

        Raises:
            RequestRefusedError: the prompt must not be sent.
        """
        ids = request.prompt_ids
        require_known_ids(ids, description.vocab_size)
        wanted = request.sampling.max_new_tokens
        reserved = max(facts.reserved_tokens for _, facts in self._known)
        # Older servers want one place to spare.
        room = description.context_length - len(ids) - reserved - 1
        if wanted <= room:
            return wanted
        if room < 1 or self._settings.beyond_context == "refuse":
            raise RequestRefusedError(
                f"beyond the context: {len(ids):,} prompt ids and max_new_tokens {wanted:,} in "
                f"{description.context_length:,}"
                + (f", {reserved:,} of them kept for speculative decoding" if reserved else "")
            )
        return room


async def _attend(session: aiohttp.ClientSession, pool: Pool, server: ManagedSglang | None) -> None:
    """Waits for its cancellation, and then closes what was opened. Tells the pool when a managed server is given up."""
    try:
        if server is not None:
            pool.give_up(await server.failed())
        await asyncio.Event().wait()
    finally:
        await pool.close()
        await session.close()


def _merged(environments: list[dict[str, Any]]) -> dict[str, Any]:
    """One value for each flag, or the different ones in the order of their text."""
    names = sorted({name for environment in environments for name in environment})
    merged = {}
    for name in names:
        values = [environment.get(name) for environment in environments]
        different = [value for i, value in enumerate(values) if value not in values[:i]]
        merged[name] = different[0] if len(different) == 1 else sorted(different, key=repr)
    return merged
