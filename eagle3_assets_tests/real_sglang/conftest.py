"""Two real servers of the demo model, started once."""

from collections.abc import Iterator

import pytest

from eagle3_assets_tests.conftest import DEMO
from eagle3_assets_tests.real_sglang.server import PYTHON, RealServer


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealServer, RealServer]]:
    """Up when a test begins, unless a test before has ended one."""
    assert PYTHON.exists(), f"there is no {PYTHON}: make test-sglang makes it"
    logs = tmp_path_factory.mktemp("servers")
    first, second = (RealServer(DEMO / "model", logs / f"{name}.log") for name in ("first", "second"))
    try:
        for server in (first, second):
            server.start()
        for server in (first, second):
            server.wait()
        yield first, second
    finally:
        for server in (first, second):
            server.stop()


@pytest.fixture
def pair(servers: tuple[RealServer, RealServer]) -> tuple[RealServer, RealServer]:
    """Both servers, the second started again where a test has ended it."""
    if servers[1].ended():
        servers[1].start()
        servers[1].wait()
    return servers
