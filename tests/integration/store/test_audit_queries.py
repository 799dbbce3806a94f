"""The audit as pages read it: narrowed, from a number downwards, bounded where no index helps, and each record compared."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import event

from lab_agent.domain.audit import AuditAction, AuditEntry
from lab_agent.ports.audit_queries import AuditCriteria
from lab_agent.store import audit_queries
from lab_agent.store.queries import SqlQueries
from tests.integration.store.conftest import NOW


async def add(store, *entries):
    def work(uow):
        for each in entries:
            uow.audit.add(each)
        uow.commit()

    await store.run(work)


def entry(subject="1", **fields):
    return AuditEntry(**{"at": NOW, "action": AuditAction.JOB_RETRIED, "subject": subject, "by": "anna", **fields})


async def read(store, before=None, limit=50, **criteria):
    return await SqlQueries(store).audit_list(AuditCriteria(**criteria), before=before, limit=limit)


def numbers(found):
    return [each.number for each in found.records]


async def test_empty_audit_has_no_records_and_is_whole(store):
    found = await read(store)
    assert (found.records, found.older_before, found.is_end_whole) == ((), None, True)
    assert await SqlQueries(store).audit_record(1) is None


async def test_pages_follow_each_other(store):
    await add(store, *(entry() for _ in range(5)))
    first = await read(store, limit=2)
    assert (numbers(first), first.older_before, first.is_cut) == ([5, 4], 4, False)
    last = await read(store, before=2, limit=2)
    assert (numbers(last), last.older_before) == ([1], None)
    assert numbers(await read(store, before=99)) == [5, 4, 3, 2, 1]
    assert numbers(await read(store, before=0)) == []


async def test_actor_is_looked_for_among_newest(store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit_queries, "MAX_LOOKED_AT", 3)
    await add(store, entry(by="bert"), *(entry() for _ in range(5)))
    cut = await read(store, actor="bert")
    assert (numbers(cut), cut.is_cut, cut.older_before) == ([], True, 4)
    further = await read(store, actor="bert", before=cut.older_before)
    assert (numbers(further), further.is_cut, further.older_before) == ([1], False, None)


async def test_subject_is_found_however_old(store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit_queries, "MAX_LOOKED_AT", 3)
    await add(store, entry("mine"), *(entry() for _ in range(9)))
    found = await read(store, subject="mine")
    assert (numbers(found), found.is_cut) == ([1], False)


async def test_times_bound_what_is_looked_at(store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit_queries, "MAX_LOOKED_AT", 3)
    monkeypatch.setattr(audit_queries, "_AROUND", 2)
    await add(store, *(entry(at=NOW + timedelta(days=day)) for day in range(12)))
    found = await read(store, actor="anna", since=NOW + timedelta(days=2), until=NOW + timedelta(days=5))
    assert (numbers(found), found.is_cut) == ([5, 4, 3], False)


async def test_times_out_of_order_are_found(store):
    """A record is chained at its commit, which may be after one that was begun later."""
    await add(store, *(entry(at=NOW + timedelta(seconds=second)) for second in (0, 20, 10, 30)))
    found = await read(store, since=NOW + timedelta(seconds=15))
    assert numbers(found) == [4, 2]
    found = await read(store, until=NOW + timedelta(seconds=15))
    assert numbers(found) == [3, 1]


async def test_record_after_purge_fits_its_anchor(store):
    await add(store, *(entry(at=NOW + timedelta(days=day)) for day in range(4)))

    def purge(uow):
        purged = uow.audit.purge(before=NOW + timedelta(days=2))
        uow.commit()
        return purged

    assert await store.run(purge) == 2
    found = await read(store)
    assert (numbers(found), found.broken, found.is_end_whole) == ([4, 3], frozenset(), True)


async def test_note_is_read_with_its_digest(store):
    await add(store, entry(note="called Petrova"), entry())
    queries = SqlQueries(store)
    note = await queries.audit_note(1)
    assert (note.text, note.is_whole) == ("called Petrova", True)
    assert await queries.audit_note(2) is None
    assert await queries.audit_note(3) is None
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
        moments = {"since": NOW - timedelta(days=1), "until": NOW + timedelta(days=1)}
        every = (AuditCriteria(), AuditCriteria(subject="1"), AuditCriteria(actor="anna", **moments))
        for criteria in (*every, AuditCriteria(subject="1", **moments)):
            audit_queries._load_list(connection, store.cipher, criteria, 3, 50)
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
