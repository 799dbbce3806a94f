"""Joins a message that comes in several (HL7 2.10.2: DSC-1 names the next one, whose MSH-14 repeats it; ADD goes on a segment).

Each part is on the disk before it is acknowledged, since its sender waits for that before it sends the next; what they say
together is acknowledged with the last one. Parts of one message come on one connection: the pointers of two senders may be the
same. What is not finished when its connection closes, or in time, is handed over to be refused, so that an operator sees it.
The parts name the patient: they are sealed by the inbox, as the adapter has no keys. All methods block.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

from lab_agent.lis.hl7v2.acks import AckDecision
from lab_agent.lis.hl7v2.parser import Message
from lab_agent.lis.hl7v2.transport.connection import MllpConnection
from lab_agent.shared.atomic_file import write_atomically

_MAX_PARTS = 1000
_MAX_MESSAGES = 64
UNFINISHED = "the message was continued (DSC), and its next part did not come"


@dataclass(frozen=True, slots=True)
class Continuation:
    """What became of a part: `whole` is the message to read now, None while more is to come; `problem` refuses it.

    `whole` is also None for the repeat of a part whose answer was lost; `answer` is then that of a whole that was read before.
    """

    whole: bytes | None = None
    problem: str | None = None
    answer: AckDecision | None = None


@dataclass(slots=True)
class _Unfinished:
    """The parts of one message so far; `pointer` is the MSH-14 of the next one, None after the last."""

    path: Path
    pointer: str | None
    last_part: str
    deadline: float
    parts: int = 1
    answer: AckDecision | None = None


@dataclass(slots=True)
class ContinuedMessages:
    """The unfinished messages of an adapter: one for each connection. `timeout` is the seconds to wait for the next part."""

    folder: Path
    max_bytes: int
    timeout: float
    seal: Callable[[bytes], bytes]
    unseal: Callable[[bytes], bytes | None]
    _unfinished: dict[MllpConnection, _Unfinished] = field(default_factory=dict)

    def take(self, connection: MllpConnection, message: Message, data: bytes) -> Continuation:
        """Take a message. One that is whole in itself comes back as it is."""
        pointer, follows = _next_pointer(message), message.continues
        earlier, part = self._unfinished.get(connection), _digest(message, data)
        if earlier is not None and earlier.last_part == part:
            return Continuation(answer=earlier.answer)
        if follows and earlier is not None and earlier.pointer == follows:
            return self._continue(earlier, data, part, pointer)
        if not pointer or follows:
            return Continuation(whole=data)  # the reader refuses one whose other parts did not come
        if earlier is not None and earlier.pointer is not None:
            return Continuation(problem="another continued message is not finished on this connection")
        return self._begin(connection, data, part, pointer)

    def end(self, connection: MllpConnection, answer: AckDecision) -> None:
        """Forget the parts of a message that was read; a repeat of the last one gets the same answer."""
        done = self._unfinished.get(connection)
        if done is not None and done.pointer is None:
            done.path.unlink(missing_ok=True)
            done.answer = answer

    def overdue(self) -> Iterator[tuple[Path, bytes | None]]:
        """What will not be finished any more, with its parts so far: from closed connections, too late, or of an earlier run.

        None for parts that cannot be read any more, since their key is gone.
        """
        now = time.monotonic()
        for connection, one in list(self._unfinished.items()):
            if connection.closed.is_set() or (one.pointer is not None and one.deadline < now):
                del self._unfinished[connection]
        current = {one.path for one in self._unfinished.values()}
        for path in sorted(self.folder.glob("*.hl7")):
            if path not in current and path.stat().st_mtime < time.time() - self.timeout:
                yield path, self.unseal(path.read_bytes())

    def _begin(self, connection: MllpConnection, data: bytes, part: str, pointer: str) -> Continuation:
        if sum(one.pointer is not None for one in self._unfinished.values()) >= _MAX_MESSAGES:
            return Continuation(problem="too many continued messages are not finished")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / f"{secrets.token_hex(8)}.hl7"
        write_atomically(path, self.seal(_join(b"", data)))
        self._unfinished[connection] = _Unfinished(path, pointer, part, time.monotonic() + self.timeout)
        return Continuation()

    def _continue(self, one: _Unfinished, data: bytes, part: str, pointer: str | None) -> Continuation:
        before = self.unseal(one.path.read_bytes())
        if before is None:
            return Continuation(problem="the parts before it cannot be read any more: their key is gone")
        whole = _join(before, data)
        if len(whole) > self.max_bytes or one.parts >= _MAX_PARTS:
            return Continuation(problem="the continued message is too long")
        if pointer is not None:
            write_atomically(one.path, self.seal(whole))
        one.parts, one.pointer, one.last_part = one.parts + 1, pointer, part
        one.deadline = time.monotonic() + self.timeout
        return Continuation() if pointer is not None else Continuation(whole=whole)


_DSC = re.compile(rb"[\r\n]DSC[^\w\s]([^|\r\n]*)")


def are_parts(messages: Sequence[bytes]) -> bool:
    """Whether each of them goes on with the one before it: its MSH-14 is that one's DSC-1."""
    return len(messages) > 1 and all(map(_goes_on, messages, messages[1:]))


def _goes_on(before: bytes, message: bytes) -> bool:
    found, fields = _DSC.search(before), re.split(rb"[\r\n]", message, maxsplit=1)[0].split(message[3:4])
    return found is not None and bool(found[1].strip()) and len(fields) > 13 and fields[13] == found[1].strip()


def join_parts(parts: Sequence[bytes]) -> bytes:
    """The whole that the parts of a continued message make, in their order."""
    return reduce(_join, parts, b"")


def _next_pointer(message: Message) -> str | None:
    found = message.first_segment("DSC")
    return found.text(1) or None if found else None


def _digest(message: Message, data: bytes) -> str:
    """Identify a part by MSH-10 and its content after MSH, whose time may differ when it is sent again."""
    body = re.split(rb"[\r\n]", data, maxsplit=1)[-1]
    return hashlib.sha256(message.control_id.encode() + b"\r" + body).hexdigest()


def _join(before: bytes, data: bytes) -> bytes:
    """Append a part to those before it, without DSC, and without MSH but for the first; ADD continues the last segment."""
    lines = [line for line in re.split(rb"\r\n?" if b"\r" in data else rb"\n", data) if line.strip()]
    lines = [line for line in lines if line[:3] != b"DSC"]
    if lines[-1][:3] == b"ADD" and not lines[-1][4:].strip():
        lines.pop()
    if not before:
        return b"\r".join(lines) + b"\r"
    lines = lines[1:]
    if lines and lines[0][:3] == b"ADD":
        before, lines = before.rstrip(b"\r") + lines[0][4:] + b"\r", lines[1:]
    return before + b"".join(line + b"\r" for line in lines)
