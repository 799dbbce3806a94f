"""MLLP framing: the same bytes, in whatever pieces they arrive, become the same messages.

A message stands between VT and FS; the CR that must follow is not waited for, so that a LIS which omits it is understood too.
VT and FS cannot be part of a character in any supported code page. Damaged bytes are returned as such, and the next message is
read as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

VT, FS, CR = b"\x0b", b"\x1c", b"\x0d"
_INTER_FRAME_BYTES = b"\r\n"
_MAX_INVALID_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Frame:
    """A complete message."""

    data: bytes


@dataclass(frozen=True, slots=True)
class InvalidFrame:
    """Bytes that are not a message; `data` may be only their beginning, `answerable` says whether a message was intended."""

    data: bytes
    reason: str
    answerable: bool = True


ReceivedFrame = Frame | InvalidFrame


def describe_too_long(limit: int) -> str:
    """Why a message of more than `limit` bytes is not read."""
    return f"the message is longer than {limit} bytes"


def wrap_frame(message: bytes) -> bytes:
    """Wrap a message in a frame."""
    return VT + message + FS + CR


@dataclass(slots=True)
class FrameDecoder:
    """Splits a stream into frames of at most `max_message_bytes`."""

    max_message_bytes: int
    _buffer: bytearray = field(default_factory=bytearray)
    _in_frame: bool = False
    _frame_length: int = 0

    def feed(self, data: bytes) -> Iterator[ReceivedFrame]:
        """Take some bytes; yields the frames that they complete."""
        rest = data
        while rest:
            rest = yield from self._read_frame(rest) if self._in_frame else self._read_between_frames(rest)

    @property
    def has_partial_frame(self) -> bool:
        """Whether a message has begun and is not complete."""
        return self._in_frame or bool(self._buffer)

    @property
    def held_bytes(self) -> int:
        """How much is kept of a message that has not ended."""
        return len(self._buffer)

    def finish(self) -> Iterator[ReceivedFrame]:
        """Yield what is left at the end of the stream."""
        if self._in_frame:
            yield InvalidFrame(self._take_buffer(), "the connection closed in the middle of the message", answerable=False)
        elif self._buffer:
            yield self._unframed_bytes()

    def _read_between_frames(self, data: bytes) -> Generator[ReceivedFrame, None, bytes]:
        before, start, after = data.partition(VT)
        noise = before if self._buffer else before.lstrip(_INTER_FRAME_BYTES)
        self._append(noise)
        if start:
            if self._buffer:
                yield self._unframed_bytes()
            self._in_frame, self._frame_length = True, 0
        return after

    def _read_frame(self, data: bytes) -> Generator[ReceivedFrame, None, bytes]:
        end = min((place for place in (data.find(FS), data.find(VT)) if place >= 0), default=len(data))
        self._frame_length += end
        self._append(data[:end])
        mark, rest = data[end : end + 1], data[end + 1 :]
        if mark == VT:
            yield InvalidFrame(self._take_buffer(), "a new message began before this one had ended")
        elif mark == FS:
            self._in_frame = False
            yield self._complete_frame()
        if mark:
            self._frame_length = 0
        return rest

    def _complete_frame(self) -> ReceivedFrame:
        if self._frame_length > self.max_message_bytes:
            return InvalidFrame(self._take_buffer(), describe_too_long(self.max_message_bytes))
        return Frame(self._take_buffer())

    def _unframed_bytes(self) -> InvalidFrame:
        return InvalidFrame(self._take_buffer(), "bytes outside of a frame", answerable=False)

    def _append(self, data: bytes) -> None:
        """Buffer a message up to the limit, and only the beginning of what is too long or not a message."""
        if not self._in_frame:
            self._buffer += data[: _MAX_INVALID_BYTES - len(self._buffer)]
            return
        self._buffer += data[: max(0, self.max_message_bytes + 1 - (self._frame_length - len(data)))]
        if self._frame_length > self.max_message_bytes:
            del self._buffer[_MAX_INVALID_BYTES:]

    def _take_buffer(self) -> bytes:
        taken = bytes(self._buffer)
        self._buffer.clear()
        return taken
