"""What a unit of work asks of its database, counted: it must not grow unnoticed."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from lab_agent.operations.cause_groups import read_groups
from lab_agent.shared.errors import StoreError
from lab_agent.store.queries import Queries
from lab_agent.store.read_models import OrderCriteria
from tests.harness.store_counts import count_store
from tests.integration.store.conftest import NOW


@pytest.fixture
async def order(transact, factory):
    """An order with five lines."""
    made = factory.order("R1")
    await transact(lambda uow: (uow.orders.add(made), [uow.orders.add_line(factory.line("R1", f"L{n}")) for n in range(5)]))
    return made


async def test_page_is_one_statement_without_transaction(store, order):
    queries = Queries(store)
    for name, page in (
        ("orders", lambda: queries.order_list(OrderCriteria())),
        ("found orders", lambda: queries.order_list(OrderCriteria(search="R1"))),
        ("no order", lambda: queries.order_list(OrderCriteria(search="nothing"))),
        ("overview", lambda: queries.overview_page(now=NOW, since=NOW)),
        ("groups", lambda: store.look(lambda uow: read_groups(uow, NOW))),
    ):
        await page()
        with count_store(store) as counts:
            await page()
        assert (counts.statements, counts.control, counts.read_only) == (1, 0, 1), (name, counts.report())


@pytest.mark.parametrize("one_moment", [True, False])
async def test_reader_cannot_write(store, one_moment):
    write = text("INSERT INTO key_values (key, value) VALUES ('a', 'b')")
    with pytest.raises(StoreError):
        await store.read(lambda connection: connection.execute(write), one_moment=one_moment)
    for _ in range(8):  # on each connection for reading, also the one that refused it
        assert await store.look(lambda uow: uow.key_values.get("a")) is None
        assert await store.run_read_only(lambda uow: uow.key_values.get("a")) is None
