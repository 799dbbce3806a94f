"""What a sender of the endpoint for results may take of it: memory, time, and nothing without a signature; and TLS."""

import asyncio
import http.client
import json
import ssl
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from lab_agent.lis.http import HttpAdapter, HttpSettings
from lab_agent.lis.serialization import dump_message
from lab_agent.lis.testing import MemoryInbox, make_order, make_report
from lab_agent.shared.errors import LisUnavailable
from tests.fakes.http_lis import AGENT_SECRET, LIS_SECRET, signed_headers
from tests.harness.certificates import CertificateAuthority
from tests.harness.clock import DEADLINE

BODY = dump_message(make_report(1, make_order(1)))
LIMIT = 20_000

Start = Callable[..., Awaitable[HttpAdapter]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def make(inbox: MemoryInbox | None = None, **more: Any) -> HttpAdapter:
            given = {"url": "http://127.0.0.1:9/", "secret": AGENT_SECRET, "incoming_secret": LIS_SECRET, "port": 0}
            adapter = HttpAdapter(HttpSettings.model_validate({**given, "max_message_bytes": LIMIT, **more}), "http")
            await adapter.start(inbox or MemoryInbox())
            stack.push_async_callback(adapter.stop)
            return adapter

        yield make


def head(length: int, **given: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in given.items()]
    return "\r\n".join(["POST /messages HTTP/1.1", "Host: x", f"Content-Length: {length}", *lines, "", ""]).encode()


async def response(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], dict[str, Any]]:
    """The answer, within a deadline."""
    async with asyncio.timeout(DEADLINE):
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        found = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        body = await reader.readexactly(int(found["content-length"]))
    return int(lines[0].split()[1]), found, json.loads(body)


def post(port: int, body: bytes, given: dict[str, str], context: ssl.SSLContext | None = None) -> int:
    """A client that reads when it has sent everything, as most libraries do."""
    kind = http.client.HTTPConnection if context is None else partial(http.client.HTTPSConnection, context=context)
    connection = kind("127.0.0.1", port, timeout=DEADLINE)
    try:
        connection.request("POST", "/messages", body, given)
        return connection.getresponse().status
    finally:
        connection.close()


async def posted(adapter: HttpAdapter, body: bytes, given: dict[str, str], context: ssl.SSLContext | None = None) -> int:
    return await asyncio.to_thread(post, adapter.port, body, given, context)


async def test_sender_of_large_body_sees_413(start: Start) -> None:
    adapter, body = await start(), bytes(8_000_000)
    for more in ({}, {"Connection": "close"}):
        assert await posted(adapter, body, {**signed_headers(LIS_SECRET, "m1", body), **more}) == 413


async def test_unsigned_message_refused_before_its_body(start: Start) -> None:
    adapter, signed = await start(), signed_headers(LIS_SECRET, "m1", b"")
    old = signed_headers(LIS_SECRET, "m1", b"", timestamp=time.time() - 1000)
    for given in ({}, {**signed, "Lab-Signature": "v1=short"}, old):
        reader, writer = await asyncio.open_connection("127.0.0.1", adapter.port)
        writer.write(head(LIMIT, **given))
        assert (await response(reader))[0] == 401
        writer.close()


def stranger() -> dict[str, str]:
    """Headers of our time with an invented signature."""
    return {**signed_headers(LIS_SECRET, "m1", b""), "Lab-Signature": "v1=" + "0" * 64}


LARGE = 300_000
Opened = list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]


def close(opened: Opened) -> None:
    for _, writer in opened:
        writer.close()


async def hold_open(adapter: HttpAdapter, count: int, addresses: int) -> Opened:
    """Strangers who send all but the last byte of the largest message, with an invented signature."""
    opened = [await asyncio.open_connection("127.0.0.1", adapter.port) for _ in range(count)]
    for number, (_, writer) in enumerate(opened):
        forwarded = f"198.51.100.{number % addresses}" if addresses else "127.0.0.1"
        writer.write(head(LARGE, **stranger(), X_Forwarded_For=forwarded) + bytes(LARGE - 1))
        await writer.drain()
    return opened


def slow(*rows: object) -> list[ParameterSet]:
    return [pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=pytest.mark.slow) for row in rows]


@pytest.mark.parametrize("size", [100_000, *slow(0, 1_000, LARGE - 5_000)])
@pytest.mark.parametrize(("count", "addresses"), [(12, 12), *slow((2, 2), (2, 0), (12, 1))])
async def test_strangers_large_bodies_leave_room(start: Start, count: int, addresses: int, size: int) -> None:
    """A good message comes through at once, from the strangers' own address, too, however large it is."""
    adapter = await start(max_message_bytes=LARGE, max_unfinished_bytes=2 * LARGE)
    opened = await hold_open(adapter, count, addresses)
    body = BODY + b" " * size
    statuses = [await posted(adapter, body, signed_headers(LIS_SECRET, f"good-{number}", body)) for number in range(8)]
    assert statuses == [200] * 8
    close(opened)


async def test_known_sender_of_largest_message_comes_first(start: Start) -> None:
    adapter = await start(max_message_bytes=LARGE, max_unfinished_bytes=2 * LARGE)
    assert await posted(adapter, BODY, signed_headers(LIS_SECRET, "m1", BODY)) == 200
    opened = await hold_open(adapter, 4, 4)
    body = BODY + b" " * (LARGE - len(BODY))
    assert await posted(adapter, body, signed_headers(LIS_SECRET, "m2", body)) == 200
    close(opened)


