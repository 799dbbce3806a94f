"""Group commit on SQLite where something goes wrong in the middle of a group: nothing lasts that was not committed."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing

import pytest
from sqlalchemy import text

from lab_agent.domain.job_records import JobKind
from lab_agent.errors import StoreUnreachableError
from lab_agent.store import engine
from lab_agent.store.unit_of_work import SqlStore
from tests.harness.clock import DEADLINE, wait_until
from tests.integration.store.conftest import LEASE, NOW, begun
from tests.integration.store.test_group_commit import run_together, setting, values


class OtherProgram:
    """A program on the same file, which has SQLite's lock from the store's next BEGIN on, once it is `eager`."""

    def __init__(self, connection):
        self._connection = connection
        self.eager = False

    def before_begin(self):
        if self.eager:
            self._connection.execute("BEGIN IMMEDIATE")
            self.eager = False

    def release(self, _=None):
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


@pytest.fixture
def other_program(sqlite_url):
    path = sqlite_url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        yield OtherProgram(connection)


@pytest.fixture
async def sqlite_store(sqlite_url, cipher, monkeypatch, other_program):
    begin = engine._begin_writing
    monkeypatch.setattr(engine, "_BUSY_SECONDS", 0.1)
    monkeypatch.setattr(engine, "_begin_writing", lambda connection: (other_program.before_begin(), begin(connection)))
    store = SqlStore(sqlite_url, cipher)
    await store.run(lambda uow: uow.key_values.get("opened"))
    yield store
    await store.close()


async def run_against(store, other_program, *works):
    """Run units of work together; another program has SQLite's lock after the first of them, until the third.

    The first is a claim that finds nothing: what it sent is rolled back, and the lock is free for a moment.
    """

    def claim(uow):
        uow.jobs.claim({frozenset(JobKind): 1}, owner="one", now=NOW, lease=LEASE)
        other_program.eager = True

    found = await run_together(store, claim, lambda uow: uow.key_values.get("x"), other_program.release, *works)
    other_program.release()
    return found


async def test_unit_that_fails_after_a_failed_begin_leaves_nothing(sqlite_store, other_program):
    def fails(uow):
        uow.key_values.set("failing", "set")
        uow.key_values.get("other")
        uow._session.flush()
        raise ZeroDivisionError

    found = await run_against(sqlite_store, other_program, fails)
    assert StoreUnreachableError in map(type, found)
    assert await values(sqlite_store, "failing") == (None,)
    await sqlite_store.run(setting("after"))
    assert await values(sqlite_store, "after") == ("set",)


async def test_failed_begin_fails_all_of_the_group(sqlite_store, other_program):
    """None is told that it is done: whether the rest of the group runs, nobody can say any more.

    Each gets an error of its own: a traceback grows where it is raised, and one that is shared would keep the frames of all.
    """
    found = await run_against(sqlite_store, other_program, setting("a"), setting("b"))
    assert [type(each) for each in found] == [StoreUnreachableError] * 5
    assert len({id(error) for error in found}) == len({id(error.__traceback__) for error in found}) == len(found)
    assert all(error.__cause__ is not None for error in found)
    assert await values(sqlite_store, "a", "b") == (None, None)


async def test_transaction_that_somebody_ended_fails_the_group(sqlite_store):
    """SQLite alone says whether there is a transaction: what is sent without one lasts at once."""

    def ends_it(uow):
        uow.jobs._session.connection().execute(text("ROLLBACK"))

    found = await run_together(sqlite_store, setting("a"), ends_it, setting("b"))
    assert [type(each) for each in found] == [StoreUnreachableError] * 3
    assert await values(sqlite_store, "a", "b") == (None, None)


async def test_unit_that_raises_stop_iteration_disturbs_nobody(sqlite_store):
    """A future takes no StopIteration; the callers after it would wait for ever."""

    def fails(uow):
        next(iter(()))

    async with asyncio.timeout(DEADLINE):
        found = await run_together(sqlite_store, setting("a"), fails, setting("b"))
    assert [type(each) for each in found] == [type(None), RuntimeError, type(None)]
    assert isinstance(found[1].__cause__, StopIteration)
    assert await values(sqlite_store, "a", "b") == ("set", "set")


async def test_each_loop_hears_once_what_a_transaction_made_due(sqlite_store, factory):
    """Callers of two event loops wait in turn; each loop is told once, in its own thread."""
    told = []
    sqlite_store.on_jobs_due = lambda kinds: told.append((threading.get_ident(), kinds))

    def adds(uow):
        uow.jobs.add(factory.job())
        uow.commit()

    elsewhere = asyncio.new_event_loop()
    thread = threading.Thread(target=elsewhere.run_forever)
    thread.start()
    waiting = []
    async with begun(sqlite_store):
        for number in range(6):
            if number % 2:
                other = asyncio.run_coroutine_threadsafe(sqlite_store.run(adds), elsewhere)
                waiting.append(asyncio.wrap_future(other))
                await wait_until(lambda number=number: len(sqlite_store._writers._waiting) > number)
            else:
                waiting.append(asyncio.create_task(sqlite_store.run(adds)))
                await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    elsewhere.call_soon_threadsafe(elsewhere.stop)
    await asyncio.to_thread(thread.join, DEADLINE)
    elsewhere.close()
    kinds = frozenset({JobKind.UPDATE_LINE_TASK})
    assert sorted(told) == sorted([(thread.ident, kinds), (threading.get_ident(), kinds)])
