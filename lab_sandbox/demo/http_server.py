"""A small HTTP server beside the rest of a program: of the LIS simulator for orders, of the clinic for notifications."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lab_sandbox.partner.errors import InvalidJsonError, Json, decode

Receive = Callable[[str, Mapping[str, str], bytes], int]
"""Gives the status for the path, headers and body of a POST."""

MAX_NOTIFICATIONS = 10_000


def start_server(port: int, receive: Receive, look_up: Callable[[str], int] = lambda _: 404) -> ThreadingHTTPServer:
    """Answers on this port of this machine until it is shut down; `look_up` gives the status for the path of a GET."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler_class(receive, look_up))
    threading.Thread(target=server.serve_forever, name=f"HTTP {port}", daemon=True).start()
    return server


@contextmanager
def received_notifications(port: int) -> Iterator[list[Json]]:
    """What the exchange service posts to the clinic's address, as it comes."""
    received: list[Json] = []

    def receive(_path: str, _headers: Mapping[str, str], body: bytes) -> int:
        try:
            notification = decode(body)
        except InvalidJsonError:
            return 400
        if len(received) >= MAX_NOTIFICATIONS:
            return 507
        received.append(notification)
        return 200

    server = start_server(port, receive)
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()


def _handler_class(receive: Receive, look_up: Callable[[str], int]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(look_up(self.path))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self._answer(receive(self.path, self.headers, body))  # type: ignore[arg-type]  # the headers are used as a mapping only

        def _answer(self, status: int) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — the standard library's name
            """Logs nothing: whoever receives says so."""

    return Handler
