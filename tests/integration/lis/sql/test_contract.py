"""The sql adapter keeps the contract: results as rows, results as documents, guarded; on SQLite, PostgreSQL and MariaDB."""

import asyncio
import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, func, insert, select, text

from lab_agent.domain.lab_messages import LabMessage, LabRejection, LabReport
from lab_agent.lis.guard import GuardedAdapter
from lab_agent.lis.sql import SqlAdapter, SqlSettings
from lab_agent.lis.testing import AdapterContract, Bench, LisState
from lab_agent.ports.lis import Lis
from lab_agent.serialization import dump_message
from tests.harness.databases import create_staging_tables

_count = itertools.count()
_TABLES_FOR_CHECK = ("lab_orders", "lab_results", "lab_cancellations")


@dataclass
class SqlBench:
    """A LIS whose database was made by the statements that `ddl` prints."""

    url: str
    schema: str | None = None
    as_rows: bool = True
    guarded: bool = False
    state: LisState = LisState.WORKING
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        if self.schema:
            engine = create_engine(self.url)
            with engine.begin() as connection:
                connection.execute(text(f"create schema {self.schema}"))
            engine.dispose()
        self.engine, self.tables = create_staging_tables(self.url, self.schema)

    @property
    def settings(self) -> dict[str, Any]:
        return {"url": self.url, "table_schema": self.schema}

    def adapter(self) -> Lis:
        adapter = SqlAdapter(SqlSettings.model_validate(self.settings), "sql")
        return GuardedAdapter(adapter, "sql", timeout=30) if self.guarded else adapter

    def ask(self, query: Any) -> list[Any]:
        with self.engine.begin() as connection:
            return list(connection.execute(query).scalars())

    async def orders(self) -> Sequence[str]:
        return await asyncio.to_thread(self.ask, select(self.tables.orders.c.order_key))

    async def cancelled_lines(self) -> Sequence[str]:
        return await asyncio.to_thread(self.ask, select(self.tables.cancellations.c.line_key))

    async def publish(self, message: LabMessage) -> None:
        await asyncio.to_thread(self.write, message)

    def write(self, message: LabMessage) -> None:
        results = self.tables.results
        with self.engine.begin() as connection:
            if not self.as_rows or not isinstance(message, LabReport | LabRejection) or not _fits_rows(message):
                connection.execute(insert(results).values(document=dump_message(message).decode(), ready=1))
                return
            head = _head(message)
            (number,) = connection.execute(insert(results).values(**head)).inserted_primary_key or (None,)
            _parts(connection, self.tables, number, message)

    async def unacknowledged_count(self) -> int:
        results = self.tables.results
        return int(self.ask(select(func.count()).select_from(results).where(results.c.processed_at.is_(None)))[0])

    async def publish_bad(self) -> None:
        row = {"report_id": "bad", "status": "finished", "order_key": "R1", "ready": 1}
        await asyncio.to_thread(self.run, insert(self.tables.results).values(**row))

    async def bad_results_kept(self) -> int:
        results = self.tables.results
        marked = select(func.count()).select_from(results).where(results.c.fault.is_not(None), results.c.processed_at.is_(None))
        return int((await asyncio.to_thread(self.ask, marked))[0])

    async def set_state(self, state: LisState) -> None:
        """A lock, a constraint, tables that are gone. A transaction loses no answer, and a database does not ask to wait."""
        if state not in self.reachable_states:
            raise NotImplementedError
        await asyncio.to_thread(self.change_state, state)

    @property
    def reachable_states(self) -> frozenset[LisState]:
        if self.engine.dialect.name != "sqlite":
            return frozenset()
        return frozenset({LisState.WORKING, LisState.UNREACHABLE, LisState.REFUSING, LisState.SLOW})

    def change_state(self, state: LisState) -> None:
        away = [text(f"alter table {name} rename to {name}_away") for name in _TABLES_FOR_CHECK]
        back = [text(f"alter table {name}_away rename to {name}") for name in _TABLES_FOR_CHECK]
        refuse = text("create trigger refuse before insert on lab_orders begin select raise(abort, 'no'); end")
        if self.state is LisState.UNREACHABLE:
            self.run(*back)
        if self.state is LisState.REFUSING:
            self.run(text("drop trigger refuse"))
        self.state = state
        if state is LisState.UNREACHABLE:
            self.run(*away)
        elif state is LisState.REFUSING:
            self.run(refuse)
        elif state is LisState.SLOW:
            locked = threading.Event()
            threading.Thread(target=self.lock, args=(locked,)).start()
            locked.wait()

    def lock(self, locked: threading.Event) -> None:
        with self.engine.connect() as connection:
            connection.execute(text("begin exclusive"))
            locked.set()
            time.sleep(0.8)
            connection.rollback()

    def run(self, *statements: Any) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.execute(statement)

    async def close(self) -> None:
        with self.engine.begin() as connection:
            if self.schema:
                connection.execute(text(f"drop schema {self.schema} cascade"))
        self.engine.dispose()


