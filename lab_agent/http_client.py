"""The only module that knows the HTTP library (aiohttp), so that replacing it touches one file.

No cookies are kept, no proxy or password is read from the environment, and no address is logged. Every call is pinned to the
origin of its `base`. The error raised says what may have happened: `ServiceUnavailable` only if nothing was sent, or nothing
could have changed.
"""

from __future__ import annotations

import asyncio
import base64
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import aiohttp
import certifi
from typing_extensions import override
from yarl import URL

from lab_agent.errors import ForeignLink, ForeignOrigin, InvalidResponse, OutcomeUnknown, ServiceUnavailable
from lab_agent.url_origin import Origin, join_url, pin_of

_SAFE_METHODS = frozenset({"GET", "HEAD"})
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 3
_NOTHING_SENT = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientHttpProxyError,
    aiohttp.InvalidURL,
)
_DEFAULT_HEADERS = {"Accept-Encoding": "gzip, deflate", "User-Agent": "lab-agent"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Limits of a client. Times in seconds (`timeout` covers the whole call, redirects included), `max_response` in bytes."""

    timeout: float = 60.0
    connect_timeout: float = 10.0
    read_timeout: float = 30.0
    max_response: int = 32 * 1024 * 1024
    max_connections: int = 16
    ca_file: Path | None = None
    proxy: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpResponse:
    """A response: `headers` ignore case, `body` is decompressed, `url` is where it came from."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str


class NotSent(Exception):
    """A transport sent nothing; its text says why, without an address."""


class NotAnswered(Exception):
    """A transport may have sent the request, and no whole answer came."""


class TooLarge(Exception):
    """The answer is larger than `max_response`."""


class Transport(Protocol):
    """Sends one request, once, and reads its answer; redirects are not followed. Raises `NotSent`, `NotAnswered`, `TooLarge`."""

    async def send(self, method: str, url: URL, headers: Mapping[str, str], content: bytes) -> HttpResponse:
        """Send a request; the answer has a decompressed body."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


class HttpClient:
    """A pooled HTTP client. In tests, `transport` replaces the network."""

    def __init__(self, options: HttpOptions, *, transport: Transport | None = None) -> None:
        self._options = options
        self._transport = transport or _AiohttpTransport(options)

    @property
    def max_call_seconds(self) -> float:
        """Seconds after which every call has ended; a lease that covers a call must be longer."""
        return self._options.timeout

    async def send(
        self,
        method: str,
        target: str,
        *,
        base: str,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        timeout: float | None = None,
    ) -> HttpResponse:
        """Send one request to `target`, joined onto `base` and of the same origin; a GET follows redirects within it.

        `timeout` (seconds, for the whole call) may only shorten that of the options.

        Raises `ForeignOrigin` or, for a redirect, `ForeignLink` (nothing was sent there), `ServiceUnavailable` (nothing was sent,
        or it was a GET), `OutcomeUnknown` (a write was sent and not answered) or `InvalidResponse` (the answer to a write is too
        large).
        """
        pin, url = pin_of(base), join_url(base, target)
        try:
            async with asyncio.timeout(min(timeout or self._options.timeout, self._options.timeout)):
                return await self._send_following_redirects(method, url, pin, {**_DEFAULT_HEADERS, **(headers or {})}, content)
        except NotSent as exc:
            raise ServiceUnavailable(f"{pin} cannot be reached: {exc}") from exc
        except (NotAnswered, TimeoutError) as exc:
            what = f"{pin} did not answer {method}: {type(exc.__cause__ or exc).__name__}"
            raise (ServiceUnavailable(what) if method in _SAFE_METHODS else OutcomeUnknown(what)) from exc
        except TooLarge as exc:
            what = f"the response exceeds `max_response` ({self._options.max_response} bytes)"
            raise (ServiceUnavailable(what) if method in _SAFE_METHODS else InvalidResponse(what)) from exc

    async def aclose(self) -> None:
        """Close the connection pool."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        """Open nothing: the pool opens connections as needed."""
        return self

    async def __aexit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        """Close the pool."""
        await self.aclose()

    async def _send_following_redirects(
        self, method: str, url: str, pin: Origin, headers: Mapping[str, str], content: bytes
    ) -> HttpResponse:
        for _ in range(_MAX_REDIRECTS + 1):
            answer = await self._transport.send(method, _checked_url(url, pin), headers, content)
            onward = answer.headers.get("location") if answer.status in _REDIRECT_STATUSES and method in _SAFE_METHODS else None
            if onward is None:
                return answer
            url = _redirect_target(url, onward)
        raise ServiceUnavailable(f"{pin} redirects endlessly")


def _redirect_target(url: str, location: str) -> str:
    try:
        return join_url(url, location)
    except ForeignOrigin as exc:
        raise ForeignLink(f"{pin_of(url)} redirects: {exc}") from exc


def _checked_url(url: str, pin: Origin) -> URL:
    """Parse the address again with the parser that sends it, so that the pin holds for what is really sent."""
    try:
        parsed = URL(url, encoded=True)
        found = (parsed.scheme, (parsed.raw_host or "").lower(), parsed.port)
    except ValueError as exc:
        raise ForeignOrigin("the address is invalid") from exc
    if found != pin or parsed.raw_user is not None or parsed.raw_password is not None:
        raise ForeignOrigin(f"the address leads away from {pin}; nothing was sent")
    return parsed


class _AiohttpTransport(Transport):
    """The network. The session belongs to the event loop that sends first."""

    def __init__(self, options: HttpOptions) -> None:
        self._options = options
        self._proxy, self._proxy_headers = _split_proxy(options.proxy)
        # A wrong file shows at the start; the public authorities take 25 ms of CPU, which not every command needs.
        self._tls = ssl.create_default_context(cafile=options.ca_file) if options.ca_file else None
        self._session: aiohttp.ClientSession | None = None

    @override
    async def send(self, method: str, url: URL, headers: Mapping[str, str], content: bytes) -> HttpResponse:
        session = self._session or self._open_session()
        sent = {**headers, **self._proxy_headers} if self._proxy_headers and url.scheme == "http" else headers
        try:
            async with session.request(
                method,
                url,
                headers=sent,
                data=content or None,
                allow_redirects=False,
                proxy=self._proxy,
                proxy_headers=self._proxy_headers,
            ) as answer:
                body = await self._read_body(answer)
        except _NOTHING_SENT as exc:
            raise NotSent(_failure_reason(exc)) from exc
        except (aiohttp.ClientError, OSError) as exc:
            raise NotAnswered from exc
        return HttpResponse(status=answer.status, headers=answer.headers, body=body, url=str(url))

    @override
    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        options = self._options
        tls = self._tls or ssl.create_default_context(cafile=certifi.where())
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=options.max_connections, ssl=tls),
            timeout=aiohttp.ClientTimeout(
                total=None, connect=options.connect_timeout, sock_connect=options.connect_timeout, sock_read=options.read_timeout
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(_prevent_resend,),
            trust_env=False,
        )
        return self._session

    async def _read_body(self, answer: aiohttp.ClientResponse) -> bytes:
        """Read the body, chunk by chunk: aiohttp decompresses no more at once than its buffer holds."""
        chunks, size = [], 0
        async for chunk in answer.content.iter_any():
            chunks.append(chunk)
            size += len(chunk)
            if size > self._options.max_response:
                raise TooLarge
        return b"".join(chunks)


async def _prevent_resend(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from repeating a PUT whose connection broke after sending, and from reporting that as "not connected"."""
    try:
        return await handler(request)
    except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError):
        raise
    except aiohttp.ClientConnectionError as exc:
        raise aiohttp.ClientPayloadError("the connection broke after the request was sent") from exc


def _failure_reason(exc: Exception) -> str:
    """Say why nothing was sent, without the library's own text, in which the address may stand with its query."""
    if isinstance(exc, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted; set `ca_file` to the certificate of the authority that issued it"
    if isinstance(exc, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved"
    if isinstance(exc, aiohttp.ClientConnectorError) and (number := exc.os_error.errno):
        return os.strerror(number)
    return "connecting took too long" if isinstance(exc, TimeoutError) else type(exc).__name__


def _split_proxy(address: str | None) -> tuple[URL | None, dict[str, str]]:
    """The proxy's address, and its password as a header: aiohttp deprecates passwords in the address."""
    if address is None:
        return None, {}
    url = URL(address)
    if url.user is None and url.password is None:
        return url, {}
    basic = base64.b64encode(f"{url.user or ''}:{url.password or ''}".encode()).decode("ascii")
    return url.with_user(None), {"Proxy-Authorization": f"Basic {basic}"}
