"""What an order costs from the poll to its laboratory system: requests, statements and transactions. They may not grow.

An order of 5 lines and 3 tubes of one patient. docs/operations.md says why each request is needed. Nothing here is timed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from lab_agent.crypto import Cipher, new_key
from lab_agent.domain.state_machines import OrderState
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.worker.dispatcher import JobDispatcher
from lab_agent.worker.job_queues import JOB_QUEUES
from tests.harness.clock import DEADLINE
from tests.harness.databases import create_database
from tests.harness.orders import find_order
from tests.harness.store_counts import count_store
from tests.harness.world import SimulatedAgent, World

LISTS = "task?part-of"
REQUESTS = {
    "patient/": 1,  # who it is
    "procedurerequest/": 5,  # what is ordered
    "questionnaireresponse?subject": 5,  # the answers, which name any one of the ProcedureRequests
    "specimen/": 3,  # what it is made from
    "task/": 7,  # the order-level Task as it is decided on; all six Tasks right before the handover
    LISTS: 2,  # two equal lists of lines
}
"""GETs of one order, by address. The poll, one for all orders, is not among them."""


@dataclass(frozen=True)
class Cost:
    """What an order may cost in the store; `rolled_back` are transactions that were begun to write, and did not."""

    statements: float
    transactions: float
    rolled_back: float


ALONE = Cost(statements=44, transactions=12, rolled_back=2)
"""One order, with its poll and the looks whether something is due.

| Part | Statements | What they are for |
|---|---|---|
| poll | 6 | what is known, what has ended; the order, its job, its event, the time of the poll |
| claims and looks | 6 | three claims that find the job, one that finds nothing more; what is due, which ended orders are |
| first look | 4 | the order, read and read again under its lock; the list of lines, the job |
| decision | 12 | the order twice; labels and lines of others; order, lines, part, labels, their use, identity, two jobs |
| finding it later | 4 | the key of the index of patients, its digests, the numbers of the order, results that wait |
| handover | 12 | order, lines and part before it, the job as started; these and the alert after it; their changes, event, job |
"""
AMONG_MANY = Cost(statements=36, transactions=4, rolled_back=0.5)
"""Each of twenty that come at once, on average: the poll, the claims and the commits are shared. How far, depends on what happens
to wait at once: 33.6 to 35 statements and 2.6 to 3 transactions were seen.
"""


@dataclass
class Intake:
    """A service, a laboratory system and a worker on SQLite; `requests` counts GETs by address."""

    world: World
    agent: SimulatedAgent
    store: SqlStore
    requests: Counter[str] = field(default_factory=Counter)

    def place_orders(self, count: int) -> list[str]:
        template = find_order(self.world.clock.now().replace(minute=0, second=0), lines=5, specimens=3)
        return [self.world.place_order(template, relabel=True) for _ in range(count)]

    async def process(self, count: int) -> None:
        """Poll, then do what is due of so many new orders, now and after the second look's wait."""
        listed, submitted = self.requests[LISTS] + count, len(self.world.lis.submitted) + count
        dispatcher = JobDispatcher(JOB_QUEUES, self.agent.runner, self.agent.runner.outages, concurrency=8)
        self.store.on_jobs_due = dispatcher.wake
        working = asyncio.create_task(dispatcher.run())
        await self.agent.poll.run()
        await until(lambda: self.requests[LISTS] == listed and not dispatcher.running_queues)
        self.world.clock.advance(self.world.settings.worker.second_look_after + 1)
        await dispatcher.look()
        await until(lambda: len(self.world.lis.submitted) == submitted and not dispatcher.running_queues)
        dispatcher.stop()
        await working

    def count_requests(self) -> None:
        transport = self.agent._http._transport
        assert transport is not None
        handle = transport.handle_async_request

        async def counted(request: httpx.Request) -> httpx.Response:
            self.requests[_address(request)] += 1
            return await handle(request)

        transport.handle_async_request = counted  # type: ignore[method-assign]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, for ten seconds at most."""
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.002)


def _address(request: httpx.Request) -> str:
    path, names = request.url.path.removeprefix("/fhir/"), ",".join(sorted(request.url.params.keys() - {"_count"}))
    return f"{path}?{names}" if names else path.rpartition("/")[0] + "/"


@pytest.fixture
async def intake(tmp_path: Path) -> AsyncIterator[Intake]:
    store = SqlStore(create_database(tmp_path / "agent.db"), Cipher(new_key()))
    world = World("cost", store=store)
    prepared = Intake(world, world.agent(), store)
    prepared.count_requests()
    prepared.place_orders(1)
    await prepared.process(1)  # what is only asked or told once: sign-in, contracts, outages of an earlier process
    prepared.requests.clear()
    yield prepared
    await store.close()


@pytest.mark.parametrize(("count", "limit"), [(1, ALONE), (20, AMONG_MANY)], ids=["alone", "among many"])
async def test_intake_costs_no_more_than_it_needs(intake: Intake, count: int, limit: Cost) -> None:
    placed = intake.place_orders(count)
    with count_store(intake.store) as counts:
        await intake.process(count)
    states = {(await intake.world.stored_order(task))[0].state for task in placed}
    assert states == {OrderState.HANDED_OVER}
    assert intake.requests.pop("task?code,status") == 1
    assert {address: total / count for address, total in intake.requests.items()} == REQUESTS
    assert counts.statements / count <= limit.statements, counts.report()
    assert counts.transactions / count <= limit.transactions, counts.report()
    assert counts.rollbacks / count <= limit.rolled_back, counts.report()
