"""Runs the app on a port, and says on which one as soon as it can be reached."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from lab_sandbox.app import create_app
from lab_sandbox.config import SandboxConfig
from lab_sandbox.faults.middleware import TRANSPORT_KEY
from lab_sandbox.middleware import log_to_stderr

SHUTDOWN_GRACE_SECONDS = 3
"""Seconds that a stopping server waits for answers under way; a hanging one is a fault, and waits for nobody."""


class AddressInUseError(Exception):
    """The port cannot be had; the text says which and why."""


class _TransportInScopeProtocol(H11Protocol):
    """Leaves the connection in the ASGI scope, so that a fault can cut it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        app: Any = self.app

        async def reachable(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, TRANSPORT_KEY: transport}, receive, send)

        self.app = reachable


class _AnnouncingServer(uvicorn.Server):
    """Tells its address after it has started to listen, not before."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()


def serve(config: SandboxConfig, announce: Callable[[str], None]) -> None:
    """Serves until a signal; `announce` gets `http://host:port`, with the chosen port when port 0 was asked for."""
    log_to_stderr()
    with _bind(config.host, config.port) as listener:
        port = int(listener.getsockname()[1])
        settled = config.resolve_addresses_for(config.host, port)
        app = create_app(settled)
        options = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            http=_TransportInScopeProtocol,
            timeout_graceful_shutdown=SHUTDOWN_GRACE_SECONDS,
        )
        server = _AnnouncingServer(options, lambda: announce(settled.listening.rstrip("/")))
        server.run(sockets=[listener])


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as exc:
        raise AddressInUseError(f"{host} cannot be listened on ({exc.strerror}); choose another with --host") from exc
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as exc:
        listener.close()
        raise AddressInUseError(f"{host}:{port} cannot be listened on ({exc.strerror}); choose another with --port") from exc
    return listener
