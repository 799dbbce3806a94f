"""Three agents on one PostgreSQL: one is killed and one stands still at their work; the orders end all the same, each once."""

from __future__ import annotations

import signal
from collections import Counter

import pytest
from sqlalchemy import text

from lab_agent.store.engine import open_engine
from lab_agent.store.schema import upgrade
from lab_sandbox.partner.basket import Basket, choose_item
from lab_sandbox.partner.order_generator import OrderPlan
from lab_sandbox.partner.random_source import seeded_random
from tests.harness.clock import wait_until
from tests.harness.installation import AgentProcess, ProcessHarness
from tests.harness.proof import FIGURES, in_full

MANY, FEW = 90, 15


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
@pytest.mark.parametrize("orders", [FEW, pytest.param(MANY, marks=[pytest.mark.proof, in_full])])
async def test_work_of_lost_workers_moves_to_the_third(harness: ProcessHarness, postgres_url: str, orders: int) -> None:
    upgrade(postgres_url)
    offer = {item["id"]: item for item in await harness.client.nomenclature()}
    blood = choose_item(offer["001.001"], seeded_random("three"), option=offer["001.001"]["specimen"][0])
    basket = Basket(harness.client.account.contract, (blood,))
    prepared = await harness.clinic.prepare_basket(OrderPlan(seed="three", basket=basket))
    environment = {"LAB_AGENT_STORE__URL": postgres_url, "LAB_AGENT_STATUS__PORT": "0"}  # each has an address of its own
    started = [await harness.start_agent(**environment) for _ in range(3)]
    agents = {each.process.pid: each for each in started}
    await wait_until(lambda: len(harness.log_lines("action=worker_started")) == 3, "three workers")

    async def place(numbers: range) -> None:
        for number in numbers:
            plan = OrderPlan(seed=f"three-{number}", basket=basket, patient="reused")
            await harness.clinic.send_bundle(await harness.clinic.build_bundle(plan, prepared))

    async def busiest() -> AgentProcess:
        owners: list[int] = []

        def is_known() -> bool:
            owners[:] = [pid for pid in owner_pids(postgres_url) if pid in agents]
            return bool(owners)

        await wait_until(is_known, "a worker with a lease")
        return agents.pop(owners[0])

    third = orders // 3
    await place(range(third))
    killed = await busiest()
    killed.process.kill()
    await place(range(third, 2 * third))
    frozen = await busiest()
    frozen.process.send_signal(signal.SIGSTOP)
    await place(range(2 * third, orders))

    async def all_ended() -> bool:
        tasks = await harness.search("task")
        return len(tasks) == 2 * orders and {task["status"] for task in tasks} == {"completed"}

    await wait_until(all_ended, "every Task completed", timeout=300)
    frozen.process.send_signal(signal.SIGCONT)
    assert await frozen.stop() == 0, "it goes on and ends in order"
    assert await all_ended()
    for kind in ("DiagnosticReport", "Observation"):
        identifiers = Counter(one["identifier"][0]["value"] for one in await harness.search(kind))
        assert len(identifiers) == orders
        assert set(identifiers.values()) == {1}
    assert set(harness.lis.received_counts().values()) == {1}
    assert len(harness.lis.received) == orders
    FIGURES.add(orders=orders)
