"""What an order costs on its way to its laboratory system, and what its report costs: requests, statements, transactions.

They may not grow. An order of five lines and three tubes of one patient, and a final report of five values. docs/operations.md
and docs/results.md say why each request and each unit of work is needed. Nothing here is timed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from lab_agent.lis.lab_messages import LabReport
from lab_agent.lis.lab_order import LabOrder
from lab_agent.queue.dispatcher import JobDispatcher
from lab_agent.queue.job_queues import JOB_QUEUES
from lab_agent.queue.job_records import JobKind
from lab_agent.results.result_inbox import StoreInbox
from lab_agent.shared.state_machines import OrderState
from lab_agent.shared.values import Coding
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.unit_of_work import Store, UnitOfWork
from tests.harness.clock import wait_until
from tests.harness.databases import create_database
from tests.harness.orders import find_order
from tests.harness.results import haemoglobin, make_report
from tests.harness.store_counts import StoreCounts, count_store
from tests.harness.world import SimulatedAgent, World
from tests.integration.workflow.conftest import parametrize_first

LISTS = "GET task?part-of"
OF_AN_ORDER = {
    "GET patient/": 1,  # who it is
    "GET procedurerequest/": 5,  # what is ordered
    "GET questionnaireresponse?subject": 5,  # the answers, which name any one of the ProcedureRequests
    "GET specimen/": 3,  # what it is made from
    "GET task/": 7,  # the order-level Task as it is decided on; all six Tasks right before the handover
    LISTS: 2,  # two equal lists of lines
}
"""Requests of one order, by method and address. The poll, one for all orders, is not among them."""
OF_A_REPORT = {
    "POST observation": 5,  # each value
    "POST diagnosticreport": 1,  # the commit point, which names them
    "GET task/": 6,  # each Task as it is, for its version and for what is not ours in it
    "PUT task/": 6,  # each line's end, then the order's
    LISTS: 1,  # no line came that we do not know: the order's end would hide it
}


@dataclass(frozen=True)
class Cost:
    """What one may cost in the store, on average. How many units of work share a transaction depends on the machine.

    `rolled_back` are transactions that were begun to write, and did not.
    """

    statements: float
    transactions: float
    rolled_back: float = 9e9
    units_of_work: float = 9e9


ORDER_ALONE = Cost(statements=44, transactions=12, rolled_back=2)
"""One order, with its poll and the looks whether something is due: those are 12 statements of it."""
ORDERS_AMONG_MANY = Cost(statements=36, transactions=4, rolled_back=0.5)
"""Each of twenty that come at once: the poll, the claims and the commits are shared. How far, depends on what happens to wait at
once: 33.6 to 35 statements and 2.6 to 3 transactions were seen.
"""
REPORT_ALONE = Cost(statements=94, units_of_work=21, transactions=21)
"""One report, if no two of its units of work came at once; five line Tasks are three units of work each."""
REPORTS_AMONG_MANY = Cost(statements=104, units_of_work=20, transactions=12)


@dataclass
class Laboratory:
    """A service, a laboratory system and a worker on SQLite."""

    world: World
    store: Store
    agent: SimulatedAgent
    requests: Counter[str] = field(default_factory=Counter)
    units_of_work: int = 0
    reported: int = 0

    def __post_init__(self) -> None:
        run, transport = self.agent.store.transact, self.agent._http._transport
        assert transport is not None
        handle = transport.handle_async_request

        async def counted(request: httpx.Request) -> httpx.Response:
            self.requests[_address(request)] += 1
            return await handle(request)

        async def counted_run(work: Callable[[UnitOfWork], Any]) -> Any:
            self.units_of_work += 1
            return await run(work)

        transport.handle_async_request = counted  # type: ignore[method-assign]
        self.agent.store.transact = counted_run  # type: ignore[method-assign]

    @asynccontextmanager
    async def dispatching(self) -> AsyncIterator[JobDispatcher]:
        dispatcher = JobDispatcher(
            JOB_QUEUES, self.agent.runner, self.agent.outages, concurrency=self.world.settings.worker.concurrency
        )
        self.store.on_jobs_due = dispatcher.wake
        running = asyncio.create_task(dispatcher.run())
        yield dispatcher
        dispatcher.stop()
        await running

    async def hand_over(self, count: int) -> list[LabOrder]:
        """Poll, then do what is due of so many new orders, now and after the second look's wait."""
        template = find_order(self.world.clock.now().replace(minute=0, second=0), lines=5, specimens=3)
        for _ in range(count):
            self.world.place_order(template, relabel=True)
        listed, submitted = self.requests[LISTS] + count, len(self.world.lis.submitted) + count
        async with self.dispatching() as dispatcher:
            await self.agent.poll.run()
            await wait_until(lambda: self.requests[LISTS] == listed and not dispatcher.running_queues, interval=0.002)
            self.world.clock.advance(self.world.settings.worker.second_look_after + 1)
            await dispatcher.look()
            await wait_until(lambda: len(self.world.lis.submitted) == submitted and not dispatcher.running_queues, interval=0.002)
        return self.world.lis.submitted[-count:]

    async def report(self, orders: list[LabOrder]) -> None:
        """Let a final report come for each order, and do what follows until every order has ended."""
        inbox = StoreInbox(self.agent.store, self.world.clock, "folder")
        for order in orders:
            self.reported += 1
            assert await inbox.accept(f"message {self.reported}", self._report(order))
        async with self.dispatching() as dispatcher:
            dispatcher.wake(frozenset(JobKind))

            def have_ended() -> bool:
                statuses = {self.world.get_task(task)["status"] for task in self.world.placed}
                return statuses == {"completed"} and not dispatcher.running_queues

            await wait_until(have_ended, "the orders' ends")

    def _report(self, order: LabOrder) -> LabReport:
        now = self.world.clock.now()
        codes = ("718-7", "2345-7", "2160-0", "3094-0", "17861-6")
        values = (haemoglobin("13.20", id=code, code=Coding(system="http://loinc.org", code=code)) for code in codes)
        return make_report(*values, report_id=f"report {self.reported}", order=order.key, effective=now, issued=now)

    @asynccontextmanager
    async def expect(self, count: int, requests: dict[str, int], limit: Cost) -> AsyncIterator[StoreCounts]:
        """What so many orders or reports cost is this at most, each."""
        self.requests.clear()
        self.units_of_work = 0
        with count_store(self.store) as counts:
            yield counts
        self.requests.pop("GET task?code,status", None)  # the poll
        assert {address: total / count for address, total in self.requests.items()} == requests
        assert counts.statements / count <= limit.statements, counts.report()
        assert counts.transactions / count <= limit.transactions, counts.report()
        assert counts.rollbacks / count <= limit.rolled_back, counts.report()
        assert self.units_of_work / count <= limit.units_of_work


