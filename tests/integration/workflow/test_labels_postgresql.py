"""Two workers on one PostgreSQL assess two orders with one tube at the same moment: the label goes to one of them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from lab_agent.crypto import Cipher, new_key
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.state_machines import OrderState
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import SqlStore
from tests.harness.world import World
from tests.integration.workflow.conftest import pick_template


async def test_label_claimed_by_two_orders_goes_to_one(postgres_url: str) -> None:
    upgrade(postgres_url)
    store = SqlStore(postgres_url, Cipher(new_key()))
    try:
        world = World("labels", store=store)
        for _ in range(4):
            again = pick_template(world, 1)
            other = replace(again, patient={**again.patient, "birthDate": "1950-01-01"})
            tasks = [world.place_order(each) for each in (again, other)]
            workers = [world.agent("one"), world.agent("two")]
            await workers[0].poll.run()
            for _ in range(6):
                await asyncio.gather(*(worker.run_jobs(JobKind.FETCH_ORDER, limit=1) for worker in workers))
                world.clock.advance(6)
            states = [(await world.stored_order(task))[0].state for task in tasks]
            assert states.count(OrderState.FETCHED) <= 1
            assert set(states) <= {OrderState.FETCHED, OrderState.HELD}
    finally:
        await store.close()
