"""What every server of the house shares: an address taken before anything else begins, and uvicorn without a will of its own.

The address comes first, so that a port in use is one clear sentence and nothing was started in vain. uvicorn's signal handling
stays off: it ends the process by the signal, and not by an exit code, and a process with a worker has its own end to keep.
How many connections there may be, and how long one may keep us waiting, is said in `connections`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp

from lab_agent.connections import ConnectionLimiter, ConnectionLimits, LimitedConnection, LogRateLimit
from lab_agent.errors import LabAgentError, Problem, SettingsError
from lab_agent.logs import get_logger

BACKLOG = 128
_OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_log = get_logger(__name__)


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
