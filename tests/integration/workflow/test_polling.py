"""The poll beside other workers and with many orders at once: nothing is lost, and nobody waits for one long transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from lab_agent.crypto import Cipher, new_key
from lab_agent.domain import jobs
from lab_agent.domain.ids import ResourceId, order_key
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.records import OrderRecord
from lab_agent.ports.read_models import LAST_POLL_KEY
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.workflow.polling import BATCH, OrderPoller
from tests.harness.clock import VirtualClock
from tests.harness.databases import create_database
from tests.harness.orders import BASE
from tests.harness.store_counts import count_store

T = TypeVar("T")
MANY = 2 * BATCH + 30


class StubService:
    """A service that has these order-level Tasks in status requested."""

    def __init__(self, tasks: Sequence[str]) -> None:
        self.tasks = tasks

    async def requested_order_tasks(self) -> tuple[dict[str, Any], ...]:
        return tuple({"resourceType": "Task", "id": task} for task in self.tasks)


class RacingStore:
    """A store in which another worker writes some orders right before our `turn`-th unit of work."""

    def __init__(self, store: Store, turn: int, others: Callable[[UnitOfWork], None]) -> None:
        self._store, self._turn, self._others = store, turn, others

    async def run(self, work: Callable[[UnitOfWork], T]) -> T:
        self._turn -= 1
        if self._turn == 0:
            await self._store.run(self._others)
        return await self._store.run(work)

    async def run_read_only(self, work: Callable[[UnitOfWork], T]) -> T:
        return await self._store.run_read_only(work)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(create_database(tmp_path / "agent.db"), Cipher(new_key()))
    await opened.run(lambda uow: uow.key_values.get(LAST_POLL_KEY))  # the key is verified once
    yield opened
    await opened.close()


def poll_of(store: Store, tasks: Sequence[str]) -> OrderPoller:
    return OrderPoller(StubService(tasks), store, VirtualClock(), BASE)  # type: ignore[arg-type]  # only the poll is asked


def tasks_of(count: int) -> list[str]:
    return [f"t{number}" for number in range(count)]


def add_orders(uow: UnitOfWork, tasks: Sequence[str]) -> None:
    now = VirtualClock().now()
    for task in tasks:
        key = order_key(BASE, ResourceId(task))
        uow.orders.add(OrderRecord(key=key, task_id=ResourceId(task), seen_at=now, changed_at=now))
        uow.jobs.add(jobs.fetch_order(key, now))
    uow.commit()


async def count_fetch_jobs(store: Store) -> int:
    def count(uow: UnitOfWork) -> int:
        found = (uow.jobs.list_for_order(order_key(BASE, ResourceId(task))) for task in tasks_of(MANY))
        return sum(job.kind is JobKind.FETCH_ORDER for listed in found for job in listed)

    return await store.run_read_only(count)


async def test_many_new_orders_are_written_in_batches(store: SqlStore) -> None:
    with count_store(store) as counts:
        assert await poll_of(store, tasks_of(MANY)).run() == MANY
    assert (counts.commits, counts.rollbacks, counts.read_only) == (3, 0, 1)
    assert await count_fetch_jobs(store) == MANY


async def test_idle_poll_writes_its_success_alone(store: SqlStore) -> None:
    poll = poll_of(store, tasks_of(MANY))
    await poll.run()
    with count_store(store) as counts:
        assert await poll.run() == 0
    assert (counts.commits, counts.rollbacks, counts.writes) == (1, 0, 1)


@pytest.mark.parametrize("turn", [1, 2, 3])
async def test_race_for_one_batch_loses_no_order(store: SqlStore, turn: int) -> None:
    """Another worker writes two orders of every batch that is still to come, after our look."""
    raced = [f"t{number}" for batch in range(turn - 1, 3) for number in (batch * BATCH + 7, batch * BATCH + 8)]
    racing = RacingStore(store, turn, lambda uow: add_orders(uow, raced))
    found = await poll_of(racing, tasks_of(MANY)).run()
    assert found == MANY - len(raced)
    assert await count_fetch_jobs(store) == MANY
    assert await store.run(lambda uow: uow.key_values.get(LAST_POLL_KEY)) is not None
