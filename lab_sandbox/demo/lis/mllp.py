"""MLLP for the simulated laboratory systems: a server that answers each message, and a client that waits for each answer.

It shares no code with the agent's HL7 v2 adapter, so that a mistake in one does not hide in the other.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

HOST = "127.0.0.1"
_START_BLOCK, _END_BLOCK = b"\x0b", b"\x1c\r"
_CONNECT_TIMEOUT = 10.0


class MllpServer(socketserver.ThreadingTCPServer):
    """Listens on `port` and answers each message with what `answer` gives for it, in threads of its own."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, answer: Callable[[bytes], bytes]) -> None:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while (data := read_frame(cast("BinaryIO", self.rfile))) is not None:
                    self.wfile.write(wrap_frame(answer(data)))

        super().__init__((HOST, port), Handler)
        threading.Thread(target=self.serve_forever, name=f"MLLP {port}", daemon=True).start()

    def stop(self) -> None:
        """Stops listening."""
        self.shutdown()
        self.server_close()


class MllpClient:
    """One connection on which messages are sent."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def send(self, message: bytes) -> bytes | None:
        """Sends a message; gives the answer, or None if the connection was closed without one."""
        self._stream.write(wrap_frame(message))
        self._stream.flush()
        return read_frame(self._stream)


@contextmanager
def connect(port: int) -> Iterator[MllpClient]:
    """Opens a connection to `port`; raises `OSError` if nobody listens or answers."""
    with socket.create_connection((HOST, port), _CONNECT_TIMEOUT) as connection, connection.makefile("rwb") as stream:
        yield MllpClient(cast("BinaryIO", stream))


def wrap_frame(message: bytes) -> bytes:
    """A message in its frame."""
    return _START_BLOCK + message + _END_BLOCK


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next message; None at the end of the stream."""
    data = bytearray()
    while not data.endswith(_END_BLOCK):
        byte = stream.read(1)
        if not byte:
            return None
        data += byte
    return bytes(data).removeprefix(_START_BLOCK).removesuffix(_END_BLOCK)
