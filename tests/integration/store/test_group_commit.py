"""Group commit on SQLite: units of work that wait together share a commit, and nothing else, also where something goes wrong."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, select, text
from sqlalchemy.exc import OperationalError

from lab_agent.orders.records import LineRecord, OrderRecord, WorkOrder
from lab_agent.queue.job_records import JobKind
from lab_agent.results.records import ReportRecord
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import AlreadyExistsError, StoreError, StoreUnreachableError
from lab_agent.store import engine
from lab_agent.store.event_records import Alert, Event
from lab_agent.store.tables import alerts, events, jobs, label_uses, lines, orders, reports, work_orders
from lab_agent.store.unit_of_work import Store
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.databases import create_database
from tests.harness.store_counts import count_store
from tests.integration.store.conftest import LEASE, NOW, RecordFactory, begun


@pytest.fixture
async def sqlite_store(sqlite_url, cipher, monkeypatch):
    """On a busy machine too, a transaction takes up all that comes while it runs."""
    monkeypatch.setattr("lab_agent.store.group_commit._MAX_SECONDS", DEADLINE)
    store = Store(sqlite_url, cipher)
    await store.transact(lambda uow: uow.key_values.get("opened"))
    yield store
    await store.close()


async def run_together(store, *works):
    """Run units of work that all wait when the thread becomes free; gives their results and errors."""
    async with begun(store) as first:
        waiting = [asyncio.create_task(store.transact(work)) for work in works]
        await asyncio.sleep(0)
    return (await asyncio.gather(first, *waiting, return_exceptions=True))[1:]


def setting(key, value="set"):
    def work(uow):
        uow.key_values.set(key, value)

    return work


async def values(store, *keys):
    return await store.run_read_only(lambda uow: tuple(uow.key_values.get(key) for key in keys))


async def test_waiting_units_share_one_commit(sqlite_store):
    with count_store(sqlite_store) as counts:
        await run_together(sqlite_store, *(setting(f"k{number}") for number in range(10)))
    assert (counts.commits, counts.rollbacks) == (1, 0)
    assert await values(sqlite_store, "k0", "k9") == ("set", "set")


async def test_failing_unit_leaves_nothing_and_disturbs_nobody(sqlite_store, factory):
    """The first of all, one in the middle, and one that is only rehearsed."""

    def fails(uow):
        uow.key_values.set("failing", "set")
        uow.orders.add(factory.order("R1"))
        uow.events.add(Event(order="R1", at=factory.now, action="a", text="t"))
        raise ZeroDivisionError

    works = [fails, setting("a"), fails, setting("kept"), setting("b")]
    rehearsed = asyncio.create_task(
        sqlite_store.rehearse(lambda uow: (setting("rehearsed")(uow), uow.key_values.get("rehearsed")))
    )
    found = await run_together(sqlite_store, *works)
    assert [isinstance(each, ZeroDivisionError) for each in found] == [work is fails for work in works]
    assert (await rehearsed)[1] == "set"
    assert await values(sqlite_store, "a", "kept", "b") == ("set", "set", "set")
    assert await values(sqlite_store, "failing", "rehearsed") == (None, None)
    with pytest.raises(StoreError):
        await sqlite_store.transact(lambda uow: uow.orders.get_for_update("R1"))


async def test_later_unit_sees_what_an_earlier_one_wrote(sqlite_store, factory):
    order = factory.order("R1")

    def adds(uow):
        uow.orders.add(order)

    found = await run_together(sqlite_store, adds, adds, lambda uow: uow.orders.get_for_update("R1"))
    assert isinstance(found[1], AlreadyExistsError)
    assert found[2] == order


async def test_error_at_the_flush_is_of_its_unit(sqlite_store, factory):
    def adds_line_of_nothing(uow):
        uow.key_values.set("lost", "set")
        uow.orders.add_line(factory.line("R-none"))

    found = await run_together(sqlite_store, setting("a"), adds_line_of_nothing, setting("b"))
    assert [type(each) for each in found] == [type(None), StoreError, type(None)]
    assert await values(sqlite_store, "a", "lost", "b") == ("set", None, "set")


async def test_failed_flush_cannot_be_committed_in_part(sqlite_store, factory):
    def insists(uow):
        uow.orders.save(factory.order("R-none"))
        uow.key_values.set("lost", "set")
        with pytest.raises(StoreError):
            uow._session.flush()

    assert isinstance((await run_together(sqlite_store, insists))[0], StoreError)
    assert await values(sqlite_store, "lost") == (None,)


@contextmanager
def failing_commit(store):
    """Let the next commit of the database fail."""

    def fail(connection):
        raise OperationalError("COMMIT", {}, sqlite3.OperationalError("disk I/O error"))

    event.listen(store._engine, "commit", fail)
    try:
        yield
    finally:
        event.remove(store._engine, "commit", fail)


async def test_failed_common_commit_fails_all(sqlite_store):
    with failing_commit(sqlite_store):
        found = await run_together(sqlite_store, setting("a"), lambda uow: uow.key_values.get("a"), setting("b"), lambda _: 1 / 0)
    assert {type(each) for each in found} == {StoreUnreachableError}
    assert await values(sqlite_store, "a", "b") == (None, None)
    await sqlite_store.transact(setting("c"))
    assert await values(sqlite_store, "c") == ("set",)


async def test_full_disk_fails_the_group_and_leaves_nothing(sqlite_store):
    """SQLite rolls the whole transaction back by itself: what comes after must not be written without one."""

    def fills_the_disk(uow):
        connection = uow.jobs._session.connection()
        pages = connection.scalar(text("PRAGMA page_count"))
        connection.execute(text(f"PRAGMA max_page_count={pages + 1}"))
        uow.key_values.set("large", "x" * 10_000_000)

    found = await run_together(sqlite_store, setting("a"), fills_the_disk, setting("b"))
    assert [type(each) for each in found] == [StoreUnreachableError] * 3
    assert await values(sqlite_store, "a", "large", "b") == (None, None, None)


async def test_cancelled_caller_is_not_run_once_it_waits(sqlite_store):
    async with begun(sqlite_store):
        cancelled = asyncio.create_task(sqlite_store.transact(setting("cancelled")))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.sleep(0)
        kept = asyncio.create_task(sqlite_store.transact(setting("kept")))
    await kept
    assert await values(sqlite_store, "cancelled", "kept") == (None, "set")


async def test_work_runs_in_the_context_of_its_caller(sqlite_store):
    name: ContextVar[str] = ContextVar("name")

    async def call(value):
        name.set(value)
        return await sqlite_store.transact(lambda _: name.get())

    assert await asyncio.gather(call("a"), call("b")) == ["a", "b"]


async def test_close_lets_waiting_units_end(sqlite_url, cipher):
    store = Store(sqlite_url, cipher)
    waiting = [asyncio.create_task(store.transact(setting(f"k{number}"))) for number in range(200)]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*waiting)
    with pytest.raises(RuntimeError):
        await store.transact(setting("late"))


# --- units of work together leave what they leave one by one

_STEPS = {
    "add_order": lambda uow, it: uow.orders.add(it.order),
    "save_order": lambda uow, it: uow.orders.save(replace(uow.orders.get_for_update(it.key), reason=it.text, reopened=it.number)),
    "add_line": lambda uow, it: uow.orders.add_line(it.line),
    "save_line": lambda uow, it: uow.orders.save_line(it.line),
    "work_order": lambda uow, it: uow.orders.save_work_order(
        WorkOrder(order=it.key, adapter=f"a{it.number}", changed_at=NOW, reason=it.key)
    ),
    "labels": lambda uow, it: uow.orders.set_labels(it.key, it.labels),
    "event": lambda uow, it: uow.events.add(Event(order=it.key, at=NOW, action=it.step, text=it.text)),
    "set": lambda uow, it: uow.key_values.set(it.key, it.text),
    "job": lambda uow, it: uow.jobs.add(it.job),
    "save_job": lambda uow, it: [uow.jobs.save(job.mark_started(NOW)) for job in uow.jobs.list_for_order(it.key)],
    "report": lambda uow, it: uow.reports.add(it.report),
    "save_report": lambda uow, it: uow.reports.save(it.report),
    "alert": lambda uow, it: uow.alerts.open(
        Alert(condition=ConditionId.LABELS_LOW, subject=it.key, detail=it.text, since=NOW, opened_at=NOW)
    ),
    "close_alert": lambda uow, it: uow.alerts.close(AlertKey(ConditionId.LABELS_LOW, it.key), now=NOW),
    "read": lambda uow, it: (
        uow.orders.existing([f"task-{it.key}"]),
        uow.orders.labels_in_use(["shared", f"{it.number}"], except_order="R0"),
        uow.orders.lines(it.key),
        uow.orders.work_orders(it.key),
        uow.key_values.get(it.key),
    ),
    "read_line": lambda uow, it: (uow.orders.line(f"L{it.number}"), uow.orders.by_barcode("shared", "lis")),
    "fail": lambda uow, it: 1 / 0,
}
_STEP = st.tuples(st.sampled_from(list(_STEPS)), st.sampled_from(["R1", "R2"]), st.integers(0, 3))
_UNITS = st.lists(st.lists(_STEP, max_size=8), min_size=1, max_size=6)


def make_unit(steps, factory):
    return lambda uow: [_STEPS[step](uow, records_of(factory, step, key, number)) for step, key, number in steps]


def records_of(make, step, key, number):
    text = f"{step} {number}"
    line = LineRecord(key=f"L{number}", order=key, task_id=f"t{number}", changed_at=NOW, item=text, adapter="lis")
    return SimpleNamespace(
        step=step,
        key=key,
        number=number,
        text=text,
        line=line,
        order=OrderRecord(key=key, task_id=f"task-{key}", seen_at=NOW, changed_at=NOW, reason=text),
        report=ReportRecord(key=f"P{number}", source=key, message="m", received_at=NOW, changed_at=NOW, body=b"", reason=text),
        labels=[make.label(f"{number}", line), make.label("shared", line)],
        job=make.job(f"{key} {number}", ordering_key=key, order=key),
    )


_VOLATILE = {"jobs": ("created_at", "changed_at")}


async def contents(store):
    """All rows of the tables, without the times that the clock gives, and without what no unit of work here writes."""

    def load(connection):
        return {
            table.name: [
                {name: value for name, value in row.items() if name not in _VOLATILE.get(table.name, ())}
                for row in connection.execute(select(table).order_by(*table.primary_key.columns)).mappings()
            ]
            for table in (orders, lines, work_orders, label_uses, events, jobs, reports, alerts)
        }

    return await store.read(load)


def described(found):
    return [type(each) if isinstance(each, Exception) else each for each in found]


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(units=_UNITS)
async def test_units_together_leave_what_they_leave_one_by_one(units, tmp_path, cipher):
    factory = RecordFactory()
    stores = [Store(create_database(tmp_path / name), cipher) for name in ("together", "alone")]
    works = [make_unit(steps, factory) for steps in units]
    together = await run_together(stores[0], *works)
    alone = [(await asyncio.gather(stores[1].transact(work), return_exceptions=True))[0] for work in works]
    after = [await contents(store) for store in stores]
    for store in stores:
        await store.close()
    for name in ("together", "alone"):
        (tmp_path / name).unlink()
    assert described(together) == described(alone)
    assert after[0] == after[1]


# --- where something goes wrong in the middle of a group, nothing lasts that was not committed


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
async def contended_store(sqlite_url, cipher, monkeypatch, other_program):
    begin = engine._begin_writing
    monkeypatch.setattr(engine, "_BUSY_SECONDS", 0.1)
    monkeypatch.setattr(engine, "_begin_writing", lambda connection: (other_program.before_begin(), begin(connection)))
    store = Store(sqlite_url, cipher)
    await store.transact(lambda uow: uow.key_values.get("opened"))
    yield store
    await store.close()


async def run_against(store, other_program, *works):
    """Run units of work together; another program has SQLite's lock after the first of them, until the third.

    The first sends something and fails: that is rolled back, and the lock is free for a moment.
    """

    def claim(uow):
        uow.jobs.claim({frozenset(JobKind): 1}, owner="one", now=NOW, lease=LEASE)
        other_program.eager = True
        raise ZeroDivisionError

    found = await run_together(store, claim, lambda uow: uow.key_values.get("x"), other_program.release, *works)
    other_program.release()
    return found


async def test_unit_that_fails_after_a_failed_begin_leaves_nothing(contended_store, other_program):
    def fails(uow):
        uow.key_values.set("failing", "set")
        uow.key_values.get("other")
        uow._session.flush()
        raise ZeroDivisionError

    found = await run_against(contended_store, other_program, fails)
    assert StoreUnreachableError in map(type, found)
    assert await values(contended_store, "failing") == (None,)
    await contended_store.transact(setting("after"))
    assert await values(contended_store, "after") == ("set",)


async def test_failed_begin_fails_all_of_the_group(contended_store, other_program):
    """None is told that it is done: whether the rest of the group runs, nobody can say any more.

    Each gets an error of its own: a traceback grows where it is raised, and one that is shared would keep the frames of all.
    """
    found = await run_against(contended_store, other_program, setting("a"), setting("b"))
    assert [type(each) for each in found] == [StoreUnreachableError] * 5
    assert len({id(error) for error in found}) == len({id(error.__traceback__) for error in found}) == len(found)
    assert all(error.__cause__ is not None for error in found)
    assert await values(contended_store, "a", "b") == (None, None)


async def test_transaction_that_somebody_ended_fails_the_group(contended_store):
    """SQLite alone says whether there is a transaction: what is sent without one lasts at once."""

    def ends_it(uow):
        uow.jobs._session.connection().execute(text("ROLLBACK"))

    found = await run_together(contended_store, setting("a"), ends_it, setting("b"))
    assert [type(each) for each in found] == [StoreUnreachableError] * 3
    assert await values(contended_store, "a", "b") == (None, None)


async def test_unit_that_raises_stop_iteration_disturbs_nobody(contended_store):
    """A future takes no StopIteration; the callers after it would wait for ever."""

    def fails(uow):
        next(iter(()))

    async with asyncio.timeout(DEADLINE):
        found = await run_together(contended_store, setting("a"), fails, setting("b"))
    assert [type(each) for each in found] == [type(None), RuntimeError, type(None)]
    assert isinstance(found[1].__cause__, StopIteration)
    assert await values(contended_store, "a", "b") == ("set", "set")


async def test_each_loop_hears_once_what_a_transaction_made_due(contended_store, factory):
    """Callers of two event loops wait in turn; each loop is told once, in its own thread."""
    told = []
    contended_store.on_jobs_due = lambda kinds: told.append((threading.get_ident(), kinds))

    def adds(uow):
        uow.jobs.add(factory.job())

    elsewhere = asyncio.new_event_loop()
    thread = threading.Thread(target=elsewhere.run_forever)
    thread.start()
    waiting = []
    async with begun(contended_store):
        for number in range(6):
            if number % 2:
                other = asyncio.run_coroutine_threadsafe(contended_store.transact(adds), elsewhere)
                waiting.append(asyncio.wrap_future(other))
                await wait_until(lambda number=number: len(contended_store._writers._waiting) > number)
            else:
                waiting.append(asyncio.create_task(contended_store.transact(adds)))
                await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    elsewhere.call_soon_threadsafe(elsewhere.stop)
    await asyncio.to_thread(thread.join, DEADLINE)
    elsewhere.close()
    kinds = frozenset({JobKind.UPDATE_LINE_TASK})
    assert sorted(told) == sorted([(thread.ident, kinds), (threading.get_ident(), kinds)])
