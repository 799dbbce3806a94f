"""Two workers on one PostgreSQL judge two orders with one tube at the same moment: the label goes to one of them."""

from __future__ import annotations

import asyncio

from lab_agent.crypto import Cipher, new_key
from lab_agent.domain.journal import JobKind
from lab_agent.domain.lifecycle import OrderState
from lab_agent.store.migrate import upgrade
from lab_agent.store.unit_of_work import SqlStore
from tests.simulation.world import World
from tests.steps.conftest import pick_template


async def test_a_label_that_two_orders_claim_at_once_goes_to_one_of_them(postgres_url: str) -> None:
    upgrade(postgres_url)
    store = SqlStore(postgres_url, Cipher(new_key()))
    try:
        world = World("labels", store=store)
        for _ in range(4):
            again = pick_template(world, 1)
            tasks = [world.place_order(again) for _ in range(2)]
            workers = [world.agent("one"), world.agent("two")]
            await workers[0].poll.run()
            for _ in range(6):
                await asyncio.gather(*(worker.run_jobs(JobKind.FETCH_ORDER, limit=1) for worker in workers))
                world.clock.advance(6)
            states = [(await world.stored_order(task))[0].state for task in tasks]
            assert states.count(OrderState.FETCHED) <= 1
            assert set(states) <= {OrderState.FETCHED, OrderState.REJECTED}
    finally:
        await store.close()
