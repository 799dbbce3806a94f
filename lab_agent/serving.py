"""What every server of the house shares: an address taken before anything else begins, and uvicorn without a will of its own.

The address comes first, so that a port in use is one clear sentence and nothing was started in vain. uvicorn's signal handling
stays off: it ends the process by the signal, and not by an exit code, and a process with a worker has its own end to keep.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from lab_agent.errors import LabAgentError, Problem, SettingsError

BACKLOG = 1024


class CannotListen(SettingsError):
    """An address cannot be listened on; the sentence names the keys of the settings that hold it."""

    def __init__(self, host: str, port: int, group: str, reason: str) -> None:
        self.problems = (
            Problem(
                f"{group}.port",
                f"Cannot listen on {host}:{port}: {reason}",
                f"stop the program that uses it, or set another {group}.host or {group}.port.",
            ),
        )
        LabAgentError.__init__(self, f"{self.problems[0].what} — {self.problems[0].mend}")


def listen(host: str, port: int, *, group: str) -> socket.socket:
    """Take an address; port 0 takes a free one. `group` is the settings table that names it. Raises `CannotListen`."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as exc:
        raise _not_to_be_had(host, port, group, exc) from exc
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as exc:
        sock.close()
        raise _not_to_be_had(host, port, group, exc) from exc
    return sock


def _not_to_be_had(host: str, port: int, group: str, exc: OSError) -> CannotListen:
    return CannotListen(host, port, group, (exc.strerror or "no such address").lower())


class Server(uvicorn.Server):
    """uvicorn that says nothing by itself and leaves the signals alone; at the end open requests have `drain` seconds."""

    def __init__(self, app: ASGIApp, *, drain: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=max(1, int(drain)),
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to whoever runs the server."""
        yield


async def serve(app: ASGIApp, sock: socket.socket, *, drain: float) -> None:
    """Serve until cancelled; then let open requests end, for up to `drain` seconds."""
    server = Server(app, drain=drain)
    running = asyncio.create_task(server.serve([sock]), name="uvicorn")
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        server.should_exit = True
        await running
        raise
