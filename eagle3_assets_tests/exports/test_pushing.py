"""Uploading an export: over real HTTP to a stand-in of the Hub, which keeps what it is sent."""

import base64
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import HfApi
from upath import UPath

from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.pushing import push
from eagle3_assets_tests.exports.conftest import Made

TOKEN = "hf_secretsecretsecret"  # noqa: S105 - of the stand-in


class Hub(ThreadingHTTPServer):
    """Answers what an upload asks; refuses everything without its token."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.created: list[dict[str, object]] = []
        self.files: dict[str, bytes] = {}

    @property
    def address(self) -> str:
        return f"http://localhost:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer({"error": "who are you?"}, 401)
        elif self.path.startswith("/api/repos/create"):
            self.server.created.append(json.loads(body))
            self._answer({"url": f"{self.server.address}/datasets/me/data"})
        elif self.path == "/api/validate-yaml":
            self._answer({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            files = [
                {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                for one in json.loads(body)["files"]
            ]
            self._answer({"files": files})
        elif "/commit/" in self.path:
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.server.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            url = f"{self.server.address}/datasets/me/data/commit/{'0' * 40}"
            self._answer({"commitUrl": url, "commitOid": "0" * 40, "success": True})
        else:
            self._answer({}, 404)

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer({"error": "who are you?"}, 401)
        elif re.search(r"/(tree|paths-info)/", self.path):
            self._answer([])
        else:
            self._answer({"id": "me/data", "sha": "0" * 40, "siblings": [], "private": True})

    def _answer(self, value: object, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_what_is_uploaded_is_the_export_to_a_private_dataset(made: Made, tmp_path: Path, hub: Hub) -> None:
    made.export(tmp_path)
    (tmp_path / ".unfinished.json").write_text("{}", encoding="utf-8")
    address = push(UPath(tmp_path), "me/data", HfApi(endpoint=hub.address, token=TOKEN))
    assert address.endswith("me/data")
    [created] = hub.created
    assert (created["type"], created["visibility"]) == ("dataset", "private")
    files = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    del files[".unfinished.json"]
    assert hub.files == files
    assert TOKEN not in (tmp_path / "manifest.json").read_text(encoding="utf-8")


def test_a_refused_upload_says_what_to_do_and_not_the_token(
    made: Made, tmp_path: Path, hub: Hub, capfd: pytest.CaptureFixture[str]
) -> None:
    made.export(tmp_path)
    with pytest.raises(ExportError, match="HF_TOKEN must hold") as caught:
        push(UPath(tmp_path), "me/data", HfApi(endpoint=hub.address, token=TOKEN + "x"))
    assert TOKEN not in str(caught.value) + "".join(capfd.readouterr())
    with pytest.raises(ExportError, match="cannot be uploaded"):
        push(UPath(tmp_path), "no//name", HfApi(endpoint=hub.address, token=TOKEN))


def test_what_does_not_verify_is_not_uploaded(made: Made, tmp_path: Path, hub: Hub) -> None:
    made.export(tmp_path)
    (tmp_path / "train" / "d-00000.jsonl").write_text("", encoding="utf-8")
    with pytest.raises(ExportError, match="is not uploaded: train/d-00000"):
        push(UPath(tmp_path), "me/data", HfApi(endpoint=hub.address, token=TOKEN))
    assert not hub.created
