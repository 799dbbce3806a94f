"""One MLLP connection: frames in and out. Incoming frames are handled one by one, in order of arrival."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import structlog

from lab_agent.lis.hl7v2.transport.input_budget import InputBudget
from lab_agent.lis.hl7v2.transport.mllp import FrameDecoder, ReceivedFrame, wrap_frame

log = structlog.get_logger(__name__)
_CHUNK_SIZE = 65536
_CLOSE_TIMEOUT = 2.0
FrameHandler = Callable[["MllpConnection", ReceivedFrame], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits shared by the connections of one `ConnectionSettings`, in seconds and bytes."""

    connect: float
    frame: float
    reconnect: float
    keep_alive: int
    max_message_bytes: int
    answers_unreadable: bool = True
    """Whether what cannot be read is answered: not where only orders go, since nothing but an answer can come back there."""


class MllpConnection:
    """A connection to the LIS, whichever side opened it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: ConnectionLimits, budget: InputBudget
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._budget = budget
        self._decoder = FrameDecoder(limits.max_message_bytes)
        self.is_handling = False
        self._aborted = False
        self._now = asyncio.get_running_loop().time
        self.host = str((writer.get_extra_info("peername") or ("",))[0])
        """Address of the other side."""
        self.active_at = self._now()
        """When anything was last sent or received, in the time of the loop."""
        self._write_lock = asyncio.Lock()
        self._exchange_lock = asyncio.Lock()
        self._silences = 0
        self.unreadable_count = 0
        """How many messages in a row could not be read; the handler counts them."""
        self.closed = asyncio.Event()

    def count_silence(self) -> int:
        """Count a message that was not answered in time; returns how many were, since anything arrived."""
        self._silences += 1
        return self._silences

    @property
    def is_idle(self) -> bool:
        """Whether nothing is going on: no message half received, none being handled, no answer awaited."""
        return self.is_free and not self.is_handling and not self._decoder.has_partial_frame

    @property
    def answers_unreadable(self) -> bool:
        """Whether what cannot be read is answered."""
        return self._limits.answers_unreadable

    @property
    def is_free(self) -> bool:
        """Whether no exchange is in progress on it."""
        return not self._exchange_lock.locked()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Reserve it for one message and its acknowledgement."""
        async with self._exchange_lock:
            yield

    async def send(self, message: bytes) -> None:
        """Send one message. After an `OSError` it is unknown how much of it arrived."""
        async with self._write_lock:
            if self.closed.is_set():
                raise ConnectionResetError("the connection is closed")
            self.active_at = self._now()
            self._writer.write(wrap_frame(message))
            async with asyncio.timeout(self._limits.frame):
                await self._writer.drain()

    async def serve(self, handler: FrameHandler) -> None:
        """Read until the connection is closed, passing each frame to `handler`."""
        try:
            while data := await self._read_chunk():
                self._silences, self.active_at = 0, self._now()
                await self._handle(handler, self._decoder.feed(data))
                await self._budget.hold(self, self._decoder.held_bytes)
            if not self._aborted:
                await self._handle(handler, self._decoder.finish())
        except OSError:
            pass  # the other side is gone; whoever waits for an acknowledgement sees `closed`
        finally:
            self._budget.release(self)
            await self.close()

    async def abort(self) -> None:
        """Close it, and drop the message that has not ended: it is not kept."""
        self._aborted = True
        self._decoder = FrameDecoder(self._limits.max_message_bytes)
        await self.close()

    async def close(self) -> None:
        """Close it. Idempotent."""
        if self.closed.is_set():
            return
        self.closed.set()
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self._writer.wait_closed()

    async def _handle(self, handler: FrameHandler, frames: Iterator[ReceivedFrame]) -> None:
        """Handle frames one by one. What the budget counts of them stays counted meanwhile."""
        self.is_handling = True
        try:
            for frame in frames:
                if self.closed.is_set():
                    break  # we closed it: what else had come is sent again
                await handler(self, frame)
        finally:
            self.is_handling = False

    async def _read_chunk(self) -> bytes:
        """Read a chunk; a message that has begun must continue within the timeout."""
        if not self._decoder.has_partial_frame:
            return await self._reader.read(_CHUNK_SIZE)
        try:
            async with asyncio.timeout(self._limits.frame):
                return await self._reader.read(_CHUNK_SIZE)
        except TimeoutError:
            return b""


def enable_keep_alive(writer: asyncio.StreamWriter, seconds: int) -> None:
    """Let TCP probe the other side after `seconds` of silence; 0: never."""
    connection = writer.get_extra_info("socket")
    if connection is None or not seconds:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", seconds), ("TCP_KEEPINTVL", max(1, seconds // 3)), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
