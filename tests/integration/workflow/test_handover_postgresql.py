"""Two workers on one PostgreSQL hand over two parts of one order, while the partner puts the order on hold."""

from __future__ import annotations

import asyncio
import threading

from lab_agent.crypto import Cipher, new_key
from lab_agent.domain.job_records import JobKind
from lab_agent.domain.state_machines import LineState, OrderState, WorkOrderState
from lab_agent.ports.repositories import UnitOfWork
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.worker.claiming import ClaimedJob
from tests.harness.clock import DEADLINE
from tests.harness.orders import procedure_requests
from tests.harness.world import World
from tests.integration.workflow.test_several_laboratory_systems import MICROBIOLOGY, Laboratory, order_template

ONE_HANDOVER = {frozenset({JobKind.SUBMIT_ORDER}): 1}


def place_order(store: SqlStore) -> Laboratory:
    template = order_template(World("handover"))
    items = [procedure_requests(template.bundle)[-1]["code"]["coding"][0]["code"]]
    world = World("handover", store=store, routes=[{"items": items, "adapter": MICROBIOLOGY}])
    return Laboratory(world, world.agent("one"), world.place_order(template))


async def test_part_that_was_loaded_before_its_order_was_taken_back_is_not_handed_over(postgres_url: str) -> None:
    """The claim of one part, not committed yet, is unseen by the worker that takes the order back."""
    upgrade(postgres_url)
    store = SqlStore(postgres_url, Cipher(new_key()))
    try:
        laboratory = place_order(store)
        one, two = laboratory.agent, laboratory.world.agent("two")
        await laboratory.assess()
        [first] = await one.runner.claimer.claim(ONE_HANDOVER)
        claimed, taken_back = threading.Event(), threading.Event()

        def claim_slowly(uow: UnitOfWork) -> tuple[ClaimedJob, ...]:
            found = two.runner.claimer.claim_in(uow, ONE_HANDOVER, load=True)
            claimed.set()
            assert taken_back.wait(DEADLINE)
            uow.commit()
            return found

        claiming = asyncio.create_task(store.run(claim_slowly))
        assert await asyncio.to_thread(claimed.wait, 20)
        laboratory.world.force_task(laboratory.task, status="on-hold")
        await one.runner.run(first)
        assert (await laboratory.order_record()).state is OrderState.HELD
        laboratory.world.force_task(laboratory.task, status="requested")
        taken_back.set()
        [second] = await claiming
        await two.runner.run(second)
        assert (await laboratory.order_record()).state is OrderState.HELD
        assert (laboratory.chemistry.submitted, laboratory.microbiology.submitted) == ([], [])
        await laboratory.wait(60)
        assert (len(laboratory.chemistry.submitted), len(laboratory.microbiology.submitted)) == (1, 1)
        assert set((await laboratory.work_orders()).values()) == {WorkOrderState.HANDED_OVER}
        assert {line.state for line in await laboratory.lines()} == {LineState.ACCEPTED}
    finally:
        await store.close()
