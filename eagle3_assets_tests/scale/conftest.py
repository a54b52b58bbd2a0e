"""A server with S3's API, and a bucket for each test."""

import logging
import threading
import uuid
from collections.abc import Iterator

import pytest
from upath import UPath

from eagle3_assets.files import place_of

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIATESTTESTTEST", "AWS_SECRET_ACCESS_KEY": "hunter2-hunter2"}


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of a server of this process, which takes one request at a time: a PUT is atomic, as on S3."""
    moto = pytest.importorskip("moto.server", reason="needs the extra scale")
    serving = pytest.importorskip("werkzeug.serving")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app = moto.DomainDispatcherApplication(moto.create_backend_app)
    server = serving.make_server("127.0.0.1", 0, app, threaded=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


@pytest.fixture
def bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> UPath:
    """A new bucket, reached with what the environment says, as the processes that a test starts do."""
    for name, value in {**CREDENTIALS, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": s3_endpoint}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    place = place_of(f"s3://test-{uuid.uuid4().hex}/corpus")
    place.fs.clear_instance_cache()
    place = place_of(str(place))
    place.fs.mkdir(place.fs.split_path(place.path)[0])
    return place
