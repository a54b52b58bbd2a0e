"""The tests of object stores on Azurite, Microsoft's emulator of Azure Blob Storage, instead of S3.

Of them those that need nothing but the store: what no two may write, what another machine goes on from, what comes out.
"""

import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from upath import UPath

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

AZURITE = "azurite@3.37.0"
PLACE = Path(__file__).parents[2] / ".cache" / "azurite"
# Of every Azurite: public, and of no other account.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
PATIENCE_S = 60.0


def program() -> Path:
    """Azurite, installed where it is not there yet; skips the test where it cannot be had, unless in CI."""
    found = PLACE / "node_modules" / ".bin" / "azurite-blob"
    if not found.exists():
        npm = shutil.which("npm")
        command = [npm or "npm", "install", "--silent", "--no-save", "--prefix", str(PLACE), AZURITE]
        PLACE.mkdir(parents=True, exist_ok=True)
        if npm is None or subprocess.run(command, check=False, timeout=300).returncode:
            said = "Azurite cannot be installed: it needs npm and its registry (190 MB)"
            if os.environ.get("CI"):
                pytest.fail(said)
            pytest.skip(said)
    return found


@pytest.fixture(scope="module")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The connection string of an Azurite of its own."""
    pytest.importorskip("adlfs", reason="needs the extra scale")
    port = free_port()
    address = [
        "--blobHost",
        "127.0.0.1",
        "--blobPort",
        str(port),
        "--location",
        str(tmp_path_factory.mktemp("azurite")),
    ]
    # adlfs asks for the newest version of the service's API.
    command = [str(program()), "--silent", "--disableTelemetry", "--skipApiVersionCheck", *address]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + PATIENCE_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.1)
        blobs = f"http://127.0.0.1:{port}/devstoreaccount1"
        yield f"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey={KEY};BlobEndpoint={blobs};"
        process.terminate()


@pytest.fixture
def bucket(azurite: str, monkeypatch: pytest.MonkeyPatch) -> UPath:
    """A new container, reached with what the environment says, as the processes that a test starts do."""
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azurite)
    place = place_of(f"az://test-{uuid.uuid4().hex}/corpus")
    place.fs.clear_instance_cache()
    place = place_of(str(place))
    place.fs.mkdir(place.path.split("/", 1)[0])
    return place


def test_what_another_client_writes_is_seen_at_once(azurite: str, bucket: UPath) -> None:
    blobs = pytest.importorskip("azure.storage.blob")
    container, key = bucket.path.split("/", 1)
    other = blobs.BlobServiceClient.from_connection_string(azurite).get_container_client(container)
    for content in (b"1", b"22", b"333"):
        other.upload_blob(f"{key}/{len(content)}", content)
        other.upload_blob(f"{key}/same", content, overwrite=True)
        assert len(names_in(bucket)) == len(content) + 1
        assert read_bytes(bucket / "same") == content
