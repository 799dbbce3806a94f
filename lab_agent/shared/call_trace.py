"""Which call to another system an attempt at a job ended with, noted where calls are made and read where jobs are run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """A call: what was asked of what kind of thing (`PUT Task`, `submit`; no ids, as those may be a patient's), and the HTTP
    status of its answer. None: no answer came, or it was no call over HTTP.
    """

    what: str
    status: int | None
    is_failed: bool


@dataclass(slots=True)
class CallTrace:
    """The calls of one attempt, which may be made side by side: the last that failed, the last write, and the last of all."""

    failed: Call | None = None
    written: Call | None = None
    last: Call | None = None

    def note(self, call: Call) -> None:
        """Note a call that has ended."""
        self.last = call
        if call.is_failed:
            self.failed = call
        elif not call.what.startswith("GET "):
            self.written = call

    def telling(self, *, is_failed: bool) -> Call | None:
        """Give the call that says most of an attempt that ended so; None if it made none."""
        return (self.failed if is_failed else self.written) or self.last


_trace: ContextVar[CallTrace | None] = ContextVar("call_trace", default=None)


@contextmanager
def trace_calls() -> Iterator[CallTrace]:
    """Trace the calls that are made within, in tasks that are started within, too."""
    trace = CallTrace()
    token = _trace.set(trace)
    try:
        yield trace
    finally:
        _trace.reset(token)


def note_call(what: str, *, status: int | None = None, is_failed: bool = False) -> None:
    """Note a call that has ended; nothing is done where none are traced."""
    if (trace := _trace.get()) is not None:
        trace.note(Call(what, status, is_failed))


@contextmanager
def traced_call(what: str) -> Iterator[None]:
    """Note the call made within, however it ends."""
    try:
        yield
    except BaseException:
        note_call(what, is_failed=True)
        raise
    note_call(what)
