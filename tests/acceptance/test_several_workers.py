"""Several agents on one PostgreSQL share the orders: none is done twice, none is forgotten, also where two of them are lost."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from sqlalchemy import text

from lab_agent.store.engine import open_engine
from lab_agent.store.schema import upgrade
from lab_sandbox.partner.basket import Basket, choose_item
from lab_sandbox.partner.clinic import PlacedOrder
from lab_sandbox.partner.order_generator import OrderPlan
from lab_sandbox.partner.random_source import seeded_random
from tests.harness.clock import wait_until
from tests.harness.installation import AgentProcess, ProcessHarness
from tests.harness.proof import FIGURES, in_full

Place = Callable[[range], Awaitable[list[PlacedOrder]]]


def few_or_many(few: int, many: int) -> pytest.MarkDecorator:
    """How many orders there are: few each time, and many with `make proof`."""
    return pytest.mark.parametrize(
        "orders", [pytest.param(few, marks=pytest.mark.slow), pytest.param(many, marks=[pytest.mark.proof, in_full])]
    )


@pytest.fixture
async def place(harness: ProcessHarness) -> Place:
    """Places orders of one patient for one test."""
    offer = {item["id"]: item for item in await harness.client.nomenclature()}
    blood = choose_item(offer["001.001"], seeded_random("some"), option=offer["001.001"]["specimen"][0])
    basket = Basket(harness.client.account.contract, (blood,))
    prepared = await harness.clinic.prepare_basket(OrderPlan(seed="some", basket=basket))

    async def placing(numbers: range) -> list[PlacedOrder]:
        plans = [OrderPlan(seed=f"some-{number}", basket=basket, patient="reused") for number in numbers]
        return [await harness.clinic.send_bundle(await harness.clinic.build_bundle(plan, prepared)) for plan in plans]

    return placing


async def start_agents(harness: ProcessHarness, url: str, number: int) -> list[AgentProcess]:
    upgrade(url)
    environment = {"LAB_AGENT_STORE__URL": url, "LAB_AGENT_STATUS__PORT": "0"}  # each has an address of its own
    started = [await harness.start_agent(**environment) for _ in range(number)]
    await wait_until(lambda: len(harness.log_lines("action=worker_started")) == number, f"{number} workers")
    return started


async def are_completed(harness: ProcessHarness, orders: int) -> bool:
    tasks = await harness.search("task")
    return Counter(task["status"] for task in tasks) == {"completed": 2 * orders}


async def check_done_once(harness: ProcessHarness, orders: int) -> None:
    assert await are_completed(harness, orders)
    for kind in ("DiagnosticReport", "Observation"):
        identifiers = Counter(one["identifier"][0]["value"] for one in await harness.search(kind))
        assert len(identifiers) == orders
        assert set(identifiers.values()) == {1}
    assert set(harness.lis.received_counts().values()) == {1}
    assert len(harness.lis.received) == orders


@pytest.mark.timeout(400)
@few_or_many(20, 200)
async def test_two_workers_share_orders_without_duplicates(
    harness: ProcessHarness, postgres_url: str, place: Place, orders: int
) -> None:
    placed = await place(range(orders))
    await start_agents(harness, postgres_url, 2)
    await wait_until(lambda: are_completed(harness, orders), "every Task completed", timeout=300)
    await check_done_once(harness, orders)
    assert sorted(order["requisition"]["value"] for order in harness.lis.received) == sorted(one.requisition for one in placed)
    FIGURES.add(orders=orders, lost=0, twice=0)


def owner_pids(url: str) -> list[int]:
    """The processes that hold a lease now: on a job, or on what one worker does for all; the busiest first."""
    engine = open_engine(url, connections=1)
    owned = "SELECT owner AS name FROM jobs WHERE owner IS NOT NULL UNION ALL SELECT owner FROM leases"
    try:
        with engine.connect() as connection:
            found = connection.execute(text(f"SELECT pid FROM ({owned}) AS owned JOIN workers USING (name)"))
            return [pid for pid, _ in Counter(found.scalars()).most_common()]
    finally:
        engine.dispose()


@pytest.mark.timeout(400)
@few_or_many(15, 90)
async def test_work_of_lost_workers_moves_to_the_third(
    harness: ProcessHarness, postgres_url: str, place: Place, orders: int
) -> None:
    """One is killed and one stands still at their work."""
    agents = {each.process.pid: each for each in await start_agents(harness, postgres_url, 3)}

    async def busiest() -> AgentProcess:
        owners: list[int] = []

        def is_known() -> bool:
            owners[:] = [pid for pid in owner_pids(postgres_url) if pid in agents]
            return bool(owners)

        await wait_until(is_known, "a worker with a lease")
        return agents.pop(owners[0])

    third = orders // 3
    await place(range(third))
    (await busiest()).process.kill()
    await place(range(third, 2 * third))
    frozen = await busiest()
    frozen.process.send_signal(signal.SIGSTOP)
    await place(range(2 * third, orders))
    await wait_until(lambda: are_completed(harness, orders), "every Task completed", timeout=300)
    frozen.process.send_signal(signal.SIGCONT)
    assert await frozen.stop() == 0, "it goes on and ends in order"
    await check_done_once(harness, orders)
    FIGURES.add(orders=orders)
