"""The worker's heartbeat in the store: that it lives, how late it was, and how it ended, for whoever looks from outside."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib.metadata import version

import structlog

from lab_agent.operations.agent import STALE_INTERVALS, STALL_INTERVALS
from lab_agent.queue.workers import WorkerRecord
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import LabAgentError
from lab_agent.store.program_records import ProgramKind, RunningProgram
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

_KEPT = timedelta(days=1)
"""How long the last heartbeat of an earlier run is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerIdentity:
    """Which run of the worker this is; `name` is new at each start."""

    name: str
    host: str
    version: str
    mode: str
    schema: str
    """The schema of the database that this program was made for."""

    @classmethod
    def of_this_process(cls, name: str, mode: str, schema: str) -> WorkerIdentity:
        """The identity of a worker on this host, of this version."""
        return cls(name=name, host=socket.gethostname(), version=version("lab-agent"), mode=mode, schema=schema)


class ProgramBeat:
    """Says in the store that a program lives, so that no upgrade takes the schema from it; `interval` is that of its writes."""

    def __init__(self, clock: Clock, name: str, kind: ProgramKind, schema: str, interval: float) -> None:
        self._clock = clock
        self._program = RunningProgram(
            name=name,
            kind=kind,
            host=socket.gethostname(),
            pid=os.getpid(),
            schema=schema,
            beat_at=clock.now(),
            stale_after=STALE_INTERVALS * interval,
        )

    def save(self, uow: UnitOfWork) -> None:
        """Write that it lives."""
        uow.programs.save(replace(self._program, beat_at=self._clock.now()))

    def remove(self, uow: UnitOfWork) -> None:
        """Write that it has ended."""
        uow.programs.remove(self._program.name)

    def purge(self, uow: UnitOfWork) -> None:
        """Delete what programs have left that ended long ago without saying so."""
        uow.programs.purge(before=self._clock.now() - _KEPT)


class Presence:
    """Writes the heartbeat every `interval` seconds. `take_lag` gives the longest lag since it was asked last.

    A heartbeat that cannot be written is left out; what it would have said is in the next one.
    """

    def __init__(
        self, store: Store, clock: Clock, identity: WorkerIdentity, interval: float, take_lag: Callable[[], float]
    ) -> None:
        self._store = store
        self._clock = clock
        self._interval = interval
        self._take_lag = take_lag
        self._beat = ProgramBeat(clock, identity.name, ProgramKind.AGENT, identity.schema, interval)
        now = clock.now()
        self._worker = WorkerRecord(
            name=identity.name,
            host=identity.host,
            pid=os.getpid(),
            version=identity.version,
            mode=identity.mode,
            started_at=now,
            beat_at=now,
        )

    async def run(self) -> None:
        """Write heartbeats until cancelled; those of runs that ended long ago are deleted first."""
        await self._write(self._purge)
        while True:
            self._measure()
            await self._write(self._save)
            await asyncio.sleep(self._interval)

    async def tell_fault(self, part: str, error: BaseException | None) -> None:
        """Write that a part of the worker has ended by itself: the process will end because of it."""
        fault = type(error).__name__ if error is not None else None
        self._worker = replace(self._worker, beat_at=self._clock.now(), ended_part=part, fault=fault)
        await self._write(self._save)

    async def tell_stopped(self, by: str | None) -> None:
        """Write that the worker has ended in order; `by` names the signal that asked for it."""
        now = self._clock.now()
        self._worker = replace(self._worker, beat_at=now, stopped_at=now, stopped_by=by)
        await self._write(self._save_end)

    def _measure(self) -> None:
        now, lag = self._clock.now(), self._take_lag()
        self._worker = replace(self._worker, beat_at=now, loop_lag_ms=round(lag * 1000))
        if lag > STALL_INTERVALS * self._interval:
            log.error("the process stood still", action="worker_stalled", seconds=round(lag))
            self._worker = replace(self._worker, stalled_at=now, stalled_ms=round(lag * 1000))

    def _save(self, uow: UnitOfWork) -> None:
        uow.workers.save(self._worker)
        self._beat.save(uow)

    def _save_end(self, uow: UnitOfWork) -> None:
        uow.workers.save(self._worker)
        self._beat.remove(uow)
        uow.leases.release_all(self._worker.name)

    def _purge(self, uow: UnitOfWork) -> None:
        uow.workers.purge(before=self._clock.now() - _KEPT)
        self._beat.purge(uow)

    async def _write(self, work: Callable[[UnitOfWork], object]) -> None:
        def write(uow: UnitOfWork) -> None:
            work(uow)

        try:
            await self._store.transact(write)
        except LabAgentError as exc:
            log.debug("heartbeat not written", action="heartbeat_failed", reason=str(exc))
