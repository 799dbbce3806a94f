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
from sqlalchemy import Engine, create_engine, func, insert, select, text

from lab_agent.lis.lab_messages import LabMessage, LabRejection, LabReport, ReportedObservation
from lab_agent.lis.laboratory_system import Lis
from lab_agent.lis.serialization import dump_message
from lab_agent.lis.sql import SqlAdapter, SqlSettings
from lab_agent.lis.testing import AdapterContract, Bench, LisState
from tests.harness.databases import create_staging_tables

_count = itertools.count()


@dataclass
class SqlBench:
    """A LIS whose database was made by the statements that `ddl` prints."""

    url: str
    schema: str | None = None
    as_rows: bool = True
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
        return SqlAdapter(SqlSettings.model_validate(self.settings), "sql")

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
        is_document = not self.as_rows or not isinstance(message, LabReport | LabRejection) or not _fits_rows(message)
        head = {"document": dump_message(message).decode()} if is_document else _head(message)
        with self.engine.begin() as connection:
            (number,) = connection.execute(insert(self.tables.results).values(ready=1, **head)).inserted_primary_key or (None,)
            for table, rows in ({} if is_document else _parts(message)).items():
                for place, row in enumerate(rows):
                    connection.execute(insert(getattr(self.tables, table)).values(result_id=number, position=place, **row))

    def count(self, *conditions: Any) -> int:
        return int(self.ask(select(func.count()).select_from(self.tables.results).where(*conditions))[0])

    async def unacknowledged_count(self) -> int:
        return self.count(self.tables.results.c.processed_at.is_(None))

    async def publish_bad(self) -> None:
        row = {"report_id": "bad", "status": "finished", "order_key": "R1", "ready": 1}
        await asyncio.to_thread(self.run, insert(self.tables.results).values(**row))

    async def bad_results_kept(self) -> int:
        results = self.tables.results
        return await asyncio.to_thread(self.count, results.c.fault.is_not(None), results.c.processed_at.is_(None))

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
        names = ("lab_orders", "lab_results", "lab_cancellations")
        refuse = "create trigger refuse before insert on lab_orders begin select raise(abort, 'no'); end"
        begin = {
            LisState.UNREACHABLE: [f"alter table {name} rename to {name}_away" for name in names],
            LisState.REFUSING: [refuse],
        }
        end = {
            LisState.UNREACHABLE: [f"alter table {name}_away rename to {name}" for name in names],
            LisState.REFUSING: ["drop trigger refuse"],
        }
        self.run(*map(text, (*end.get(self.state, ()), *begin.get(state, ()))))
        self.state = state
        if state is LisState.SLOW:
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
        return {"kind": "rejection", "order_key": message.order, "collect_again": int(message.collect_again)}
    return {
        "report_id": message.report_id,
        "version": message.version,
        "status": message.status.value,
        "order_key": message.order,
        "line_keys": " ".join(message.lines),
        "effective_at": message.effective.isoformat(),
        "issued_at": message.issued.isoformat(),
    }


def _parts(message: LabReport | LabRejection) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table that belong to a result."""
    parts = {"not_performed": [{"line_key": entry.line, "reason": entry.reason} for entry in message.not_performed]}
    if isinstance(message, LabReport):
        parts["values"] = [*map(_value, message.observations)]
        parts["documents"] = [{"content": document.content} for document in message.documents]
    return parts


def _value(one: ReportedObservation) -> dict[str, Any]:
    quantity, (bounds,) = one.value_quantity, one.reference_ranges
    assert quantity
    assert bounds.low
    assert bounds.high
    low, high = str(bounds.low.value), str(bounds.high.value)
    return {"code": one.code.code, "value": str(quantity.value), "unit": quantity.unit, "low": low, "high": high}


class TestRows(AdapterContract):
    async def bench(self, folder: Path) -> Bench:
        return SqlBench(f"sqlite:///{folder / 'lis.db'}")


@pytest.mark.slow
class TestDocuments(AdapterContract):
    async def bench(self, folder: Path) -> Bench:
        return SqlBench(f"sqlite:///{folder / 'lis.db'}", as_rows=False)


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
