"""HTTP with SGLang servers.

What belongs here: the session, requests to one server, turning every way to fail into one of ``errors``. Not here:
what follows from a failure (``pool``), the content of requests and replies (``wire``, ``facts``).
"""

import os
import ssl
from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec

from eagle3_assets.config import SglangEngineSettings
from eagle3_assets.engines.base import EngineUnavailableError, RequestRefusedError, TransientEngineError
from eagle3_assets.engines.sglang.errors import BusyError, LostError, SilentError, UnreachableError
from eagle3_assets.engines.sglang.facts import Facts, read_facts
from eagle3_assets.engines.sglang.wire import error_text, refuses

CONNECT_TIMEOUT_S = 30.0
ASKING_TIMEOUT_S = 30.0
"""A health check takes a second at least, and the server itself gives it up after 20."""
KEEP_ALIVE_S = 3.0
"""Less than the server's 5 s, so that no request is sent on a connection which the server is just closing."""
READ_BUFFER = 1 << 20

_UNAUTHORIZED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED)
_NO_SUCH_PATH = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)


def credentials(settings: SglangEngineSettings) -> dict[str, str]:
    """The header with the API key, read from its environment variable; empty where none is configured.

    Raises:
        EngineUnavailableError: the variable is not set, or its value cannot stand in a header.
    """
    if settings.api_key_env is None:
        return {}
    key = os.environ.get(settings.api_key_env, "").strip()
    if not key:
        raise EngineUnavailableError(
            f"engine.api_key_env names the environment variable {settings.api_key_env}, which is not set here"
        )
    if not key.isascii() or not key.isprintable():
        raise EngineUnavailableError(f"the key in {settings.api_key_env} has characters that no header can hold")
    name = settings.api_key_header
    return {name: f"Bearer {key}" if name.lower() == "authorization" else key}


def open_session(settings: SglangEngineSettings, headers: dict[str, str]) -> aiohttp.ClientSession:
    """The one session for all servers, in the running event loop.

    Raises:
        EngineUnavailableError: the file of the authority cannot be used.
    """
    trust: ssl.SSLContext | bool = True
    if settings.ca_file is not None:
        try:
            trust = ssl.create_default_context(cafile=settings.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise EngineUnavailableError(f"engine.ca_file: {settings.ca_file} cannot be used: {error}") from None
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=trust, keepalive_timeout=KEEP_ALIVE_S),
        # No limit in total: the longest output decides, and a dead server is noticed by its health.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=settings.request_timeout_s),
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        read_bufsize=READ_BUFFER,
    )


class Client:
    """One server's HTTP face."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: str, secrets: tuple[str, ...] = ()) -> None:
        """Sends nothing yet.

        Args:
            session: shared with the other servers.
            endpoint: base URL.
            secrets: values which must not come out in an error, should a server repeat them.
        """
        self.endpoint = endpoint
        self._session = session
        self._secrets = secrets

    async def generate(self, body: bytes) -> bytes:
        """Sends one request and waits for the whole reply.

        Raises:
            RequestRefusedError: the server says that this request will never work.
            TransientEngineError: it may work elsewhere or later; see ``errors`` for the kinds.
        """
        status, reply, headers = await self._exchange("POST", "/generate", body)
        if status == HTTPStatus.OK:
            return reply
        said = self._said(status, reply)
        if status in _UNAUTHORIZED or status in _NO_SUCH_PATH:
            raise UnreachableError(said, misconfigured=True)
        if refuses(status):
            raise RequestRefusedError(said)
        if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            raise BusyError(said, _seconds(headers.get("Retry-After")))
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            raise LostError(said)
        raise TransientEngineError(said)

    async def facts(self) -> Facts:
        """Whether the server is up, and what it says of itself.

        Raises:
            UnreachableError: it takes no requests.
            SilentError: it does not answer.
            UnsuitableError: it must not be used.
        """
        await self._require_healthy()
        model_info = await self._first_found("/model_info", "/get_model_info")
        if model_info is None:
            raise UnreachableError(f"{self.endpoint}: is no SGLang server: it knows no /model_info", misconfigured=True)
        server_info = await self._first_found("/server_info", "/get_server_info") or {}
        models = await self._first_found("/v1/models") or {} if not server_info.get("context_length") else {}
        return read_facts(self.endpoint, model_info, server_info, models)

    async def _require_healthy(self) -> None:
        status, reply, _ = await self._ask("/health")
        if status != HTTPStatus.OK:
            raise UnreachableError(f"{self._said(status, reply)} (/health)", misconfigured=status in _NO_SUCH_PATH)

    async def _first_found(self, *paths: str) -> dict[str, Any] | None:
        """The JSON object at the first of the paths that exists: newer servers name them otherwise."""
        for path in paths:
            status, reply, _ = await self._ask(path)
            if status in _NO_SUCH_PATH:
                continue
            if status != HTTPStatus.OK:
                raise UnreachableError(f"{self._said(status, reply)} ({path})", misconfigured=status in _UNAUTHORIZED)
            try:
                return msgspec.json.decode(reply, type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise UnreachableError(f"{self.endpoint}: {path} is no JSON object: {error}") from None
        return None

    async def _ask(self, path: str) -> tuple[int, bytes, Any]:
        return await self._exchange("GET", path, None, aiohttp.ClientTimeout(total=ASKING_TIMEOUT_S))

    async def _exchange(
        self, method: str, path: str, body: bytes | None, timeout: aiohttp.ClientTimeout | None = None
    ) -> tuple[int, bytes, Any]:
        headers = {"Content-Type": "application/json"} if body is not None else None
        try:
            async with self._session.request(
                # Followed, a redirect would carry the key to another host.
                method,
                self.endpoint + path,
                data=body,
                headers=headers,
                allow_redirects=False,
                timeout=timeout or self._session.timeout,
            ) as response:
                return response.status, await response.read(), response.headers
        except aiohttp.ConnectionTimeoutError as error:
            raise UnreachableError(f"{self.endpoint}: no connection in time: {_named(error)}") from error
        except TimeoutError as error:
            raise SilentError(f"{self.endpoint}: no answer in time: {_named(error)}") from error
        except aiohttp.ClientSSLError as error:
            raise UnreachableError(f"{self.endpoint}: no trust: {_named(error)}", misconfigured=True) from error
        except aiohttp.ClientConnectorDNSError as error:
            raise UnreachableError(f"{self.endpoint}: no host of that name is known") from error
        except aiohttp.ClientConnectorError as error:
            why = os.strerror(error.errno) if error.errno else _named(error)
            raise UnreachableError(f"{self.endpoint}: no connection: {why}") from error
        except (aiohttp.ClientError, OSError) as error:
            raise LostError(f"{self.endpoint}: connection lost: {_named(error)}") from error

    def _said(self, status: int, body: bytes) -> str:
        text = error_text(body)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return f"{self.endpoint}: status {status}: {text or 'no reason given'}"


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _seconds(header: str | None) -> float | None:
    """``Retry-After`` in seconds; None where it is absent or a date."""
    return float(header) if header is not None and header.isascii() and header.isdigit() else None
