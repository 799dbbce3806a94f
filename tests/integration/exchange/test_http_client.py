"""The HTTP client on real sockets: what it sends, what it does not, and what its failures say."""

import asyncio
import gzip
import ipaddress
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lab_agent import errors
from lab_agent.http_client import HttpClient, HttpOptions

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


@pytest.mark.parametrize("method", ["POST", "PUT"])
async def test_broken_write_sent_once_with_unknown_outcome(method: str) -> None:
    async def first_well(exchange: Exchange) -> None:
        await (exchange.reply() if exchange.number == 1 else hang_up(exchange))

    async with peer(first_well) as server, client() as http:
        await http.send("GET", "warm", base=server.base)
        with pytest.raises(errors.OutcomeUnknown):
            await http.send(method, "x", base=server.base, content=b"{}")
    assert len(server.requests) == 2
    assert server.connections == 1


async def test_broken_get_is_temporary_failure() -> None:
    async with peer(hang_up) as server, client() as http:
        with pytest.raises(errors.ServiceUnavailable):
            await http.send("GET", "x", base=server.base)
    assert len(server.requests) == 1


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
async def test_closed_port_means_nothing_sent(method: str) -> None:
    async with peer(ok) as server:
        base = server.base
    async with client() as http:
        with pytest.raises(errors.ServiceUnavailable, match="cannot be reached"):
            await http.send(method, "x?name=Smith", base=base, content=b"{}")


async def test_unknown_host_means_nothing_sent() -> None:
    async with client() as http:
        with pytest.raises(errors.ServiceUnavailable, match="cannot be reached"):
            await http.send("POST", "x", base="http://nowhere.invalid/", content=b"{}")


@pytest.mark.parametrize(("method", "expected"), [("GET", errors.ServiceUnavailable), ("POST", errors.OutcomeUnknown)])
@pytest.mark.parametrize("options", [{"read_timeout": 0.1}, {"timeout": 0.1}])
async def test_silent_server_times_out(method: str, expected: type, options: dict[str, float]) -> None:
    async def nothing(exchange: Exchange) -> None:
        await exchange.reader.read()

    async with peer(nothing) as server, client(**options) as http:
        with pytest.raises(errors.Failure) as caught:
            await http.send(method, "x", base=server.base, content=b"{}")
    assert type(caught.value) is expected


async def test_slow_server_ended_by_total_timeout() -> None:
    async def drip(exchange: Exchange) -> None:
        exchange.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not exchange.reader.at_eof():
            exchange.writer.write(b" ")
            await exchange.writer.drain()
            await asyncio.sleep(0.02)

    async with peer(drip) as server, client(timeout=0.3) as http:
        with pytest.raises(errors.OutcomeUnknown):
            await http.send("POST", "x", base=server.base, content=b"{}")


@pytest.mark.parametrize(("method", "expected"), [("GET", errors.ServiceUnavailable), ("POST", errors.OutcomeUnknown)])
@pytest.mark.parametrize("cut", [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}", b"HTTP/1.1 20", b"nonsense\r\n\r\n"])
async def test_truncated_or_non_http_response_fails(method: str, expected: type, cut: bytes) -> None:
    async def say(exchange: Exchange) -> None:
        exchange.writer.write(cut)
        await exchange.writer.drain()
        await hang_up(exchange)

    async with peer(say) as server, client() as http:
        with pytest.raises(errors.Failure) as caught:
            await http.send(method, "x", base=server.base, content=b"{}")
    assert type(caught.value) is expected


LONG_HEADERS = {
    "value": b"HTTP/1.1 200 OK\r\nX-Policy: " + b"a" * 9000,
    "name": b"HTTP/1.1 200 OK\r\n" + b"a" * 9000 + b": 1",
    "reason": b"HTTP/1.1 200 " + b"a" * 9000,
    "cookie": b"HTTP/1.1 200 OK\r\nSet-Cookie: a=" + b"a" * 60_000,
}


@pytest.mark.parametrize("head", LONG_HEADERS.values(), ids=LONG_HEADERS)
@pytest.mark.parametrize(("method", "expected"), [("GET", errors.ServiceUnavailable), ("PUT", errors.OutcomeUnknown)])
async def test_long_header_is_read_or_told_by_its_setting(head: bytes, method: str, expected: type) -> None:
    async def say(exchange: Exchange) -> None:
        exchange.writer.write(head + b"\r\nContent-Length: 2\r\n\r\n{}")
        await exchange.writer.drain()

    async with peer(say) as server:
        async with client() as http:
            assert (await http.send(method, "x", base=server.base)).body == b"{}"
        async with client(max_header=8192) as http:
            with pytest.raises(errors.Failure, match="max_header") as caught:
                await http.send(method, "x", base=server.base)
    assert type(caught.value) is expected


@pytest.mark.parametrize(("method", "expected"), [("GET", errors.AnswerTooLarge), ("POST", errors.InvalidResponse)])
@pytest.mark.parametrize("packed", [True, False])
async def test_oversized_response_fails_compressed_or_not(method: str, expected: type, packed: bool) -> None:
    async def large(exchange: Exchange) -> None:
        body = gzip.compress(b" " * 200_000) if packed else b" " * 200_000
        await exchange.reply(body, "200 OK", *(["Content-Encoding: gzip"] if packed else []))

    async with peer(large) as server, client(max_response=100_000) as http:
        with pytest.raises(errors.Failure, match="100000 bytes") as caught:
            await http.send(method, "x", base=server.base, content=b"{}")
    assert type(caught.value) is expected


@pytest.mark.parametrize("coding", ["gzip, gzip", "deflate,gzip", "gzip, gzip, gzip"])
async def test_response_compressed_more_than_once_is_not_read(coding: str) -> None:
    """A few kilobytes of it would be gigabytes before their size is known."""

    async def bomb(exchange: Exchange) -> None:
        body = b" " * 1_000_000
        for _ in coding.split(","):
            body = gzip.compress(body)
        await exchange.reply(body, "200 OK", f"Content-Encoding: {coding}")

    async with peer(bomb) as server, client() as http:
        with pytest.raises(errors.ServiceUnavailable, match="compressed"):
            await http.send("GET", "x", base=server.base)


async def test_compressed_response_decompressed() -> None:
    async def packed(exchange: Exchange) -> None:
        await exchange.reply(gzip.compress(b'{"a": 1}'), "200 OK", "Content-Encoding: gzip")

    async with peer(packed) as server, client() as http:
        assert (await http.send("GET", "x", base=server.base)).body == b'{"a": 1}'


async def test_same_origin_redirect_followed_only_for_get() -> None:
    async def onward(exchange: Exchange) -> None:
        await (exchange.reply() if b" /b " in exchange.request else exchange.reply(b"", "307 Temporary Redirect", "Location: /b"))

    async with peer(onward) as server, client() as http:
        answer = await http.send("GET", "a", base=server.base, headers={"Authorization": "Bearer t"})
        assert (answer.status, answer.url) == (200, f"{server.base}b")
        assert (await http.send("POST", "a", base=server.base, content=b"{}")).status == 307
    assert len(server.requests) == 3


async def test_redirect_to_other_port_rejected_without_request() -> None:
    """A redirect to another port carries no token there."""
    async with peer(ok) as other:

        async def away(exchange: Exchange) -> None:
            await exchange.reply(b"", "302 Found", f"Location: {other.base}")

        async with peer(away) as server, client() as http:
            with pytest.raises(errors.ForeignLink):
                await http.send("GET", "a", base=server.base, headers={"Authorization": "Bearer t"})
        assert other.requests == []


async def test_redirect_loop_ends() -> None:
    async def circle(exchange: Exchange) -> None:
        await exchange.reply(b"", "302 Found", "Location: /a")

    async with peer(circle) as server, client() as http:
        with pytest.raises(errors.ServiceUnavailable, match="redirects"):
            await http.send("GET", "a", base=server.base)
    assert len(server.requests) == 4


async def test_proxy_environment_variables_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1/")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1/")
    async with peer(ok) as server, client() as http:
        assert (await http.send("GET", "x", base=server.base)).status == 200


