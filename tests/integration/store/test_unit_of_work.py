"""A unit of work: what it did not commit did not happen."""

from __future__ import annotations

import pytest


async def test_uncommitted_work_is_discarded(store, transact, factory):
    order = factory.order()
    await store.run(lambda uow: uow.orders.add(order))
    assert await transact.orders.existing([order.task_id]) == frozenset()


async def test_committed_work_is_kept(transact, factory):
    order = factory.order()
    await transact.orders.add(order)
    assert await transact.orders.get_for_update(order.key) == order


async def test_error_rolls_back_and_propagates_unchanged(store, transact, factory):
    order = factory.order()

    def work(uow):
        uow.orders.add(order)
        uow.key_values.set("a", "b")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.run(work)
    assert await transact(lambda uow: (uow.orders.existing([order.task_id]), uow.key_values.get("a"))) == (frozenset(), None)


async def test_work_after_commit_needs_another_commit(store, transact):
    def work(uow):
        uow.key_values.set("first", "kept")
        uow.commit()
        uow.key_values.set("second", "lost")

    await store.run(work)
    assert await transact(lambda uow: (uow.key_values.get("first"), uow.key_values.get("second"))) == ("kept", None)


async def test_both_commits_of_one_unit_of_work_kept(store, transact):
    def work(uow):
        for number in "12":
            uow.key_values.set(number, number)
            uow.commit()

    await store.run(work)
    assert await transact(lambda uow: (uow.key_values.get("1"), uow.key_values.get("2"))) == ("1", "2")


async def test_database_has_a_unique_instance_id(transact):
    assert len(await transact.key_values.get("instance")) == 32
