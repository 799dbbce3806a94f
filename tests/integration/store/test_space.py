"""Room that was freed goes back to the disk, and what was deleted is not in the file any more."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import delete

from lab_agent.shared.errors import StoreError
from lab_agent.store import space
from lab_agent.store.agent_lock import AgentLock
from lab_agent.store.engine import sqlite_file
from lab_agent.store.space import compact, read_space
from lab_agent.store.unit_of_work import Store
from lab_agent.store.vault_tables import documents
from tests.integration.store.conftest import NOW, UnitOfWorkRunner


@pytest.fixture
async def opened(sqlite_url, cipher):
    store = Store(sqlite_url, cipher)
    yield store
    await store.close()


async def fill_and_empty(store: Store) -> None:
    for number in range(3):
        await UnitOfWorkRunner(store).vault.save_document(bytes([number]) * 1_000_000, "application/pdf", at=NOW)
    await store.write(lambda connection, _: connection.execute(delete(documents)))


async def test_new_database_gives_room_back(opened):
    await fill_and_empty(opened)
    before = await opened.read(read_space)
    assert before.gives_back is True
    assert before.free > 3_000_000
    assert await opened.reclaim_space() == before.free
    after = await opened.read(read_space)
    assert after.free == 0
    assert after.size <= before.size - before.free


async def test_postgresql_reclaims_by_itself(postgres_empty_url, cipher):
    store = Store(postgres_empty_url, cipher)
    assert await store.reclaim_space() == 0
    assert (await store.read(read_space)).size > 0
    compact(postgres_empty_url, NOW)
    await store.close()


async def test_older_database_gives_room_back_once_compacted(sqlite_url, opened):
    file = sqlite_file(sqlite_url)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:  # as an older version has made it
        for statement in ("PRAGMA journal_mode=DELETE", "PRAGMA auto_vacuum=NONE", "VACUUM"):
            connection.execute(statement).fetchall()
    await fill_and_empty(opened)
    assert (await opened.read(read_space)).gives_back is False
    assert await opened.reclaim_space() == 0
    await opened.close()
    before = file.stat().st_size
    compact(sqlite_url, NOW)
    assert file.stat().st_size < before - 3_000_000
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)


def test_compacting_waits_for_no_agent_and_needs_room(sqlite_url, monkeypatch):
    lock = AgentLock(sqlite_url)
    lock.acquire(NOW)
    with pytest.raises(StoreError):
        compact(sqlite_url, NOW)
    lock.release()
    monkeypatch.setattr(space.shutil, "disk_usage", lambda _: space.shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(StoreError, match="needs up to"):
        compact(sqlite_url, NOW)


async def test_deleted_text_is_overwritten(sqlite_url, opened):
    for value in ("CANARY" * 2000, ""):
        await UnitOfWorkRunner(opened).key_values.set("a", value)
    await opened.close()  # the log goes into the file
    assert b"CANARY" not in sqlite_file(sqlite_url).read_bytes()
