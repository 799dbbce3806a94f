"""Several machines share the database: each decides about its own disks, files and program alone, and one runs each task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import ClassVar

import pytest

from lab_agent.operations.hosts import LivingHosts, OwnHostProbe
from lab_agent.operations.monitor import Finding, Monitor
from lab_agent.operations.schedule import LeasedTask
from lab_agent.queue.workers import WorkerRecord
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import ServiceUnavailable
from tests.integration.worker.conftest import WorkerBench

ONE, TWO = (AlertKey(ConditionId.DISK_LOW, f"{host}:/tmp") for host in ("one", "two"))


@dataclass
class Machine:
    """A worker on a machine of its own, whose disk may be full; it is the probe of that disk, too."""

    bench: WorkerBench
    host: str
    steady: list[float]
    is_full: bool = False
    conditions: ClassVar[frozenset[ConditionId]] = frozenset({ConditionId.DISK_LOW})

    def __post_init__(self) -> None:
        now, store = self.bench.clock.now(), self.bench.store
        self.row = WorkerRecord(name=self.host, host=self.host, pid=1, version="1", mode="normal", started_at=now, beat_at=now)
        probe = OwnHostProbe(self, self.host, store, LivingHosts(timedelta(minutes=1), lambda: self.steady[0]))
        self.monitor = Monitor(store, self.bench.clock, (probe,), host=self.host)

    async def look(self) -> Sequence[Finding]:
        return [Finding(condition=ConditionId.DISK_LOW, subject="/tmp")] if self.is_full else []

    async def beat(self) -> None:
        self.row = replace(self.row, beat_at=self.row.beat_at + timedelta(seconds=10))
        await self.bench.write(lambda uow: uow.workers.save(self.row))

    async def alerts(self) -> frozenset[AlertKey]:
        await self.monitor.run()
        return await self.bench.store.run_read_only(lambda uow: uow.alerts.open_of([ConditionId.DISK_LOW]))


async def test_each_machine_decides_about_its_own_disk(bench: WorkerBench) -> None:
    steady = [0.0]
    one, two = Machine(bench, "one", steady, is_full=True), Machine(bench, "two", steady)
    for each in (one, two):
        await each.beat()
    assert await one.alerts() == {ONE}
    assert await two.alerts() == {ONE}, "another machine has room, and says nothing about this one"
    two.is_full = True
    assert await two.alerts() == {ONE, TWO}
    one.is_full = False
    assert await one.alerts() == {TWO}
    steady[0] += 59
    await two.beat()
    assert await one.alerts() == {TWO}
    steady[0] += 59
    assert await one.alerts() == {TWO}, "it has written a heartbeat meanwhile"
    steady[0] += 2
    assert await one.alerts() == frozenset(), "no worker lives there that could say that it has ended"


# --- tasks of which one machine at a time runs each

INTERVAL = 60.0


@dataclass
class Runner:
    """A worker that counts its runs, and may fail them."""

    bench: WorkerBench
    name: str
    fault: Exception | None = None
    runs: int = 0
    leased: LeasedTask = field(init=False)

    def __post_init__(self) -> None:
        self.leased = LeasedTask("purge", self._run, INTERVAL, self.bench.store, self.bench.clock, self.name)

    async def _run(self) -> None:
        self.runs += 1
        if self.fault is not None:
            raise self.fault


async def test_task_is_run_once_in_an_interval(bench: WorkerBench) -> None:
    machines = [Runner(bench, name) for name in ("one", "two", "three")]
    for _ in range(4):
        for each in machines:
            await each.leased.run()
            bench.clock.advance(1)
        bench.clock.advance(INTERVAL - 3)
    assert [each.runs for each in machines] == [4, 0, 0]


async def test_task_of_a_lost_machine_is_run_by_another_at_its_next_time(bench: WorkerBench) -> None:
    lost, other = Runner(bench, "lost"), Runner(bench, "other")
    await lost.leased.run()
    await other.leased.run()
    assert (lost.runs, other.runs) == (1, 0)
    bench.clock.advance(INTERVAL)
    await other.leased.run()
    assert (lost.runs, other.runs) == (1, 1)
    await lost.leased.run()
    assert (lost.runs, other.runs) == (1, 1), "it was suspended, and goes on"


@pytest.mark.parametrize("fault", [ServiceUnavailable("not from here"), ValueError(), KeyError("x")])
async def test_machine_that_fails_leaves_it_to_another(bench: WorkerBench, fault: Exception) -> None:
    failing, other = Runner(bench, "failing", fault), Runner(bench, "other")
    with pytest.raises(type(fault)):
        await failing.leased.run()
    await other.leased.run()
    assert (failing.runs, other.runs) == (1, 1)
