"""Opening the database: SQLite for one machine, PostgreSQL for several workers.

SQLite: write-ahead log, synchronous=FULL (a commit is on the disk when it returns), foreign keys, a busy timeout, and BEGIN
IMMEDIATE for everything that may write: a transaction that begins with a read cannot be upgraded while another one writes. What
is deleted is overwritten (secure_delete), and a new file can give room back (auto_vacuum).
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry, NullPool

from lab_agent.shared.errors import StoreError
from lab_agent.store.database_files import DatabaseFiles, attach_files, missing_file_error
from lab_agent.store.error_translation import from_os_error

READ_ONLY = "lab_read_only"
"""Execution option of a connection that cannot write."""
NO_TRANSACTION = "lab_no_transaction"
"""Execution option of a connection that cannot write: each of its statements sees the moment of its own."""
_BUSY_SECONDS = 15
"""How long who writes waits for a lock."""
_READING_BUSY_SECONDS = 2
"""How long who reads does: nobody else makes readers wait, but a program that locks the whole file."""
_IDLE_TRANSACTION_SECONDS = 15
"""How long PostgreSQL waits for the next statement of a transaction. A unit of work waits for nobody: a process that says nothing
for that long stands still, or cannot be reached, and must not keep its locks from the others."""
_NETWORK_LIMITS = {
    "connect_timeout": "5",
    "tcp_user_timeout": "15000",  # milliseconds for what was sent and nobody has acknowledged: the way to the server is cut
    "keepalives_idle": "10",  # the same where we wait for an answer: noticed after 10 and 3 times 5 seconds
    "keepalives_interval": "5",
    "keepalives_count": "3",
}
"""How soon a connection to PostgreSQL counts as lost; the address in the settings may say otherwise."""
_BEGIN_READING = {"sqlite": "BEGIN", "postgresql": "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"}
_URL_FORMS = "write it as sqlite:///path/to/file.db or postgresql://user@host/database"


def parse_url(url: str) -> URL:
    """Parse a database URL; every spelling of PostgreSQL becomes psycopg. Raises `StoreError`."""
    try:
        parsed = make_url(url)
    except ArgumentError as exc:
        raise StoreError(f"The URL of the database cannot be parsed; {_URL_FORMS}.") from exc
    scheme = parsed.drivername.partition("+")[0]
    if scheme in {"postgres", "postgresql"}:
        return parsed.set(drivername="postgresql+psycopg")
    if scheme == "sqlite" and parsed.database and parsed.database != ":memory:":
        return parsed.set(drivername="sqlite")
    raise StoreError(f"The URL of the database does not name a SQLite file or a PostgreSQL database; {_URL_FORMS}.")


def open_engine(url: str, *, connections: int, files: DatabaseFiles | None = None, patience: float | None = None) -> Engine:
    """Make an engine for up to `connections` at a time; nothing is opened yet. Raises `StoreError` for an invalid URL.

    With `files`, its connections know which files they have opened (`check_files`). `patience` is how many seconds who writes
    waits for a lock, where that is not the usual time.
    """
    parsed = parse_url(url)
    patience = _BUSY_SECONDS if patience is None else patience
    return (
        _create_sqlite_engine(parsed, connections, files, patience)
        if parsed.drivername == "sqlite"
        else _create_postgresql_engine(parsed, connections, patience)
    )


def open_reading_engine(url: str, *, connections: int, files: DatabaseFiles | None = None) -> Engine:
    """Make an engine whose connections cannot write; each transaction sees one moment. Raises `StoreError`.

    With the execution option `NO_TRANSACTION` none is begun: on PostgreSQL, that spares two of the server's answers.
    A connection that was lost while nobody used it is found only by its next statement: who reads tries once more then.
    """
    parsed = parse_url(url)
    if parsed.drivername == "sqlite":
        return _create_sqlite_engine(parsed, connections, files, _READING_BUSY_SECONDS, read_only=True)
    return _create_postgresql_engine(parsed, connections, _BUSY_SECONDS, reading=True)


def is_answering(url: str) -> bool:
    """Whether the PostgreSQL server at `url` answers the plainest question. It blocks, for some seconds at most."""
    engine = create_engine(parse_url(url).update_query_dict({"connect_timeout": "2"}), poolclass=NullPool, hide_parameters=True)
    try:
        with engine.connect() as connection:
            return connection.exec_driver_sql("SELECT 1").scalar() == 1
    except SQLAlchemyError:
        return False


def sqlite_file(url: str) -> Path | None:
    """Give the file of a SQLite URL; None for PostgreSQL."""
    parsed = parse_url(url)
    return Path(parsed.database) if parsed.drivername == "sqlite" and parsed.database else None


def create_file(path: Path) -> None:
    """Create an empty database file that only its owner may read, if there is none. Raises `StoreUnreachableError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as exc:
        raise from_os_error(exc, f"The database file {path} cannot be created") from exc


def _create_sqlite_engine(
    url: URL, connections: int, files: DatabaseFiles | None, patience: float, *, read_only: bool = False
) -> Engine:
    path = Path(url.database or "")
    address = f"file:{quote(str(path))}?mode=rw"

    def connect() -> sqlite3.Connection:
        try:
            return sqlite3.connect(address, uri=True, check_same_thread=False, timeout=patience, isolation_level=None)
        except sqlite3.OperationalError as exc:
            if path.exists():
                raise
            raise missing_file_error(path) from exc

    def set_up(connection: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
        # Before the write-ahead log, and in a file that is still empty: in another one it would be a write with each connection.
        is_new = not read_only and connection.execute("PRAGMA page_count").fetchone() == (0,)
        first = ("auto_vacuum=INCREMENTAL",) if is_new else ()
        for pragma in (*first, "secure_delete=ON", "journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}").close()
        if files is not None:
            attach_files(entry.info, files)

    options = {"execution_options": {READ_ONLY: read_only}, "hide_parameters": True}
    engine = create_engine(url, creator=connect, pool_size=connections, max_overflow=0, **options)
    event.listen(engine, "connect", set_up)
    if read_only:
        event.listen(engine, "connect", _forbid_writes)
    event.listen(engine, "begin", _begin_reading if read_only else _begin_writing)
    return engine


def _forbid_writes(connection: sqlite3.Connection, entry: ConnectionPoolEntry) -> None:
    del entry
    connection.execute("PRAGMA query_only=ON").close()


def _begin_reading(connection: Connection) -> None:
    if not connection.get_execution_options().get(NO_TRANSACTION):
        connection.exec_driver_sql(_BEGIN_READING[connection.dialect.name])


def _begin_writing(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _create_postgresql_engine(url: URL, connections: int, patience: float, *, reading: bool = False) -> Engine:
    """Make the engine. For reading, a statement is planned once and not for each of its values, and runs in one process: the
    planning, the compiler and the start of helpers take longer than what a page asks.
    """
    server = {
        "lock_timeout": f"{round(patience * 1000)}ms",
        "idle_in_transaction_session_timeout": f"{_IDLE_TRANSACTION_SECONDS}s",
    }
    if reading:
        server |= {"plan_cache_mode": "force_generic_plan", "jit": "off", "max_parallel_workers_per_gather": "0"}
    ours = {
        **_NETWORK_LIMITS,
        "application_name": "lab-agent",
        "client_encoding": "utf8",  # from a database in SQL_ASCII, psycopg would return bytes for text
        "options": " ".join(f"-c {name}={value}" for name, value in server.items()),
    }
    engine = create_engine(
        url.set(query={**ours, **url.query}),
        pool_size=connections,
        max_overflow=0,
        pool_pre_ping=not reading,
        pool_use_lifo=True,  # a connection that was used just now knows its statements
        hide_parameters=True,
        isolation_level="AUTOCOMMIT" if reading else "READ COMMITTED",
        execution_options={READ_ONLY: reading},
    )
    if reading:
        event.listen(engine, "connect", _set_up_reading)
        event.listen(engine, "begin", _begin_reading)
    return engine


def _set_up_reading(connection: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
    """Let no statement write that is sent without a transaction, either."""
    del entry
    cursor = connection.cursor()
    cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
    cursor.close()
