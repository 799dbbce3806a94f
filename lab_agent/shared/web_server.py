"""What every server of ours shares: a listening socket, and uvicorn with limits on its connections.

The address is taken before anything else starts, so that a port in use is one clear sentence. uvicorn leaves the signals alone: a
process with a worker has its own way to end. docs/security.md says which limit is kept here and which by a reverse proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import h11
import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from lab_agent.shared.errors import LabAgentError, Problem, SettingsError
from lab_agent.shared.logs import get_logger

_log = get_logger(__name__)

BACKLOG = 128
MAX_CONNECTIONS = 1000
PEER_KEY = "lab_agent.peer"
"""Key of a request's scope: the address that the connection comes from. `client` may be what X-Forwarded-For says instead."""
_LOG_INTERVAL = 60.0
_NO_SNIFF = ("x-content-type-options", "nosniff")
_INVALID_REQUEST = json.dumps(
    {
        "resourceType": "OperationOutcome",
        "issue": [
            {
                "severity": "error",
                "code": "structure",
                "diagnostics": "request: is no valid HTTP, or its headers are too large — send one Host header, whole chunks and"
                " small headers",
            }
        ],
    },
    ensure_ascii=False,
).encode()


class ListenError(SettingsError):
    """An address cannot be listened on; the message names the settings that hold it."""

    def __init__(self, host: str, port: int, settings_group: str, reason: str) -> None:
        self.problems = (
            Problem(
                f"{settings_group}.port",
                f"Cannot listen on {host}:{port}: {reason}",
                f"stop the program that uses it, or set another {settings_group}.host or {settings_group}.port.",
            ),
        )
        LabAgentError.__init__(self, f"{self.problems[0].what} — {self.problems[0].hint}")


def listen(host: str, port: int, *, settings_group: str) -> socket.socket:
    """Take an address; port 0 is a free one. `settings_group` is the table that names it. Raises `ListenError`."""
    try:
        # With the protocol: asyncio sets TCP_NODELAY for no socket without it, and each answer waits for the client's late ACK.
        family, _, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, socket.SOCK_STREAM, protocol)
    except OSError as exc:
        raise _listen_error(host, port, settings_group, exc) from exc
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as exc:
        sock.close()
        raise _listen_error(host, port, settings_group, exc) from exc
    return sock


def _listen_error(host: str, port: int, settings_group: str, exc: OSError) -> ListenError:
    return ListenError(host, port, settings_group, (exc.strerror or "no such address").lower())


