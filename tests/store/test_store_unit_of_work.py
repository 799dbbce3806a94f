"""A unit of work: what it did not commit did not happen."""

from __future__ import annotations

import pytest


async def test_nothing_is_kept_without_commit(store, transact, factory):
    order = factory.order()
    await store.run(lambda uow: uow.orders.add(order))
    assert await transact(lambda uow: uow.orders.existing([order.task_id])) == frozenset()


async def test_what_was_committed_is_kept(transact, factory):
    order = factory.order()
    await transact(lambda uow: uow.orders.add(order))
    assert await transact(lambda uow: uow.orders.get_for_update(order.key)) == order


async def test_an_error_rolls_back_and_comes_out_as_it_is(store, transact, factory):
    order = factory.order()

    def work(uow):
        uow.orders.add(order)
        uow.key_values.set("a", "b")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.run(work)
    assert await transact(lambda uow: (uow.orders.existing([order.task_id]), uow.key_values.get("a"))) == (frozenset(), None)


async def test_what_follows_the_commit_needs_another(store, transact):
    def work(uow):
        uow.key_values.set("first", "kept")
        uow.commit()
        uow.key_values.set("second", "lost")

    await store.run(work)
    assert await transact(lambda uow: (uow.key_values.get("first"), uow.key_values.get("second"))) == ("kept", None)


async def test_two_commits_in_one_unit_of_work(store, transact):
    def work(uow):
        for number in "12":
            uow.key_values.set(number, number)
            uow.commit()

    await store.run(work)
    assert await transact(lambda uow: (uow.key_values.get("1"), uow.key_values.get("2"))) == ("1", "2")


async def test_a_database_has_a_name_of_its_own(transact):
    assert len(await transact(lambda uow: uow.key_values.get("instance"))) == 32
