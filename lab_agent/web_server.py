"""Which connections a server keeps: how many, and for how long a client may keep it waiting.

A connection costs an open file, and whoever reaches the port can open one without saying a word. So there are fewer places
than files, and each moment in which it is the client's turn has an end: the head of a request, its body, the reading of the
answer. Where all places are taken, the connection that has kept us waiting longest gives its place to the new one; a request
that is being answered (an event stream, too) never does.

An answer that comes before the request has been read to its end (413) is followed by a lingering close (RFC 9112, section 9.6):
what the client still sends is read and dropped for a while, since a close would make the kernel take the answer back.

Tell systemd how we are (Type=notify): a datagram to the socket named in NOTIFY_SOCKET, and nothing where there is none.

What every server of the house shares: an address taken before anything else begins, and uvicorn without a will of its own.

The address comes first, so that a port in use is one clear sentence and nothing was started in vain. uvicorn's signal handling
stays off: it ends the process by the signal, and not by an exit code, and a process with a worker has its own end to keep.
How many connections there may be, and how long one may keep us waiting, is said in `connections`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from lab_agent.errors import LabAgentError, Problem, SettingsError
from lab_agent.logs import get_logger

_log = get_logger(__name__)

OPEN_FILES_TARGET = 4096
"""Open files that are asked for where the process may have them: as many as the systemd units give."""
_DEFAULT_FILE_LIMIT = 1024
_MAX_CONNECTIONS = 1000
_LOG_INTERVAL = 60.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a server puts up with. Times are in seconds; `dropped` are bytes that are read after the answer."""

    max_connections: int
    header_timeout: float = 15.0
    body_timeout: float = 120.0
    response_timeout: float = 30.0
    linger_timeout: float = 5.0
    max_discarded_bytes: int = 16_000_000

    @classmethod
    def for_process(cls) -> ConnectionLimits:
        """The limits that fit this process: a quarter of its files, since the store and other servers have theirs."""
        return cls(max(1, min(_MAX_CONNECTIONS, file_limit() // 4)))


def file_limit() -> int:
    """How many files this process may open; the soft limit is raised towards the hard one first, as far as that is allowed."""
    with suppress(OSError, ValueError):  # a sandbox may forbid it: then what there is has to do
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = OPEN_FILES_TARGET if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_TARGET)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except OSError:
        return _DEFAULT_FILE_LIMIT
    return OPEN_FILES_TARGET if soft == resource.RLIM_INFINITY else soft


class LogRateLimit:
    """Lets something be said at most once a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_logged: float | None = None

    def can_log(self) -> bool:
        """Whether it is time again."""
        now = self._clock()
        if self._last_logged is not None and now - self._last_logged < _LOG_INTERVAL:
            return False
        self._last_logged = now
        return True


class WaitingFor(Enum):
    """What a client keeps us waiting for; who waits for a request gives way first, who reads slowly last."""

    REQUEST = "request"
    BODY = "body"
    RESPONSE_READ = "reader"


class ConnectionLimiter:
    """Who is inside, and whose turn it is."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._connections: set[LimitedConnection] = set()
        self._waiting: dict[WaitingFor, dict[LimitedConnection, None]] = {turn: {} for turn in WaitingFor}
        self._log_limit = LogRateLimit()

    def admit(self, connection: LimitedConnection) -> bool:
        """Let a connection in, where need be in place of the one that waits longest; False if there is none."""
        if len(self._connections) >= self.limits.max_connections:
            if self._log_limit.can_log():
                _log.warning("all connections are taken", action="connections.full", limit=self.limits.max_connections)
            oldest = next((next(iter(waiting)) for waiting in self._waiting.values() if waiting), None)
            if oldest is None:
                return False
            self.release(oldest)
            oldest.abort()
        self._connections.add(connection)
        return True

    def update_waiting(self, connection: LimitedConnection, before: WaitingFor | None, after: WaitingFor | None) -> None:
        """A connection waits for something else from now on, or for nothing."""
        if before:
            self._waiting[before].pop(connection, None)
        if after and connection in self._connections:
            self._waiting[after][connection] = None

    def release(self, connection: LimitedConnection) -> None:
        """A connection has ended, or is about to."""
        self._connections.discard(connection)
        for waiting in self._waiting.values():
            waiting.pop(connection, None)


class LimitedConnection(H11Protocol):
    """uvicorn's connection, with an end to each of the client's turns."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limiter: ConnectionLimiter,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limiter = limiter
        self._waiting_for: WaitingFor | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._discarded = 0
        self.is_lingering = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, if there is a place."""
        super().connection_made(cast("asyncio.Transport", _LingeringTransport(transport, self)))
        if self._limiter.admit(self):
            self._update_deadline()
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._limiter.release(self)
        self._cancel_deadline()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read; what comes after the answer is dropped, up to a limit."""
        if self.is_lingering or (self.has_unread_request and self._is_answered):
            self._discarded += len(data)
            if self._discarded > self._limiter.limits.max_discarded_bytes:
                self.abort()
                return
        if not self.is_lingering:
            super().data_received(data)
            self._update_deadline()

    def on_response_complete(self) -> None:
        """The answer is out: it is the client's turn."""
        super().on_response_complete()
        self._update_deadline()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._update_deadline()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._update_deadline()

    def shutdown(self) -> None:
        """The server ends: nothing is read any more for a client that has its answer."""
        if self.is_lingering:
            self.abort()
        else:
            super().shutdown()

    def abort(self) -> None:
        """End at once."""
        self.transport.abort()

    def linger(self) -> None:
        """Close our side, and wait for the client to do so."""
        self.is_lingering = True
        self.transport.write_eof()
        self.transport.resume_reading()
        self._start_deadline(self._limiter.limits.linger_timeout)

    @property
    def has_unread_request(self) -> bool:
        """Whether more of the request is to come, or nobody can tell."""
        return self.conn.their_state in (h11.SEND_BODY, h11.ERROR)

    @property
    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _current_wait(self) -> WaitingFor | None:
        if self.flow.write_paused:
            return WaitingFor.RESPONSE_READ
        if self._is_answered:
            return WaitingFor.REQUEST
        return WaitingFor.BODY if self.has_unread_request else None

    def _update_deadline(self) -> None:
        """Notice a change of turns; what a client sends meanwhile does not put its deadline off."""
        turn = self._current_wait()
        if turn is self._waiting_for:
            return
        self._limiter.update_waiting(self, self._waiting_for, turn)
        self._waiting_for = turn
        if self.is_lingering:
            return
        limits = self._limiter.limits
        seconds = {
            WaitingFor.REQUEST: limits.header_timeout,
            WaitingFor.BODY: limits.body_timeout,
            WaitingFor.RESPONSE_READ: limits.response_timeout,
        }
        self._start_deadline(seconds[turn]) if turn else self._cancel_deadline()

    def _start_deadline(self, seconds: float) -> None:
        self._cancel_deadline()
        self._unsent = self.transport.get_write_buffer_size()
        self._deadline = self.loop.call_later(seconds, self._on_deadline, seconds)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_deadline(self, seconds: float) -> None:
        """The time is over; whoever still takes an answer, however slowly, is left to it."""
        if 0 < self.transport.get_write_buffer_size() < self._unsent:
            self._start_deadline(seconds)
        else:
            self.abort()


class _LingeringTransport:
    """A transport that lingers where a close would destroy the answer."""

    def __init__(self, transport: asyncio.Transport, connection: LimitedConnection) -> None:
        self._transport = transport
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._connection.is_lingering or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing() or not self._connection.has_unread_request:
            self._transport.close()
        else:
            self._connection.linger()


def notify_ready(status: str = "") -> bool:
    """Say that the service is up. Gives whether anybody was told."""
    return _send_notification("READY=1", status)


def notify_reloading(monotonic_usec: int) -> bool:
    """Say that a reload began; `ready` ends it."""
    return _send_notification("RELOADING=1", "", f"MONOTONIC_USEC={monotonic_usec}")


def notify_stopping(status: str = "") -> bool:
    """Say that the service is going down."""
    return _send_notification("STOPPING=1", status)


def notify_watchdog() -> bool:
    """Say that the service is alive."""
    return _send_notification("WATCHDOG=1")


def watchdog_interval(environ: Mapping[str, str] | None = None) -> float | None:
    """Seconds between two signs of life: half of what systemd waits. None if it does not wait for any."""
    environ = os.environ if environ is None else environ
    usec, pid = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not usec.isdecimal() or int(usec) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(usec) / 2_000_000


def _send_notification(state: str, status: str = "", extra: str = "") -> bool:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    lines = [state, *([f"STATUS={status}"] if status else []), *([extra] if extra else [])]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        try:
            link.sendto("\n".join(lines).encode(), "\0" + address[1:] if address[0] == "@" else address)
        except OSError:
            return False  # a manager that is gone is no reason to stop working
    return True


BACKLOG = 128
_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ListenError(SettingsError):
    """An address cannot be listened on; the sentence names the keys of the settings that hold it."""

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
    """Take an address; port 0 takes a free one. `group` is the settings table that names it. Raises `CannotListen`."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
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


class UvicornServer(uvicorn.Server):
    """uvicorn that says nothing by itself and leaves the signals alone; at the end open requests have `drain` seconds."""

    def __init__(self, app: ASGIApp, *, drain: float, limits: ConnectionLimits | None = None) -> None:
        limits = limits or ConnectionLimits.for_process()
        protocol = partial(LimitedConnection, limiter=ConnectionLimiter(limits))
        super().__init__(
            uvicorn.Config(
                app,
                http=cast("type[asyncio.Protocol]", protocol),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                # As many are accepted in one go: few enough that each is read from before it has to make room for others.
                backlog=max(8, min(BACKLOG, limits.max_connections // 4)),
                timeout_graceful_shutdown=max(1, int(drain)),
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen. A lack of files is said now and then, and not with each connection that cannot be taken."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_limit_log_rate(loop.get_exception_handler()))
        await super().startup(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to whoever runs the server."""
        yield


ExceptionHandler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


def _limit_log_rate(fallback: ExceptionHandler | None) -> ExceptionHandler:
    now_and_then = LogRateLimit()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _OUT_OF_FILES and "socket" in context:  # asyncio's accept, each time
            if now_and_then.can_log():
                _log.error("no connection can be taken: out of files", action="connections.no_files", error=error)
        elif fallback:
            fallback(loop, context)
        else:
            loop.default_exception_handler(context)

    return handle


async def serve(app: ASGIApp, sock: socket.socket, *, drain: float, limits: ConnectionLimits | None = None) -> None:
    """Serve until cancelled; then let open requests end, for up to `drain` seconds."""
    server = UvicornServer(app, drain=drain, limits=limits)
    running = asyncio.create_task(server.serve([sock]), name="uvicorn")
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        server.should_exit = True
        await running
        raise
