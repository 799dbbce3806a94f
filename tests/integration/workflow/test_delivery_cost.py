"""What a report costs from the laboratory's message to the order's end: requests, statements, transactions. They may not grow.

A final report of 5 observations about an order of 5 lines. docs/results.md says why each request and each unit of work is
needed. Nothing here is timed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from lab_agent.crypto import Cipher, new_key
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.lab_messages import LabReport, ReportedObservation, ReportStatus
from lab_agent.domain.lab_order import LabOrder
from lab_agent.domain.state_machines import OrderState
from lab_agent.domain.values import Coding, Quantity
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.worker.dispatcher import JobDispatcher
from lab_agent.worker.job_queues import JOB_QUEUES
from lab_agent.workflow.result_inbox import StoreInbox
from tests.harness.clock import wait_until
from tests.harness.databases import create_database
from tests.harness.orders import find_template
from tests.harness.store_counts import count_store
from tests.harness.world import SimulatedAgent, World

REQUESTS = {
    "POST observation": 5,  # each value
    "POST diagnosticreport": 1,  # the commit point, which names them
    "GET task/": 6,  # each Task as it is, for its version and for what is not ours in it
    "PUT task/": 6,  # each line's end, then the order's
    "GET task?part-of": 1,  # no line came that we do not know: the order's end would hide it
}
"""Requests of one delivery, by method and address."""


@dataclass(frozen=True)
class Cost:
    """What one delivery may cost in the store, on average. How many units of work share a transaction depends on the machine."""

    statements: float
    units_of_work: float
    transactions: float


ALONE = Cost(statements=94, units_of_work=21, transactions=21)
"""One report, if no two of its units of work came at once; five line Tasks are three units of work each."""
AMONG_MANY = Cost(statements=104, units_of_work=20, transactions=12)
"""Each of twenty that come at once."""


@dataclass
class Laboratory:
    """A service, a worker on SQLite, and orders of which the laboratory system has results."""

    world: World
    store: SqlStore
    agent: SimulatedAgent
    requests: Counter[str] = field(default_factory=Counter)
    units_of_work: int = 0
    reported: int = 0

    async def hand_over(self, count: int) -> list[LabOrder]:
        """Place orders of five lines and hand them over."""
        template = find_template(self.world.clock.now().replace(minute=0, second=0), lambda plan: len(plan.basket.items) == 5)
        before = len(self.world.lis.submitted)
        for _ in range(count):
            self.world.place_order(template, relabel=True)
        await self.agent.poll.run()
        await self.world.drain(self.agent)
        return self.world.lis.submitted[before:]

    async def report(self, orders: list[LabOrder]) -> None:
        """Let a final report come for each order, and do what follows."""
        inbox = StoreInbox(self.agent.store, self.world.clock, "folder")
        for order in orders:
            self.reported += 1
            assert await inbox.accept(f"message {self.reported}", self._report(order))
        await self.dispatch()

    async def dispatch(self) -> None:
        """Let the worker's own dispatcher do what is due, until every order has ended."""
        runner, worker = self.agent.runner, self.world.settings.worker
        dispatcher = JobDispatcher(JOB_QUEUES, runner, runner.outages, concurrency=worker.concurrency)
        self.store.on_jobs_due = dispatcher.wake
        running = asyncio.create_task(dispatcher.run())
        dispatcher.wake(frozenset(JobKind))

        def have_ended() -> bool:
            statuses = {self.world.get_task(task)["status"] for task in self.world.placed}
            return statuses == {"completed"} and not dispatcher.running_queues

        await wait_until(have_ended, "the orders' ends")
        dispatcher.stop()
        await running

    def _report(self, order: LabOrder) -> LabReport:
        now = self.world.clock.now()
        codes = ("718-7", "2345-7", "2160-0", "3094-0", "17861-6")
        observations = (
            ReportedObservation(
                id=code,
                code=Coding(system="http://loinc.org", code=code),
                value_quantity=Quantity(value=Decimal("13.20"), unit="g/L"),
            )
            for code in codes
        )
        return LabReport(
            report_id=f"report {self.reported}",
            status=ReportStatus.FINAL,
            order=order.key,
            effective=now,
            issued=now,
            observations=tuple(observations),
        )

    def count(self) -> None:
        """Count requests and units of work from now on."""
        run, transport = self.agent.store.run, self.agent._http._transport
        assert transport is not None
        handle = transport.handle_async_request

        async def counted(request: httpx.Request) -> httpx.Response:
            self.requests[_address(request)] += 1
            return await handle(request)

        async def counted_run(work: Callable[[UnitOfWork], Any]) -> Any:
            self.units_of_work += 1
            return await run(work)

        transport.handle_async_request = counted  # type: ignore[method-assign]
        self.agent.store.run = counted_run  # type: ignore[method-assign]


def _address(request: httpx.Request) -> str:
    path, names = request.url.path.removeprefix("/fhir/").lower(), ",".join(sorted(request.url.params.keys() - {"_count"}))
    kind, divider, _ = path.partition("/")
    return f"{request.method} {kind}{divider}{f'?{names}' if names else ''}"


@pytest.fixture
async def laboratory(tmp_path: Path) -> AsyncIterator[tuple[Laboratory, SqlStore]]:
    store = SqlStore(create_database(tmp_path / "agent.db"), Cipher(new_key()))
    world = World("cost", store=store)
    prepared = Laboratory(world, store, world.agent())
    await prepared.report(await prepared.hand_over(1))  # what is only asked or told once
    prepared.count()
    yield prepared, store
    await store.close()


@pytest.mark.parametrize(("count", "limit"), [(1, ALONE), (20, AMONG_MANY)], ids=["alone", "among many"])
async def test_delivery_costs_no_more_than_it_needs(laboratory: tuple[Laboratory, SqlStore], count: int, limit: Cost) -> None:
    prepared, store = laboratory
    orders = await prepared.hand_over(count)
    prepared.requests.clear()
    prepared.units_of_work = 0
    with count_store(store) as counts:
        await prepared.report(orders)
    ended = await store.run(lambda uow: {uow.orders.get_for_update(order.key).state for order in orders})
    assert ended == {OrderState.CLOSED}
    assert {address: total / count for address, total in prepared.requests.items()} == REQUESTS
    assert counts.statements / count <= limit.statements, counts.report()
    assert prepared.units_of_work / count <= limit.units_of_work
    assert counts.transactions / count <= limit.transactions, counts.report()
