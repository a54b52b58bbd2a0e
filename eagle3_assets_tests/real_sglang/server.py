"""Starts and ends real SGLang servers."""

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

PYTHON = Path(__file__).parents[2] / ".cache" / "sglang-venv" / "bin" / "python"
"""Of the environment that ``scripts/sglang-cpu/make-env`` makes."""

START_S = 240.0
STOP_S = 30.0

ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1",
    # One thread and float32 are the fast way on a plain CPU.
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
    "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",
}
ARGUMENTS = (
    "--device cpu --attention-backend torch_native --sampling-backend pytorch --grammar-backend none"
    " --skip-server-warmup --disable-cuda-graph --disable-overlap-schedule --mem-fraction-static 0.3"
    " --max-total-tokens 20000 --max-running-requests 16 --dtype float32 --host 127.0.0.1"
)


class RealServer:
    """One server process, in a process group of its own."""

    def __init__(self, model: Path, log: Path, *arguments: str) -> None:
        """Not yet started.

        Args:
            model: directory of the checkpoint.
            log: file for what it prints.
            arguments: of ``launch_server``, beyond the usual ones.
        """
        self._model = model
        self._log = log
        self._arguments = arguments
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Starts it on its port; :meth:`wait` says when it is up."""
        command = [str(PYTHON), "-m", "sglang.launch_server", "--model-path", str(self._model), *ARGUMENTS.split()]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--port", str(self._port), *self._arguments],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | ENVIRONMENT,
                start_new_session=True,
            )

    def wait(self) -> None:
        """Waits until it is healthy."""
        assert self._process is not None
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            assert self._process.poll() is None, f"the server ended:\n{self.said()}"
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=30):  # noqa: S310 - a URL of ours
                    return
            except OSError:
                time.sleep(0.5)
        raise AssertionError(f"the server is not healthy after {START_S:g} s:\n{self.said()}")

    def post(self, path: str, body: bytes) -> int:
        """Sends JSON and returns the status."""
        request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"})  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=30) as response:  # noqa: S310 - a URL of ours
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the server process, or with SIGKILL to all of its processes."""
        assert self._process is not None
        if number is signal.SIGKILL:
            os.killpg(self._process.pid, number)
        else:
            self._process.send_signal(number)

    def ended(self) -> bool:
        """Whether the server process has ended."""
        return self._process is None or self._process.poll() is not None

    def stop(self) -> None:
        """Ends it with every process that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def said(self) -> str:
        """The end of its log."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
