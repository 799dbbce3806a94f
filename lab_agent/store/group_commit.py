"""Runs units of work in threads, and commits those that wait at the same time together (group commit).

A commit on SQLite waits for the disk, and only one transaction writes at a time. So the one thread that writes takes all units of
work that wait, runs them one after the other in one transaction, and commits once; each caller is answered after that, with its
own result or error. PostgreSQL commits in groups by itself: there, each transaction has one unit of work.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from copy import copy
from dataclasses import dataclass, field
from threading import Lock, get_ident
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from lab_agent.queue.job_records import JobKind
from lab_agent.shared.errors import StoreError, StoreUnreachableError
from lab_agent.store.error_translation import translate_errors
from lab_agent.store.session import LOST, Session, Transaction

T = TypeVar("T")
JobsDue = Callable[[frozenset[JobKind]], None]

_MAX_SECONDS = 0.02
"""How long a transaction takes up further units of work: the first of them is waiting for its answer."""


@dataclass(slots=True, eq=False)
class _Unit:
    """A unit of work that waits, and the future that answers its caller in the loop of that one."""

    work: Callable[[Session], Any]
    future: asyncio.Future[Any]
    context: Context = field(default_factory=copy_context)
    result: Any = None
    error: BaseException | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.future.get_loop()

    def answer(self) -> None:
        if self.future.done():  # its caller was cancelled meanwhile
            return
        if self.error is None:
            self.future.set_result(self.result)
        else:
            self.future.set_exception(self.error)


class GroupCommitter:
    """Runs units of work in up to `threads` threads, up to `group_size` of them in one transaction.

    `set_up` is called with the connection before each transaction, and `check` before what it has done is told: an error of
    theirs is that of all units of work in it. `on_jobs_due` is called after a transaction that has made jobs
    due, with their kinds, once in each event loop that has callers in it.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        threads: int,
        group_size: int,
        set_up: Callable[[Connection], None],
        check: Callable[[Connection], None],
        on_jobs_due: JobsDue,
    ) -> None:
        self._engine = engine
        self._max_threads, self._group_size = threads, group_size
        self._set_up, self._check, self._on_jobs_due = set_up, check, on_jobs_due
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="store")
        self._lock = Lock()
        self._waiting: deque[_Unit] = deque()
        self._running_threads = 0
        self._begin_times: dict[int, float] = {}
        """When each thread began to begin a transaction, by its id."""

    @property
    def lock_wait(self) -> float:
        """Seconds that a transaction has tried to begin: it waits for whoever has the lock (SQLite), or for the server."""
        first = min(self._begin_times.copy().values(), default=None)
        return 0.0 if first is None else time.monotonic() - first

    async def run(self, work: Callable[[Session], T]) -> T:
        """Run `work` in a session; what it committed lasts when this returns. Raises what `work` raises, and `StoreError`.

        A caller that is cancelled does not stop work that has begun.
        """
        unit = _Unit(work, asyncio.get_running_loop().create_future())
        with self._lock:
            if self._running_threads < self._max_threads:
                self._pool.submit(self._work_off)
                self._running_threads += 1
            self._waiting.append(unit)
        result: T = await unit.future
        return result

    def close(self) -> None:
        """Let everything that waits be done, and end the threads."""
        self._pool.shutdown()

    def _work_off(self) -> None:
        while group := self._take_group():
            jobs_due: frozenset[JobKind] = frozenset()
            try:
                with translate_errors():
                    jobs_due = self._run_group(group)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the callers must hear of it, and the thread goes on
                for unit in group:
                    unit.error = _copy_error(error)
            self._answer(group, jobs_due)

    def _take_group(self) -> list[_Unit]:
        """Take what waits; the thread ends if nothing does."""
        with self._lock:
            group = list(self._take(self._group_size))
            if not group:
                self._running_threads -= 1
            return group

    def _take(self, limit: int) -> Iterator[_Unit]:
        while self._waiting and limit > 0:
            unit = self._waiting.popleft()
            if not unit.future.cancelled():
                limit -= 1
                yield unit

    def _run_group(self, group: list[_Unit]) -> frozenset[JobKind]:
        """Run a group, which grows while it runs; the kinds of jobs that are due after it."""
        self._begin_times[get_ident()] = time.monotonic()
        try:
            return self._run_in_transaction(group)
        finally:
            self._begin_times.pop(get_ident(), None)

    def _run_in_transaction(self, group: list[_Unit]) -> frozenset[JobKind]:
        with self._engine.connect() as connection:
            self._set_up(connection)
            transaction, end = Transaction(connection, shared=self._group_size > 1), time.monotonic() + _MAX_SECONDS
            for unit in group:
                transaction.begin()
                self._begin_times.pop(get_ident(), None)
                _run_unit(transaction, unit)
                if unit is group[-1] and len(group) < self._group_size and time.monotonic() < end:
                    with self._lock:
                        group.extend(self._take(self._group_size - len(group)))
            transaction.end()
            self._check(connection)
            return frozenset(transaction.jobs_due)

    def _answer(self, group: list[_Unit], jobs_due: frozenset[JobKind]) -> None:
        for loop in dict.fromkeys(unit.loop for unit in group):
            units = [unit for unit in group if unit.loop is loop]
            with suppress(RuntimeError):  # the loop has ended, and nobody waits in it any more
                loop.call_soon_threadsafe(self._answer_in_loop, units, jobs_due)

    def _answer_in_loop(self, units: Iterable[_Unit], jobs_due: frozenset[JobKind]) -> None:
        for unit in units:
            unit.answer()
        if jobs_due:
            self._on_jobs_due(jobs_due)


def _copy_error(error: BaseException) -> BaseException:
    """Make an error of its own for each caller, which adds its frames to the traceback when it raises it."""
    try:
        own = copy(error)
    except Exception:  # noqa: BLE001 - not ours, and made by arguments of its own kind: all get the one that there is
        return error
    own.__cause__, own.__context__, own.__traceback__ = error, None, None
    return own


def _run_unit(transaction: Transaction, unit: _Unit) -> None:
    """Run a unit of work; what it did not commit is undone. Raises only what spoils the transaction for all."""
    session = Session(transaction)
    try:
        with translate_errors():
            unit.result = unit.context.run(unit.work, session)
    except StopIteration as error:  # a future does not take it, and in a coroutine it would mean something else
        unit.error = RuntimeError("A unit of work raised StopIteration.")
        unit.error.__cause__ = error
    except BaseException as error:  # noqa: BLE001 - its caller is told, and the others of the group go on (law 9)
        unit.error = error
    if transaction.is_lost:
        raise unit.error if isinstance(unit.error, StoreError) else StoreUnreachableError(LOST)
    session.discard()
