"""What an order costs from the poll to its laboratory system: requests, statements and transactions. They may not grow.

An order of 5 lines and 3 tubes of one patient. docs/operations.md says why each request is needed. Nothing here is timed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from lab_agent.crypto import Cipher, new_key
from lab_agent.domain.state_machines import OrderState
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import SqlStore
from tests.harness.orders import find_order
from tests.harness.store_counts import count_store
from tests.harness.world import SimulatedAgent, World

REQUESTS = {
    "patient/": 1,  # who it is
    "procedurerequest/": 5,  # what is ordered
    "questionnaireresponse?subject": 5,  # the answers, which name any one of the ProcedureRequests
    "specimen/": 3,  # what it is made from
    "task/": 7,  # the order-level Task as it is decided on; all six Tasks right before the handover
    "task?part-of": 2,  # two equal lists of lines
}
"""GETs of one order, by address. The poll, one for all orders, is not among them."""


@dataclass(frozen=True)
class Cost:
    """What one order may cost in the store, on average; `empty` are transactions that could write and wrote nothing."""

    statements: float
    transactions: float
    empty: float


ALONE = Cost(statements=61, transactions=15, empty=6)
"""One order, with its poll."""
AMONG_MANY = Cost(statements=44, transactions=8, empty=4)
"""Each of twenty that come at once."""


@dataclass
class Intake:
    """A service, a laboratory system and a worker on SQLite; `requests` counts GETs by address."""

    world: World
    agent: SimulatedAgent
    requests: Counter[str] = field(default_factory=Counter)

    def place_orders(self, count: int) -> list[str]:
        template = find_order(self.world.clock.now().replace(minute=0, second=0), lines=5, specimens=3)
        return [self.world.place_order(template, relabel=True) for _ in range(count)]

    async def process(self) -> None:
        """Poll, then do what is due, now and after the second look's wait."""
        await self.agent.poll.run()
        for _ in range(2):
            while await self.agent.run_jobs(limit=self.world.settings.worker.concurrency):
                pass
            self.world.clock.advance(self.world.settings.worker.second_look_after + 1)

    def count_requests(self) -> None:
        transport = self.agent._http._transport
        assert transport is not None
        handle = transport.handle_async_request

        async def counted(request: httpx.Request) -> httpx.Response:
            self.requests[_address(request)] += 1
            return await handle(request)

        transport.handle_async_request = counted  # type: ignore[method-assign]


def _address(request: httpx.Request) -> str:
    path, names = request.url.path.removeprefix("/fhir/"), ",".join(sorted(request.url.params.keys() - {"_count"}))
    return f"{path}?{names}" if names else path.rpartition("/")[0] + "/"


@pytest.fixture
async def intake(tmp_path: Path) -> AsyncIterator[tuple[Intake, SqlStore]]:
    url = f"sqlite:///{tmp_path / 'agent.db'}"
    upgrade(url)
    store = SqlStore(url, Cipher(new_key()))
    world = World("cost", store=store)
    prepared = Intake(world, world.agent())
    prepared.place_orders(1)
    await prepared.process()  # what is only asked or told once: sign-in, contracts, outages of an earlier process
    prepared.count_requests()
    yield prepared, store
    await store.close()


@pytest.mark.parametrize(("count", "limit"), [(1, ALONE), (20, AMONG_MANY)], ids=["alone", "among many"])
async def test_intake_costs_no_more_than_it_needs(intake: tuple[Intake, SqlStore], count: int, limit: Cost) -> None:
    prepared, store = intake
    placed = prepared.place_orders(count)
    with count_store(store) as counts:
        await prepared.process()
    states = {(await prepared.world.stored_order(task))[0].state for task in placed}
    assert states == {OrderState.HANDED_OVER}
    assert prepared.requests.pop("task?code,status") == 1
    assert {address: total / count for address, total in prepared.requests.items()} == REQUESTS
    assert counts.statements / count <= limit.statements, counts.report()
    assert counts.transactions / count <= limit.transactions, counts.report()
    assert (counts.empty_rollbacks + counts.empty_commits) / count <= limit.empty, counts.report()
