"""The audit: chained, kept with what it tells of, every way to alter it found; and as pages read it, from a number downwards."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest
from sqlalchemy import delete, insert, select, text, update

from lab_agent.shared.errors import StoreError
from lab_agent.shared.ids import OrderKey
from lab_agent.store import audit_queries
from lab_agent.store.audit_mark import AuditMarkFile
from lab_agent.store.audit_origin import find_origin
from lab_agent.store.audit_queries import AuditCriteria
from lab_agent.store.audit_records import AuditAction, AuditChannel, AuditEntry, AuditOrigin
from lab_agent.store.audit_tables import audit_head, audit_notes, audit_records
from lab_agent.store.audit_verification import AuditBreak, AuditFilter, head_mark, iterate_records, list_records, verify_audit
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.key_rotation import rotate_keys
from lab_agent.store.queries import Queries
from lab_agent.store.unit_of_work import Store
from tests.integration.store.conftest import NOW, with_store

ORDER = OrderKey("R1")
COLUMNS = ("action", "channel", "actor", "origin", "subject", "details", "note_digest", "hash")


def entry(subject="1", **fields):
    return AuditEntry(**{"at": NOW, "action": AuditAction.JOB_RETRIED, "subject": subject, "by": "anna", **fields})


async def add(store, *entries):
    def work(uow):
        for each in entries:
            uow.audit.add(each)

    await store.transact(work)


async def records(store):
    return await store.read(lambda connection: tuple(iterate_records(connection)))


async def verdict(store, cipher, mark=None):
    return await store.read(lambda connection: verify_audit(connection, cipher, mark))


async def alter(store, *statements):
    """Do to the tables what somebody does who may write to the database: triggers are put out of the way first."""

    def work(connection, _):
        without = [text(f"DROP TRIGGER IF EXISTS audit_records_no_{change}") for change in ("update", "delete")]
        if connection.dialect.name == "postgresql":
            without = [text("SET LOCAL session_replication_role = replica")]
        for statement in (*without, *statements):
            connection.execute(statement)

    await store.write(work)


@pytest.fixture
async def filled(store):
    await add(store, *(entry(str(number), note=f"note {number}", order=ORDER) for number in range(1, 6)))
    return store


async def test_records_are_numbered_and_whole(filled, cipher):
    """Those of units of work that were committed."""

    def fails(uow):
        uow.audit.add(entry("never"))
        uow.audit.flush()
        raise StoreError("undone")

    with pytest.raises(StoreError, match="undone"):
        await filled.transact(fails)
    await filled.rehearse(lambda uow: uow.audit.add(entry("rehearsed")))
    await add(filled, entry("6"))
    assert [each.number for each in await records(filled)] == [1, 2, 3, 4, 5, 6]
    found = await verdict(filled, cipher)
    assert (found.broken, found.records, found.last, found.notes) == (None, 6, 6, 5)


async def test_many_writers_make_one_chain(sql_url, cipher):
    stores = [Store(sql_url, cipher) for _ in range(3)]
    await asyncio.gather(*(add(store, entry(f"{number}")) for number in range(20) for store in stores))
    found = await verdict(stores[0], cipher)
    assert (found.broken, found.records) == (None, 60)
    for store in stores:
        await store.close()


async def test_page_command_and_agent_are_told_apart(sql_url, cipher):
    store = Store(sql_url, cipher, origin=AuditOrigin(AuditChannel.AGENT, "svc@lab"))
    await add(store, entry(by="anna"), entry(by=None), entry(by=None, address="10.0.0.1"))
    command = Store(sql_url, cipher)
    await add(command, entry(by=None), entry(by="anna"))
    found = [(each.channel, each.actor, each.origin) for each in await records(store)]
    me = find_origin().user
    assert found == [
        ("page", "anna", ""),
        ("agent", "svc@lab", "svc@lab"),
        ("page", "", "10.0.0.1"),
        ("command", find_origin().person, me),
        ("command", "anna", me),
    ]
    await store.close()
    await command.close()


NUMBER = audit_records.c.number
FORGED = {"number": 6, "at": NOW, "action": "signed_in", "channel": "page", "actor": "eve", "origin": ""}


def changed(**values):
    return update(audit_records).where(NUMBER == 3).values(**values)


@pytest.mark.parametrize(
    ("statements", "broken", "at_record"),
    [
        *(([changed(**{column: "other"})], AuditBreak.RECORD_ALTERED, 3) for column in COLUMNS),
        ([changed(at=NOW + timedelta(microseconds=1))], AuditBreak.RECORD_ALTERED, 3),
        ([delete(audit_records).where(NUMBER == 1)], AuditBreak.RECORD_MISSING, 1),
        ([delete(audit_records).where(NUMBER == 3)], AuditBreak.RECORD_MISSING, 3),
        ([delete(audit_records).where(NUMBER > 3)], AuditBreak.END_CUT_OFF, 4),
        ([insert(audit_records).values(**FORGED, subject="", details="{}", hash="0" * 64)], AuditBreak.RECORD_ADDED, 6),
    ],
)
async def test_altered_records_are_found(filled, cipher, statements, broken, at_record):
    await alter(filled, *statements)
    found = await verdict(filled, cipher)
    assert (found.broken, found.at_record) == (broken, at_record)


async def test_cut_end_with_moved_head_is_found(filled, cipher):
    third = (await records(filled))[2]
    await alter(filled, delete(audit_records).where(NUMBER > 3), update(audit_head).values(number=3, hash=third.hash))
    assert (await verdict(filled, cipher)).broken is AuditBreak.HEAD_ALTERED
    await add(filled, entry())  # work goes on, and the audit stays broken
    found = await verdict(filled, cipher)
    assert (found.broken, found.at_record) == (AuditBreak.NOTICED_BEFORE, 4)
    assert [each.action for each in await records(filled)][3:] == ["audit_broken", "job_retried"]


async def test_forged_prefix_purge_is_found(filled, cipher):
    third = (await records(filled))[2]
    anchored = update(audit_head).values(anchor_number=3, anchor_hash=third.hash)
    await alter(filled, anchored, delete(audit_records).where(NUMBER <= 3))
    assert (await verdict(filled, cipher)).broken is AuditBreak.HEAD_ALTERED


async def test_changed_note_is_found_and_erased_one_is_not(filled, cipher):
    await filled.write(lambda connection, _: connection.execute(delete(audit_notes).where(audit_notes.c.number == 2)))
    found = await verdict(filled, cipher)
    assert (found.broken, found.notes, found.erased_notes) == (None, 5, 1)
    other = update(audit_notes).where(audit_notes.c.number == 4).values(ciphertext=cipher.encrypt(b"another note"))
    await filled.write(lambda connection, _: connection.execute(other))
    found = await verdict(filled, cipher)
    assert (found.broken, found.at_record) == (AuditBreak.NOTE_ALTERED, 4)


async def test_head_without_key_is_found(filled, cipher):
    forged = cipher.encrypt(b"0" * 32)  # by whoever has another value that this program encrypted
    await alter(filled, update(audit_head).values(sealed_key=forged))
    assert (await verdict(filled, cipher)).broken is AuditBreak.KEY_UNREADABLE
    await add(filled, entry())
    found = await verdict(filled, cipher)
    assert (found.broken, found.at_record) == (AuditBreak.RECORD_ALTERED, 1)


async def test_copy_of_another_time_is_found_by_its_mark(filled, cipher):
    """An older copy, one that went on another way, and one with nothing at all."""

    async def mark():
        return await filled.read(lambda connection: head_mark(connection, cipher))

    head = await filled.read(lambda connection: connection.execute(select(audit_head)).mappings().one())
    await add(filled, entry("6"))
    after_six = await mark()
    await add(filled, entry("7"))
    newest = await mark()
    await alter(filled, delete(audit_records).where(NUMBER > 5), update(audit_head).values(**head))
    assert (await verdict(filled, cipher)).broken is None
    found = await verdict(filled, cipher, newest)
    assert (found.broken, found.at_record) == (AuditBreak.BEHIND_MARK, 6)
    await add(filled, entry("another"), entry("7"))
    found = await verdict(filled, cipher, after_six)
    assert (found.broken, found.at_record) == (AuditBreak.DIFFERS_FROM_MARK, 6)
    await alter(filled, delete(audit_records), delete(audit_notes), delete(audit_head))
    assert (await verdict(filled, cipher, newest)).broken is AuditBreak.HEAD_MISSING


async def test_mark_follows_each_record_and_never_goes_back(sql_url, cipher, tmp_path):
    """One that cannot be written stops nothing."""
    store = Store(sql_url, cipher, audit_mark=AuditMarkFile(tmp_path / "missing" / "lab.audit"))
    await add(store, entry())
    await store.close()
    mark = AuditMarkFile(tmp_path / "lab.audit")
    store = Store(sql_url, cipher, audit_mark=mark)
    await add(store, entry(), entry())
    known = mark.read()
    assert known == await store.read(lambda connection: head_mark(connection, cipher))
    await store.transact(lambda _: None)
    assert mark.read() == known
    mark.advance(type(known)(known.instance, 1, "older"))
    assert mark.read() == known
    await store.close()


async def test_triggers_reject_changes(store):
    await add(store, entry())
    for statement in ("UPDATE audit_records SET actor = 'x'", "DELETE FROM audit_records WHERE number = 1"):
        with pytest.raises(StoreError):
            await store.write(lambda connection, _, change=statement: connection.exec_driver_sql(change))
    assert [each.actor for each in await records(store)] == ["anna"]


async def test_purge_cuts_off_the_oldest_and_the_rest_is_whole(store, transact, cipher):
    """But for the newest record of all."""
    for day in range(5):
        await add(store, entry(str(day), at=NOW + timedelta(days=day), note="why"))
    assert [await transact.audit.purge(before=NOW + timedelta(days=3)) for _ in range(2)] == [3, 0]
    found = await verdict(store, cipher)
    assert (found.broken, found.first, found.last, found.records) == (None, 4, 5, 2)
    await add(store, entry())
    assert (await verdict(store, cipher)).records == 3
    assert await transact.audit.purge(before=NOW + timedelta(days=9)) == 2
    found = await verdict(store, cipher)
    assert (found.broken, found.records) == (None, 1)


async def test_rotated_keys_leave_the_chain_whole(sql_url, key):
    newest = new_key()
    await with_store(sql_url, lambda store: add(store, entry(note="why")), key)
    await with_store(sql_url, rotate_keys, newest, key)
    await with_store(sql_url, lambda store: add(store, entry()), newest)
    found = await with_store(sql_url, lambda store: verdict(store, Cipher(newest)), newest)
    assert (found.broken, found.records) == (None, 2)


async def test_note_is_in_no_record_and_erased_with_its_order(filled, transact, cipher):
    stored = await filled.read(lambda connection: connection.execute(select(audit_records)).all())
    sealed = await filled.read(lambda connection: connection.execute(select(audit_notes)).all())
    assert "note 1" not in repr((stored, sealed))
    await transact.erasure.order(ORDER, bytes, at=NOW)
    found = await verdict(filled, cipher)
    assert (found.broken, found.records, found.erased_notes) == (None, 5, 5)


async def test_list_is_newest_first_and_filtered(filled):
    await add(filled, entry("6", by="boris", action=AuditAction.SIGNED_IN, at=NOW + timedelta(hours=1)))

    after = NOW + timedelta(minutes=1)
    for wanted, numbers in (
        ({}, [6, 5, 4, 3, 2, 1]),
        *((each, [6]) for each in ({"actor": "boris"}, {"action": "signed_in"}, {"since": after})),
        ({"subject": "2"}, [2]),
        ({"until": after}, [5, 4, 3, 2, 1]),
    ):
        found = await filled.read(lambda connection, by=wanted: list_records(connection, AuditFilter(**by), limit=10))
        assert [each.number for each in found] == numbers, wanted


async def test_settings_digests_show_changes_and_no_values(transact):
    first, same, other = [await transact.audit.digest_settings({"a": each}) for each in ("secret", "secret", "other")]
    assert first == same != other
    assert "secret" not in json.dumps(dict(first))


# --- as pages read it

DAY = timedelta(days=1)


@pytest.fixture
def few_looked_at(monkeypatch):
    monkeypatch.setattr(audit_queries, "MAX_LOOKED_AT", 3)
    monkeypatch.setattr(audit_queries, "_AROUND", 2)


async def read(store, before=None, limit=50, **criteria):
    return await Queries(store).audit_list(AuditCriteria(**criteria), before=before, limit=limit)


def numbers(found):
    return [each.number for each in found.records]


async def test_pages_follow_each_other(store):
    found = await read(store)
    assert (found.records, found.older_before, found.is_end_whole) == ((), None, True)
    assert await Queries(store).audit_record(1) is None
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
    queries = Queries(store)
    note = await queries.audit_note(1)
    assert (note.text, note.is_whole) == ("called Petrova", True)
    assert [await queries.audit_note(number) for number in (2, 3)] == [None, None]
    checked = await queries.audit_record(1)
    assert (checked.record.number, checked.is_whole) == (1, True)