async def test_proxy_used_with_its_password() -> None:
    async with peer(ok) as proxy, client(proxy=proxy.base.replace("//", "//user:pa%40ss@")) as http:
        assert (await http.send("GET", "x", base="http://service.invalid/")).status == 200
    assert proxy.requests[0].startswith(b"GET http://service.invalid/x HTTP/1.1")
    assert b"proxy-authorization: Basic dXNlcjpwYUBzcw==" in proxy.requests[0]


async def test_unreachable_proxy_means_nothing_sent() -> None:
    async with peer(ok) as proxy:
        address = proxy.base
    async with client(proxy=address) as http:
        with pytest.raises(errors.ServiceUnavailable):
            await http.send("POST", "x", base="http://service.invalid/", content=b"{}")


async def test_plain_http_on_tls_port_means_nothing_sent() -> None:
    async def say(exchange: Exchange) -> None:
        await exchange.reply()

    async with peer(say) as server, client(connect_timeout=0.2) as http:
        with pytest.raises(errors.ServiceUnavailable, match="cannot be reached"):
            await http.send("POST", "x", base=server.base.replace("http:", "https:"), content=b"{}")
    assert server.requests == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "service")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "service.pem"
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


async def test_tls_accepted_only_with_named_authority(certificate: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    async with peer(ok, tls) as server:
        async with client(ca_file=certificate) as http:
            assert (await http.send("GET", "x", base=server.base)).status == 200
        async with client() as http:
            with pytest.raises(errors.ServiceUnavailable, match="certificate is not trusted"):
                await http.send("POST", "x", base=server.base, content=b"{}")
    assert len(server.requests) == 1


@pytest.mark.parametrize("value", ["two\r\nX-Forged: 1", "\n", "n\u00f6", "nul\0", "\x1b[1m", "\u2028", "\ud800"])
@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_header_that_cannot_be_sent_is_named(method: str, value: str) -> None:
    async with peer(ok) as server, client() as http:
        with pytest.raises(errors.HeaderNotSendable, match="If-Match") as caught:
            await http.send(method, "x", base=server.base, headers={"Accept": "*/*", "If-Match": value})
        assert (await http.send(method, "x", base=server.base, headers={"Accept": "\t*/* ;q=~"})).status == 200
    assert len(server.requests) == 1
    assert value not in str(caught.value)


@pytest.mark.parametrize(("method", "expected"), [("GET", errors.ServiceUnavailable), ("PUT", errors.OutcomeUnknown)])
@pytest.mark.parametrize("error", [ValueError, KeyError, RuntimeError, UnicodeError, RecursionError])
async def test_unexpected_error_of_library_is_named(
    method: str, expected: type, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stumble(_: object) -> None:
        raise error("s3cret")

    async with client() as http:
        monkeypatch.setattr(http._transport, "handle_async_request", stumble)
        with pytest.raises(expected, match=error.__name__) as caught:
            await http.send(method, "x", base="http://127.0.0.1:1/")
    assert "s3cret" not in str(caught.value)
