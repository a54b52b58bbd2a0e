"""The example proxy: a real nginx with its config, and both webservers behind it."""

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from eagle3_assets.config import CONFIG_VARIABLE
from eagle3_assets.running import INSTANCE_YAML
from eagle3_assets_tests.conftest import write_project
from eagle3_assets_tests.served import Api, free_port, running

PROXY = Path(__file__).parent.parent / "deploy" / "proxy"
EDIT, VIEW = "dagster.example.org", "dagster-view.example.org"


@dataclass(frozen=True)
class Person:
    login: str
    password: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Basic {b64encode(f'{self.login}:{self.password}'.encode()).decode()}"}


ALICE, BOB = Person("alice", "of-editors"), Person("bob", "of-viewers")

MAIN = """\
daemon off;
{user}
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/eagle3.conf;
}}
"""

RELOAD = "mutation { reloadWorkspace { __typename ... on UnauthorizedError { message } } }"
LAUNCH = """
mutation { launchPartitionBackfill(backfillParams: {
  assetSelection: [{path: ["prompts"]}], partitionNames: ["d-trial"], tags: []
}) { __typename } }
"""
BACKFILLS = "{ partitionBackfillsOrError { ... on PartitionBackfills { results { id } } } }"

pytestmark = [
    pytest.mark.scale,
    pytest.mark.skipif(not shutil.which("nginx"), reason="nginx is missing: apt-get install nginx-light"),
    pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is missing: apt-get install openssl"),
]


class ToLoopback(AbstractResolver):
    """Every name is this machine."""

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host="127.0.0.1", port=port, family=family or socket.AF_INET, proto=0, flags=0)
        ]

    async def close(self) -> None:
        pass


@dataclass(frozen=True)
class Proxy:
    folder: Path
    tls: int
    plain: int
    api: Api
    """Straight to the webserver of editors."""

    @asynccontextmanager
    async def session(self) -> AsyncIterator[aiohttp.ClientSession]:
        trust = ssl.create_default_context(cafile=str(self.folder / "tls.crt"))
        connector = aiohttp.TCPConnector(resolver=ToLoopback(), ssl=trust)
        async with aiohttp.ClientSession(connector=connector) as made:
            yield made

    def url(self, name: str, path: str = "/graphql") -> str:
        return f"https://{name}:{self.tls}{path}"

    def origin(self, name: str) -> dict[str, str]:
        return {"Origin": f"https://{name}:{self.tls}"}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    folder = tmp_path_factory.mktemp("proxy")
    write_project(folder)
    home = folder / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text(INSTANCE_YAML, encoding="utf-8")
    environment = {**os.environ, "DAGSTER_HOME": str(home), CONFIG_VARIABLE: str(folder / "eagle3.yaml")}
    tls, plain, edit, view = (free_port() for _ in range(4))
    _write_config(folder, {"443": tls, "80": plain}, {"3000": edit, "3001": view})
    command = ["-c", str(folder / "main.conf"), "-p", str(folder)]
    checked = subprocess.run(["nginx", "-t", *command], capture_output=True, text=True, check=False)  # noqa: S607
    assert checked.returncode == 0 and "warn" not in checked.stderr, checked.stderr
    with ExitStack() as stack:
        for port, more in ((edit, []), (view, ["--read-only"])):
            web = ["dagster_webserver", "--host", "127.0.0.1", "--port", str(port), *more]
            stack.enter_context(
                running([*web, "-m", "eagle3_assets.definitions"], environment, folder / f"web-{port}.log")
            )
            Api(port).wait_until_up()
        nginx = stack.enter_context(subprocess.Popen(["nginx", *command]))  # noqa: S607
        stack.callback(nginx.terminate)
        made = Proxy(folder, tls, plain, Api(edit))
        asyncio.run(_until_up(made))
        yield made


def _write_config(folder: Path, listens: dict[str, int], upstreams: dict[str, int]) -> None:
    """The example as it is, but for ports and places."""
    for name in ("eagle3.conf", "common.conf"):
        text = (PROXY / name).read_text(encoding="utf-8")
        for old, new in listens.items():
            text = text.replace(f"listen {old}", f"listen 127.0.0.1:{new}")
        for old, new in upstreams.items():
            text = text.replace(f"http://127.0.0.1:{old};", f"http://127.0.0.1:{new};")
        (folder / name).write_text(text.replace("/etc/nginx/eagle3/", f"{folder}/"), encoding="utf-8")
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "main.conf").write_text(MAIN.format(folder=folder, user=user), encoding="utf-8")
    for who, file in ((ALICE, "editors"), (BOB, "viewers")):
        hashed = _openssl("passwd", "-6", who.password).strip()
        (folder / file).write_text(f"{who.login}:{hashed}\n", encoding="utf-8")
    names = f"subjectAltName=DNS:{EDIT},DNS:{VIEW}"
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{folder}/tls.key"]
    _openssl("req", "-x509", *key, "-out", f"{folder}/tls.crt", "-subj", f"/CN={EDIT}", "-addext", names)


