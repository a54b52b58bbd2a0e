"""Uploading an export: over real HTTP to a stand-in of the Hub, which keeps what it is sent."""

import base64
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import HfApi
from upath import UPath

from eagle3_assets.exports.errors import ExportError
from eagle3_assets.exports.pushing import push, require_pushable
from eagle3_assets_tests.exports.conftest import Made

TOKEN = "hf_secretsecretsecret"  # noqa: S105 - of the stand-in


class Hub(ThreadingHTTPServer):
    """Answers what an upload asks; refuses everything without its token."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.created: list[dict[str, object]] = []
        self.files: dict[str, bytes] = {}
        self.there: list[str] = []
        self.deleted: set[str] = set()

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
                elif entry["key"] == "deletedFile":
                    self.server.deleted.add(entry["value"]["path"])
            url = f"{self.server.address}/datasets/me/data/commit/{'0' * 40}"
            self._answer({"commitUrl": url, "commitOid": "0" * 40, "success": True})
        else:
            self._answer({}, 404)

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer({"error": "who are you?"}, 401)
        elif "/tree/" in self.path:
            self._answer([{"type": "file", "path": path, "size": 1, "oid": "0" * 40} for path in self.server.there])
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
    export = {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "hidden_states").mkdir()
    for name in (".env", "id_rsa", "train.jsonl", "hidden_states/hs_0.safetensors", "notes.json"):
        (tmp_path / name).write_text(TOKEN, encoding="utf-8")
    address = push(UPath(tmp_path), "me/data", HfApi(endpoint=hub.address, token=TOKEN))
    assert address.endswith("me/data")
    [created] = hub.created
    assert (created["type"], created["visibility"]) == ("dataset", "private")
    assert hub.files == export
    assert not any(TOKEN.encode() in content for content in hub.files.values())


def test_what_an_earlier_export_had_is_deleted_there_and_nothing_else(made: Made, tmp_path: Path, hub: Hub) -> None:
    made.export(tmp_path)
    earlier = {"state.json", "dataset_info.json", "train/state.json", "train/d-00000.arrow", "eval/d-00007.jsonl"}
    hub.there = [*sorted(earlier), "LICENSE", "README.md", ".gitattributes", "train/d-00000.jsonl", "notes/state.json"]
    push(UPath(tmp_path), "me/data", HfApi(endpoint=hub.address, token=TOKEN))
    assert hub.deleted == earlier


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


def test_an_unreachable_hub_is_a_message(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.export(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    with pytest.raises(
        ExportError, match=r"me/data: cannot be uploaded: .*The export is whole: export again to upload"
    ):
        push(UPath(tmp_path), "me/data", HfApi(endpoint=f"http://127.0.0.1:{port}", token=TOKEN))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ExportError, match=r"me/data: cannot be uploaded: .*offline mode"):
        push(UPath(tmp_path), "me/data", HfApi(endpoint=f"http://127.0.0.1:{port}", token=TOKEN))


@pytest.mark.parametrize(
    ("place", "repository", "token", "said"),
    [
        ("out", "", TOKEN, "'': is no name of a dataset of the Hub: "),
        ("out", "data", TOKEN, "'data': is no name of a dataset of the Hub; give its owner too, OWNER/NAME"),
        ("out", "no//name", TOKEN, "'no//name': is no name of a dataset of the Hub: "),
        ("out", "a/b/c", TOKEN, "'a/b/c': is no name of a dataset of the Hub: "),
        ("out", "me/data", "hf_straße", "HF_TOKEN holds what no token has"),
        ("out", "me/data", "hf_a hf_b", "HF_TOKEN holds what no token has"),
        ("out", "me/data", None, "me/data: cannot be uploaded without a token; set HF_TOKEN"),
        ("memory://bucket/out", "me/data", TOKEN, "is no local disk, from which alone is uploaded"),
        ("out", "me/data", TOKEN, None),
    ],
)
def test_what_could_not_be_uploaded_is_said_before_anything_is_made(
    place: str, repository: str, token: str | None, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(ExportError, match=re.escape(said)) if said else nullcontext() as caught:
        require_pushable(UPath(place), repository)
    if caught is not None and token is not None:
        assert token not in str(caught.value)
