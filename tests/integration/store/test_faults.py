"""What goes wrong around the store comes out in our words, and passes when its cause has passed."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from subprocess import PIPE

import psycopg
import pytest

from lab_agent.shared.errors import StoreConflictError, StoreError, StoreUnreachableError
from lab_agent.store import engine
from lab_agent.store.unit_of_work import Store
from tests.harness.clock import DEADLINE
from tests.integration.store.conftest import NOW


def _note(uow):
    uow.key_values.set("a", "b")


# --- connections to PostgreSQL


@pytest.fixture
async def postgres_store(postgres_empty_url, cipher):
    store = Store(postgres_empty_url, cipher)
    await store.transact(_note)
    yield store
    await store.close()


@pytest.fixture
def cut(postgres_empty_url):
    def cut_connections():
        with psycopg.connect(postgres_empty_url, autocommit=True) as other:
            others = "datname = current_database() AND pid <> pg_backend_pid()"
            other.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")

    return cut_connections


async def test_connections_cut_between_units_of_work_are_replaced(postgres_store, cut):
    for read in (postgres_store.transact, postgres_store.run_read_only):
        assert await read(lambda uow: uow.key_values.get("a")) == "b"  # that connection is kept
        await asyncio.to_thread(cut)
        assert await read(lambda uow: uow.key_values.get("a")) == "b"


@pytest.mark.parametrize("when", ["after a write", "between reads", "between reads, unheard"])
async def test_connection_cut_mid_transaction_is_temporary_error(postgres_store, cut, when):
    """Also of a unit of work that had not written yet, whether or not it hears of the first statement that failed."""

    def work(uow):
        if when == "after a write":
            uow.key_values.set("a", "c")
            cut()
        uow.key_values.get("a")
        cut()
        with suppress(Exception) if when.endswith("unheard") else nullcontext():
            uow.key_values.get("b")
        return uow.key_values.get("c")

    with pytest.raises(StoreUnreachableError, match="nothing was written"):
        await postgres_store.transact(work)
    assert await postgres_store.transact(lambda uow: uow.key_values.get("a")) == "b"


async def test_deadlock_is_temporary_error(postgres_store, factory):
    await postgres_store.transact(lambda uow: uow.orders.add_new([factory.order("R1"), factory.order("R2")]))
    meet = asyncio.Barrier(2)
    loop = asyncio.get_running_loop()

    def work(uow, keys):
        uow.orders.get_for_update(keys[0])
        asyncio.run_coroutine_threadsafe(meet.wait(), loop).result(30)
        uow.orders.get_for_update(keys[1])

    orders = [("R1", "R2"), ("R2", "R1")]
    found = await asyncio.gather(
        *(postgres_store.transact(lambda uow, k=k: work(uow, k)) for k in orders), return_exceptions=True
    )
    assert sorted(type(each) for each in found if each) == [StoreConflictError]


STANDING_STILL = """
import asyncio, os, signal, sys
from lab_agent.store.crypto import Cipher
from lab_agent.shared.errors import StoreUnreachableError
from lab_agent.store.engine import open_reading_engine
from lab_agent.store.unit_of_work import Store

def work(uow):
    uow.key_values.set("a", "of the one that stood still")
    print("locked", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
    sys.stdin.readline()  # this thread may go on for a moment before all of them stand still
    uow.key_values.set("b", "late")

try:
    asyncio.run(Store(sys.argv[1], Cipher(sys.argv[2])).transact(work))
except StoreUnreachableError as exc:
    print("refused", exc, flush=True)
"""


async def test_process_that_stands_still_in_a_transaction_loses_its_locks(postgres_store, postgres_empty_url, key):
    """Suspended, or cut off: PostgreSQL gives its locks to the others, and nothing of it is written when it goes on."""
    soon = f"{postgres_empty_url}&options=-c idle_in_transaction_session_timeout=3s"
    command = [sys.executable, "-c", STANDING_STILL, soon, key]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE) as still:  # noqa: ASYNC220 - it starts at once
        try:
            assert still.stdout.readline() == b"locked\n"
            await asyncio.wait_for(postgres_store.transact(_note), DEADLINE)
            still.send_signal(signal.SIGCONT)
            told, errors = await asyncio.to_thread(still.communicate, b"go on\n")
        finally:
            still.kill()
    assert b"refused" in told, (still.returncode, errors[-3000:])
    assert await postgres_store.transact(lambda uow: (uow.key_values.get("a"), uow.key_values.get("b"))) == ("b", None)


@pytest.mark.parametrize(
    ("asked", "found"), [("", ["15s", "15s", "lab-agent"]), ("&options=-c lock_timeout=3s", ["3s", "0", "lab-agent"])]
)
async def test_postgresql_connection_settings(postgres_url, cipher, asked, found):
    store = Store(postgres_url + asked, cipher)
    shown = ("lock_timeout", "idle_in_transaction_session_timeout", "application_name")
    assert await store.read(lambda connection: [connection.exec_driver_sql(f"SHOW {name}").scalar() for name in shown]) == found
    await store.close()


# --- the file of SQLite


@pytest.fixture
async def sqlite_store(sqlite_url, cipher, monkeypatch):
    monkeypatch.setattr(engine, "_BUSY_SECONDS", 0)
    store = Store(sqlite_url, cipher)
    yield store
    await store.close()


async def test_lock_held_too_long_is_temporary_error(sqlite_store, sqlite_url):
    """Of all units of work that wait."""
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        found = await asyncio.gather(*(sqlite_store.transact(_note) for _ in range(5)), return_exceptions=True)
        other.execute("ROLLBACK")
    assert {type(each) for each in found} == {StoreUnreachableError}
    assert all("locked by another program" in str(each) for each in found)
    await sqlite_store.transact(_note)

    def pragmas(connection):
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous", "foreign_keys")]

    assert await sqlite_store.read(pragmas) == ["wal", 2, 1]


async def test_opening_a_store_creates_no_file(tmp_path, cipher):
    store = Store(f"sqlite:///{tmp_path / 'lab.db'}", cipher)
    with pytest.raises(StoreUnreachableError, match="its file cannot be opened"):
        await store.transact(_note)
    await store.close()
    assert list(tmp_path.iterdir()) == []


async def test_damaged_file_is_reported(sqlite_store, sqlite_url):
    await asyncio.to_thread(Path(sqlite_url.removeprefix("sqlite:///")).write_bytes, b"nothing of ours " * 1000)
    with pytest.raises(StoreError, match="restore a backup"):
        await sqlite_store.transact(_note)


async def test_encrypted_content_is_not_readable_in_file(sqlite_store, sqlite_url):
    def work(uow):
        uow.vault.save_identity("R1", b"Ivanova-Petrova", at=NOW)
        uow.vault.save_document(b"%PDF-secret-words", "application/pdf", at=NOW)

    await sqlite_store.transact(work)
    folder = Path(sqlite_url.removeprefix("sqlite:///")).parent
    written = b"".join(path.read_bytes() for path in folder.iterdir())
    assert [text in written for text in (b"application/pdf", b"Petrova", b"secret-words")] == [True, False, False]
