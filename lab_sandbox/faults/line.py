"""The line to the client: cut with a reset, closed in the middle of an answer, or left silent."""

import asyncio
import socket
import struct
from typing import Final

from starlette.types import Receive, Scope

TRANSPORT_KEY: Final = "lab_sandbox.transport"
"""The key in the ASGI scope under which the server leaves the connection."""


async def reset_connection(scope: Scope, receive: Receive) -> None:
    """Cuts the connection with a TCP reset; in-process, where there is none, raises ConnectionResetError."""
    transport = scope.get(TRANSPORT_KEY)
    if transport is None:
        raise ConnectionResetError("the sandbox cut the connection")
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
    await _wait_for_disconnect(receive)


async def close_connection(scope: Scope, receive: Receive) -> None:
    """Closes the connection after what was written is out; in-process raises ConnectionResetError."""
    transport = scope.get(TRANSPORT_KEY)
    if transport is None:
        raise ConnectionResetError("the sandbox closed the connection in the middle of an answer")
    transport.close()
    await _wait_for_disconnect(receive)


async def wait_silently(receive: Receive, seconds: float) -> None:
    """Says nothing until the client leaves, or the time is over."""
    try:
        await asyncio.wait_for(_wait_for_disconnect(receive), seconds)
    except TimeoutError:
        return


async def _wait_for_disconnect(receive: Receive) -> None:
    """Waits for the server's word that the client is gone, so that it does not miss the answer that never comes."""
    while (await receive())["type"] != "http.disconnect":
        continue