def _fits_rows(message: LabReport | LabRejection) -> bool:
    """Columns have one unit for a value and its bounds; what has two goes as a document."""
    observations = message.observations if isinstance(message, LabReport) else ()
    pairs = [(one.value_quantity, one.reference_ranges[0].low) for one in observations]
    return all(value and low and value.unit == low.unit for value, low in pairs)


def _head(message: LabReport | LabRejection) -> dict[str, Any]:
    if isinstance(message, LabRejection):
        return {"kind": "rejection", "order_key": message.order, "collect_again": int(message.collect_again), "ready": 1}
    return {
        "report_id": message.report_id,
        "version": message.version,
        "status": message.status.value,
        "order_key": message.order,
        "line_keys": " ".join(message.lines),
        "effective_at": message.effective.isoformat(),
        "issued_at": message.issued.isoformat(),
        "ready": 1,
    }


def _parts(connection: Connection, tables: Any, number: Any, message: LabReport | LabRejection) -> None:
    for place, entry in enumerate(message.not_performed):
        row = {"result_id": number, "position": place, "line_key": entry.line, "reason": entry.reason}
        connection.execute(insert(tables.not_performed).values(row))
    if isinstance(message, LabRejection):
        return
    for place, one in enumerate(message.observations):
        quantity, (bounds,) = one.value_quantity, one.reference_ranges
        assert quantity
        assert bounds.low
        assert bounds.high
        row = {
            "result_id": number,
            "position": place,
            "code": one.code.code,
            "value": str(quantity.value),
            "unit": quantity.unit,
            "low": str(bounds.low.value),
            "high": str(bounds.high.value),
        }
        connection.execute(insert(tables.values).values(row))
    for place, document in enumerate(message.documents):
        connection.execute(insert(tables.documents).values(result_id=number, position=place, content=document.content))


class TestRows(AdapterContract):
    async def bench(self, folder: Path) -> Bench:
        return SqlBench(f"sqlite:///{folder / 'lis.db'}")


@pytest.mark.slow
class TestDocuments(AdapterContract):
    async def bench(self, folder: Path) -> Bench:
        return SqlBench(f"sqlite:///{folder / 'lis.db'}", as_rows=False)


@pytest.mark.slow
class TestGuarded(AdapterContract):
    test_the_class_is_an_adapter = None  # type: ignore[assignment]  # the guard is made by us, not by an entry point

    async def bench(self, folder: Path) -> Bench:
        return SqlBench(f"sqlite:///{folder / 'lis.db'}", guarded=True)


@pytest.mark.slow
class TestPostgresql(AdapterContract):
    @pytest.fixture(autouse=True)
    def _on_a_server(self, postgres_server: str) -> None:
        type(self).url = postgres_server.replace("postgresql://", "postgresql+psycopg://")  # type: ignore[attr-defined]

    async def bench(self, folder: Path) -> Bench:
        url: str = type(self).url  # type: ignore[attr-defined]
        return SqlBench(url, schema=f"lis_{next(_count)}")


@pytest.mark.slow
class TestMariaDb(AdapterContract):
    @pytest.fixture(autouse=True)
    def _on_a_server(self, mariadb_url: str) -> None:
        type(self).url = mariadb_url  # type: ignore[attr-defined]

    async def bench(self, folder: Path) -> Bench:
        return SqlBench(type(self).url)  # type: ignore[attr-defined]