def _openssl(*arguments: str) -> str:
    return subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=True).stdout  # noqa: S607


async def _until_up(proxy: Proxy) -> None:
    async with proxy.session() as session:
        for _ in range(100):
            try:
                await session.get(proxy.url(EDIT, "/"))
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.1)
            else:
                return
    raise AssertionError((proxy.folder / "error.log").read_text(encoding="utf-8"))


async def graphql(proxy: Proxy, name: str, who: Person, query: str, **headers: str) -> tuple[int, Any]:
    async with (
        proxy.session() as session,
        session.post(proxy.url(name), json={"query": query}, headers=who.headers | headers) as reply,
    ):
        return reply.status, await reply.json() if reply.status == 200 else None


async def _nobody_without_a_password(proxy: Proxy, name: str, who: Person, other: Person) -> None:
    wrong = Person(who.login, "guessed")
    async with proxy.session() as session:
        for path in ("/", "/graphql?query={version}", "/server_info", "/runs", "/report_asset_materialization/prompts"):
            for auth in (None, wrong, other):
                async with session.get(proxy.url(name, path), headers=auth.headers if auth else None) as reply:
                    assert reply.status == 401, (path, auth)
        async with session.get(proxy.url(name, "/runs"), headers=who.headers) as reply:
            assert reply.status == 200 and "<html" in await reply.text()
            found = reply.headers
        for header, value in {
            "Strict-Transport-Security": "max-age=31536000",
            "X-Frame-Options": "DENY",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "same-origin",
        }.items():
            assert found.getall(header) == [value]
        assert "frame-ancestors 'none'" in found.getall("Content-Security-Policy")
        assert any("script-src" in policy for policy in found.getall("Content-Security-Policy"))
        assert "/" not in found["Server"]


@pytest.mark.parametrize(("name", "who", "other"), [(EDIT, ALICE, BOB), (VIEW, BOB, ALICE)])
def test_nobody_without_a_password(proxy: Proxy, name: str, who: Person, other: Person) -> None:
    asyncio.run(_nobody_without_a_password(proxy, name, who, other))


def test_plain_http_is_redirected_and_unknown_names_get_no_handshake(proxy: Proxy) -> None:
    async def ask() -> None:
        async with proxy.session() as session:
            plain = f"http://{EDIT}:{proxy.plain}/runs?a=1"
            async with session.get(plain, allow_redirects=False, headers=ALICE.headers) as reply:
                assert (reply.status, reply.headers["Location"]) == (301, f"https://{EDIT}/runs?a=1")
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await session.get(f"http://other.example.org:{proxy.plain}/", allow_redirects=False)
            with pytest.raises(aiohttp.ClientConnectorError):
                await session.get(proxy.url("other.example.org", "/"))

    asyncio.run(ask())


def test_viewers_look_and_cannot_launch(proxy: Proxy) -> None:
    async def ask() -> None:
        status, answer = await graphql(proxy, VIEW, BOB, BACKFILLS, **proxy.origin(VIEW))
        assert status == 200 and answer["data"]["partitionBackfillsOrError"]["results"] == []
        status, answer = await graphql(proxy, VIEW, BOB, LAUNCH, **proxy.origin(VIEW))
        assert status == 200 and answer["data"]["launchPartitionBackfill"]["__typename"] == "UnauthorizedError"
        assert proxy.api(BACKFILLS)["partitionBackfillsOrError"]["results"] == []
        async with proxy.session() as session:
            event = proxy.url(VIEW, "/report_asset_materialization/prompts?partition=d")
            async with session.post(event, json={}, headers=BOB.headers) as reply:
                assert "Not authorized" in await reply.text()
        # The same mutation, asked where it is allowed.
        status, answer = await graphql(proxy, EDIT, ALICE, LAUNCH, **proxy.origin(EDIT))
        assert status == 200 and answer["data"]["launchPartitionBackfill"]["__typename"] == "LaunchBackfillSuccess"
        assert len(proxy.api(BACKFILLS)["partitionBackfillsOrError"]["results"]) == 1

    asyncio.run(ask())


