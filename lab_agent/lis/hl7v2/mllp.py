"""MLLP framing: bytes in any portions become the same messages.

A message stands between VT and FS; the CR that has to follow is not waited for, so that a LIS which leaves it out is heard too.
Neither VT nor FS can be part of a character in any code page that we read. What is damaged is given as such, with its bytes, and
the next message is read as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

VT, FS, CR = b"\x0b", b"\x1c", b"\x0d"
_BETWEEN = b"\r\n"
_HEAD = 4096


@dataclass(frozen=True, slots=True)
class Frame:
    """A whole message."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Damaged:
    """Bytes that are no message; `data` is at most their beginning, `answerable` whether a message was meant by its sender."""

    data: bytes
    reason: str
    answerable: bool = True


Found = Frame | Damaged


def framed(message: bytes) -> bytes:
    """Put a message into its frame."""
    return VT + message + FS + CR


@dataclass(slots=True)
class Framer:
    """Reads a stream. A message may be `limit` bytes long."""

    limit: int
    _buffer: bytearray = field(default_factory=bytearray)
    _inside: bool = False
    _length: int = 0

    def feed(self, data: bytes) -> Iterator[Found]:
        """Take some bytes, and give what has become complete by them."""
        rest = data
        while rest:
            rest = yield from self._within(rest) if self._inside else self._outside(rest)

    @property
    def pending(self) -> bool:
        """Whether something has begun and is not complete."""
        return self._inside or bool(self._buffer)

    def close(self) -> Iterator[Found]:
        """Give what is left when the stream ends."""
        if self._inside:
            yield Damaged(self._taken(), "the connection ended within the message", answerable=False)
        elif self._buffer:
            yield self._noise()

    def _outside(self, data: bytes) -> Generator[Found, None, bytes]:
        before, start, after = data.partition(VT)
        noise = before if self._buffer else before.lstrip(_BETWEEN)
        self._keep(noise)
        if start:
            if self._buffer:
                yield self._noise()
            self._inside, self._length = True, 0
        return after

    def _within(self, data: bytes) -> Generator[Found, None, bytes]:
        end = min((place for place in (data.find(FS), data.find(VT)) if place >= 0), default=len(data))
        self._length += end
        self._keep(data[:end])
        mark, rest = data[end : end + 1], data[end + 1 :]
        if mark == VT:
            yield Damaged(self._taken(), "a new message began before this one had ended")
        elif mark == FS:
            self._inside = False
            yield self._ended()
        if mark:
            self._length = 0
        return rest

    def _ended(self) -> Found:
        if self._length > self.limit:
            return Damaged(self._taken(), f"the message is longer than {self.limit} bytes")
        return Frame(self._taken())

    def _noise(self) -> Damaged:
        return Damaged(self._taken(), "these bytes stand in no frame", answerable=False)

    def _keep(self, data: bytes) -> None:
        """Keep a message up to the limit, and of what is too long or no message its beginning."""
        if not self._inside:
            self._buffer += data[: _HEAD - len(self._buffer)]
            return
        self._buffer += data[: max(0, self.limit + 1 - (self._length - len(data)))]
        if self._length > self.limit:
            del self._buffer[_HEAD:]

    def _taken(self) -> bytes:
        taken = bytes(self._buffer)
        self._buffer.clear()
        return taken
