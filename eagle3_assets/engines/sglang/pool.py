"""Several servers as one: who gets the next request, who is left out, who comes back.

What belongs here: balance, eviction, probing, readmission, waiting for servers. Not here: HTTP (``client``), sending a
request again (the generation loop does that, with a limit on attempts).
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from tenacity import AsyncRetrying, retry_if_exception_type, wait_exponential, wait_random

from eagle3_assets.engines.base import EngineUnavailableError, Share, ShareError, Standing, TransientEngineError
from eagle3_assets.engines.sglang.client import Client
from eagle3_assets.engines.sglang.errors import BusyError, LostError, SilentError, UnreachableError, UnsuitableError
from eagle3_assets.engines.sglang.facts import Facts, require_alike
from eagle3_assets.engines.sglang.window import Window

logger = logging.getLogger(__name__)

SILENT_CHECKS = 3
"""So many health checks without any answer in a row mean that a server hangs, with all that it was sent."""

UNTAKEN = 10
"""Servers in a row that take nothing, though they looked well, before a request counts as tried."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How often things are tried, in seconds."""

    first_probe_s: float = 0.5
    """The first pause before an absent server is asked again; the next are longer."""
    longest_probe_s: float = 15.0
    check_every_s: float = 20.0
    """Between two health checks of a server in use."""
    first_pause_s: float = 0.5
    """How long a busy server is left alone at first."""
    longest_pause_s: float = 30.0
    remind_every_s: float = 60.0
    """Between two log lines that say that every server is gone."""
    share_every_s: float = 1.0
    """Between two looks at what other runs want of the servers."""


@dataclass(slots=True, eq=False)
class Server:
    """One server as the pool sees it."""

    client: Client
    window: Window
    allowed: int | None = None
    """Requests that this run may have there beside other runs; None where it need not think of any."""
    state: Literal["live", "away", "refused"] = "away"
    reason: str = "not asked yet"
    """Why it is not live."""
    facts: Facts | None = None
    in_flight: int = 0
    sent: int = 0
    evictions: int = 0
    """How often it was left out."""
    paused_until: float = 0.0
    pause_s: float = 0.0
    silent_checks: int = 0
    checking: bool = False
    open_requests: set[asyncio.Timeout] = field(default_factory=set)

    @property
    def endpoint(self) -> str:
        """Base URL."""
        return self.client.endpoint

    @property
    def limit(self) -> int:
        """Requests that may be in flight now."""
        return self.window.limit if self.allowed is None else min(self.window.limit, self.allowed)

    def has_room(self, now: float) -> bool:
        """Whether a request may be sent now."""
        return self.state == "live" and self.in_flight < self.limit and now >= self.paused_until


