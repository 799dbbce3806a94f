"""The only module that knows the HTTP library (httpx, on the connection pool of aiohttp), so that replacing it touches one file.

Requests go to the transport directly rather than through httpx's client, which keeps cookies, reads proxies and passwords from
the environment, and logs whole addresses with their query strings. Every call is pinned to the origin of its `base`. The error
raised says what may have happened: `ServiceUnavailable` only if nothing was sent, or nothing could have changed.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
import httpx
from aiohttp.http_exceptions import LineTooLong
from httpx_aiohttp import AiohttpTransport

from lab_agent.shared.errors import (
    AnswerTooLarge,
    Failure,
    ForeignLink,
    ForeignOrigin,
    HeaderNotSendable,
    InvalidResponse,
    OutcomeUnknown,
    ServiceUnavailable,
)
from lab_agent.shared.url_origin import join_url, origin_of, pin_of

_SAFE_METHODS = frozenset({"GET", "HEAD"})
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 3
_NOTHING_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError, httpx.UnsupportedProtocol)
_BROKEN_OFF = (httpx.HTTPError, aiohttp.ClientError, OSError)
_MAYBE_SENT = (*_BROKEN_OFF, httpx.StreamError, httpx.InvalidURL, ValueError, LookupError, RuntimeError)
"""With what the libraries raise, beside their own errors, for what a peer has sent, or for what they cannot send."""
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_DEFAULT_HEADERS = {"Accept-Encoding": "gzip, deflate", "User-Agent": "lab-agent"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Limits of a client: times in seconds (`timeout` covers the whole call, redirects included), sizes in bytes.

    `max_header` is the longest line in the header of a response.
    """

    timeout: float = 60.0
    connect_timeout: float = 10.0
    read_timeout: float = 30.0
    max_response: int = 32 * 1024 * 1024
    max_header: int = 64 * 1024
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


class HttpClient:
    """A pooled HTTP client. In tests, `transport` replaces the network: `httpx.MockTransport(router.async_handler)`."""

    def __init__(self, options: HttpOptions, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        proxy = _make_proxy(options.proxy)
        self._options = options
        self._transport = transport or _make_transport(options, proxy)
        self._proxy_headers = dict(proxy.headers) if proxy else {}

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

        Raises `ForeignOrigin`, `HeaderNotSendable` or, for a redirect, `ForeignLink` (nothing was sent there),
        `ServiceUnavailable` (nothing was sent, or it was a GET), `AnswerTooLarge`, `OutcomeUnknown` (a write was sent and not
        answered) or `InvalidResponse` (the answer to a write is too large).
        """
        url = join_url(base, target)
        _check_headers(headers or {})
        try:
            async with asyncio.timeout(min(timeout or self._options.timeout, self._options.timeout)):
                return await self._send_following_redirects(method, url, base, headers or {}, content)
        except _NOTHING_SENT as exc:
            raise ServiceUnavailable(f"{origin_of(url)} cannot be reached: {_failure_reason(exc)}") from exc
        except _MAYBE_SENT as exc:
            what = f"{origin_of(url)} did not answer {method}: {_interruption(exc, self._options, timeout)}"
            raise (ServiceUnavailable(what) if method in _SAFE_METHODS else OutcomeUnknown(what)) from exc

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
        self, method: str, url: str, base: str, headers: Mapping[str, str], content: bytes
    ) -> HttpResponse:
        for _ in range(_MAX_REDIRECTS + 1):
            answer = await self._send_once(method, url, base, headers, content)
            onward = answer.headers.get("location") if answer.status in _REDIRECT_STATUSES and method in _SAFE_METHODS else None
            if onward is None:
                return answer
            url = _redirect_target(url, onward)
        raise ServiceUnavailable(f"{origin_of(url)} redirects endlessly")

    async def _send_once(self, method: str, url: str, base: str, headers: Mapping[str, str], content: bytes) -> HttpResponse:
        address = _checked_url(url, base)
        sent = {**_DEFAULT_HEADERS, **headers, **(self._proxy_headers if address.scheme == "http" else {})}
        request = httpx.Request(method, address, headers=sent, content=content or None, extensions=self._timeouts())
        response = await self._transport.handle_async_request(request)
        try:
            body = await self._read_body(response, method)
        finally:
            await response.aclose()
        return HttpResponse(status=response.status_code, headers=response.headers, body=body, url=url)

    async def _read_body(self, response: httpx.Response, method: str) -> bytes:
        if "," in response.headers.get("content-encoding", ""):  # each layer multiplies what a few bytes become by a thousand
            raise httpx.DecodingError("more than one coding")
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > self._options.max_response:
                raise _too_large(method, self._options.max_response)
        return bytes(body)

    def _timeouts(self) -> dict[str, object]:
        connect, read = self._options.connect_timeout, self._options.read_timeout
        return {"timeout": {"connect": connect, "pool": connect, "read": read, "write": read}}


def _check_headers(headers: Mapping[str, str]) -> None:
    """Refuse what would fail in the library, or forge another header. Values are never told: one may be a token."""
    for name, value in headers.items():
        if _HEADER_VALUE.fullmatch(value) is None:
            raise HeaderNotSendable(f"the header {name} holds a character that no header can; nothing was sent")


def _redirect_target(url: str, location: str) -> str:
    try:
        return join_url(url, location)
    except ForeignOrigin as exc:
        raise ForeignLink(f"{origin_of(url)} redirects: {exc}") from exc


def _checked_url(url: str, base: str) -> httpx.URL:
    """Parse the address again with the parser that sends it, so that the pin holds for what is really sent."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as exc:
        raise ForeignOrigin("the address is invalid") from exc
    pin = pin_of(base)
    port = parsed.port or {"http": 80, "https": 443}.get(parsed.scheme)
    if (parsed.scheme, parsed.host.strip("[]"), port) != pin or parsed.userinfo:
        raise ForeignOrigin(f"the address leads away from {pin}; nothing was sent")
    return parsed


def _too_large(method: str, limit: int) -> Failure:
    what = f"the response exceeds `max_response` ({limit} bytes)"
    return AnswerTooLarge(what) if method in _SAFE_METHODS else InvalidResponse(what)


def _failure_reason(exc: Exception) -> str:
    """Say why nothing was sent, without the library's own text, in which the address may stand with its query."""
    if isinstance(exc.__cause__, aiohttp.ClientConnectorCertificateError):
        return _certificate_fault(exc.__cause__.certificate_error)
    if isinstance(exc.__cause__, aiohttp.ClientConnectorDNSError):
        return "its name cannot be resolved"
    if isinstance(exc.__cause__, aiohttp.ClientConnectorError) and (number := exc.__cause__.os_error.errno):
        return os.strerror(number)
    if isinstance(exc.__cause__, aiohttp.ClientHttpProxyError):
        return f"the proxy answered with {exc.__cause__.status}"
    return "connecting took too long" if isinstance(exc, httpx.TimeoutException) else "no connection could be made"


def _interruption(exc: Exception, options: HttpOptions, timeout: float | None) -> str:
    """Say what broke off a call after the connection was made; only an error that nobody expects is named by its kind."""
    if isinstance(exc, httpx.ReadTimeout | httpx.WriteTimeout):
        return f"nothing came for {options.read_timeout:g} s"
    if isinstance(exc, TimeoutError):
        return f"the call took longer than {min(timeout or options.timeout, options.timeout):g} s"
    if isinstance(exc, httpx.DecodingError):
        return "its answer is compressed in a way that cannot be read"
    if (fault := _header_fault(exc, options)) is not None:
        return fault
    return "the connection broke off" if isinstance(exc, _BROKEN_OFF) else f"an error that nobody expects ({type(exc).__name__})"


def _header_fault(exc: Exception, options: HttpOptions) -> str | None:
    """Say what keeps the header of an answer from being read; None where that is not the matter."""
    if not isinstance(exc, aiohttp.ClientResponseError):
        return None
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, LineTooLong):
            return f"a line in the header of its answer is longer than `max_header` ({options.max_header} bytes)"
        cause = cause.__cause__
    return "the header of its answer cannot be read"