async def test_stranger_beyond_the_room_told_to_wait(start: Start) -> None:
    """Of one address, no more than one largest message is read: the next is answered before its body."""
    adapter = await start(max_message_bytes=LARGE, max_unfinished_bytes=10 * LARGE)
    opened = await hold_open(adapter, 2, 0)
    statuses = []
    for reader, _ in opened:
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                statuses.append((await response(reader))[::2])
    assert [(status, said["code"]) for status, said in statuses] == [(503, "retry_later")]
    close(opened)


@pytest.mark.slow
async def test_large_bodies_wait_outside_of_memory(start: Start) -> None:
    size = 24_000_000
    adapter = await start(max_message_bytes=size, max_unfinished_bytes=8 * size)
    opened = [await asyncio.open_connection("127.0.0.1", adapter.port) for _ in range(6)]
    tracemalloc.start()
    try:
        for number, (_, writer) in enumerate(opened):
            writer.write(head(size, **stranger(), X_Forwarded_For=f"198.51.100.{number}"))
            for _ in range(23):
                writer.write(bytes(1_000_000))
                await writer.drain()
        assert await posted(adapter, BODY, signed_headers(LIS_SECRET, "m1", BODY)) == 200
        assert tracemalloc.get_traced_memory()[1] < size
    finally:
        tracemalloc.stop()
    close(opened)


async def test_large_message_read_from_file_as_sent(start: Start) -> None:
    adapter = await start(max_message_bytes=2_000_000, max_unfinished_bytes=2_000_000)
    body = BODY[:-1] + b" " * 1_500_000 + BODY[-1:]
    given = signed_headers(LIS_SECRET, "m1", body)
    assert await posted(adapter, body, given) == 200
    assert await posted(adapter, body[:-1] + b" ", given) == 401


async def test_turned_away_message_told_by_alert(start: Start) -> None:
    large, old = bytes(LIMIT + 1), signed_headers(LIS_SECRET, "m1", BODY, timestamp=time.time() - 1000)
    signed = signed_headers(LIS_SECRET, "m1", large)
    for given, body, reason in (
        *((stranger(), BODY, "wrong"), ({}, BODY, "Idempotency-Key"), (old, BODY, "Lab-Timestamp")),
        (signed, large, str(LIMIT)),
    ):
        inbox = MemoryInbox()
        assert await posted(await start(inbox=inbox), body, given) in {401, 413}
        told = inbox.alerts["turned_away"]
        assert reason in told
        assert "127.0.0.1" in told


@pytest.mark.parametrize(("more", "drips"), [({"body_idle_timeout": 0.1}, False), ({"body_timeout": 0.3}, True)])
async def test_half_a_body_answered_408_and_closed(start: Start, more: dict[str, float], drips: bool) -> None:
    adapter = await start(**more)
    reader, writer = await asyncio.open_connection("127.0.0.1", adapter.port)
    writer.write(head(len(BODY), **signed_headers(LIS_SECRET, "m1", BODY)) + BODY[:10])

    async def drip() -> None:
        while drips:
            writer.write(b" ")
            await asyncio.sleep(0.02)

    dripping = asyncio.create_task(drip())
    status, headers, said = await response(reader)
    assert (status, said["code"], headers["connection"]) == (408, "timeout", "close")
    async with asyncio.timeout(DEADLINE):
        assert await reader.read() == b""
    dripping.cancel()
    with suppress(asyncio.CancelledError, ConnectionError):
        await dripping
    writer.close()


@pytest.mark.parametrize("encrypted", [False, True])
async def test_damaged_request_answered_and_closed_at_once(start: Start, tmp_path: Path, encrypted: bool) -> None:
    authority = CertificateAuthority(tmp_path)
    certificate, key = authority.issue("agent")
    adapter = await start(**({"tls": {"certificate": certificate, "key": key}} if encrypted else {}))
    context = ssl.create_default_context(cafile=authority.ca) if encrypted else None
    reader, writer = await asyncio.open_connection("127.0.0.1", adapter.port, ssl=context)
    writer.write(b"no request at all\r\n\r\n")
    async with asyncio.timeout(DEADLINE):
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
    writer.close()


async def test_tls_with_ca_requires_client_certificate(start: Start, tmp_path: Path) -> None:
    authority, other = CertificateAuthority(tmp_path), CertificateAuthority(tmp_path, "other")
    certificate, key = authority.issue("agent")
    adapter = await start(tls={"certificate": certificate, "key": key, "ca": authority.ca})
    given = signed_headers(LIS_SECRET, "m1", BODY)

    def as_client(files: tuple[Path, Path] | None) -> int:
        context = ssl.create_default_context(cafile=authority.ca)
        if files:
            context.load_cert_chain(*files)
        return post(adapter.port, BODY, given, context)

    for files in (None, other.issue("stranger")):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(as_client, files)
    assert await asyncio.to_thread(as_client, authority.issue("lis")) == 200
    adapter = await start(tls={"certificate": certificate, "key": key})
    assert await asyncio.to_thread(as_client, None) == 200
    body, context = bytes(3_000_000), ssl.create_default_context(cafile=authority.ca)
    assert await posted(adapter, body, {**signed_headers(LIS_SECRET, "m1", body), "Connection": "close"}, context) == 413


async def test_missing_certificate_reported_in_one_sentence(start: Start, tmp_path: Path) -> None:
    with pytest.raises(LisUnavailable, match="table tls"):
        await start(tls={"certificate": tmp_path / "none.pem", "key": tmp_path / "none.key"})
