"""A server that is started here, kept up, and ended: ``python -m sglang.launch_server`` on 127.0.0.1.

What belongs here: the command, its log, waiting for health, watching, restarts within limits, the end. Not here: asking
the server for ids (``engine``), what keeps it from outliving this process (``keeper``).
"""

import asyncio
import fcntl
import http.client
import logging
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from eagle3_assets.config import ManagedServer, Target
from eagle3_assets.engines.base import EngineUnavailableError
from eagle3_assets.engines.sglang import keeper

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
TAIL_BYTES, TAIL_LINES = 8000, 40
"""As much of a server's log stands in an error."""
BEYOND_GRACE_S = 10.0
"""The keeper itself has this much longer than the server."""

_NO_SGLANG = "No module named 'sglang'"


@dataclass(frozen=True, slots=True)
class Watchfulness:
    """How often a managed server is looked at, in seconds."""

    look_every_s: float = 0.2
    """Whether its process lives, and whether it shall end."""
    before_restart_s: float = 2.0
    """A driver may take a moment to free the memory of a process that was killed."""
    health_every_s: float = 30.0
    unhealthy_s: float = 600.0
    """Without one good ``/health`` for so long, a server that was up hangs and is restarted."""
    health_timeout_s: float = 30.0
    """The server itself gives a health check up after 20."""
    remind_every_s: float = 60.0
    """Between two log lines that say what is waited for."""
    port_wait_s: float = 30.0
    """A process that was killed keeps its port until the kernel has taken it down."""


class _StoppedError(Exception):
    """The server shall end."""


class _GoneError(Exception):
    """The server has ended, or hangs; the text says which."""


