"""Datasets of the Hugging Face Hub: from a cache laid out as ``huggingface_hub`` does, and from a server."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from huggingface_hub import constants

from eagle3_assets.config import parse_address
from eagle3_assets.prompts.sources import PromptSourceError, find

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PAGE = "https://huggingface.co/datasets/owner/name"
ADDRESS = f"hf://datasets/owner/name@{COMMIT}"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A snapshot with links to blobs, offline."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    repository = tmp_path / "datasets--owner--name"
    for number, name in enumerate(("README.md", "data/b.jsonl", "data/a.jsonl", "data/more/c.jsonl", ".gitattributes")):
        blob, link = repository / "blobs" / str(number), repository / "snapshots" / COMMIT / name
        for path in (blob, link):
            path.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(b"{}\n")
        link.symlink_to(blob)
    return repository


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("", ["data/a.jsonl", "data/b.jsonl", "data/more/c.jsonl"]),
        ("/data", ["data/a.jsonl", "data/b.jsonl", "data/more/c.jsonl"]),
        ("/data/*.jsonl", ["data/a.jsonl", "data/b.jsonl"]),
        ("/**/c.jsonl", ["data/more/c.jsonl"]),
        ("/data/b.jsonl", ["data/b.jsonl"]),
    ],
)
def test_a_local_snapshot_is_read_offline(path: str, names: list[str]) -> None:
    found = find([ADDRESS + path])
    assert [file.name for file in found.files] == names
    assert all(file.path.read_bytes() == b"{}\n" for file in found.files)


@pytest.mark.usefixtures("cache")
def test_beside_other_places_names_begin_with_the_repository(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_bytes(b"{}\n")
    found = find([f"{ADDRESS}/data/b.jsonl", str(tmp_path / "own.jsonl")])
    assert [file.name for file in found.files] == ["owner/name/data/b.jsonl", "own.jsonl"]


def test_two_commits_of_one_dataset_are_not_mixed_up(cache: Path) -> None:
    other = COMMIT[::-1]
    (cache / "snapshots" / other / "data").mkdir(parents=True)
    (cache / "snapshots" / other / "data" / "b.jsonl").write_bytes(b"{}\n")
    with pytest.raises(PromptSourceError, match=r"both be called owner/name/data/b\.jsonl; put them into two datasets"):
        find([f"{ADDRESS}/data/b.jsonl", f"{ADDRESS.replace(COMMIT, other)}/data/b.jsonl"])


def test_a_snapshot_that_is_known_to_be_incomplete_is_not_read(cache: Path) -> None:
    names = ["data/a.jsonl", "data/b.jsonl", "data/missing.jsonl", "README.md"]
    (cache / "trees").mkdir()
    files = {name: {"size": 3, "blob_id": "0" * 40} for name in names}
    (cache / "trees" / f"{COMMIT}.json").write_text(json.dumps({"format_version": 1, "files": files}))
    with pytest.raises(PromptSourceError, match=r"not in the local cache|has not all of the files"):
        find([f"{ADDRESS}/data/*.jsonl"])


@pytest.mark.usefixtures("cache")
def test_what_is_not_in_the_cache_is_named() -> None:
    fetch = f"fetch them where there is a connection: hf download owner/other --repo-type dataset --revision {COMMIT}"
    with pytest.raises(PromptSourceError, match=rf"other@0123.*: the files are not in the local cache.*{fetch}"):
        find([ADDRESS.replace("name", "other")])
    with pytest.raises(PromptSourceError, match="No such file"):
        find([f"{ADDRESS}/none.jsonl"])


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("hf://datasets/owner/name", "must be pinned to a commit.*owner/name/commits/main"),
        ("hf://datasets/owner/name@main/data", "must be pinned to a commit"),
        (f"hf://datasets/owner/name@{COMMIT[:12]}", "must be pinned to a commit"),
        (f"hf://owner/name@{COMMIT}", "must be like hf://datasets/OWNER/NAME@COMMIT/PATH"),
        (f"hf://datasets/owner/name@{COMMIT}/../../x", "must be like"),
    ],
)
def test_an_address_that_could_move_is_none(address: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_address(address)


class Refusing(BaseHTTPRequestHandler):
    """Lets nobody in."""

    seen: ClassVar[list[str | None]] = []
    code: ClassVar[str | None] = None
    status: ClassVar[int] = 401

    def do_GET(self) -> None:
        self.seen.append(self.headers.get("Authorization"))
        self.send_response(self.status)
        self.send_header("X-Error-Message", f"who is {self.seen[-1]}?")
        if self.code:
            self.send_header("X-Error-Code", self.code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str | None]]:
    """A Hub that lets nobody in, and what it was given as authorization."""
    seen: list[str | None] = []

    monkeypatch.setattr(Refusing, "seen", seen)
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{listening.server_port}")
    (tmp_path / "token").write_text("of-the-file")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    yield seen
    listening.shutdown()
    listening.server_close()


def test_the_only_token_is_the_environments_and_it_is_never_shown(
    server: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(PromptSourceError, match="a private dataset needs HF_TOKEN"):
        find([ADDRESS])
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with pytest.raises(PromptSourceError, match=r"owner/name@.*: the Hub refused it") as raised:
        find([ADDRESS])
    assert set(server) == {None, "Bearer hf_secret"}
    assert server[0] is None
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(("token", "given"), [("hf_secret\n", "Bearer hf_secret"), ("hf_sec\nret", None)])
def test_a_token_with_white_space_is_no_traceback_that_shows_it(
    token: str, given: str | None, server: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(PromptSourceError) as raised:
        find([ADDRESS])
    assert set(server) == ({given} if given else set())
    assert "secret" not in str(raised.value)
    assert given or "HF_TOKEN holds what no token has" in str(raised.value)


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        (
            "GatedRepo",
            403,
            rf"is gated: ask for access on {PAGE} and set HF_TOKEN to a token of the account that has it",
        ),
        ("RevisionNotFound", 404, rf"has no such commit: take all 40 digits of one from {PAGE}/commits/main"),
        ("RepoNotFound", 401, rf"no such dataset, or it is private and it needs HF_TOKEN; see {PAGE}"),
    ],
)
def test_a_refusal_of_the_hub_says_how_to_go_on(
    code: str, status: int, said: str, server: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(Refusing, "code", code)
    monkeypatch.setattr(Refusing, "status", status)
    with pytest.raises(PromptSourceError, match=said):
        find([ADDRESS])
    assert server


def test_a_password_of_the_endpoint_is_shown_in_no_form(
    server: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", constants.ENDPOINT.replace("://", "://user:hunter2@"))
    with pytest.raises(PromptSourceError) as raised:
        find([f"{ADDRESS}/a.jsonl?token=hunter2"])
    assert any(header and header.startswith("Basic dXNlcjpodW50ZXIy") for header in server)
    assert "who is Basic ..." in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert "dXNlcjpodW50ZXIy" not in str(raised.value)
