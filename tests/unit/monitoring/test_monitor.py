"""The monitor: a probe that hangs blocks no other, and is told until it returns."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.monitoring.monitor import Finding, Monitor
from lab_agent.monitoring.own_thread import in_own_thread
from tests.fakes.memory_store import MemoryStore
from tests.harness.clock import DEADLINE, VirtualClock, wait_until

HANGS = ConditionId.AGENT_PROBE_HANGS


@dataclass
class HangingProbe:
    """Waits for a file system that does not answer before `gate` is open."""

    gate: threading.Event = field(default_factory=threading.Event)
    looks: int = 0
    conditions: frozenset[ConditionId] = frozenset({ConditionId.DISK_LOW})

    async def look(self) -> Sequence[Finding]:
        self.looks += 1
        await in_own_thread(lambda: self.gate.wait(DEADLINE))
        return ()


@dataclass
class FindingProbe:
    """Finds that there are no new backups."""

    conditions: frozenset[ConditionId] = frozenset({ConditionId.BACKUP_OLD})

    async def look(self) -> Sequence[Finding]:
        return (Finding(condition=ConditionId.BACKUP_OLD),)


async def test_probe_that_hangs_is_told_and_blocks_no_other() -> None:
    store, hanging = MemoryStore(), HangingProbe()
    monitor = Monitor(store, VirtualClock(), [hanging, FindingProbe()], host="lab-1", deadline=0.05)

    async def open_alerts() -> set[str]:
        found = await store.run_read_only(lambda uow: uow.alerts.open_of(frozenset({HANGS, ConditionId.BACKUP_OLD})))
        return {str(each) for each in found}

    for _ in range(3):
        await monitor.run()
    assert await open_alerts() == {"agent.probe_hangs/disk.low on lab-1", "backup.old"}
    assert hanging.looks == 1, "no second one is begun while the first hangs"
    hanging.gate.set()

    async def is_over() -> bool:
        await monitor.run()
        return await open_alerts() == {"backup.old"}

    await wait_until(is_over, "it has returned")
    assert asyncio.all_tasks() == {asyncio.current_task()}


@dataclass
class BrokenProbe:
    """Stumbles over what nobody expects."""

    conditions: frozenset[ConditionId] = frozenset({ConditionId.DISK_LOW})

    async def look(self) -> Sequence[Finding]:
        raise ValueError


async def test_probe_with_unexpected_error_blocks_no_other() -> None:
    store = MemoryStore()
    with pytest.raises(ValueError):  # noqa: PT011 - for whoever runs the monitor, who tells it
        await Monitor(store, VirtualClock(), [BrokenProbe(), FindingProbe()], host="lab-1").run()
    found = await store.run_read_only(lambda uow: uow.alerts.all_open())
    assert [str(each.key) for each in found] == ["backup.old"]
