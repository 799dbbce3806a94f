"""Two workers on one PostgreSQL share the orders: none is done twice, none is forgotten."""

from __future__ import annotations

from collections import Counter

import pytest

from lab_agent.store.schema import upgrade
from lab_sandbox.partner.basket import Basket, choose_item
from lab_sandbox.partner.order_generator import OrderPlan
from lab_sandbox.partner.random_source import seeded_random
from tests.harness.clock import wait_until
from tests.harness.installation import ProcessHarness
from tests.harness.proof import FIGURES, in_full

MANY, FEW = 200, 20


@pytest.mark.timeout(400)
@pytest.mark.parametrize("orders", [FEW, pytest.param(MANY, marks=[pytest.mark.proof, in_full])])
async def test_two_workers_share_orders_without_duplicates(harness: ProcessHarness, postgres_url: str, orders: int) -> None:
    upgrade(postgres_url)
    offer = {item["id"]: item for item in await harness.client.nomenclature()}
    blood = choose_item(offer["001.001"], seeded_random("two"), option=offer["001.001"]["specimen"][0])
    basket = Basket(harness.client.account.contract, (blood,))
    prepared = await harness.clinic.prepare_basket(OrderPlan(seed="two", basket=basket))
    placed = []
    for number in range(orders):
        plan = OrderPlan(seed=f"two-{number}", basket=basket, patient="reused")
        placed.append(await harness.clinic.send_bundle(await harness.clinic.build_bundle(plan, prepared)))

    for _ in range(2):
        await harness.start_agent(LAB_AGENT_STORE__URL=postgres_url, LAB_AGENT_STATUS__PORT="0")  # an address of its own
    await wait_until(lambda: len(harness.log_lines("action=worker_started")) == 2, "two workers")

    async def all_ended() -> bool:
        waiting = await harness.search("task", {"status": "requested", "code": "OrderProcessingTask"})
        return not waiting

    await wait_until(all_ended, "no order-level Task in status requested any more", timeout=300)
    assert set(harness.lis.received_counts().values()) == {1}
    assert len(harness.lis.received) == orders
    assert sorted(order["requisition"]["value"] for order in harness.lis.received) == sorted(one.requisition for one in placed)
    for kind, number in (("DiagnosticReport", orders), ("Observation", orders)):
        identifiers = Counter(one["identifier"][0]["value"] for one in await harness.search(kind))
        assert len(identifiers) == number
        assert set(identifiers.values()) == {1}
    tasks = await harness.search("task")
    assert Counter(task["status"] for task in tasks) == {"completed": 2 * orders}
    FIGURES.add(orders=orders, lost=0, twice=0)
