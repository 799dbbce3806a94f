"""What a unit of work asks of its database, counted: it must not grow unnoticed."""

from __future__ import annotations

from tests.harness.store_counts import count_store


async def test_counts_statements_and_how_transactions_end(sql_store, transact_sql):
    await sql_store.run(lambda uow: uow.key_values.get("a"))
    with count_store(sql_store) as counts:
        await transact_sql(lambda uow: uow.key_values.set("a", "b"))
        await sql_store.run(lambda uow: uow.key_values.get("a"))
        await sql_store.run_read_only(lambda uow: uow.key_values.get("a"))
    assert (counts.statements, counts.writes, counts.commits) == (3, 1, 1)
    assert (counts.rollbacks, counts.empty_rollbacks, counts.read_only) == (1, 1, 1)
    assert counts.by_table == {"INSERT key_values": 1, "SELECT key_values": 2}
