"""Laboratory systems that owe results, as the store counts them and the probe tells it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from lab_agent.operations.overdue import OverdueResultsProbe
from lab_agent.orders.records import WorkOrder
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.state_machines import LineState, OrderState, WorkOrderState
from lab_agent.store.queries import Queries
from tests.harness.clock import VirtualClock

HOUR = timedelta(hours=1)


@pytest.fixture
def add(transact, factory):
    """Adds an order that was due so many hours ago, with lines at one laboratory system."""

    async def add_order(key, adapter, hours, *, lines=2, line_state=LineState.ACCEPTED, state=OrderState.HANDED_OVER, part=None):
        def work(uow):
            uow.orders.add(factory.order(key, state=state, expected_at=factory.now - hours * HOUR))
            handed = part or WorkOrderState.HANDED_OVER
            uow.orders.save_work_order(WorkOrder(order=key, adapter=adapter, state=handed, changed_at=factory.now))
            for number in range(lines):
                uow.orders.add_line(factory.line(key, f"{key}-{number}", state=line_state, adapter=adapter))

        await transact(work)

    return add_order


@pytest.fixture
def receive(transact, factory):
    """Stores a result of a laboratory system that came so many hours ago."""

    return lambda adapter, hours: transact.reports.add(factory.report(source=adapter, received_at=factory.now - hours * HOUR))


@pytest.fixture
def look(store, factory):
    async def find():
        probe = OverdueResultsProbe(Queries(store), VirtualClock(factory.now), 4 * HOUR)
        return [(each.condition, each.subject, each.since, each.count, each.detail) for each in await probe.look()]

    return find


async def test_system_that_never_reported_is_silent(add, look, factory):
    await add("A", "main", 5)
    await add("B", "main", 9, lines=1)
    await add("C", "main", 3)  # not late enough
    since = factory.now - 9 * HOUR
    assert await look() == [(ConditionId.LIS_SILENT, "main", since, 3, "3 lines are overdue; it has never sent one")]


async def test_silence_counts_from_what_was_due_after_last_result(add, receive, look, factory):
    await add("OLD", "main", 200)
    await receive("main", 20)
    await receive("main", 10)
    await add("A", "main", 8, lines=1)
    last = factory.now - 10 * HOUR
    detail = f"1 line is overdue; its last came {last:%Y-%m-%d %H:%M} UTC"
    assert await look() == [(ConditionId.LIS_SILENT, "main", factory.now - 8 * HOUR, 1, detail)]


async def test_system_that_reports_others_owes_single_orders(add, receive, look, factory):
    """Each system is judged by itself."""
    await add("A", "main", 8)
    await add("B", "main", 6)
    await add("C", "other", 8)
    await receive("main", 1)
    await receive("third", 0)
    since = factory.now - 8 * HOUR
    owed, silent = await look()
    assert owed == (ConditionId.ORDERS_OVERDUE, "main", since, 2, "")
    assert silent[:4] == (ConditionId.LIS_SILENT, "other", since, 2)


async def test_nothing_owed_told_by_nothing(add, look):
    """What was reported or withdrawn, and what the laboratory system does not have yet."""
    for number, order in enumerate(
        (
            {"line_state": LineState.COMPLETED},
            {"line_state": LineState.WITHDRAWN},
            {"state": OrderState.CLOSED},
            {"state": OrderState.HELD},
            {"part": WorkOrderState.ACCEPTED},
            {"part": WorkOrderState.CANCELLED},
        )
    ):
        await add(f"R{number}", "main", 8, **order)
        assert await look() == [], order
