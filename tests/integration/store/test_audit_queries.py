"""The audit as pages read it: narrowed, from a number downwards, bounded where no index helps, and each record compared."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import event

from lab_agent.ports.audit_queries import AuditCriteria
from lab_agent.store import audit_queries
from lab_agent.store.queries import SqlQueries
from tests.integration.store.conftest import NOW
from tests.integration.store.test_audit import add, entry

DAY = timedelta(days=1)


@pytest.fixture
def few_looked_at(monkeypatch):
    monkeypatch.setattr(audit_queries, "MAX_LOOKED_AT", 3)
    monkeypatch.setattr(audit_queries, "_AROUND", 2)


async def read(store, before=None, limit=50, **criteria):
    return await SqlQueries(store).audit_list(AuditCriteria(**criteria), before=before, limit=limit)


def numbers(found):
    return [each.number for each in found.records]


async def test_pages_follow_each_other(store):
    found = await read(store)
    assert (found.records, found.older_before, found.is_end_whole) == ((), None, True)
    assert await SqlQueries(store).audit_record(1) is None
    await add(store, *(entry() for _ in range(5)))
    first = await read(store, limit=2)
    assert (numbers(first), first.older_before, first.is_cut) == ([5, 4], 4, False)
    last = await read(store, before=2, limit=2)
    assert (numbers(last), last.older_before) == ([1], None)
    assert numbers(await read(store, before=99)) == [5, 4, 3, 2, 1]
    assert numbers(await read(store, before=0)) == []


async def test_actor_is_looked_for_among_newest(store, few_looked_at):
    """A subject is found however old."""
    await add(store, entry("mine", by="bert"), *(entry() for _ in range(5)))
    cut = await read(store, actor="bert")
    assert (numbers(cut), cut.is_cut, cut.older_before) == ([], True, 4)
    further = await read(store, actor="bert", before=cut.older_before)
    assert (numbers(further), further.is_cut, further.older_before) == ([1], False, None)
    found = await read(store, subject="mine")
    assert (numbers(found), found.is_cut) == ([1], False)


async def test_times_bound_what_is_looked_at(store, few_looked_at):
    await add(store, *(entry(at=NOW + day * DAY) for day in range(12)))
    found = await read(store, actor="anna", since=NOW + 2 * DAY, until=NOW + 5 * DAY)
    assert (numbers(found), found.is_cut) == ([5, 4, 3], False)


async def test_times_out_of_order_are_found(store):
    """A record is chained at its commit, which may be after one that was begun later."""
    await add(store, *(entry(at=NOW + timedelta(seconds=second)) for second in (0, 20, 10, 30)))
    middle = NOW + timedelta(seconds=15)
    assert [numbers(await read(store, since=middle)), numbers(await read(store, until=middle))] == [[4, 2], [3, 1]]


async def test_record_after_purge_fits_its_anchor(store, transact):
    await add(store, *(entry(at=NOW + day * DAY) for day in range(4)))
    assert await transact.audit.purge(before=NOW + 2 * DAY) == 2
    found = await read(store)
    assert (numbers(found), found.broken, found.is_end_whole) == ([4, 3], frozenset(), True)


async def test_note_is_read_with_its_digest(store):
    await add(store, entry(note="called Petrova"), entry())
    queries = SqlQueries(store)
    note = await queries.audit_note(1)
    assert (note.text, note.is_whole) == ("called Petrova", True)
    assert [await queries.audit_note(number) for number in (2, 3)] == [None, None]
    checked = await queries.audit_record(1)
    assert (checked.record.number, checked.is_whole) == (1, True)


async def test_no_page_reads_the_whole_table(store):
    """Every statement of a page goes by an index; SQLite alone tells its plan so simply."""
    await add(store, *(entry() for _ in range(3)))
    asked = []

    def remember(connection, cursor, statement, parameters, context, many):
        asked.append((statement, parameters))

    def plans(connection):
        if connection.dialect.name != "sqlite":
            pytest.skip("a plan of SQLite")
        event.listen(connection, "before_cursor_execute", remember)
        moments = {"since": NOW - DAY, "until": NOW + DAY}
        for criteria in ({}, {"subject": "1"}, {"actor": "anna", **moments}, {"subject": "1", **moments}):
            audit_queries._load_list(connection, store.cipher, AuditCriteria(**criteria), 3, 50)
        event.remove(connection, "before_cursor_execute", remember)
        return [
            row[-1]
            for statement, parameters in asked
            if "audit_records" in statement
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]

    steps = await store.read(plans)
    assert [step for step in steps if step == "SCAN audit_records"] == []
    assert [step for step in steps if "SEARCH audit_records" in step]
    assert sum("ix_audit_records_subject" in step for step in steps) == 2
