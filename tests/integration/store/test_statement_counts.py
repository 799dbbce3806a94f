"""What a unit of work asks of its database, counted: it must not grow unnoticed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import text

from lab_agent.domain.records import Event
from lab_agent.errors import StoreError
from lab_agent.monitoring.cause_groups import read_groups
from lab_agent.ports.read_models import OrderCriteria
from lab_agent.store.queries import SqlQueries
from tests.harness.store_counts import count_store


async def test_counts_statements_and_how_transactions_end(store, transact, sql_url):
    await store.run(lambda uow: uow.key_values.get("a"))
    with count_store(store) as counts:
        await transact.key_values.set("a", "b")
        await store.run(lambda uow: uow.key_values.get("a"))
        await store.run_read_only(lambda uow: uow.key_values.get("a"))
    ends = (counts.commits, counts.empty_commits, counts.rollbacks, counts.empty_rollbacks)
    assert ends == ((1, 0, 1, 1) if sql_url.startswith("sqlite") else (2, 1, 0, 0))  # a rollback costs prepared statements there
    assert (counts.statements, counts.writes, counts.read_only) == (3, 1, 1)
    assert counts.by_table == {"INSERT key_values": 1, "SELECT key_values": 2}


async def test_rows_of_a_kind_are_written_in_one_statement(store, transact, factory):
    order = factory.order("R1")
    lines = [factory.line("R1") for _ in range(5)]
    await transact(lambda uow: (uow.orders.add(order), [uow.orders.add_line(line) for line in lines]))

    def work(uow):
        uow.orders.get_for_update("R1")  # without the lock, a row goes at once on PostgreSQL
        for line in lines:
            uow.orders.save_line(replace(uow.orders.line(line.key), item="x"))
            uow.events.add(Event(order=order.key, at=factory.now, action="a", text="t"))
            uow.uploads.save(factory.upload(line.key))

    with count_store(store) as counts:
        await transact(work)
    assert counts.by_table == {
        "SELECT orders": 1,
        "SELECT lines": 1,
        "UPDATE lines": 1,
        "INSERT events": 1,
        "INSERT uploads": 1,
    }


async def test_order_is_read_and_written_once_in_a_unit_of_work(store, transact, factory):
    order = factory.order("R1")
    await transact.orders.add(order)

    def work(uow):
        for number in range(1, 5):
            uow.orders.save(replace(uow.orders.get_for_update("R1"), reopened=number))
            uow.orders.lines("R1")

    with count_store(store) as counts:
        await transact(work)
    assert counts.by_table == {"SELECT orders": 1, "SELECT lines": 1, "UPDATE orders": 1}
    assert (await transact.orders.get_for_update("R1")).reopened == 4


async def test_what_did_not_change_is_not_written(store, transact, factory):
    order, line = factory.order("R1"), factory.line("R1")
    await transact(lambda uow: (uow.orders.add(order), uow.orders.add_line(line)))

    def work(uow):
        uow.orders.save(uow.orders.get_for_update("R1"))
        uow.orders.save_line(uow.orders.lines("R1")[0])

    with count_store(store) as counts:
        await transact(work)
    assert counts.writes == 0


async def test_page_of_orders_is_one_statement_without_transaction(store, transact, factory):
    await transact.orders.add(factory.order("R1"))
    queries = SqlQueries(store)
    for criteria in (OrderCriteria(), OrderCriteria(search="R1"), OrderCriteria(search="nothing")):
        await queries.order_list(criteria)
        with count_store(store) as counts:
            await queries.order_list(criteria)
        assert (counts.statements, counts.control, counts.read_only) == (1, 0, 1), counts.report()


async def test_overview_is_one_statement_without_transaction(store, factory):
    queries = SqlQueries(store)
    await queries.overview_page(now=factory.now, since=factory.now)
    with count_store(store) as counts:
        await queries.overview_page(now=factory.now, since=factory.now)
    assert (counts.statements, counts.control) == (1, 0), counts.report()


async def test_look_at_all_groups_is_one_statement(store, factory):
    await store.look(lambda uow: read_groups(uow, factory.now))
    with count_store(store) as counts:
        await store.look(lambda uow: read_groups(uow, factory.now))
    assert (counts.statements, counts.control) == (1, 0), counts.report()


@pytest.mark.parametrize("one_moment", [True, False])
async def test_reader_cannot_write(store, one_moment):
    write = text("INSERT INTO key_values (key, value) VALUES ('a', 'b')")
    with pytest.raises(StoreError):
        await store.read(lambda connection: connection.execute(write), one_moment=one_moment)
    assert await store.look(lambda uow: uow.key_values.get("a")) is None
