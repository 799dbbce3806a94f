"""Connections that say nothing, half of it, or never read: they end, and leave room for the others."""

from __future__ import annotations

import asyncio
import http.client
import json
import resource
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from lab_agent.shared import web_server
from lab_agent.shared.web_server import ConnectionLimits
from lab_api.app import create_app
from lab_api.response_cache import CurrentCatalogue
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.programs import TOKEN, NotifySocket, free_port, write_settings_file
from tests.harness.proof import in_full
from tests.integration.lab_api.parts import ETA, bearer, make_settings

DEFAULTS = ConnectionLimits(max_connections=8)
SHORT = ConnectionLimits(max_connections=8, header_timeout=0.4, body_timeout=0.6, response_timeout=0.4)
HALF = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: "
WHOLE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /lab/preanalytics HTTP/1.1\r\nHost: x\r\n%s\r\n%s\r\n"
TOKEN_LINES = b"Authorization: Bearer exchange-token\r\nContent-Type: application/json\r\n"


@asynccontextmanager
async def served(app: Any, limits: ConnectionLimits = SHORT) -> AsyncIterator[int]:
    sock = web_server.listen("127.0.0.1", 0, settings_group="api")
    task = asyncio.create_task(web_server.serve(app, sock, drain=1, limits=limits))
    try:
        yield sock.getsockname()[1]
    finally:
        task.cancel()
        await asyncio.wait({task})


