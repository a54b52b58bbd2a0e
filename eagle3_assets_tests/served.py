"""A project's Dagster as a person has it open: webserver and daemon as real processes.

What belongs here: starting and ending them, their GraphQL. Not here: what a test asks of them.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from eagle3_assets.config import CONFIG_VARIABLE
from eagle3_assets.running import INSTANCE_YAML


def free_port() -> int:
    """A port for a server that begins later: none of those that Linux gives to outgoing connections meanwhile."""
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


@contextmanager
def running(
    arguments: list[str], environment: dict[str, str], log: Path, python: str = sys.executable
) -> Iterator[None]:
    """A module's process in a group of its own, ended with all that it started."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [python, "-m", *arguments],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class Api:
    """The webserver's GraphQL."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"

    def __call__(self, query: str, **variables: Any) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - a loopback address
            f"{self.base}/graphql",
            data=json.dumps({"query": query, "variables": variables}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310 - as above
            answer = json.load(reply)
        assert "errors" not in answer, answer["errors"]
        return dict(answer["data"])

    def wait_until_up(self, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                self("{ version }")
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)


@contextmanager
def served(folder: Path, settings: str = INSTANCE_YAML, python: str = sys.executable) -> Iterator[Api]:
    """Webserver and daemon for ``eagle3.yaml`` in a folder, on a new instance with such settings."""
    home = folder / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(settings, encoding="utf-8")
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        CONFIG_VARIABLE: str(folder / "eagle3.yaml"),
        "OMP_NUM_THREADS": "1",
    }
    module = ["-m", "eagle3_assets.definitions"]
    port = free_port()
    with ExitStack() as stack:
        web = ["dagster_webserver", "--host", "127.0.0.1", "--port", str(port), *module]
        stack.enter_context(running(web, environment, folder / "web.log", python))
        made = Api(port)
        made.wait_until_up()
        # Two processes that make a new instance at the same moment trip over each other's database.
        daemon = ["dagster._daemon", "run", *module]
        stack.enter_context(running(daemon, environment, folder / "daemon.log", python))
        yield made
