"""Room that was freed goes back to the disk, and what was deleted is not in the file any more."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import delete

from lab_agent.errors import StoreError
from lab_agent.store import space
from lab_agent.store.agent_lock import AgentLock
from lab_agent.store.engine import sqlite_file
from lab_agent.store.space import compact, read_space
from lab_agent.store.unit_of_work import SqlStore
from lab_agent.store.vault_tables import documents

NOW = datetime(2026, 3, 1, tzinfo=UTC)


async def fill_and_empty(store: SqlStore, size: int = 3_000_000) -> None:
    def work(uow):
        for number in range(3):
            uow.vault.save_document(bytes([number]) * (size // 3), "application/pdf", at=NOW)
        uow.commit()

    await store.run(work)
    await store.write(lambda connection, _: connection.execute(delete(documents)))


async def test_new_database_gives_room_back(sqlite_url, cipher):
    store = SqlStore(sqlite_url, cipher)
    await fill_and_empty(store)
    before = await store.read(read_space)
    assert before.gives_back is True
    assert before.free > 3_000_000
    assert await store.reclaim_space() == before.free
    after = await store.read(read_space)
    assert after.free == 0
    assert after.size <= before.size - before.free
    await store.close()


async def test_postgresql_reclaims_by_itself(postgres_empty_url, cipher):
    store = SqlStore(postgres_empty_url, cipher)
    assert await store.reclaim_space() == 0
    assert (await store.read(read_space)).size > 0
    compact(postgres_empty_url, NOW)
    await store.close()


def without_auto_vacuum(url: str) -> Path:
    """A database as an older version has made it."""
    file = sqlite_file(url)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for statement in ("PRAGMA journal_mode=DELETE", "PRAGMA auto_vacuum=NONE", "VACUUM"):
            connection.execute(statement).fetchall()
    return file


async def test_older_database_gives_room_back_once_compacted(sqlite_url, cipher):
    file = without_auto_vacuum(sqlite_url)
    store = SqlStore(sqlite_url, cipher)
    await fill_and_empty(store)
    assert (await store.read(read_space)).gives_back is False
    assert await store.reclaim_space() == 0
    await store.close()
    before = file.stat().st_size
    compact(sqlite_url, NOW)
    assert file.stat().st_size < before - 3_000_000
    store = SqlStore(sqlite_url, cipher)
    assert (await store.read(read_space)).gives_back is True
    await store.close()


def test_compacting_waits_for_no_agent(sqlite_url):
    lock = AgentLock(sqlite_url)
    lock.acquire(NOW)
    try:
        with pytest.raises(StoreError):
            compact(sqlite_url, NOW)
    finally:
        lock.release()


def test_compacting_needs_room(sqlite_url, monkeypatch):
    monkeypatch.setattr(space.shutil, "disk_usage", lambda _: space.shutil._ntuple_diskusage(1, 1, 0))
    with pytest.raises(StoreError, match="needs up to"):
        compact(sqlite_url, NOW)


async def test_deleted_text_is_overwritten(sqlite_url, cipher):
    store = SqlStore(sqlite_url, cipher)

    async def set_value(value):
        def work(uow):
            uow.key_values.set("a", value)
            uow.commit()

        await store.run(work)

    await set_value("CANARY" * 2000)
    await set_value("")
    await store.close()  # the log goes into the file
    assert b"CANARY" not in sqlite_file(sqlite_url).read_bytes()