def test_other_sites_can_ask_for_nothing_in_a_persons_name(proxy: Proxy) -> None:
    async def ask() -> None:
        foreign = ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"})
        own = (proxy.origin(EDIT), {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"})
        for headers in (*foreign, proxy.origin(VIEW), {"Sec-Fetch-Site": "same-site"}):
            assert await graphql(proxy, EDIT, ALICE, RELOAD, **headers) == (403, None), headers
        for headers in own:
            status, _ = await graphql(proxy, EDIT, ALICE, "{ version }", **headers)
            assert status == 200, headers
        async with proxy.session() as session:
            # What an <img> of another site would send.
            by_get = proxy.url(EDIT, "/graphql?query=mutation{reloadWorkspace{__typename}}")
            image = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
            async with session.get(by_get, headers=ALICE.headers | image) as reply:
                assert reply.status == 403
            # That it has to be refused here: Dagster itself would do it.
            async with session.get(by_get, headers=ALICE.headers) as reply:
                answer = await reply.json()
                assert answer["data"]["reloadWorkspace"]["__typename"] == "Workspace"
            # A link in a chat opens.
            link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
            async with session.get(proxy.url(EDIT, "/runs"), headers=ALICE.headers | link) as reply:
                assert reply.status == 200

    asyncio.run(ask())


def test_a_path_that_reads_otherwise_behind_the_proxy_is_no_way_around(proxy: Proxy) -> None:
    """Nginx takes ``%2f..`` for a step up, Dagster for a part of the name."""

    async def ask() -> None:
        foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
        paths = (
            "/report_asset_materialization/prompts",
            "/report_asset_materialization/..%2f",
            "/report_asset_materialization/prompts%2f..%2f..",
            "/report_asset_observation/prompts%2f..%2f..",
            "/report_asset_check/prompts%2f..%2f..?check_name=x&passed=true",
            "/x%2f..%2fgraphql?query=mutation{reloadWorkspace{__typename}}",
            "//graphql?query=mutation{reloadWorkspace{__typename}}",
        )
        async with proxy.session() as session:

            async def post(path: str, headers: dict[str, str]) -> int:
                # As fetch(..., {mode: "no-cors"}) sends it: without a content type.
                address = URL(proxy.url(EDIT, path), encoded=True)
                sent = ALICE.headers | headers
                async with session.post(address, headers=sent, skip_auto_headers=["Content-Type"]) as reply:
                    return reply.status

            assert {path: await post(path, foreign) for path in paths} == dict.fromkeys(paths, 403)
            # That it has to be refused here: Dagster itself would take it.
            assert await post(paths[1], proxy.origin(EDIT)) == 200
            for path in paths[-2:]:
                address = URL(proxy.url(EDIT, path), encoded=True)
                async with session.get(address, headers=ALICE.headers | foreign) as reply:
                    assert reply.status == 403, path

    asyncio.run(ask())


def test_no_file_of_the_machine_is_shown_as_a_notebook(proxy: Proxy) -> None:
    async def ask() -> None:
        async with proxy.session() as session:
            for name, who in ((EDIT, ALICE), (VIEW, BOB)):
                for path in ("/notebook?path=/etc/passwd&repoLocName=x", "/x%2f..%2fnotebook?path=/etc/passwd"):
                    address = URL(proxy.url(name, path), encoded=True)
                    async with session.get(address, headers=who.headers) as reply:
                        assert reply.status == 404 and "nginx" in await reply.text()

    asyncio.run(ask())


def test_the_websocket_passes_for_the_own_page_alone(proxy: Proxy) -> None:
    async def ask() -> None:
        async with proxy.session() as session:
            url = f"wss://{EDIT}:{proxy.tls}/graphql"

            async def connect(headers: dict[str, str]) -> Any:
                async with session.ws_connect(url, protocols=["graphql-ws"], headers=headers) as opened:
                    await opened.send_json({"type": "connection_init", "payload": {}})
                    return await opened.receive_json(timeout=30)

            assert await connect(ALICE.headers | proxy.origin(EDIT)) == {"type": "connection_ack"}
            for headers, status in (
                (proxy.origin(EDIT), 401),
                (ALICE.headers | {"Origin": "https://evil.example"}, 403),
            ):
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await connect(headers)
                assert refused.value.status == status

    asyncio.run(ask())
