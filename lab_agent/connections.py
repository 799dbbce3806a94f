"""Which connections a server keeps: how many, and for how long a client may keep it waiting.

A connection costs an open file, and whoever reaches the port can open one without saying a word. So there are fewer places
than files, and each moment in which it is the client's turn has an end: the head of a request, its body, the reading of the
answer. Where all places are taken, the connection that has kept us waiting longest gives its place to the new one; a request
that is being answered (an event stream, too) never does.

An answer that comes before the request has been read to its end (413) is followed by a lingering close (RFC 9112, section 9.6):
what the client still sends is read and dropped for a while, since a close would make the kernel take the answer back.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from lab_agent.logs import get_logger

_log = get_logger(__name__)

FILES = 4096
"""Open files that are asked for where the process may have them: as many as the systemd units give."""
_USUAL_FILES = 1024
_MOST = 1000
_SAY_EVERY = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server puts up with. Times are in seconds; `dropped` are bytes that are read after the answer."""

    connections: int
    head: float = 15.0
    body: float = 120.0
    reader: float = 30.0
    linger: float = 5.0
    dropped: int = 16_000_000

    @classmethod
    def of_process(cls) -> Limits:
        """The limits that fit this process: a quarter of its files, since the store and other servers have theirs."""
        return cls(max(1, min(_MOST, file_limit() // 4)))


def file_limit() -> int:
    """How many files this process may open; the soft limit is raised towards the hard one first, as far as that is allowed."""
    with suppress(OSError, ValueError):  # a sandbox may forbid it: then what there is has to do
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = FILES if hard == resource.RLIM_INFINITY else min(hard, FILES)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    except OSError:
        return _USUAL_FILES
    return FILES if soft == resource.RLIM_INFINITY else soft


class NowAndThen:
    """Lets something be said at most once a minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: float | None = None

    def may_say(self) -> bool:
        """Whether it is time again."""
        now = self._clock()
        if self._said is not None and now - self._said < _SAY_EVERY:
            return False
        self._said = now
        return True


class Turn(Enum):
    """What a client keeps us waiting for; who waits for a request gives way first, who reads slowly last."""

    REQUEST = "request"
    BODY = "body"
    READER = "reader"


class Door:
    """Who is inside, and whose turn it is."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._inside: set[Connection] = set()
        self._waiting: dict[Turn, dict[Connection, None]] = {turn: {} for turn in Turn}
        self._now_and_then = NowAndThen()

    def enter(self, one: Connection) -> bool:
        """Let a connection in, where need be in place of the one that waits longest; False if there is none."""
        if len(self._inside) >= self.limits.connections:
            if self._now_and_then.may_say():
                _log.warning("all connections are taken", action="connections.full", limit=self.limits.connections)
            oldest = next((next(iter(waiting)) for waiting in self._waiting.values() if waiting), None)
            if oldest is None:
                return False
            self.leave(oldest)
            oldest.drop()
        self._inside.add(one)
        return True

    def note(self, one: Connection, before: Turn | None, now: Turn | None) -> None:
        """A connection waits for something else from now on, or for nothing."""
        if before:
            self._waiting[before].pop(one, None)
        if now and one in self._inside:
            self._waiting[now][one] = None

    def leave(self, one: Connection) -> None:
        """A connection has ended, or is about to."""
        self._inside.discard(one)
        for waiting in self._waiting.values():
            waiting.pop(one, None)


class Connection(H11Protocol):
    """uvicorn's connection, with an end to each of the client's turns."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        door: Door,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._door = door
        self._turn: Turn | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._dropped = 0
        self.lingering = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, if there is a place."""
        super().connection_made(cast("asyncio.Transport", _Gentle(transport, self)))
        if self._door.enter(self):
            self._look()
        else:
            self.drop()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._door.leave(self)
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read; what comes after the answer is dropped, up to a limit."""
        if self.lingering or (self.is_unread and self._answered):
            self._dropped += len(data)
            if self._dropped > self._door.limits.dropped:
                self.drop()
                return
        if not self.lingering:
            super().data_received(data)
            self._look()

    def on_response_complete(self) -> None:
        """The answer is out: it is the client's turn."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._look()

    def shutdown(self) -> None:
        """The server ends: nothing is read any more for a client that has its answer."""
        if self.lingering:
            self.drop()
        else:
            super().shutdown()

    def drop(self) -> None:
        """End at once."""
        self.transport.abort()

    def linger(self) -> None:
        """Close our side, and wait for the client to do so."""
        self.lingering = True
        self.transport.write_eof()
        self.transport.resume_reading()
        self._wait(self._door.limits.linger)

    @property
    def is_unread(self) -> bool:
        """Whether more of the request is to come, or nobody can tell."""
        return self.conn.their_state in (h11.SEND_BODY, h11.ERROR)

    @property
    def _answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _whose_turn(self) -> Turn | None:
        if self.flow.write_paused:
            return Turn.READER
        if self._answered:
            return Turn.REQUEST
        return Turn.BODY if self.is_unread else None

    def _look(self) -> None:
        """Notice a change of turns; what a client sends meanwhile does not put its deadline off."""
        turn = self._whose_turn()
        if turn is self._turn:
            return
        self._door.note(self, self._turn, turn)
        self._turn = turn
        if self.lingering:
            return
        limits = self._door.limits
        seconds = {Turn.REQUEST: limits.head, Turn.BODY: limits.body, Turn.READER: limits.reader}
        self._wait(seconds[turn]) if turn else self._stop_waiting()

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        self._unsent = self.transport.get_write_buffer_size()
        self._deadline = self.loop.call_later(seconds, self._late, seconds)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self, seconds: float) -> None:
        """The time is over; whoever still takes an answer, however slowly, is left to it."""
        if 0 < self.transport.get_write_buffer_size() < self._unsent:
            self._wait(seconds)
        else:
            self.drop()


class _Gentle:
    """A transport that lingers where a close would destroy the answer."""

    def __init__(self, transport: asyncio.Transport, connection: Connection) -> None:
        self._transport = transport
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._connection.lingering or self._transport.is_closing()

    def close(self) -> None:
        if self.is_closing() or not self._connection.is_unread:
            self._transport.close()
        else:
            self._connection.linger()
