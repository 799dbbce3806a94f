"""The trace of a run: everything that the agents sent, and all that was committed. Equal traces are equal runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any, TypeVar

from lab_agent.queue.job_records import Job, JobKind, NewJob
from lab_agent.shared.state_machines import CLAIMABLE_STATES, JobState
from lab_agent.store.unit_of_work import Store, UnitOfWork

T = TypeVar("T")
_FINAL = {JobState.DONE, JobState.OBSOLETE, JobState.DISMISSED}
_TOLD = (
    *("key", "id", "kind", "target", "identifier", "state", "reason", "due_at", "lease_until", "fencing_token", "attempts"),
    *("adapter", "hold_reason", "digest", "resource_id", "order", "task_id", "ended_as", "text", "barcode"),
)
"""Fields by which a record that was written is told in the trace."""


class Trace:
    """A digest over all that was noted, in its order."""

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=16)
        self.length = 0

    def note(self, text: str) -> None:
        self._digest.update(text.encode() + b"\n")
        self.length += 1

    def digest(self) -> str:
        return self._digest.hexdigest()


class TracedStore:
    """A store whose commits are noted; `on_due` is told when a job that was written will be due, or its lease will expire."""

    def __init__(self, store: Store, trace: Trace, on_due: Callable[[datetime], None]) -> None:
        self._store, self._trace, self._on_due = store, trace, on_due
        self.written_after_end: list[str] = []
        """Jobs that had ended, and were written all the same."""
        self._ended: set[int] = set()
        self.health = store.health
        self.on_jobs_due = store.on_jobs_due

    async def transact(self, work: Callable[[UnitOfWork], T]) -> T:
        unit: _TracedUnitOfWork | None = None

        def traced(uow: UnitOfWork) -> T:
            nonlocal unit
            unit = _TracedUnitOfWork(uow)
            return work(unit)  # type: ignore[arg-type]  # it is a unit of work in all that is used of it

        result = await self._store.transact(traced)
        for name, written in unit.written if unit is not None else ():
            self._trace.note(f"{name} {' '.join(map(_tell, written))}")
            self._note_ends(written)
            for due_at in (due_at for each in written if (due_at := _due_at(each)) is not None):
                self._on_due(due_at)
        return result

    def _note_ends(self, written: Iterable[Any]) -> None:
        for job in written:
            if isinstance(job, Job):
                if job.id in self._ended:
                    self.written_after_end.append(f"{job.kind.value} {job.target}")
                if job.state in _FINAL:
                    self._ended.add(job.id)

    async def run_read_only(self, work: Callable[[UnitOfWork], T]) -> T:
        return await self._store.run_read_only(work)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _TracedUnitOfWork:
    """A unit of work that remembers what was written in it."""

    def __init__(self, uow: UnitOfWork) -> None:
        self._uow = uow
        self.written: list[tuple[str, tuple[Any, ...]]] = []
        for name in ("orders", "jobs", "reports", "uploads", "events"):
            setattr(self, name, _NotedWrites(getattr(uow, name), self.written))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._uow, name)


class _NotedWrites:
    """A repository whose writing calls are noted with the records that they write, or give."""

    def __init__(self, repository: Any, written: list[tuple[str, tuple[Any, ...]]]) -> None:
        self._repository, self._written = repository, written

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._repository, name)
        if not name.startswith(("add", "save", "set_labels", "release", "claim", "make_due", "renew", "expire")):
            return method

        def call(*args: Any, **more: Any) -> Any:
            result = method(*args, **more)
            moments = (more["now"],) if name == "make_due" and result else ()
            if result or name != "claim":
                self._written.append((name, (*moments, *_records(result if name == "claim" else args))))
            return result

        return call


def _records(given: Any) -> Iterator[Any]:
    if isinstance(given, Mapping | str | bytes) or not hasattr(given, "__iter__"):
        yield given
    else:
        for each in given:
            yield from _records(each)


def _tell(written: Any) -> str:
    if isinstance(written, str | int | JobKind | datetime):
        return str(written)
    told = (getattr(written, name, None) for name in _TOLD)
    return f"{type(written).__name__}({', '.join('' if each is None else str(each) for each in told)})"


def _due_at(written: Any) -> datetime | None:
    """When something has to be looked for because of what was written."""
    if isinstance(written, datetime):
        return written
    if isinstance(written, NewJob):
        return written.due_at
    if isinstance(written, Job):
        is_running = written.state is JobState.IN_FLIGHT
        return written.due_at if written.state in CLAIMABLE_STATES else written.lease_until if is_running else None
    return None
