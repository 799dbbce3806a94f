"""Whether the content of a database is whole, and still that of the database that was opened."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, select

from lab_agent.settings.groups import StoreSettings
from lab_agent.shared.errors import StoreFault, StoreUnreachableError
from lab_agent.store.crypto import Cipher
from lab_agent.store.engine import open_reading_engine
from lab_agent.store.error_translation import translate_errors
from lab_agent.store.restoration import INSTANCE_ID_KEY
from lab_agent.store.schema_versions import check_revision
from lab_agent.store.tables import key_values
from lab_agent.store.vault import check_key

_OVERWRITTEN = "The database is unavailable: another one was put into its file while it was open."
_INSTANCE = select(key_values.c.value).where(key_values.c.key == INSTANCE_ID_KEY)


def read_instance(connection: Connection) -> str:
    """The id that the database has from its creation on."""
    return connection.scalar(_INSTANCE) or ""


def check_identity(connection: Connection, cipher: Cipher, instance: str | None) -> None:
    """Raise `StoreUnreachableError` where the database is another than `instance`, or of another schema or key.

    It may have been overwritten in its file, upgraded, or its keys changed, while we had it open.
    """
    check_revision(connection)
    if instance is not None and read_instance(connection) != instance:
        raise StoreUnreachableError(_OVERWRITTEN, StoreFault.DELETED)
    check_key(connection, cipher)


def check_file(path: Path, instance: str | None) -> None:
    """Raise `StoreUnreachableError` where a SQLite file holds another database than `instance`, beneath its write-ahead log.

    Somebody may have copied another one over it: what the log has hides that from every reader until the next checkpoint.
    """
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?immutable=1", uri=True)) as file:
            found = file.execute("SELECT value FROM key_values WHERE key = ?", (INSTANCE_ID_KEY,)).fetchone()
    except sqlite3.Error:
        return  # in the midst of a checkpoint, or nothing of ours is in it yet
    if found is not None and instance and found[0] != instance:
        raise StoreUnreachableError(_OVERWRITTEN, StoreFault.DELETED)


def check_content(connection: Connection) -> None:
    """Raise `StoreUnreachableError` where SQLite finds the database damaged. It reads the whole file: a second for a gigabyte."""
    if connection.dialect.name != "sqlite":
        return
    found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
    if found != "ok":  # its words name tables and pages, and nothing that is stored
        what = " ".join(str(found).split())
        raise StoreUnreachableError(f"The database file is damaged ({what}); restore a backup.", StoreFault.DAMAGED)


async def check_integrity(settings: StoreSettings) -> StoreUnreachableError | None:
    """Check the whole content of a SQLite database; give what is wrong with it. For `lab-agent check`."""
    return await asyncio.to_thread(_check_integrity, settings)


def _check_integrity(settings: StoreSettings) -> StoreUnreachableError | None:
    engine = open_reading_engine(settings.url, connections=1)
    try:
        with translate_errors(), engine.connect() as connection:
            check_content(connection)
    except StoreUnreachableError as exc:
        return exc
    finally:
        engine.dispose()
    return None