async def serve(
    app: ASGIApp,
    sock: socket.socket,
    *,
    drain: float,
    limits: ConnectionLimits | None = None,
    tls: ssl.SSLContext | None = None,
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Serve until cancelled, over TLS if `tls` is given; then let open requests end, for up to `drain` seconds.

    `on_stop` is called first of all then, to end the answers that have no end of their own.
    """
    server = UvicornServer(app, drain=drain, limits=limits, tls=tls)
    running = asyncio.create_task(server.serve([sock]), name="uvicorn")
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        server.should_exit = True
        on_stop()
        await running
        raise


def default_max_connections() -> int:
    """A quarter of the files that the process may open: the store and other servers need theirs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(MAX_CONNECTIONS, soft // 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """How many connections there may be, and for how many seconds a client may keep the server waiting."""

    max_connections: int
    header_timeout: float = 15.0
    body_timeout: float = 120.0
    response_timeout: float = 30.0
    """How long a client may take nothing of its response."""


class UvicornServer(uvicorn.Server):
    """uvicorn without its own logging and signal handling; at the end open requests have `drain` seconds."""

    def __init__(
        self, app: ASGIApp, *, drain: float, limits: ConnectionLimits | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        limits = limits or ConnectionLimits(max_connections=default_max_connections())
        protocol = partial(_TimedConnection, open_connections=_OpenConnections(limits))
        super().__init__(
            _Config(
                app,
                http=cast("type[asyncio.Protocol]", protocol),
                ws="none",
                ssl_context_factory=None if tls is None else lambda *_: tls,
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                # So many are accepted in one go: few enough that each is read from before it has to make room for others.
                backlog=max(8, min(BACKLOG, limits.max_connections // 4)),
                timeout_graceful_shutdown=max(1, int(drain)),
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to whoever runs the server."""
        yield


class _Config(uvicorn.Config):
    """uvicorn's configuration, which notes where a connection comes from before X-Forwarded-For is read."""

    def load(self) -> None:
        super().load()
        self.loaded_app = _note_peer(self.loaded_app)


def _note_peer(app: ASGIApp) -> ASGIApp:
    async def with_peer(scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        scope[PEER_KEY] = client[0] if client else ""
        await app(scope, receive, send)

    return NoSniffMiddleware(with_peer)


class NoSniffMiddleware:
    """Forbids browsers to take a response for another type than it says."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).setdefault(*_NO_SNIFF)
            await send(message)

        await self._app(scope, receive, send_with_header)


class _Counted:
    """A kind of trouble with clients, logged at most once a minute with how often there was any since the last line."""

    def __init__(self, text: str, action: str) -> None:
        self._text, self._action = text, action
        self._count = 0
        self._logged_at: float | None = None

    def note(self, **fields: object) -> None:
        self._count += 1
        now = time.monotonic()
        if self._logged_at is None or now - self._logged_at >= _LOG_INTERVAL:
            _log.warning(self._text, action=self._action, count=self._count, **fields)
            self._logged_at, self._count = now, 0


class _ClientFaultLogger(logging.LoggerAdapter[logging.Logger]):
    """uvicorn's logger without its warnings: each is about one request of a client, which may send any number of them."""

    @property
    def level(self) -> int:
        """The level of the logger, which uvicorn asks for."""
        return self.logger.level

    def warning(self, *_: object, **__: object) -> None:
        """Say nothing: `send_400_response` counts damaged requests."""


class _OpenConnections:
    """The connections of one server; `waiting` are those whose client has to act next, longest first."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.waiting: dict[_TimedConnection, None] = {}
        self._open: set[_TimedConnection] = set()
        self._full = _Counted("connection limit reached", "connections.full")
        self.damaged = _Counted("requests that are no valid HTTP", "connections.damaged")

    def admit(self, connection: _TimedConnection) -> bool:
        """Admit a connection, if need be in place of the one that has waited longest; False if all are at work."""
        if len(self._open) >= self.limits.max_connections:
            self._full.note(limit=self.limits.max_connections)
            longest = next(iter(self.waiting), None)
            if longest is None:
                return False
            self.remove(longest)
            longest.transport.abort()
        self._open.add(connection)
        return True

    def remove(self, connection: _TimedConnection) -> None:
        self._open.discard(connection)
        self.waiting.pop(connection, None)


class _TimedConnection(H11Protocol):
    """uvicorn's connection, with a deadline for each thing that the client has to do: send a head, send a body, read a response.

    uvicorn itself has a time limit between two requests only; a client that sends one byte a minute would stay for ever.
    """

    _socket: asyncio.Transport

    def __init__(self, *args: Any, open_connections: _OpenConnections, **options: Any) -> None:
        super().__init__(*args, **options)
        self.logger = cast("logging.Logger", _ClientFaultLogger(self.logger))
        self._open_connections = open_connections
        self._drops_input = False
        self._stopping = False
        self._timeout: float | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._unsent_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        self._socket = transport
        super().connection_made(cast("asyncio.Transport", _ClosingTransport(transport, self)))
        if self._open_connections.admit(self):
            self._update_deadline()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_connections.remove(self)
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._drops_input:
            super().data_received(data)
        self._update_deadline()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's own sentence
        """Answer what is no valid HTTP with an OperationOutcome (interface: Errors), as lab-api answers whatever else fails.

        If the response to the damaged request has begun, it is all that the client gets.
        """
        self._open_connections.damaged.note()
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            headers = [("content-type", "application/json"), ("content-length", str(len(_INVALID_REQUEST))), _NO_SNIFF]
            response = h11.Response(status_code=400, headers=[*headers, ("connection", "close")], reason=b"Bad Request")
            for event in (response, h11.Data(data=_INVALID_REQUEST), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def shutdown(self) -> None:
        self._stopping = True
        super().shutdown()

    @property
    def drops_input(self) -> bool:
        """Whether the connection has ended for uvicorn, and only waits for the client to have sent the rest of its body."""
        return self._drops_input

    def close_socket(self) -> None:
        """Close the connection, once the client has sent the rest of its body.

        A socket that is closed with unread input resets the connection, and the client never sees its response: 413, say.
        """
        # The answer to a damaged request ends with the connection, of which TLS can close no half.
        may_send = self.conn.their_state is h11.SEND_BODY or (self.conn.their_state is h11.ERROR and self._socket.can_write_eof())
        if self._stopping or not may_send:
            self._socket.close()
        elif not self._drops_input:
            self._drops_input = True
            if self._socket.can_write_eof():
                self._socket.write_eof()
            self._socket.resume_reading()
            self._update_deadline()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._update_deadline()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._update_deadline()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._update_deadline()

    def _current_timeout(self) -> float | None:
        """The time limit of what the client has to do now; None while the server is at work."""
        limits = self._open_connections.limits
        if self.flow.write_paused:
            return limits.response_timeout
        if self.conn.their_state is h11.SEND_BODY:  # also while the rest of a body is dropped after an early response
            return limits.body_timeout
        if self.cycle is None or self.cycle.response_complete or self._drops_input:
            return limits.header_timeout
        return limits.body_timeout if self.conn.their_state is h11.ERROR else None

    def _update_deadline(self) -> None:
        """Start or end a time limit; bytes that arrive while it runs do not extend it."""
        timeout = self._current_timeout()
        if timeout == self._timeout:
            return
        self._timeout = timeout
        self._open_connections.waiting.pop(self, None)
        self._cancel_deadline()
        if timeout is not None and not self._socket.is_closing():
            self._open_connections.waiting[self] = None
            self._start_deadline(timeout)

    def _start_deadline(self, timeout: float) -> None:
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._deadline = self.loop.call_later(timeout, self._on_deadline, timeout)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self, timeout: float) -> None:
        """End the connection, except while its client reads the response, however slowly."""
        if 0 < self.transport.get_write_buffer_size() < self._unsent_bytes:
            self._start_deadline(timeout)
        else:
            self.transport.abort()


class _ClosingTransport:
    """A connection's transport as uvicorn sees it: closing it may have to wait for the rest of a request's body."""

    def __init__(self, transport: asyncio.Transport, connection: _TimedConnection) -> None:
        self._transport = transport
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._connection.drops_input or self._transport.is_closing()

    def close(self) -> None:
        self._connection.close_socket()