class Pool:
    """Sends each request to the server with the most room. Belongs to one event loop."""

    def __init__(
        self,
        clients: Iterable[Client],
        *,
        max_in_flight: int | None,
        unavailable_wait_s: float,
        pace: Pace,
        share: Share | None = None,
    ) -> None:
        """Asks nobody yet.

        Args:
            clients: one for each server.
            max_in_flight: most requests at once to one server; None for the server's own limit.
            unavailable_wait_s: how long to wait while every server is gone.
            pace: of probes and checks.
            share: divides the servers among runs; None where no other run uses them.
        """
        allowed = None if share is None else 0
        self.servers = [Server(client, Window(None, max_in_flight), allowed) for client in clients]
        self._share = share
        self._max_in_flight = max_in_flight
        self._wait_s = unavailable_wait_s
        self._pace = pace
        self._known: list[tuple[str, Facts]] = []
        """Endpoint and facts of servers that were agreed on: the first is what others are compared with."""
        self._waiting: deque[asyncio.Future[Server]] = deque()
        self._asked_for = asyncio.Event()
        """Set when the first request comes."""
        self._ended = asyncio.Event()
        """Set whenever a request has ended."""
        self._opened = False
        """Until every server was asked nobody is served: the first to answer would get everything."""
        self._failure: EngineUnavailableError | None = None
        self._back = asyncio.Event()
        """Set while a server is in use, and when there is no hope left for one."""
        self._watch: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def live(self) -> list[Server]:
        """The servers in use."""
        return [server for server in self.servers if server.state == "live"]

    async def open(self, known: Iterable[tuple[str, Facts]] = ()) -> list[tuple[str, Facts]]:
        """Asks every server what it is, and waits until one at least can be used.

        Args:
            known: what an earlier call returned; a server that says something else now is refused.

        Returns:
            endpoint and facts of each server in use.

        Raises:
            EngineUnavailableError: a server must not be used, two do not serve the same, or none answers in time.
        """
        self._known = list(known)
        strict = not self._known
        asked = await asyncio.gather(*(server.client.facts() for server in self.servers), return_exceptions=True)
        for server, answer in zip(self.servers, asked, strict=True):
            if isinstance(answer, Facts):
                try:
                    self._admit(server, answer, strangers=strict)
                except UnsuitableError as error:
                    if strict:
                        raise EngineUnavailableError(str(error)) from None
                    self._refuse(server, error)
            elif isinstance(answer, UnsuitableError) or (
                isinstance(answer, UnreachableError) and answer.misconfigured and strict
            ):
                raise EngineUnavailableError(str(answer)) from None
            elif isinstance(answer, TransientEngineError):
                server.reason = str(answer)
                logger.warning("%s (asked again until it answers)", answer)
                self._start(self._probe(server))
            else:
                raise answer
        self._opened = True
        self._hand_out()
        self._start(self._check_now_and_then())
        if self._share is not None:
            self._start(self._keep_within(self._share))
        self._look_for_the_living()
        if not await self.some_live() and self._failure is not None:
            raise self._failure
        return self._known

    async def some_live(self) -> bool:
        """Whether a server is in use, after waiting for one as long as there is hope."""
        if not self.live and self._failure is None:
            await self._back.wait()
        return bool(self.live)

    async def send(self, body: bytes) -> tuple[str, bytes, float]:
        """Sends a request to the server with the most room, as soon as one has any.

        Returns:
            endpoint of the server, its reply, and the seconds that it took.

        Raises:
            EngineUnavailableError: every server was gone for too long.
            RequestRefusedError: the server says that the request will never work.
            TransientEngineError: it may work when sent again.
        """
        for _ in range(UNTAKEN - 1):
            # A server that takes nothing has not seen the request: another one shall, at no cost of an attempt.
            with suppress(UnreachableError):
                return await self._send(body)
        return await self._send(body)

    async def _send(self, body: bytes) -> tuple[str, bytes, float]:
        """Sends a request once; a server that cannot be reached is left out from then on."""
        server = await self._take()
        epoch, began = server.window.epoch, time.monotonic()
        scope = asyncio.timeout(None)
        try:
            async with scope:
                server.open_requests.add(scope)
                reply = await server.client.generate(body)
        except TimeoutError:
            raise LostError(f"{server.endpoint}: given up: the server hangs") from None
        except UnreachableError as error:
            self._evict(server, error)
            raise
        except (BusyError, SilentError) as error:
            self._slow_down(server, epoch, getattr(error, "retry_after_s", None))
            self._start(self._check(server))
            raise
        except LostError:
            self._start(self._check(server))
            raise
        else:
            server.window.answered()
            server.pause_s = 0.0
            return server.endpoint, reply, time.monotonic() - began
        finally:
            server.open_requests.discard(scope)
            server.in_flight -= 1
            self._ended.set()
            self._hand_out()

    def give_up(self, error: EngineUnavailableError) -> None:
        """Uses no server any more: every request, also those to come, fails with this error."""
        for server in self.servers:
            server.state, server.reason = "refused", ""
        self._fail(error)

    async def close(self) -> None:
        """Ends probes and checks, and lets nobody wait any more."""
        for task in self._tasks:
            task.cancel()
        self._give_up("the engine was closed")
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._share is not None:
            await asyncio.to_thread(self._share.release)

    async def _take(self) -> Server:
        """A server with room, its request already counted."""
        if self._failure is not None:
            raise self._failure
        server = self._roomiest() if self._opened and not self._waiting else None
        if server is not None:
            server.in_flight += 1
            server.sent += 1
            return server
        turn: asyncio.Future[Server] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._asked_for.set()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                turn.result().in_flight -= 1
                self._ended.set()
                self._hand_out()
            raise

    def _roomiest(self) -> Server | None:
        now = time.monotonic()
        with_room = [server for server in self.servers if server.has_room(now)]
        return min(with_room, key=lambda server: (server.in_flight / server.limit, server.sent), default=None)

    def _hand_out(self) -> None:
        """Gives what room there is to those who wait, in their order."""
        while self._opened and self._waiting:
            if self._waiting[0].done():  # cancelled
                self._waiting.popleft()
                continue
            server = self._roomiest()
            if server is None:
                return
            server.in_flight += 1
            server.sent += 1
            self._waiting.popleft().set_result(server)

    def _slow_down(self, server: Server, epoch: int, retry_after_s: float | None) -> None:
        if not server.window.overloaded(epoch):
            return
        pace = self._pace
        server.pause_s = min(2 * server.pause_s or pace.first_pause_s, pace.longest_pause_s)
        pause = retry_after_s if retry_after_s is not None else server.pause_s * random.uniform(0.5, 1.5)  # noqa: S311 - jitter
        pause = min(pause, pace.longest_pause_s)
        server.paused_until = time.monotonic() + pause
        asyncio.get_running_loop().call_later(pause, self._hand_out)
        logger.info("%s: busy: %d requests at once from now on", server.endpoint, server.window.limit)

    def _admit(self, server: Server, facts: Facts, *, strangers: bool) -> None:
        """Takes a server into use.

        Args:
            server: it.
            facts: what it says of itself.
            strangers: whether flags are allowed that no other server has.

        Raises:
            UnsuitableError: it does not serve what the others serve.
        """
        if self._known:
            require_alike(*self._known[0], server.endpoint, facts)
        if not strangers:
            self._require_known_flags(server, facts)
        if (server.endpoint, facts) not in self._known:
            self._known.append((server.endpoint, facts))
        if server.facts is None or server.facts.max_running_requests != facts.max_running_requests:
            server.window = Window(facts.max_running_requests, self._max_in_flight)
        server.facts, server.state, server.silent_checks = facts, "live", 0
        self._failure = None
        self._back.set()
        self._hand_out()

    def _require_known_flags(self, server: Server, facts: Facts) -> None:
        if all(facts.environment != known.environment for _, known in self._known):
            raise UnsuitableError(
                f"{server.endpoint}: its version or flags are other than those recorded for this run; start the run "
                "again to use it"
            )

    def _evict(self, server: Server, error: Exception) -> None:
        if server.state != "live":
            return
        server.state, server.reason = "away", str(error)
        server.evictions += 1
        logger.warning("left out until it answers again: %s", error)
        self._start(self._probe(server))
        self._look_for_the_living()

    def _refuse(self, server: Server, error: Exception) -> None:
        server.state, server.reason = "refused", str(error)
        server.evictions += 1
        logger.error("not used any more: %s", error)
        self._look_for_the_living()

    async def _probe(self, server: Server) -> None:
        """Asks an absent server until it can be used again, or must not be."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(TransientEngineError),
            wait=wait_exponential(self._pace.first_probe_s, self._pace.longest_probe_s)
            + wait_random(0, self._pace.first_probe_s),
        )
        await asyncio.sleep(self._pace.first_probe_s)
        try:
            self._admit(server, await retrying(server.client.facts), strangers=not self._known)
        except UnsuitableError as error:
            self._refuse(server, error)
        else:
            logger.warning("%s: answers again", server.endpoint)

    async def _check_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._pace.check_every_s)
            await asyncio.gather(*(self._check(server) for server in self.live))

    async def _keep_within(self, share: Share) -> None:
        """Asks now and then how much of each server is this run's; for the first time when a request waits."""
        await self._asked_for.wait()
        while True:
            waiting = sum(not turn.done() for turn in self._waiting)
            standings = [
                Standing(
                    s.endpoint,
                    s.window.ceiling,
                    s.allowed or 0,
                    s.in_flight,
                    # What this run does not use of a server, others may.
                    wanted=s.in_flight + waiting if s.state == "live" else 0,
                )
                for s in self.servers
            ]
            lowered: list[Server] = []
            try:
                allowed = await asyncio.to_thread(share.settle, standings)
            except ShareError as error:
                logger.warning("%s (asked again; until then this run keeps to what it was allowed)", error)
            else:
                lowered = [s for s in self.servers if allowed.get(s.endpoint, 0) < (s.allowed or 0)]
                for server in self.servers:
                    server.allowed = allowed.get(server.endpoint, 0)
                self._hand_out()
            await self._until_next_look(lowered)

    async def _until_next_look(self, lowered: Sequence[Server]) -> None:
        """Waits; where less is allowed than before, only until what is beyond has ended: others wait for it."""
        if not lowered:
            await asyncio.sleep(self._pace.share_every_s)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pace.share_every_s):
                while any(server.in_flight > (server.allowed or 0) for server in lowered):
                    self._ended.clear()
                    await self._ended.wait()

    async def _check(self, server: Server) -> None:
        """Looks whether a server in use is still what it was."""
        if server.checking or server.state != "live" or server.facts is None:
            return
        server.checking = True
        try:
            facts = await server.client.facts()
            server.silent_checks = 0
            if facts.weights != server.facts.weights:
                raise UnsuitableError(
                    f"{server.endpoint}: serves {facts.weights} now, and served {server.facts.weights} before"
                )
            self._require_known_flags(server, facts)
        except UnsuitableError as error:
            self._refuse(server, error)
        except (UnreachableError, LostError) as error:
            # What it is working on may still come: a server that is shut down finishes its requests.
            self._evict(server, error)
        except SilentError as error:
            server.silent_checks += 1
            if server.silent_checks >= SILENT_CHECKS:
                self._evict(server, error)
                for scope in list(server.open_requests):
                    scope.reschedule(0.0)
        finally:
            server.checking = False

    def _look_for_the_living(self) -> None:
        """Starts waiting for servers if there is none."""
        if self.live:
            return
        self._back.clear()
        if all(server.state == "refused" for server in self.servers):
            self._give_up("no server may be used")
        elif self._watch is None or self._watch.done():
            self._watch = self._start(self._wait_for_return())

    async def _wait_for_return(self) -> None:
        deadline = time.monotonic() + self._wait_s
        while (left := deadline - time.monotonic()) > 0:
            logger.warning(
                "no server answers; waiting up to %.0f s more, then the run stops with all finished rows kept: %s",
                left,
                self._reasons(),
            )
            try:
                async with asyncio.timeout(min(left, self._pace.remind_every_s)):
                    await self._back.wait()
            except TimeoutError:
                continue
            return
        self._give_up(f"no server has answered for {self._wait_s:g} s (engine.unavailable_wait_s)")

    def _give_up(self, why: str) -> None:
        self._fail(EngineUnavailableError(": ".join(filter(None, (why, self._reasons())))))

    def _fail(self, error: EngineUnavailableError) -> None:
        self._failure = error
        self._back.set()
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_exception(self._failure)

    def _reasons(self) -> str:
        return "; ".join(server.reason for server in self.servers if server.state != "live")

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        """Lets nobody wait for work that has failed: without it a run would go on for ever and send nothing."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, EngineUnavailableError):
            self.give_up(error)
        elif error is not None:
            logger.error("what looks after the servers has failed", exc_info=error)
            self.give_up(EngineUnavailableError(f"what looks after the servers has failed: {error!r}"))
