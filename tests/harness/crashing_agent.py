"""`lab-agent run` with a trap in it: at the n-th passing of a place the process kills itself with SIGKILL.

    python trapped_agent.py CONFIG [PLACE [N]]

Places are named `before …` and `after …`: a commit by what it wrote (`commit handover:done`), a call to the service
(`create Observation`, `update Task`), a call to the laboratory system (`prepare`, `submit`, `collect`). Every passing is written
to `trap.log` beside the settings, so that a test can see that its trap was really met.
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
from lab_agent.domain.records import Job
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.settings.root import load_settings


@dataclass
class CrashPoint:
    """Kills the process at the `nth` passing of `place`."""

    name: str | None
    occurrence: int
    log: Path
    hits: int = 0

    def pass_by(self, name: str) -> None:
        with self.log.open("a") as log:
            log.write(f"{name}\n")
        if name == self.name:
            self.hits += 1
            if self.hits == self.occurrence:
                os.kill(os.getpid(), signal.SIGKILL)


class CrashingStore:
    def __init__(self, store: Store, trap: CrashPoint) -> None:
        self._store, self._trap = store, trap

    async def run(self, work: Callable[[UnitOfWork], Any]) -> Any:
        return await self._store.run(lambda uow: work(CrashingUnitOfWork(uow, self._trap)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class CrashingUnitOfWork:
    """A unit of work that names its commit by what was written in it last."""

    def __init__(self, uow: UnitOfWork, trap: CrashPoint) -> None:
        self._uow, self._trap, self.last_write = uow, trap, ""
        self.orders = ObservedRepository(uow.orders, self._order)
        self.jobs = ObservedRepository(uow.jobs, self._job)
        self.reports = ObservedRepository(uow.reports, self._report)
        self.uploads = ObservedRepository(uow.uploads, self._upload)

    def commit(self) -> None:
        if self.last_write:
            self._trap.pass_by(f"before commit {self.last_write}")
        self._uow.commit()
        if self.last_write:
            self._trap.pass_by(f"after commit {self.last_write}")

    def _order(self, method: str, _: Any) -> None:
        if method == "add":
            self.last_write = "order"

    def _report(self, method: str, _: Any) -> None:
        if method == "add":
            self.last_write = "report"

    def _upload(self, method: str, upload: Any) -> None:
        if method == "put" and not self.last_write.endswith(":begun"):  # a change that begins says what is in doubt from then on
            self.last_write = f"upload {upload.resource_type}"

    def _job(self, method: str, job: Any) -> None:
        if method == "save" and isinstance(job, Job):
            begun = job.started and job.state.value == "in_flight"
            self.last_write = f"{job.kind.value}:{'begun' if begun else job.state.value}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._uow, name)


class ObservedRepository:
    """A book whose calls are heard before they are made."""

    def __init__(self, repository: Any, on_call: Callable[[str, Any], None]) -> None:
        self._book, self._heard = repository, on_call

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._book, name)

        def call(*args: Any, **more: Any) -> Any:
            self._heard(name, args[0] if args else None)
            return method(*args, **more)

        return call


class CrashingCalls:
    """An object whose asynchronous calls pass the trap before and after."""

    def __init__(self, inner: Any, trap: CrashPoint) -> None:
        self._inner, self._trap = inner, trap

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def call(*args: Any, **more: Any) -> Any:
            place = f"{name} {args[0]}" if args and name in {"create", "update", "read"} else name
            self._trap.pass_by(f"before {place}")
            answer = await method(*args, **more)
            self._trap.pass_by(f"after {place}")
            return answer

        return call


class CrashingAdapters:
    def __init__(self, adapters: Any, trap: CrashPoint) -> None:
        self._adapters, self._trap = adapters, trap

    def get(self, name: str | None = None) -> Any:
        return CrashingCalls(self._adapters.get(name), self._trap)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._adapters, name)

    def running(self) -> Iterator[tuple[str, Any]]:
        for name, _ in self._adapters.running():
            yield name, self.get(name)


def main() -> None:
    config = Path(sys.argv[1])
    place = sys.argv[2] if len(sys.argv) > 2 else None
    nth = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    trap = CrashPoint(place, nth, config.with_name("trap.log"))

    def change(parts: Components) -> Components:
        changed: dict[str, Any] = {
            "store": CrashingStore(parts.store, trap),
            "exchange": CrashingCalls(parts.exchange, trap),
            "adapters": CrashingAdapters(parts.adapters, trap),
        }
        return replace(parts, **changed)

    asyncio.run(daemon.run(load_settings(config), config, replace_components=change))


if __name__ == "__main__":
    main()
