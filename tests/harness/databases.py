"""SQLite databases with our schema, copied from one: its migrations take longer than most tests; and stores on them."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
import uuid
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, literal_column, select, text
from typing_extensions import override

from lab_agent.lis.sql.staging_tables import StagingTables, create_statements, make_tables
from lab_agent.orders.records import LabelUse, LineRecord, OrderRecord
from lab_agent.results.records import ReportRecord, UploadRecord
from lab_agent.store import tables
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.engine import create_file
from lab_agent.store.error_translation import translate_errors
from lab_agent.store.event_records import Alert, Event
from lab_agent.store.group_commit import _Unit
from lab_agent.store.restoration import INSTANCE_ID_KEY
from lab_agent.store.row_mapping import RecordMapping
from lab_agent.store.schema import upgrade
from lab_agent.store.session import Session
from lab_agent.store.unit_of_work import Store

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
RecordT = TypeVar("RecordT", bound="DataclassInstance")
_MEMORY = "/dev/shm"
_KEY = new_key()
_FIRST_ENGINES: dict[int, Engine] = {}
_TABLES = {
    Alert: tables.alerts,
    Event: tables.events,
    LabelUse: tables.label_uses,
    LineRecord: tables.lines,
    OrderRecord: tables.orders,
    ReportRecord: tables.reports,
    UploadRecord: tables.uploads,
}


def create_database(path: Path) -> str:
    """Make a database as `upgrade` makes it, with an instance of its own and nothing else; its address."""
    create_file(path)
    path.write_bytes(_upgraded())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE key_values SET value = ? WHERE key = ?", (uuid.uuid4().hex, INSTANCE_ID_KEY))
    return f"sqlite:///{path}"


@cache
def _upgraded() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lab.db"
        upgrade(f"sqlite:///{path}")
        assert [file.name for file in path.parent.iterdir()] == [path.name], "all of it is in one file"
        return path.read_bytes()


def create_staging_tables(url: str, schema: str | None = None) -> tuple[Engine, StagingTables]:
    """Make the tables of a laboratory system by the statements that `ddl` prints."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in filter(str.strip, create_statements(engine.dialect.name, "lab_", schema).split(";")):
            connection.execute(text(statement))
    return engine, make_tables("lab_", schema)


class InlineStore(Store):
    """A store on a new SQLite database whose units of work run at once in the thread of their caller.

    No thread of another decides what comes first: a simulation is the same each time. The database goes with the object.
    """

    def __init__(self) -> None:
        folder = tempfile.mkdtemp(prefix="lab-store-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)
        super().__init__(create_database(Path(folder) / "lab.db"), Cipher(_KEY))
        self._share_statements()
        weakref.finalize(self, _remove, Path(folder), self._engine, self._reading_engine)

    def _share_statements(self) -> None:
        """Let all stores of this process compile each statement once: to compile them costs more than to run them."""
        for number, engine in enumerate((self._engine, self._reading_engine, self._looking_engine)):
            first: Any = _FIRST_ENGINES.setdefault(number, engine)
            engine.dialect, engine._compiled_cache = first.dialect, first._compiled_cache

    def records(self, record: type[RecordT]) -> tuple[RecordT, ...]:
        """Everything of one kind that is stored, oldest row first."""
        mapping = RecordMapping(record, _TABLES[record])
        with self._reading_engine.connect() as connection:
            return mapping.to_records(connection.execute(select(*mapping.columns).order_by(literal_column("rowid"))))

    def execute(self, statement: str, *values: Any) -> None:
        with self._engine.connect() as connection:
            connection.exec_driver_sql(statement, values)
            connection.commit()

    def back_up(self) -> Callable[[], None]:
        """Take a backup; gives what restores it, so that what was stored since never was."""
        kept = sqlite3.connect(":memory:", check_same_thread=False)
        with closing(self._engine.raw_connection()) as connection:
            connection.driver_connection.backup(kept)

        def restore() -> None:
            with closing(self._engine.raw_connection()) as connection:
                kept.backup(connection.driver_connection)

        return restore

    @override
    async def _write_in_turn(self, unit: Callable[[Session], T]) -> T:
        one = _Unit(unit, asyncio.get_running_loop().create_future())
        with translate_errors():
            jobs_due = self._writers._run_in_transaction([one])
        if jobs_due:
            self._announce_jobs_due(jobs_due)
        if one.error is not None:
            raise one.error
        return one.result  # type: ignore[no-any-return]  # a unit knows nothing of the type of its result

    @override
    async def _read_in(self, threads: ThreadPoolExecutor, query: Callable[[Connection], T], *, one_moment: bool = True) -> T:
        return self._run_read_only(query, one_moment=one_moment)


def _remove(folder: Path, *engines: Engine) -> None:
    for engine in engines:
        engine.dispose()
    shutil.rmtree(folder, ignore_errors=True)
