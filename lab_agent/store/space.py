"""Room in the database: what is free in its file, giving it back to the disk, and writing the whole file anew.

A SQLite file that this program has made gives room back in small portions, beside the work (incremental auto-vacuum); one made
before that can once it was written anew. On PostgreSQL, autovacuum makes room usable again for new rows.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import Connection, text

from lab_agent.shared.errors import StoreError
from lab_agent.store.agent_lock import AgentLock
from lab_agent.store.engine import open_engine, sqlite_file
from lab_agent.store.error_translation import translate_errors

_PORTION = 256
"""Pages of one transaction: about a megabyte, which takes some milliseconds."""
_WRITE_ANEW = ("PRAGMA secure_delete=ON", "PRAGMA auto_vacuum=INCREMENTAL", "VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSpace:
    """Bytes of the database, how many of them are free in it, and whether it gives them back by itself; None: not known."""

    size: int
    free: int | None
    gives_back: bool | None


def read_space(connection: Connection) -> DatabaseSpace:
    """Look how much room there is."""
    if connection.dialect.name == "postgresql":
        size = connection.scalar(text("SELECT pg_database_size(current_database())"))
        return DatabaseSpace(size=size or 0, free=None, gives_back=None)
    page, pages, free, mode = (
        int(connection.exec_driver_sql(f"PRAGMA {name}").scalar() or 0)
        for name in ("page_size", "page_count", "freelist_count", "auto_vacuum")
    )
    return DatabaseSpace(size=page * pages, free=page * free, gives_back=mode != 0)


def free_pages(connection: Connection) -> int:
    """Give a portion of the free pages of a SQLite file back to the disk; how many bytes. The caller commits."""
    if not connection.exec_driver_sql("PRAGMA auto_vacuum").scalar():
        return 0
    before = read_space(connection).free or 0
    for _ in range(_PORTION):  # the driver frees one page a call, whatever number is asked for
        connection.exec_driver_sql("PRAGMA incremental_vacuum(1)").close()
    return before - (read_space(connection).free or 0)


def compact(url: str, now: datetime) -> None:
    """Write the whole database anew without its free room; from then on a SQLite file gives room back by itself.

    On SQLite no agent may work on it, and there must be room for a second copy. On PostgreSQL it is a plain VACUUM, which locks
    nobody out. Raises `StoreUnreachableError` while an agent works on it, and `StoreError`.
    """
    file = sqlite_file(url)
    if file is None:
        _vacuum_postgresql(url)
        return
    lock = AgentLock(url)
    lock.acquire(now)
    try:
        _check_room(file)
        _vacuum_sqlite(file)
    finally:
        lock.release()


def _check_room(file: Path) -> None:
    needed, free = 2 * file.stat().st_size, shutil.disk_usage(file.parent).free
    if free < needed:
        raise StoreError(f"{file.parent} has {free} bytes free, and writing the database anew needs up to {needed}.")


def _vacuum_sqlite(file: Path) -> None:
    try:
        with closing(sqlite3.connect(file, isolation_level=None, timeout=15)) as connection:
            for statement in _WRITE_ANEW:
                connection.execute(statement).fetchall()
    except sqlite3.Error as exc:
        raise StoreError(f"The database {file} cannot be written anew: {exc}. It is as it was.") from exc


def _vacuum_postgresql(url: str) -> None:
    engine = open_engine(url, connections=1)
    try:
        with translate_errors(), engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("VACUUM (ANALYZE)"))
    finally:
        engine.dispose()
