"""Servers on this machine: one that answers what a test wants, with TLS or without, and what other servers of tests share."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn


class Canned(NamedTuple):
    status: int
    body: bytes = b""


NOT_FOUND = Canned(404)


class QuietHandler(BaseHTTPRequestHandler):
    def read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def server_bind(self) -> None:
        socket.socket.bind(self.socket, self.server_address)  # type: ignore[arg-type]  # no look for a name, which takes long
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])


@contextmanager
def serving(
    handler: type[BaseHTTPRequestHandler],
    address: tuple[str, int] = ("127.0.0.1", 0),
    certificate: tuple[Path, Path] | None = None,
) -> Iterator[int]:
    """Serve in a thread; gives the port."""
    server = _Server(address, handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def canned_server(
    answers: Mapping[str, Canned], default: Canned = NOT_FOUND, *, certificate: tuple[Path, Path] | None = None
) -> Iterator[int]:
    """Answer GET requests by their paths, with `default` where there is none; gives the port."""

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.answer(*answers.get(self.path, default))

    with serving(Handler, certificate=certificate) as port:
        yield port


@asynccontextmanager
async def serving_app(app: Any, **options: Any) -> AsyncIterator[int]:
    """Serve an ASGI application in this event loop, on a free port; gives that."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, **options))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await serving
