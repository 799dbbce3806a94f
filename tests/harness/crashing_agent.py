"""`lab-agent run` with a crash point in it: when it is reached for the n-th time, the process kills itself with SIGKILL.

    python crashing_agent.py SETTINGS [CRASH_POINT [N]]

Crash points are named `before …` and `after …`: a commit by what it wrote (`commit submit_order:done`), a call to the service
(`create Observation`, `update Task`), a call to the laboratory system (`prepare`, `submit`, `collect`). Each one that is reached
is written to `crash_points.log` beside the settings, so that a test can see where the process has been.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lab_agent import daemon
from lab_agent.bootstrap import Components
from lab_agent.fhir.content_digest import split_digest
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.settings.root import load_settings
from lab_agent.store.unit_of_work import Store, UnitOfWork

CRASH_LOG = "crash_points.log"
CRASH_POINTS = [
    "before commit order",
    "after commit order",
    "before commit fetch_order:done",
    "after commit fetch_order:done",
    "before commit submit_order:started",  # the file has its temporary name, and the database does not know
    "after commit submit_order:started",
    "after submit",  # the LIS has it, and the database does not know
    "after commit submit_order:done",
    "before commit report",
    "after commit report",  # the report is stored, and its file was not moved away
    "after commit match_report:done",
    "after upload_document",
    "before create Observation",
    "after create Observation",  # created on the service, and the agent does not know
    "after create DiagnosticReport",
    "after commit upload DiagnosticReport",
    "after commit deliver_report:done",
    "before update Task",
    "after update Task",
    "after commit update_line_task:done",
    "before commit update_order_task:done",
]
"""The moments on the way of an order and of its results that matter."""


@dataclass
class CrashPoint:
    """Kills the process when it reaches the point `name` for the `occurrence`-th time; None: never."""

    name: str | None
    occurrence: int
    log: Path
    hits: int = 0

    def reach(self, name: str) -> None:
        with self.log.open("a") as log:
            log.write(f"{name}\n")
        if name == self.name:
            self.hits += 1
            if self.hits == self.occurrence:
                os.kill(os.getpid(), signal.SIGKILL)


class CrashingStore:
    def __init__(self, store: Store, crash_point: CrashPoint) -> None:
        self._store, self._crash_point = store, crash_point

    @property
    def on_jobs_due(self) -> Callable[[frozenset[JobKind]], None]:
        return self._store.on_jobs_due

    @on_jobs_due.setter
    def on_jobs_due(self, wake: Callable[[frozenset[JobKind]], None]) -> None:
        self._store.on_jobs_due = wake

    async def transact(self, work: Callable[[UnitOfWork], Any]) -> Any:
        committed: list[str] = []

        def watched(uow: UnitOfWork) -> Any:
            crashing = CrashingUnitOfWork(uow, self._crash_point)
            result = work(crashing)  # type: ignore[arg-type]  # it is a unit of work in all that is used of it
            committed.extend(crashing.about_to_commit())
            return result

        result = await self._store.transact(watched)
        for name in committed:  # only now it lasts: SQLite commits the units of work together that wait at the same time
            self._crash_point.reach(f"after commit {name}")
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class CrashingUnitOfWork:
    """A unit of work that names its commit by what was written in it last, and by the uploads that it records as confirmed."""

    def __init__(self, uow: UnitOfWork, crash_point: CrashPoint) -> None:
        self._uow, self._crash_point, self.last_write = uow, crash_point, ""
        self.confirmed: dict[str, None] = {}
        self.orders = ObservedRepository(uow.orders, self._order)
        self.jobs = ObservedRepository(uow.jobs, self._job)
        self.reports = ObservedRepository(uow.reports, self._report)
        self.uploads = ObservedRepository(uow.uploads, self._upload)

    def about_to_commit(self) -> list[str]:
        names = [*self.confirmed, *([self.last_write] if self.last_write else [])]
        for name in names:
            self._crash_point.reach(f"before commit {name}")
        return names

    def _order(self, method: str, _: Any) -> None:
        if method == "add_new":
            self.last_write = "order"

    def _report(self, method: str, _: Any) -> None:
        if method == "add":
            self.last_write = "report"

    def _upload(self, method: str, upload: Any) -> None:
        if method == "save" and upload.resource_id and split_digest(upload.digest).content:  # not one that is about to be sent
            self.confirmed[f"upload {upload.resource_type}"] = None

    def _job(self, method: str, job: Any) -> None:
        if method in {"save", "release"} and isinstance(job, Job):
            started = job.started and job.state.value == "in_flight"
            self.last_write = f"{job.kind.value}:{'started' if started else job.state.value}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._uow, name)


class ObservedRepository:
    """A repository that announces each call before it is made."""

    def __init__(self, repository: Any, on_call: Callable[[str, Any], None]) -> None:
        self._repository, self._on_call = repository, on_call

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._repository, name)
        if not callable(method):
            return method

        def call(*args: Any, **more: Any) -> Any:
            self._on_call(name, args[0] if args else None)
            return method(*args, **more)

        return call


class CrashingCalls:
    """An object whose asynchronous calls have a crash point before and after."""

    def __init__(self, inner: Any, crash_point: CrashPoint) -> None:
        self._inner, self._crash_point = inner, crash_point

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **more: Any) -> Any:
            point = f"{name} {args[0]}" if args and name in {"create", "update", "read"} else name
            self._crash_point.reach(f"before {point}")
            answer = await method(*args, **more)
            self._crash_point.reach(f"after {point}")
            return answer

        return call


class CrashingAdapters:
    def __init__(self, adapters: Any, crash_point: CrashPoint) -> None:
        self._adapters, self._crash_point = adapters, crash_point

    def get(self, name: str | None = None) -> Any:
        return CrashingCalls(self._adapters.get(name), self._crash_point)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapters, name)

    def running(self) -> Iterator[tuple[str, Any]]:
        for name, _ in self._adapters.running():
            yield name, self.get(name)


def main() -> None:
    settings = Path(sys.argv[1])
    name = sys.argv[2] if len(sys.argv) > 2 else None
    occurrence = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    crash_point = CrashPoint(name, occurrence, settings.with_name(CRASH_LOG))

    def replace_components(components: Components) -> Components:
        changed: dict[str, Any] = {
            "store": CrashingStore(components.store, crash_point),
            "exchange": CrashingCalls(components.exchange, crash_point),
            "adapters": CrashingAdapters(components.adapters, crash_point),
        }
        return replace(components, **changed)

    asyncio.run(daemon.run(load_settings(settings), settings, replace_components=replace_components))


if __name__ == "__main__":
    main()
