"""One of several workers runs a task at each of its times, and another one when that is gone."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from lab_agent.errors import ServiceUnavailable
from lab_agent.worker.task_lease import LeasedTask
from tests.integration.worker.conftest import WorkerBench

INTERVAL = 60.0


@dataclass
class Machine:
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
    machines = [Machine(bench, name) for name in ("one", "two", "three")]
    for _ in range(4):
        for each in machines:
            await each.leased.run()
            bench.clock.advance(1)
        bench.clock.advance(INTERVAL - 3)
    assert [each.runs for each in machines] == [4, 0, 0]


async def test_task_of_a_lost_machine_is_run_by_another_at_its_next_time(bench: WorkerBench) -> None:
    lost, other = Machine(bench, "lost"), Machine(bench, "other")
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
    failing, other = Machine(bench, "failing", fault), Machine(bench, "other")
    with pytest.raises(type(fault)):
        await failing.leased.run()
    await other.leased.run()
    assert (failing.runs, other.runs) == (1, 1)
