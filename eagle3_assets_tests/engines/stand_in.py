"""A program that stands in for ``sglang.launch_server``: it answers as one does, and dies, hangs or refuses on demand.

Run by the interpreter that :func:`make_stand_in` makes. What it does follows from files in its folder, which a test may
make and remove while it runs; the ids of its processes are in the file ``pids`` there.
"""

import argparse
import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER = "STAND_IN_FOLDER"
STOP = 1  # as generation.fake.STOP


def make_stand_in(folder: Path) -> Path:
    """An interpreter which runs this program, whatever module it is told to run."""
    folder.mkdir(exist_ok=True)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\n{FOLDER}={folder} exec {sys.executable} -IS {Path(__file__)} "$@"\n')
    python.chmod(0o755)
    return python


def processes(folder: Path) -> list[int]:
    """Every process that a stand-in of this folder has had so far."""
    path = folder / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def main() -> None:
    """Serves until it is ended."""
    folder = Path(os.environ[FOLDER])
    parser = argparse.ArgumentParser()
    parser.add_argument("-m")
    parser.add_argument("--model-path")
    parser.add_argument("--tokenizer-path")
    parser.add_argument("--trust-remote-code", action="store_true")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--vocab-size", type=int)
    arguments = parser.parse_args()
    (folder / "command").write_text(json.dumps(vars(arguments)))
    if (folder / "deaf").exists():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _note_process(folder)
    if os.fork() == 0:  # as the real one has a scheduler, and one that ends for nobody's sake
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _note_process(folder)
        while True:
            time.sleep(60)
    print("loading weights", flush=True)
    if (folder / "dies at start").exists():
        sys.exit("the weights are damaged")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/health":
                self.answer({}, 503 if (folder / "unhealthy").exists() else 200)
            elif self.path == "/model_info":
                weights = (folder / "weights").read_text() if (folder / "weights").exists() else "default"
                self.answer({"model_path": arguments.model_path, "weight_version": weights})
            elif self.path == "/server_info":
                sizes = {"context_length": 4096, "vocab_size": arguments.vocab_size, "max_running_requests": 4}
                self.answer({"version": "0.5.23", **sizes})
            else:
                self.answer({}, 404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if (folder / "dies of requests").exists():
                os.kill(os.getpid(), signal.SIGKILL)
            (folder / "asked").touch()
            while (folder / "silent").exists():
                time.sleep(0.1)
            time.sleep(0.01)
            prompt = body["input_ids"]
            output = [len(prompt), prompt[-1], STOP]
            meta = {
                "finish_reason": {"type": "stop", "matched": STOP},
                "prompt_tokens": len(prompt),
                "completion_tokens": len(output),
                "weight_version": "default",
            }
            self.answer({"output_ids": output, "meta_info": meta})

        def answer(self, value: Any, status: int = 200) -> None:
            data = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # a client that hangs up is none

    Server((arguments.host, arguments.port), Handler).serve_forever()


def _note_process(folder: Path) -> None:
    with (folder / "pids").open("a") as file:
        file.write(f"{os.getpid()}\n")


if __name__ == "__main__":
    main()