def _address(request: httpx.Request) -> str:
    path, names = request.url.path.removeprefix("/fhir/").lower(), ",".join(sorted(request.url.params.keys() - {"_count"}))
    kind, divider, _ = path.partition("/")
    return f"{request.method} {kind}{divider}{f'?{names}' if names else ''}"


@parametrize_first("count, of_orders, of_reports", [(1, ORDER_ALONE, REPORT_ALONE), (20, ORDERS_AMONG_MANY, REPORTS_AMONG_MANY)])
async def test_order_and_report_cost_no_more_than_they_need(
    tmp_path: Path, count: int, of_orders: Cost, of_reports: Cost
) -> None:
    store = Store(create_database(tmp_path / "agent.db"), Cipher(new_key()))
    world = World("cost", store=store)
    laboratory = Laboratory(world, store, world.agent())
    try:
        await laboratory.report(await laboratory.hand_over(1))  # what is only asked or told once: sign-in, contracts, outages
        async with laboratory.expect(count, OF_AN_ORDER, of_orders):
            orders = await laboratory.hand_over(count)
        async with laboratory.expect(count, OF_A_REPORT, of_reports):
            await laboratory.report(orders)
        ended = await store.transact(lambda uow: {uow.orders.get_for_update(order.key).state for order in orders})
        assert ended == {OrderState.CLOSED}
    finally:
        await store.close()
