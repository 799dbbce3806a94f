"""The HTTP client on real sockets: what it sends, what it does not, and what its failures say."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lab_agent.shared import errors
from lab_agent.shared.http_client import HttpClient, HttpOptions
from tests.harness.certificates import CertificateAuthority

Say = Callable[["Exchange"], Awaitable[None]]


@dataclass
class Exchange:
    request: bytes
    number: int
    writer: asyncio.StreamWriter
    reader: asyncio.StreamReader

    async def reply(self, body: bytes = b"{}", status: str = "200 OK", *headers: str) -> None:
        head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        self.writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        await self.writer.drain()


@dataclass
class Peer:
    """A server that plays a script, and keeps what it was sent."""

    say: Say
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    base: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
                self.requests.append(head + await reader.readexactly(length))
                await self.say(Exchange(self.requests[-1], len(self.requests), writer, reader))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):  # cancelled at the end of the test
            pass
        finally:
            writer.close()


@asynccontextmanager
async def peer(say: Say, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    found = Peer(say)
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=tls)
    found.base = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    try:
        yield found
    finally:
        server.close()


def client(**options: object) -> HttpClient:
    return HttpClient(HttpOptions(**{"timeout": 5.0, "connect_timeout": 2.0, "read_timeout": 2.0, **options}))  # type: ignore[arg-type]


async def ok(exchange: Exchange) -> None:
    await exchange.reply()


async def hang_up(exchange: Exchange) -> None:
    exchange.writer.close()
    raise ConnectionError


async def test_connection_reused_and_cookies_not_kept() -> None:
    async def cookie(exchange: Exchange) -> None:
        await exchange.reply(b"{}", "200 OK", "Set-Cookie: session=1; Path=/")

    async with peer(cookie) as server, client() as http:
        for _ in range(5):
            base = server.base.replace("127.0.0.1", "localhost")  # an address without a name would get no cookies anyway
            answer = await http.send("GET", "a?b=c%7Cd%2Be%20f", base=base)
            assert (answer.status, answer.body, answer.headers["CONTENT-LENGTH"]) == (200, b"{}", "2")
    assert server.connections == 1
    assert b"cookie" not in b"".join(server.requests).lower()
    assert server.requests[0].startswith(b"GET /a?b=c%7Cd%2Be%20f HTTP/1.1\r\n")


async def test_broken_write_sent_once_with_unknown_outcome() -> None:
    async def first_well(exchange: Exchange) -> None:
        await (exchange.reply() if exchange.number == 1 else hang_up(exchange))

    for method, expected in (("POST", errors.OutcomeUnknown), ("PUT", errors.OutcomeUnknown), ("GET", errors.ServiceUnavailable)):
        async with peer(first_well) as server, client() as http:
            await http.send("GET", "warm", base=server.base)
            with pytest.raises(expected):
                await http.send(method, "x", base=server.base, content=b"{}")
        assert (len(server.requests), server.connections) == (2, 1), method


async def test_unreachable_address_means_nothing_sent() -> None:
    """A closed port, an unknown host, a proxy that is away, and a port that speaks no TLS."""
    async with peer(ok) as server:
        closed = server.base
    nowhere = "http://nowhere.invalid/"
    for method, base, options in (
        ("GET", closed, {}),
        ("PUT", closed, {}),
        ("POST", nowhere, {}),
        ("POST", nowhere, {"proxy": closed}),
    ):
        async with client(**options) as http:
            with pytest.raises(errors.ServiceUnavailable, match="cannot be reached"):
                await http.send(method, "x?name=Smith", base=base, content=b"{}")
    async with peer(ok) as server, client(connect_timeout=0.2) as http:
        with pytest.raises(errors.ServiceUnavailable, match="cannot be reached"):
            await http.send("POST", "x", base=server.base.replace("http:", "https:"), content=b"{}")
    assert server.requests == []


BOTH = pytest.mark.parametrize(("method", "expected"), [("GET", errors.ServiceUnavailable), ("POST", errors.OutcomeUnknown)])


async def assert_fails(server: Peer, method: str, expected: type, match: str | None = None, **options: object) -> None:
    async with client(**options) as http:
        with pytest.raises(errors.Failure, match=match) as caught:
            await http.send(method, "x", base=server.base, content=b"{}")
    assert type(caught.value) is expected


@BOTH
async def test_silent_or_slow_server_times_out(method: str, expected: type) -> None:
    async def nothing(exchange: Exchange) -> None:
        await exchange.reader.read()

    async def drip(exchange: Exchange) -> None:
        exchange.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not exchange.reader.at_eof():
            exchange.writer.write(b" ")
            await exchange.writer.drain()
            await asyncio.sleep(0.02)

    for say, options in ((nothing, {"read_timeout": 0.1}), (nothing, {"timeout": 0.1}), (drip, {"timeout": 0.2})):
        async with peer(say) as server:
            await assert_fails(server, method, expected, **options)


@BOTH
async def test_truncated_or_non_http_response_fails(method: str, expected: type) -> None:
    for cut in (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}", b"HTTP/1.1 20", b"nonsense\r\n\r\n"):

        async def say(exchange: Exchange, cut: bytes = cut) -> None:
            exchange.writer.write(cut)
            await exchange.writer.drain()
            await hang_up(exchange)

        async with peer(say) as server:
            await assert_fails(server, method, expected)


LONG_HEADERS = (
    b"HTTP/1.1 200 OK\r\nX-Policy: " + b"a" * 9000,
    b"HTTP/1.1 200 OK\r\n" + b"a" * 9000 + b": 1",
    b"HTTP/1.1 200 " + b"a" * 9000,
    b"HTTP/1.1 200 OK\r\nSet-Cookie: a=" + b"a" * 60_000,
)


@BOTH
async def test_long_header_is_read_or_told_by_its_setting(method: str, expected: type) -> None:
    for head in LONG_HEADERS:

        async def say(exchange: Exchange, head: bytes = head) -> None:
            exchange.writer.write(head + b"\r\nContent-Length: 2\r\n\r\n{}")
            await exchange.writer.drain()

        async with peer(say) as server:
            async with client() as http:
                assert (await http.send(method, "x", base=server.base)).body == b"{}"
            await assert_fails(server, method, expected, "max_header", max_header=8192)


@pytest.mark.parametrize(("method", "expected"), [("GET", errors.AnswerTooLarge), ("POST", errors.InvalidResponse)])
async def test_oversized_response_fails_compressed_or_not(method: str, expected: type) -> None:
    async def large(exchange: Exchange) -> None:
        await exchange.reply(b" " * 200_000)

    async def packed(exchange: Exchange) -> None:
        await exchange.reply(gzip.compress(b" " * 200_000), "200 OK", "Content-Encoding: gzip")

    for say in (large, packed):
        async with peer(say) as server:
            await assert_fails(server, method, expected, "100000 bytes", max_response=100_000)
    async with peer(packed) as server, client() as http:
        assert (await http.send("GET", "x", base=server.base)).body == b" " * 200_000


async def test_response_compressed_more_than_once_is_not_read() -> None:
    """A few kilobytes of it would be gigabytes before their size is known."""
    for coding in ("gzip, gzip", "deflate,gzip", "gzip, gzip, gzip"):

        async def bomb(exchange: Exchange, coding: str = coding) -> None:
            body = b" " * 100_000
            for _ in coding.split(","):
                body = gzip.compress(body)
            await exchange.reply(body, "200 OK", f"Content-Encoding: {coding}")

        async with peer(bomb) as server:
            await assert_fails(server, "GET", errors.ServiceUnavailable, "compressed")


async def test_redirect_is_followed_for_get_within_the_origin_alone() -> None:
    """One to another port carries no token there."""
    async with peer(ok) as other:
        places = {b" /a ": "/b", b" /away ": other.base, b" /circle ": "/circle"}

        async def onward(exchange: Exchange) -> None:
            place = next((place for path, place in places.items() if path in exchange.request), None)
            await (exchange.reply() if place is None else exchange.reply(b"", "307 Temporary Redirect", f"Location: {place}"))

        async with peer(onward) as server, client() as http:
            answer = await http.send("GET", "a", base=server.base, headers={"Authorization": "Bearer t"})
            assert (answer.status, answer.url) == (200, f"{server.base}b")
            assert (await http.send("POST", "a", base=server.base, content=b"{}")).status == 307
            assert len(server.requests) == 3
            with pytest.raises(errors.ForeignLink):
                await http.send("GET", "away", base=server.base, headers={"Authorization": "Bearer t"})
            with pytest.raises(errors.ServiceUnavailable, match="redirects"):
                await http.send("GET", "circle", base=server.base)
            assert len(server.requests) == 8
        assert other.requests == []


async def test_proxy_of_the_settings_alone_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its password; none that the environment names."""
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1/")
    async with peer(ok) as server, client() as http:
        assert (await http.send("GET", "x", base=server.base)).status == 200
    async with peer(ok) as proxy, client(proxy=proxy.base.replace("//", "//user:pa%40ss@")) as http:
        assert (await http.send("GET", "x", base="http://service.invalid/")).status == 200
    assert proxy.requests[0].startswith(b"GET http://service.invalid/x HTTP/1.1")
    assert b"proxy-authorization: Basic dXNlcjpwYUBzcw==" in proxy.requests[0]


