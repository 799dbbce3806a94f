"""The sql adapter: calls from the event loop into the threads that talk to the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, TypeVar

import structlog
from pydantic import BaseModel
from sqlalchemy import Connection, Engine, create_engine, event, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from lab_agent.lis.batch import take_each
from lab_agent.lis.lab_order import LabOrder
from lab_agent.lis.laboratory_system import Inbox, ParsedMessage, RenderedOrder, SubmitResult
from lab_agent.lis.raw_messages import parse_json_message
from lab_agent.lis.sql.order_rows import OrderTables, render_rows
from lab_agent.lis.sql.result_rows import ResultRow, ResultTables
from lab_agent.lis.sql.settings import SqlSettings
from lab_agent.lis.sql.staging_tables import MYSQL_DIALECTS, make_tables
from lab_agent.shared.errors import DataInvalidError, LisOutcomeUnknown, LisRejected, LisUnavailable
from lab_agent.shared.ids import LineKey, OrderKey

T = TypeVar("T")
log = structlog.get_logger(__name__)
_CONNECTION_ERRORS = ("OperationalError", "InterfaceError", "InternalError")


class SqlAdapter:
    """A LIS that shares staging tables in its own database."""

    Settings: ClassVar[type[BaseModel]] = SqlSettings
    trial_settings: ClassVar[Mapping[str, Any]] = {"url": "sqlite:///no-database.db"}
    """Enough to read a captured message without settings; nothing is opened."""
    idempotent: ClassVar[bool] = True
    contract_version: ClassVar[int] = 1

    def __init__(self, settings: SqlSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._tables = make_tables(settings.table_prefix, settings.table_schema)
        self._orders = OrderTables(self._tables)
        self._results = ResultTables(self._tables, settings)
        self._engine: Engine | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._inbox: Inbox | None = None
        self._collect_lock = asyncio.Lock()

    async def start(self, inbox: Inbox) -> None:
        """Check that the tables exist."""
        self._inbox = inbox
        await self.check()
        await self._warn_of_small_packets()

    async def stop(self) -> None:
        """Stop, without waiting for a thread that hangs on a dead database."""
        threads, self._executor, self._inbox = self._executor, None, None
        engine, self._engine = self._engine, None
        if engine is not None:
            await asyncio.to_thread(engine.dispose)
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    async def check(self) -> None:
        """Read one row of the order, cancellation and result tables."""
        columns = (self._tables.orders.c.order_key, self._tables.cancellations.c.line_key, self._tables.results.c.id)
        try:
            for column in columns:
                await self._read(lambda connection, column=column: connection.execute(select(column).limit(1)).first())  # type: ignore[misc]
        finally:
            if self._inbox is None:  # called without a start: leave nothing open
                await self.stop()

    async def _warn_of_small_packets(self) -> None:
        """A MySQL or MariaDB server refuses every row that is larger than a packet, whatever its columns hold."""
        if self._get_engine().dialect.name not in MYSQL_DIALECTS:
            return
        size = await self._read(lambda connection: connection.execute(text("select @@max_allowed_packet")).scalar_one())
        if size < self._settings.max_document_bytes:
            log.warning(
                "max_allowed_packet of the database is smaller than max_document_bytes: set it to one and a half times of that",
                action="sql_packet_small",
                adapter=self._name,
                max_allowed_packet=size,
                max_document_bytes=self._settings.max_document_bytes,
            )

    async def prepare(self, order: LabOrder) -> None:
        """Nothing to prepare: an order is written in one transaction."""

    async def submit(self, order: LabOrder) -> SubmitResult:
        """Write the order, unless it exists already."""
        await self._run_in_thread(lambda: self._insert_order(order))
        return SubmitResult()

    async def was_received(self, key: OrderKey) -> bool | None:
        """Whether the order exists in the tables."""
        return await self._read(lambda connection: self._orders.has(connection, key))

    async def cancel(self, order: OrderKey, lines: tuple[LineKey, ...], reason: str) -> None:
        """Write the cancellations."""
        await self._run_in_thread(lambda: self._write(lambda connection: self._orders.cancel(connection, order, lines, reason)))

    async def collect(self) -> int:
        """Process the results that are ready, oldest first."""
        if (inbox := self._inbox) is None:
            raise LisUnavailable("the adapter was not started")
        async with self._collect_lock:
            waiting = await self._read(self._results.list_claimable)
            return await take_each(waiting, lambda number: self._take_result(number, inbox), "results", stop_on=(LisUnavailable,))

    async def _take_result(self, row_id: int, inbox: Inbox) -> bool:
        """Process one result: first commit it, then mark its row (law 1)."""
        if not await self._run_in_thread(lambda: self._write(lambda connection: self._results.claim(connection, row_id))):
            return False
        result_row: ResultRow | None = None
        try:
            result_row = await self._read(lambda connection: self._results.read(connection, row_id))
            new = await self._accept(result_row, inbox)
        except DataInvalidError as exc:
            error = exc
            await _reject(inbox, row_id, result_row, error)  # alert first, in case of a crash here
            await self._run_in_thread(
                lambda: self._write(lambda connection: self._results.mark_faulty(connection, row_id, error))
            )
            log.warning("result row marked as faulty", action="result_row_failed", adapter=self._name)
            return False
        await self._run_in_thread(lambda: self._write(lambda connection: self._results.mark_processed(connection, row_id)))
        return new

    async def parse_message(self, raw: bytes, name: str) -> ParsedMessage:
        """Read a row and its children as JSON of the published schema, the form in which `collect` reads them."""
        return await asyncio.to_thread(parse_json_message, raw, name, zone=self._settings.zone, table=f"lis.{self._name}")

    async def render_order(self, order: LabOrder) -> tuple[RenderedOrder, ...]:
        """Write the rows of the order as JSON, by table. Raises `LisRejected` for a text that is longer than its column."""
        rows = await asyncio.to_thread(render_rows, order, self._tables)
        return (RenderedOrder(f"{order.key}.json", rows),)

    async def _accept(self, result_row: ResultRow, inbox: Inbox) -> bool:
        message = await asyncio.to_thread(self._results.parse, result_row)
        return await inbox.accept(result_row.message_id, message)

    def _insert_order(self, order: LabOrder) -> None:
        try:
            self._write(lambda connection: self._orders.insert(connection, order))
        except LisRejected:
            with self._get_engine().connect() as connection:
                if not self._orders.has(connection, order.key):  # otherwise another process was faster with the same order
                    raise

    async def _read(self, work: Callable[[Connection], T]) -> T:
        def read() -> T:
            with self._get_engine().connect() as connection:
                return work(connection)

        return await self._run_in_thread(read)

    def _write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction. A failure before the commit differs from one during it, whose outcome is unknown."""
        with self._get_engine().connect() as connection:
            try:
                given = work(connection)
            except DBAPIError as exc:
                if type(exc).__name__ in _CONNECTION_ERRORS:
                    raise
                problem = "exists already" if isinstance(exc, IntegrityError) else "does not fit the staging tables"
                raise LisRejected(f"the row to be written {problem}: {type(exc).__name__}") from exc
            try:
                connection.commit()
            except DBAPIError as exc:
                raise LisOutcomeUnknown(f"the database did not confirm the commit: {type(exc).__name__}") from exc
            return given

    def _get_engine(self) -> Engine:
        if self._engine is None:
            self._engine = _make_engine(self._settings)
        return self._engine

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread of our own: a dead database blocks only these threads."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._settings.connections, thread_name_prefix=f"lis-{self._name}")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except (ArgumentError, NoSuchModuleError, ImportError) as exc:
            raise LisUnavailable(
                f"the database in url cannot be opened here ({type(exc).__name__}): check the address, and install its driver"
            ) from exc
        except PoolTimeoutError as exc:
            raise LisUnavailable("all connections to the database are busy") from exc
        except SQLAlchemyError as exc:
            hint = (
                ": do the tables exist? `lab-agent adapter sql ddl` prints their definition"
                if type(exc).__name__ not in _CONNECTION_ERRORS
                else ""
            )
            raise LisUnavailable(f"the database of the LIS failed with {type(exc).__name__}{hint}") from exc


async def _reject(inbox: Inbox, row_id: int, result_row: ResultRow | None, error: DataInvalidError) -> None:
    """Tell the operators of an invalid row; one that could not be read has no content."""
    name, raw = (result_row.message_id, result_row.data) if result_row else (f"row-{row_id}", None)
    await inbox.reject(name, str(error.problems[0]), raw=raw)


def _make_engine(settings: SqlSettings) -> Engine:
    engine = create_engine(
        settings.url.get_secret_value(),
        pool_size=settings.connections,
        max_overflow=0,
        pool_timeout=10,
        pool_pre_ping=True,
        hide_parameters=True,
    )
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda connection, _: connection.execute("pragma foreign_keys = on"))
    return engine
