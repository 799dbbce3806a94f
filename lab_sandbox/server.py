"""Runs the application on a port, and announces its address once it listens."""

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
"""Seconds that a stopping server waits for open requests; short, because an injected `hang` never ends by itself."""


class AddressInUseError(Exception):
    """The server cannot listen on the address; the text says which and why."""


class _TransportInScopeProtocol(H11Protocol):
    """Puts the connection into the ASGI scope, so that a fault can reset it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        app: Any = self.app

        async def app_with_transport(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, TRANSPORT_KEY: transport}, receive, send)

        self.app = app_with_transport


class _AnnouncingServer(uvicorn.Server):
    """Announces its address after it has started to listen."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()


def serve(config: SandboxConfig, announce: Callable[[str], None]) -> None:
    """Serves until a signal; `announce` gets `http://host:port`, with the chosen port if the setting is 0."""
    log_to_stderr()
    with _bind(config.host, config.port) as listener:
        port = int(listener.getsockname()[1])
        resolved = config.resolve_addresses_for(config.host, port)
        app = create_app(resolved)
        options = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            http=_TransportInScopeProtocol,
            timeout_graceful_shutdown=SHUTDOWN_GRACE_SECONDS,
        )
        server = _AnnouncingServer(options, lambda: announce(resolved.listening.rstrip("/")))
        server.run(sockets=[listener])


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as exc:
        raise AddressInUseError(f"Cannot listen on {host}: {exc.strerror}. Choose another address with --host.") from exc
    listener = socket.socket(family, kind, proto)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as exc:
        listener.close()
        raise AddressInUseError(f"Cannot listen on {host}:{port}: {exc.strerror}. Choose another port with --port.") from exc
    return listener