_CERTIFICATE_FAULTS = {
    9: "its certificate is not valid yet; compare the clocks",
    10: "its certificate has expired",
    62: "its certificate is for another name",
    64: "its certificate is for another address",
}
"""By OpenSSL's number of the fault (X509_V_ERR_…)."""


def _certificate_fault(error: Exception) -> str:
    """Say what is wrong with a certificate."""
    number = error.verify_code if isinstance(error, ssl.SSLCertVerificationError) else 0
    untrusted = "its certificate is not trusted; set `ca_file` to the certificate of the authority that issued it"
    return _CERTIFICATE_FAULTS.get(number, untrusted)


def _make_transport(options: HttpOptions, proxy: httpx.Proxy | None) -> AiohttpTransport:
    tls = ssl.create_default_context(cafile=options.ca_file) if options.ca_file else httpx.create_ssl_context(trust_env=False)
    return AiohttpTransport(verify=tls, trust_env=False, proxy=proxy, client=lambda: _make_session(options, tls))


def _make_session(options: HttpOptions, tls: ssl.SSLContext) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=options.max_connections, ssl=tls),
        cookie_jar=aiohttp.DummyCookieJar(),
        middlewares=(_prevent_resend,),
        max_line_size=options.max_header,
        max_field_size=options.max_header,
        trust_env=False,
    )


async def _prevent_resend(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from repeating a PUT whose connection broke after sending, and from reporting that as "not connected"."""
    try:
        return await handler(request)
    except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError):
        raise
    except aiohttp.ClientConnectionError as exc:
        raise aiohttp.ClientPayloadError("the connection broke after the request was sent") from exc


def _make_proxy(address: str | None) -> httpx.Proxy | None:
    """Make the proxy, with its password as a header: aiohttp deprecates passwords in the address."""
    if address is None:
        return None
    url = httpx.URL(address)
    if not url.userinfo:
        return httpx.Proxy(url)
    basic = base64.b64encode(f"{url.username}:{url.password}".encode()).decode("ascii")
    return httpx.Proxy(url.copy_with(username=None, password=None), headers={"Proxy-Authorization": f"Basic {basic}"})