async def test_tls_accepted_only_with_named_authority(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*authority.issue("service"))
    async with peer(ok, tls) as server:
        async with client(ca_file=authority.ca) as http:
            assert (await http.send("GET", "x", base=server.base)).status == 200
        async with client() as http:
            with pytest.raises(errors.ServiceUnavailable, match="certificate is not trusted"):
                await http.send("POST", "x", base=server.base, content=b"{}")
    assert len(server.requests) == 1


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_header_that_cannot_be_sent_is_named(method: str) -> None:
    async with peer(ok) as server, client() as http:
        for value in ("two\r\nX-Forged: 1", "\n", "n\u00f6", "nul\0", "\x1b[1m", "\u2028", "\ud800"):
            with pytest.raises(errors.HeaderNotSendable, match="If-Match") as caught:
                await http.send(method, "x", base=server.base, headers={"Accept": "*/*", "If-Match": value})
            assert value not in str(caught.value)
        assert (await http.send(method, "x", base=server.base, headers={"Accept": "\t*/* ;q=~"})).status == 200
    assert len(server.requests) == 1


@BOTH
async def test_unexpected_error_of_library_is_named(method: str, expected: type, monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (ValueError, KeyError, RuntimeError, UnicodeError, RecursionError):

        async def stumble(_: object, error: type[Exception] = error) -> None:
            raise error("s3cret")

        async with client() as http:
            monkeypatch.setattr(http._transport, "handle_async_request", stumble)
            with pytest.raises(expected, match=error.__name__) as caught:
                await http.send(method, "x", base="http://127.0.0.1:1/")
        assert "s3cret" not in str(caught.value)
