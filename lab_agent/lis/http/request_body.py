"""Reads the bodies of requests within bounds: of one body, of the time it takes, and of all unfinished ones together.

Without the last one, a few senders of large bodies could take all of the process's memory before any signature is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum

from starlette.requests import ClientDisconnect, Request


class BodyRefusal(Enum):
    """Why a body was not read to its end: the HTTP status and the code of the answer."""

    INCOMPLETE = (400, "incomplete")
    TIMEOUT = (408, "timeout")
    TOO_LARGE = (413, "too_large")
    BUSY = (503, "retry_later")


class BodyRefusedError(Exception):
    """A body was not read to its end; the text may be shown to the sender."""

    def __init__(self, refusal: BodyRefusal, text: str) -> None:
        super().__init__(text)
        self.refusal = refusal


@dataclass(slots=True)
class BodyReader:
    """Reads bodies; `unfinished_bytes` are those of all bodies that are being read or whose requests are not answered yet.

    `max_body_bytes` is for one body, `max_unfinished_bytes` for all together. A body has `timeout` seconds, and its sender may
    pause for `idle_timeout` of them.
    """

    max_body_bytes: int
    max_unfinished_bytes: int
    timeout: float
    idle_timeout: float
    unfinished_bytes: int = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Give the body; what it takes of the bound is free again at the end of the block. Raises `BodyRefusedError`."""
        self._check_declared_length(request)
        whole, body = b"", bytearray()
        try:
            await self._fill(body, request)
            whole = bytes(body)
            body.clear()  # only one body at a time is in memory twice
            yield whole
        finally:
            self.unfinished_bytes -= len(whole) or len(body)

    def _check_declared_length(self, request: Request) -> None:
        """Refuse by the Content-Length what could not be read anyway."""
        declared = request.headers.get("content-length", "0")
        if declared.isdecimal():
            self._check_length(int(declared[:15]), int(declared[:15]))

    def _check_length(self, length: int, more: int) -> None:
        if length > self.max_body_bytes:
            raise BodyRefusedError(BodyRefusal.TOO_LARGE, f"a message may have up to {self.max_body_bytes} bytes")
        if self.unfinished_bytes + more > self.max_unfinished_bytes:
            raise BodyRefusedError(BodyRefusal.BUSY, "too many messages at once; send it again later")

    async def _fill(self, body: bytearray, request: Request) -> None:
        try:
            async with asyncio.timeout(self.timeout):
                async for chunk in _chunks(request, self.idle_timeout):
                    self._check_length(len(body) + len(chunk), len(chunk))
                    body += chunk
                    self.unfinished_bytes += len(chunk)
        except TimeoutError:
            raise BodyRefusedError(BodyRefusal.TIMEOUT, "the rest of the message did not arrive in time") from None
        except ClientDisconnect:
            text = "the connection closed before the message was complete"
            raise BodyRefusedError(BodyRefusal.INCOMPLETE, text) from None


async def _chunks(request: Request, idle_timeout: float) -> AsyncGenerator[bytes, None]:
    stream = request.stream()
    while True:
        async with asyncio.timeout(idle_timeout):
            chunk = await anext(stream, None)
        if chunk is None:
            return
        yield chunk
