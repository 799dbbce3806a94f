"""Each machine decides about its own disks, files and program alone, where several share the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.workers import WorkerRecord
from lab_agent.monitoring.hosts import LivingHosts, OwnHostProbe
from lab_agent.monitoring.machine import DiskProbe
from lab_agent.monitoring.monitor import Finding, Monitor
from tests.integration.worker.conftest import WorkerBench

ONE, TWO = (AlertKey(ConditionId.DISK_LOW, f"{host}:/tmp") for host in ("one", "two"))


@dataclass
class Machine:
    """A worker on a machine of its own, whose disk may be full."""

    bench: WorkerBench
    host: str
    steady: list[float]
    is_full: bool = False

    def __post_init__(self) -> None:
        now = self.bench.clock.now()
        self.row = WorkerRecord(name=self.host, host=self.host, pid=1, version="1", mode="normal", started_at=now, beat_at=now)
        disks = DiskProbe(lambda: (Path("/tmp"),), 0)
        probe = OwnHostProbe(_Switched(self, disks), self.host, self.bench.store, LivingHosts(timedelta(minutes=1), self._time))
        self.monitor = Monitor(self.bench.store, self.bench.clock, (probe,), host=self.host)

    def _time(self) -> float:
        return self.steady[0]

    async def beat(self) -> None:
        self.row = replace(self.row, beat_at=self.row.beat_at + timedelta(seconds=10))
        await self.bench.write(lambda uow: uow.workers.save(self.row))

    async def look(self) -> frozenset[AlertKey]:
        await self.monitor.run()
        return await self.bench.store.run_read_only(lambda uow: uow.alerts.open_of([ConditionId.DISK_LOW]))


@dataclass
class _Switched:
    machine: Machine
    probe: DiskProbe

    @property
    def conditions(self) -> frozenset[ConditionId]:
        return self.probe.conditions

    async def look(self) -> Sequence[Finding]:
        return await replace(self.probe, reserve=2**62 if self.machine.is_full else 0).look()


async def test_each_machine_decides_about_its_own_disk(bench: WorkerBench) -> None:
    steady = [0.0]
    one, two = Machine(bench, "one", steady, is_full=True), Machine(bench, "two", steady)
    for each in (one, two):
        await each.beat()
    assert await one.look() == {ONE}
    assert await two.look() == {ONE}, "another machine has room, and says nothing about this one"
    two.is_full = True
    assert await two.look() == {ONE, TWO}
    one.is_full = False
    assert await one.look() == {TWO}
    steady[0] += 61
    assert await one.look() == frozenset(), "no worker lives there that could say that it has ended"
