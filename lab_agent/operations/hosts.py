"""Probes of one machine, where workers on several share the database: each decides about its own machine alone.

What one has found is an alert about that machine. The others keep it as long as a worker there lives, and then let it end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from lab_agent.operations.monitor import Finding, Probe
from lab_agent.queue.workers import WorkerRecord
from lab_agent.shared.clock import steady_seconds
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.store.event_records import Alert
from lab_agent.store.unit_of_work import Store, UnitOfWork

_SEPARATOR = ":"


@dataclass(slots=True)
class LivingHosts:
    """Machines on which a worker goes on writing heartbeats: none whose newest is older than `stale_after` of our steady time.

    The times of heartbeats are of clocks that may be wrong: only that they change counts.
    """

    stale_after: timedelta
    steady: Callable[[], float] = steady_seconds
    _beats: dict[str, tuple[datetime, float]] = field(default_factory=dict, init=False)
    """The newest heartbeat of each worker, and when we saw it first."""

    def among(self, workers: Iterable[WorkerRecord]) -> frozenset[str]:
        """Give the machines of those that live."""
        return frozenset({each.host for each in workers if self._lives(each)})

    def _lives(self, worker: WorkerRecord) -> bool:
        if worker.stopped_at is not None:
            return False
        beat, seen = self._beats.get(worker.name, (None, 0.0))
        if beat != worker.beat_at:
            seen = self.steady()
            self._beats[worker.name] = worker.beat_at, seen
        return self.steady() - seen < self.stale_after.total_seconds()


def keep_findings(
    uow: UnitOfWork, conditions: Collection[ConditionId], living: LivingHosts, is_others: Callable[[str, Collection[str]], bool]
) -> tuple[Finding, ...]:
    """Give the open alerts that `is_others` says, by subject and living machines, are about another machine that lives."""
    found = [alert for alert in uow.alerts.all_open() if alert.condition in conditions]
    hosts = living.among(uow.workers.newest()) if found else frozenset()
    return tuple(_to_finding(alert) for alert in found if is_others(alert.subject, hosts))


@dataclass(frozen=True, slots=True)
class OwnHostProbe:
    """A probe of this machine, `host`; its subjects begin with the name of the machine."""

    probe: Probe
    host: str
    store: Store
    living: LivingHosts

    @property
    def conditions(self) -> frozenset[ConditionId]:
        """The conditions that the probe decides about."""
        return self.probe.conditions

    async def look(self) -> Sequence[Finding]:
        """Look at this machine, and give what is known of the others. Raises what the probe raises."""
        own = [replace(each, subject=self._name(each.subject)) for each in await self.probe.look()]
        return *own, *await self.store.run_read_only(self._find_others)

    def _name(self, subject: str) -> str:
        return f"{self.host}{_SEPARATOR}{subject}" if subject else self.host

    def _find_others(self, uow: UnitOfWork) -> tuple[Finding, ...]:
        return keep_findings(uow, self.conditions, self.living, self._is_others)

    def _is_others(self, subject: str, living: Collection[str]) -> bool:
        host = subject.partition(_SEPARATOR)[0]
        return host != self.host and host in living


def _to_finding(alert: Alert) -> Finding:
    return Finding(condition=alert.condition, subject=alert.subject, detail=alert.detail, since=alert.since, count=alert.count)


@dataclass(frozen=True, slots=True)
class SchemaProbe:
    """Whether the database was upgraded for a newer program than this one."""

    store: Store

    @property
    def conditions(self) -> frozenset[ConditionId]:
        """The one that it decides about."""
        return frozenset({ConditionId.STORE_NEWER_SCHEMA})

    async def look(self) -> Sequence[Finding]:
        """Read it. Raises `StoreUnreachableError`."""
        schema = await self.store.run_read_only(lambda uow: uow.programs.schema())
        if not schema.is_newer:
            return ()
        detail = f"the database has schema {schema.database}, this program {schema.program}"
        return (Finding(condition=ConditionId.STORE_NEWER_SCHEMA, detail=detail),)
