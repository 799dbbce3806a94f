"""Reads the bodies of requests within bounds: of one body, of its time, of one address, and of all unfinished ones together.

Nobody's signature is known before its body has ended, so the room is divided among strangers. A small body always has room. Of
the others, whoever is least known and asks for most gives way: an address whose last message was signed correctly comes first,
one whose last message was not comes last, and of two equals the smaller body stays. What is not small goes to a file, encrypted
and without a name, so that strangers take no memory.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import IO

from starlette.requests import ClientDisconnect, Request

from lab_agent.store.crypto import OneTimeCipher

_MAX_IN_MEMORY = 65_536
_PORTION = 262_144
"""Bytes that are collected before they go to the file, in a thread."""
_MAX_KNOWN_ADDRESSES = 2_000
_SMALL_SHARE = 2_000
"""A body of no more than this part of `max_unfinished_bytes` always has room: there are at most 1,000 connections."""
_WHOLE_BODIES = 2
"""Bodies from a file that are in memory at once, after their signature was found right."""
_RANKS = {True: 0, None: 1, False: 2}
"""By whether the last message of an address was signed correctly."""
_NO_ROOM = "too many messages at once; send it again later"

Digest = Callable[[bytes], object]


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


class Body:
    """One body: in memory while it is small, then in a file. `rank`: see `_RANKS`."""

    def __init__(self, address: str, rank: int, declared: int) -> None:
        self.address = address
        self.rank = rank
        self.size = 0
        self.is_dropped = False
        self.is_complete = False
        self.deadline: asyncio.Timeout | None = None
        self._declared = declared
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        self._cipher = OneTimeCipher()

    @property
    def claim(self) -> int:
        """The bytes that it has, or by its Content-Length will have."""
        return max(self._declared, self.size)

    @property
    def is_in_memory(self) -> bool:
        """Whether it needed no file."""
        return self._file is None

    def gives_way_to(self, other: Body) -> bool:
        """Whether the other gets its room where there is none for both."""
        return not (self.is_complete or self.is_dropped) and (self.rank, self.claim) > (other.rank, other.claim)

    def drop(self) -> None:
        """Stop whoever reads it, and count it no more."""
        self._declared, self.size, self.is_dropped = 0, 0, True
        if self.deadline is not None and not self.deadline.expired():
            self.deadline.reschedule(0)

    async def add(self, chunk: bytes, digest: Digest) -> None:
        """Take what has arrived. Raises `OSError` where the disk does not take it."""
        self.size += len(chunk)
        self._memory += chunk
        if len(self._memory) > (_MAX_IN_MEMORY if self._file is None else _PORTION):
            await asyncio.to_thread(self._write, digest)

    async def finish(self, digest: Digest) -> None:
        """Hand to `digest` what it has not had yet: everything, in the order in which it came. Raises `OSError`."""
        if self._file is not None:
            await asyncio.to_thread(self._write, digest)
        else:
            digest(bytes(self._memory))
        self.is_complete = True

    def load(self) -> bytes:
        """Give it whole."""
        if self._file is None:
            return bytes(self._memory)
        self._file.seek(0)
        return self._cipher.decrypt(self._file.read())

    async def close(self) -> None:
        """Forget it. Its file has no name, and ends with this."""
        self._memory = bytearray()
        if self._file is not None:
            await asyncio.to_thread(self._file.close)

    def _write(self, digest: Digest) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=_folder_for_files())  # noqa: SIM115 - closed with the body
        portion = bytes(self._memory)
        self._memory.clear()
        digest(portion)
        self._file.write(self._cipher.encrypt(portion))


@dataclass(slots=True)
class BodyReader:
    """Reads bodies. `max_body_bytes` is for one, and for all at once of an address that is not known to sign correctly.

    `max_unfinished_bytes` is for all together that are being read or whose requests are not answered yet. A body has `timeout`
    seconds, and its sender may pause for `idle_timeout` of them.
    """

    max_body_bytes: int
    max_unfinished_bytes: int
    timeout: float
    idle_timeout: float
    _unfinished: set[Body] = field(default_factory=set)
    _signs_correctly: dict[str, bool] = field(default_factory=dict)
    _in_memory: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_WHOLE_BODIES))

    def note_signature(self, address: str, *, is_right: bool) -> None:
        """Remember of an address whether its last message was signed correctly."""
        self._signs_correctly.pop(address, None)
        self._signs_correctly[address] = is_right
        while len(self._signs_correctly) > _MAX_KNOWN_ADDRESSES:
            del self._signs_correctly[next(iter(self._signs_correctly))]

    @asynccontextmanager
    async def read(self, request: Request, address: str, digest: Digest) -> AsyncIterator[Body]:
        """Read a body to its end, and hand it to `digest`. Its room is free again at the end of the block.

        Raises `BodyRefusedError`, before anything is read where there will be no room for its Content-Length.
        """
        body = Body(address, _RANKS[self._signs_correctly.get(address)], _declared_length(request))
        self._check_room(body, body.claim, drops=False)
        self._unfinished.add(body)
        try:
            await self._fill(body, request, digest)
            yield body
        finally:
            self._unfinished.discard(body)
            await body.close()

    @asynccontextmanager
    async def load(self, body: Body) -> AsyncIterator[bytes]:
        """Give a body whose signature is right whole, once there is memory for it."""
        if body.is_in_memory:
            yield body.load()
            return
        async with self._in_memory:
            yield await asyncio.to_thread(body.load)

    async def _fill(self, body: Body, request: Request, digest: Digest) -> None:
        try:
            async with asyncio.timeout(self.timeout) as body.deadline:
                async for chunk in _chunks(request, self.idle_timeout):
                    self._check_room(body, len(chunk), drops=True)
                    await body.add(chunk, digest)
                await body.finish(digest)
        except TimeoutError:
            if body.is_dropped:
                raise BodyRefusedError(BodyRefusal.BUSY, _NO_ROOM) from None
            raise BodyRefusedError(BodyRefusal.TIMEOUT, "the rest of the message did not arrive in time") from None
        except OSError:
            raise BodyRefusedError(BodyRefusal.BUSY, "no room on the disk; send it again later") from None
        except ClientDisconnect:
            text = "the connection closed before the message was complete"
            raise BodyRefusedError(BodyRefusal.INCOMPLETE, text) from None

    def _check_room(self, body: Body, more: int, *, drops: bool) -> None:
        """Check that there is room for `more` bytes of it, where it `drops` others if it has to. Raises `BodyRefusedError`."""
        if body.size + more > self.max_body_bytes:
            raise BodyRefusedError(BodyRefusal.TOO_LARGE, f"a message may have up to {self.max_body_bytes} bytes")
        claim = max(body.claim, body.size + more)
        if claim * _SMALL_SHARE <= self.max_unfinished_bytes:
            return
        others = self._unfinished - {body}
        victims: set[Body] = set()
        if body.rank:
            own = [each for each in others if each.address == body.address]
            victims |= _find_victims(body, own, claim - self.max_body_bytes, lambda each: each.claim)
        wanted = body.size + more - self.max_unfinished_bytes
        victims |= _find_victims(body, others - victims, wanted, lambda each: each.size)
        if drops:
            for each in victims:
                each.drop()


def _find_victims(body: Body, others: Iterable[Body], excess: int, size: Callable[[Body], int]) -> set[Body]:
    """Those that have to go so that no more than fits is left. Raises `BodyRefusedError` where `body` itself has to."""
    others = list(others)
    excess += sum(map(size, others))
    victims: set[Body] = set()
    for each in sorted(others, key=lambda one: (one.rank, one.claim), reverse=True):
        if excess <= 0:
            break
        if each.gives_way_to(body):
            victims.add(each)
            excess -= size(each)
    if excess > 0:
        raise BodyRefusedError(BodyRefusal.BUSY, _NO_ROOM)
    return victims


def _declared_length(request: Request) -> int:
    declared = request.headers.get("content-length", "0")
    return int(declared[:15]) if declared.isdecimal() else 0


def _folder_for_files() -> str | None:
    """Where large bodies go: /tmp is often the memory."""
    chosen = os.environ.get("TMPDIR")
    return chosen or ("/var/tmp" if os.access("/var/tmp", os.W_OK) else None)  # noqa: S108 - the files there have no name


async def _chunks(request: Request, idle_timeout: float) -> AsyncGenerator[bytes, None]:
    stream = request.stream()
    while True:
        async with asyncio.timeout(idle_timeout):
            chunk = await anext(stream, None)
        if chunk is None:
            return
        yield chunk
