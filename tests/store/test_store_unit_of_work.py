"""A unit of work: what it did not commit did not happen."""

from __future__ import annotations

import pytest


async def test_nothing_is_kept_without_commit(store, transact, factory):
    order = factory.order()
    await store.run(lambda uow: uow.orders.add(order))
    assert await transact(lambda uow: uow.orders.known([order.task_id])) == frozenset()


async def test_what_was_committed_is_kept(transact, factory):
    order = factory.order()
    await transact(lambda uow: uow.orders.add(order))
    assert await transact(lambda uow: uow.orders.take(order.key)) == order


async def test_an_error_rolls_back_and_comes_out_as_it_is(store, transact, factory):
    order = factory.order()

    def work(uow):
        uow.orders.add(order)
        uow.book.note("a", "b")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await store.run(work)
    assert await transact(lambda uow: (uow.orders.known([order.task_id]), uow.book.noted("a"))) == (frozenset(), None)


async def test_what_follows_the_commit_needs_another(store, transact):
    def work(uow):
        uow.book.note("first", "kept")
        uow.commit()
        uow.book.note("second", "lost")

    await store.run(work)
    assert await transact(lambda uow: (uow.book.noted("first"), uow.book.noted("second"))) == ("kept", None)


async def test_two_commits_in_one_unit_of_work(store, transact):
    def work(uow):
        for number in "12":
            uow.book.note(number, number)
            uow.commit()

    await store.run(work)
    assert await transact(lambda uow: (uow.book.noted("1"), uow.book.noted("2"))) == ("1", "2")


async def test_a_database_has_a_name_of_its_own(transact):
    assert len(await transact(lambda uow: uow.book.noted("instance"))) == 32