class ManagedSglang:
    """One server. A thread starts it and looks after it, so that it lives on while event loops come and go."""

    def __init__(
        self, settings: ManagedServer, target: Target, directory: Path, watchfulness: Watchfulness | None = None
    ) -> None:
        """Starts nothing yet.

        Args:
            settings: of the server.
            target: the model that it serves.
            directory: for its log, made if need be. One managed server at a time runs for a directory on one machine,
            since two would want the same GPU; another waits.
            watchfulness: how often to look.
        """
        self._settings = settings
        self._target = target
        self._directory = directory
        self._pace = watchfulness or Watchfulness()
        self._port = settings.port
        self._log: Path | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._up = threading.Event()
        self._failure: EngineUnavailableError | None = None
        self.restarts = 0
        """How often it was restarted since it was last started."""

    @property
    def endpoint(self) -> str:
        """Its base URL; known once it is ready, and the same after a restart."""
        return f"http://{HOST}:{self._port}"

    @property
    def patience_s(self) -> float:
        """How long it may be away without anything being wrong with it: while it restarts."""
        return self._settings.start_timeout_s

    async def ready(self) -> None:
        """Starts it unless it runs, and waits until it has been healthy for the first time.

        Raises:
            EngineUnavailableError: it cannot be started; with the end of its log.
        """
        if self._thread is None:
            python = self._settings.python or sys.executable
            if shutil.which(python) is None:
                raise EngineUnavailableError(f"engine.managed.python: {python} is no program that can be run here")
            self._stop.clear()
            self._up.clear()
            self._failure, self.restarts = None, 0
            self._thread = threading.Thread(target=self._look_after, name="managed-sglang", daemon=True)
            self._thread.start()
        while self._failure is None and not self._up.is_set():
            await asyncio.sleep(self._pace.look_every_s)
        if self._failure is not None:
            raise self._failure

    async def failed(self) -> EngineUnavailableError:
        """Waits until it is given up, and says why."""
        while self._failure is None:
            await asyncio.sleep(self._pace.look_every_s)
        return self._failure

    async def stop(self) -> None:
        """Ends it with every process that it started. May be called twice."""
        self._stop.set()
        while self._thread is not None and self._thread.is_alive():
            await asyncio.sleep(self._pace.look_every_s / 4)
        self._thread = None

    def _look_after(self) -> None:
        try:
            with self._alone() as lock:
                self._keep_up(lock)
        except _StoppedError:
            pass
        except EngineUnavailableError as error:
            self._failure = error
        except Exception as error:  # noqa: BLE001 - whoever waits for the server must hear of it
            self._failure = EngineUnavailableError(f"a managed server cannot be started: {error}")

    def _keep_up(self, lock: int) -> None:
        """Runs it until it shall end.

        Raises:
            _StoppedError: it shall end.
            EngineUnavailableError: it could not be started, or ended too often.
        """
        limit, window_s = self._settings.restarts, self._settings.restart_window_s
        recent: deque[float] = deque()
        while True:
            try:
                with self._running(lock) as process:
                    self._await_health(process)
                    logger.info("the managed server is healthy: %s", self.endpoint)
                    self._up.set()
                    self._watch(process)
            except _GoneError as gone:
                if not self._up.is_set():
                    raise EngineUnavailableError(self._with_log(f"the managed SGLang server {gone}")) from None
                now = time.monotonic()
                while recent and now - recent[0] > window_s:
                    recent.popleft()
                if len(recent) >= limit:
                    raise EngineUnavailableError(
                        self._with_log(
                            f"the managed SGLang server {gone}; restarts within {window_s:g} s so far: {len(recent)}, "
                            "the most that engine.managed.restarts allows"
                        )
                    ) from None
                recent.append(now)
                self.restarts += 1
                logger.warning(
                    "the managed server %s; restart %d of at most %d within %g s; its log: %s",
                    gone, len(recent), limit, window_s, self._log,
                )  # fmt: skip
                self._pause(self._pace.before_restart_s)

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """Waits until no other managed server runs for this directory on this machine.

        Yields:
            the file that holds the lock. The keeper inherits it: the lock is free when the server's last process is
            gone, and not before, whatever becomes of this process.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        # Machines that share the directory share no GPU.
        lock = os.open(self._directory / f"{socket.gethostname()}.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            reminded = float("-inf")
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() - reminded > self._pace.remind_every_s:
                        reminded = time.monotonic()
                        logger.warning(
                            "another run has its managed server up; waiting until it ends (%s)", self._directory
                        )
                    self._pause(self._pace.look_every_s)
            yield lock
        finally:
            os.close(lock)

    @contextmanager
    def _running(self, lock: int) -> Iterator["subprocess.Popen[bytes]"]:
        """The keeper with the server below it; at the end none of their processes is left."""
        self._port = self._port or _free_port()
        self._await_free_port()
        if self._log is None:
            self._log = self._directory / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{self._port}.log"
        command = self._command()
        with self._log.open("ab") as log:
            log.write(f"{keeper.MARK}{time.strftime('%Y-%m-%d %H:%M:%S')} {shlex.join(command)}\n".encode())
            log.flush()
            process = subprocess.Popen(  # noqa: S603 - what the config says
                [sys.executable, "-I", keeper.__file__, str(os.getpid()), str(self._settings.stop_grace_s), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self._settings.environment},
                pass_fds=(lock,),
                start_new_session=True,
            )
        logger.info("starting a managed server: %s; its log: %s", self.endpoint, self._log)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(self._settings.stop_grace_s + BEYOND_GRACE_S)
            except subprocess.TimeoutExpired:
                logger.error("the managed server does not end: killed; its log: %s", self._log)
            # The keeper ends its group itself, unless something killed it.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _await_free_port(self) -> None:
        """Whoever else listens on the port would be taken for the server, which needs a while to find that out.

        Where a server was up, what holds its port is most likely the rest of it: that is waited for. Its processes
        cannot be, since they are no children of this one.
        """
        deadline = time.monotonic() + (self._pace.port_wait_s if self._up.is_set() else 0.0)
        while (taken := self._port_is_taken()) is not None:
            if time.monotonic() >= deadline:
                raise _GoneError(f"cannot listen on port {self._port} (engine.managed.port): {taken}")
            self._pause(self._pace.look_every_s)

    def _port_is_taken(self) -> str | None:
        """Why the server could not listen now; None if it could."""
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, self._port))
            except OSError as error:
                return error.strerror
        return None

    def _command(self) -> list[str]:
        target, settings = self._target, self._settings
        return [
            settings.python or sys.executable,
            *("-m", "sglang.launch_server"),
            *("--model-path", target.model),
            *(("--tokenizer-path", target.tokenizer) if target.tokenizer else ()),
            *(("--trust-remote-code",) if target.trust_remote_code else ()),
            *("--host", HOST, "--port", str(self._port)),
            *settings.arguments,
        ]

    def _await_health(self, process: "subprocess.Popen[bytes]") -> None:
        deadline = time.monotonic() + self._settings.start_timeout_s
        reminder = time.monotonic() + self._pace.remind_every_s
        while not self._healthy(timeout_s=5.0):
            self._require_alive(process)
            now = time.monotonic()
            if now > deadline:
                raise _GoneError(
                    f"was not healthy within {self._settings.start_timeout_s:g} s (engine.managed.start_timeout_s)"
                )
            if now > reminder:
                reminder = now + self._pace.remind_every_s
                logger.info("the managed server is starting, for %.0f s more at most", deadline - now)
            self._pause(self._pace.look_every_s)

    def _watch(self, process: "subprocess.Popen[bytes]") -> None:
        healthy = checked = time.monotonic()
        while True:
            self._pause(self._pace.look_every_s)
            self._require_alive(process)
            if time.monotonic() - checked < self._pace.health_every_s:
                continue
            if self._healthy(self._pace.health_timeout_s):
                healthy = time.monotonic()
            elif time.monotonic() - healthy > self._pace.unhealthy_s:
                raise _GoneError(f"lives but has not been healthy for {self._pace.unhealthy_s:g} s")
            checked = time.monotonic()

    def _healthy(self, timeout_s: float) -> bool:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=timeout_s)
        try:
            connection.request("GET", "/health")
            response = connection.getresponse()
            response.read()
            return response.status == HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _require_alive(self, process: "subprocess.Popen[bytes]") -> None:
        if process.poll() is None:
            return
        # What the keeper said last; nothing about the end if it was killed itself.
        said = next((line for line in reversed(self._tail()) if line.startswith(keeper.MARK)), "")
        raise _GoneError(f"ended: {said.removeprefix(keeper.ENDED)}" if said.startswith(keeper.ENDED) else "ended")

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise _StoppedError

    def _tail(self) -> list[str]:
        if self._log is None:
            return []
        with self._log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - TAIL_BYTES))
            return log.read().decode("utf-8", "replace").splitlines()[-TAIL_LINES:]

    def _with_log(self, what: str) -> str:
        tail = self._tail()
        if not tail:
            return what
        if any(_NO_SGLANG in line for line in tail):
            python = self._settings.python or sys.executable
            return (
                f"SGLang is not installed for {python}: install it there (pip install 'eagle3-assets[sglang]'), or "
                "name the interpreter of an environment that has it in engine.managed.python"
            )
        return f"{what}; its log {self._log} ends with:\n" + "\n".join(tail)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