async def plain(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body of a POST, and answers."""
    while scope["method"] == "POST":
        message = await receive()
        if message["type"] == "http.disconnect" or not message["more_body"]:
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def ended(reader: asyncio.StreamReader, since: float) -> float:
    """Seconds until the server ends the connection."""
    with suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), DEADLINE)
    return time.monotonic() - since


@pytest.mark.parametrize(
    ("sent", "shortest", "longest"),
    [
        *((each, 0.2, DEFAULTS.header_timeout) for each in (b"", HALF, WHOLE + HALF)),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf", 0.3, DEFAULTS.body_timeout),
    ],
)
async def test_incomplete_request_closes_connection(sent: bytes, shortest: float, longest: float) -> None:
    """Also where more of its head comes, letter by letter."""
    async with served(plain) as port:
        began = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)

        async def drip() -> None:
            while sent.endswith(HALF):
                writer.write(b"x")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        assert shortest < await ended(reader, began) < longest
        dripping.cancel()
        writer.close()


@pytest.mark.slow
async def test_client_never_reading_disconnected_slow_reader_kept() -> None:
    async def large(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(30_000_000)})

    async with served(large) as port:
        with socket.create_connection(("127.0.0.1", port)) as deaf:
            deaf.sendall(WHOLE * 3)
            await asyncio.sleep(1.2)
            deaf.settimeout(DEADLINE)
            taken = 0
            with suppress(ConnectionResetError):
                while part := await asyncio.to_thread(deaf.recv, 10_000_000):  # what the kernel has taken
                    taken += len(part)
            assert taken < 30_000_000
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=100_000)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        seen = 0
        while chunk := await reader.read(2_000_000):
            seen += len(chunk)
            await asyncio.sleep(0.003)
        assert seen > 30_000_000
        writer.close()


async def test_full_server_closes_longest_idle_keeps_stream() -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def streaming(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first ", "more_body": True})
        begun.set()
        await go.wait()
        await send({"type": "http.response.body", "body": b"last"})

    limits = ConnectionLimits(max_connections=8, header_timeout=30)
    async with (
        served(streaming, limits) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE) as client,
    ):
        with capture_logs() as logged:
            stream = asyncio.create_task(client.get("/", timeout=DEADLINE))
            await begun.wait()
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]

            def closed() -> list[bool]:
                return [reader.at_eof() or reader.exception() is not None for reader, _ in idle]

            await wait_until(lambda: closed().count(True) >= 23, "23 closed connections")
        assert closed() == [True] * 23 + [False] * 7
        assert [each["action"] for each in logged] == ["connections.full"]
        go.set()
        assert (await stream).text == "first last"
        assert (await client.get("/")).text == "first last"
        for _, writer in idle:
            writer.close()


async def test_full_server_without_idle_refuses_new_connection() -> None:
    go, arrived = asyncio.Event(), []

    async def waiting(scope: Any, receive: Any, send: Any) -> None:
        arrived.append(scope["path"])
        await go.wait()
        await plain(scope, receive, send)

    async with served(waiting) as port, httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE) as client:
        asked = [asyncio.create_task(client.get("/")) for _ in range(8)]
        await wait_until(lambda: len(arrived) == 8, "eight requests at work")
        with pytest.raises(httpx.TransportError):
            await client.get("/")
        go.set()
        assert [each.status_code for each in await asyncio.gather(*asked)] == [200] * 8


async def test_keep_alive_connection_stays_open(current_catalogue: CurrentCatalogue) -> None:
    """No HEAD leaves a body on it, and no response lets a browser guess its type."""
    async with served(create_app(make_settings(), current_catalogue)) as port:
        options: dict[str, Any] = {"base_url": f"http://127.0.0.1:{port}/lab/", "timeout": DEADLINE}
        limits = httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(headers=bearer("exchange-token"), limits=limits, **options) as client:
            for _ in range(3):
                head, got = await client.head(ETA), await client.get(ETA)
                assert (head.status_code, head.content) == (200, b"")
                assert head.headers["content-length"] == got.headers["content-length"]
                await asyncio.sleep(0.2)
            for path in ("healthz", "readyz", "metrics", "nowhere", "lab/openapi.json"):
                response = await client.get(f"http://127.0.0.1:{port}/{path}")
                assert response.headers["x-content-type-options"] == "nosniff", path


@pytest.mark.parametrize("declared", [True, False])
async def test_oversized_body_always_receives_413(current_catalogue: CurrentCatalogue, declared: bool) -> None:
    chunk = b"x" * 50_000
    size = b"Content-Length: %d" % (60 * len(chunk)) if declared else b"Transfer-Encoding: chunked"

    def send_all(port: int) -> tuple[int, bytes]:
        """A client that reads when it has sent everything, as many do."""
        with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as sock:
            sock.sendall(POST % (size, TOKEN_LINES))
            for _ in range(60):
                sock.sendall(chunk if declared else b"%x\r\n%s\r\n" % (len(chunk), chunk))
                time.sleep(0.001)
            if not declared:
                sock.sendall(b"0\r\n\r\n")
            answer = http.client.HTTPResponse(sock)
            answer.begin()
            return answer.status, answer.read()

    limits = ConnectionLimits(max_connections=8, header_timeout=2)
    async with served(create_app(make_settings(), current_catalogue), limits) as port:
        for _ in range(2):
            status, body = await asyncio.to_thread(send_all, port)
            assert status == 413
            assert json.loads(body)["issue"][0]["code"] == "too-costly"


async def test_request_that_is_no_http_gets_operation_outcome(
    current_catalogue: CurrentCatalogue, caplog: pytest.LogCaptureFixture
) -> None:
    """All that are damaged are counted in one line."""
    with capture_logs() as lines:
        async with served(create_app(make_settings(), current_catalogue), DEFAULTS) as port:
            for sent in (
                b"no request at all\r\n\r\n",
                b"GET /lab/eta HTTP/1.1\r\n\r\n",
                b"GET /lab/eta HTTP/9\r\nHost: x\r\n\r\n",
                b"GET /lab/eta HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
                b"GET /lab/eta HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 600_000 + b"\r\n\r\n",
                b"GET /lab/eta HTTP/1.1\r\nHost: x\r\nContent-Length: two\r\n\r\n",
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
                POST % (b"Transfer-Encoding: chunked", TOKEN_LINES) + b"5\r\n{    \r\nzz\r\n",
            ):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(sent)
                head, _, body = (await asyncio.wait_for(reader.read(), DEADLINE)).partition(b"\r\n\r\n")
                writer.close()
                assert head.startswith(b"HTTP/1.1 400 "), sent[:60]
                assert b"content-type: application/json" in head.lower()
                assert b"x-content-type-options: nosniff" in head.lower()
                assert json.loads(body)["resourceType"] == "OperationOutcome"
    assert [each["count"] for each in lines if each["action"] == "connections.damaged"] == [1]
    assert caplog.records == []


async def test_broken_chunk_after_the_response_ends_connection(current_catalogue: CurrentCatalogue) -> None:
    """401 is answered before the body has come; what breaks then gets no second response."""
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with served(create_app(make_settings(), current_catalogue), DEFAULTS) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(POST % (b"Transfer-Encoding: chunked", b""))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), DEADLINE)
        writer.write(b"zz\r\n")
        rest = await asyncio.wait_for(reader.read(), DEADLINE)
        writer.close()
    assert head.startswith(b"HTTP/1.1 401 ")
    assert json.loads(rest)["issue"][0]["code"] == "login"
    assert failures == []


async def test_unread_body_after_response_ends_in_time(current_catalogue: CurrentCatalogue) -> None:
    """What a client still sends after its 413 is read and dropped, but not for ever."""
    async with served(create_app(make_settings(), current_catalogue)) as port:

        def send_for_ever() -> float:
            began = time.monotonic()
            with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE) as sock:
                sock.sendall(POST % (b"Content-Length: 999999999", TOKEN_LINES))
                with suppress(ConnectionError):
                    while time.monotonic() - began < DEADLINE:
                        sock.send(bytes(1000))
                        time.sleep(0.01)
            return time.monotonic() - began

        assert await asyncio.to_thread(send_for_ever) < DEADLINE


@pytest.mark.parametrize(("soft", "connections"), [(128, 32), (1024, 256), (4096, 1000)])
def test_connection_limit_follows_open_files(monkeypatch: pytest.MonkeyPatch, soft: int, connections: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert web_server.default_max_connections() == connections


@in_full
@pytest.mark.proof
def test_idle_connections_beyond_file_limit_api_responds(folder: Path, tmp_path: Path, systemd: NotifySocket) -> None:
    port, log = free_port(), tmp_path / "log"
    words = [sys.executable, "-c", "from lab_api.cli import main; main()", "run"]
    program = ["bash", "-c", 'ulimit -n 128; exec "$@"', "-", *words, "--config", str(write_settings_file(folder, port))]
    with log.open("w") as err, ExitStack() as stack:
        process = subprocess.Popen(program, stderr=err, env=systemd.environ)
        stack.callback(process.wait)
        stack.callback(process.kill)
        systemd.wait_for("READY=1")
        idle = []
        for number in range(400):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=DEADLINE))
            with suppress(ConnectionError):
                sock.sendall(HALF if number % 2 else b"")
            idle.append(sock)
        for _ in range(20):
            assert httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=DEADLINE).status_code == 200
        assert httpx.get(f"http://127.0.0.1:{port}/{ETA}", headers=TOKEN, timeout=DEADLINE).status_code == 200
        assert sum(_is_open(sock) for sock in idle) <= 32
        process.terminate()
        assert process.wait(DEADLINE) == 0
    said = log.read_text()
    assert len(said) < 5000
    assert said.count("connections.full") == 1
    assert "out of system resource" not in said


def _is_open(sock: socket.socket) -> bool:
    sock.setblocking(False)
    with suppress(ConnectionError):
        try:
            return bool(sock.recv(1))
        except BlockingIOError:
            return True
    return False
