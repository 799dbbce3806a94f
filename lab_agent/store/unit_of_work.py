"""`SqlStore`: units of work on SQLite or PostgreSQL, in a bounded pool of threads.

SQLite allows one write at a time, so one thread writes: our own queue is fair and costs nothing, SQLite's lock is neither.
Reads (pages, commands, metrics) have threads of their own and never delay the workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from typing import TypeVar

from sqlalchemy import Connection
from typing_extensions import override

from lab_agent.crypto import Cipher
from lab_agent.domain.records import JobKind
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.store.catalogue import SqlCatalogueRepository, SqlIssuedLabelRepository, SqlTurnaroundNoticeRepository
from lab_agent.store.credentials import SqlApiTokenRepository, SqlOAuthTokenRepository, SqlUserRepository
from lab_agent.store.engine import READ_ONLY, open_engine, parse_url
from lab_agent.store.error_translation import translate_errors
from lab_agent.store.events import SqlAlertRepository, SqlEventRepository, SqlKeyValueRepository, SqlRejectionRepository
from lab_agent.store.jobs import SqlJobRepository
from lab_agent.store.orders import SqlOrderRepository
from lab_agent.store.refused_messages import SqlRefusedMessageRepository
from lab_agent.store.reports import SqlHostedDocumentRepository, SqlReportRepository, SqlUploadRepository
from lab_agent.store.retention import SqlPurge
from lab_agent.store.vault import SqlVault, verify_key

T = TypeVar("T")

_READER_THREADS = 2
_WRITER_THREADS = {"sqlite": 1, "postgresql": 6}


class SqlUnitOfWork(UnitOfWork):
    """One transaction on one connection, and the repositories on it."""

    def __init__(self, connection: Connection, cipher: Cipher) -> None:
        self._connection = connection
        self.jobs_due: set[JobKind] = set()
        """Kinds of jobs that are due with what was committed."""
        self.orders = SqlOrderRepository(connection)
        self.jobs = SqlJobRepository(connection)
        self.reports = SqlReportRepository(connection)
        self.uploads = SqlUploadRepository(connection)
        self.vault = SqlVault(connection, cipher)
        self.hosted_documents = SqlHostedDocumentRepository(connection)
        self.events = SqlEventRepository(connection)
        self.alerts = SqlAlertRepository(connection)
        self.rejections = SqlRejectionRepository(connection)
        self.refused_messages = SqlRefusedMessageRepository(connection, cipher)
        self.key_values = SqlKeyValueRepository(connection)
        self.oauth_tokens = SqlOAuthTokenRepository(connection, cipher)
        self.users = SqlUserRepository(connection)
        self.catalogues = SqlCatalogueRepository(connection)
        self.turnaround_notices = SqlTurnaroundNoticeRepository(connection)
        self.issued_labels = SqlIssuedLabelRepository(connection)
        self.api_tokens = SqlApiTokenRepository(connection)
        self.purge = SqlPurge(connection)

    @override
    def commit(self) -> None:
        self._connection.commit()
        self.jobs_due |= self.jobs.made_due

    @override
    def reading(self) -> AbstractContextManager[None]:
        return nullcontext()


class SqlStore(Store):
    """The store in the database at `url`; `cipher` encrypts identification data, documents and tokens.

    Nothing is opened before the first unit of work. Raises `StoreError` for an invalid URL.
    """

    def __init__(self, url: str, cipher: Cipher) -> None:
        writers = _WRITER_THREADS[parse_url(url).drivername.partition("+")[0]]
        self._engine = open_engine(url, connections=writers + _READER_THREADS)
        self._cipher = cipher
        self._key_verified = False
        self._writers = ThreadPoolExecutor(writers, thread_name_prefix="store")
        self._readers = ThreadPoolExecutor(_READER_THREADS, thread_name_prefix="store-read")
        self.on_jobs_due = lambda _: None

    @override
    async def run(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run `work` as the port says.

        Raises also `SchemaMismatchError`, and `CryptoError` where the database was written with other keys. A caller that is
        cancelled does not stop the thread: what `work` committed is committed.
        """
        due: set[JobKind] = set()
        try:
            return await _run_in_pool(self._writers, lambda: self._run_unit_of_work(work, due))
        finally:
            if due:
                self.on_jobs_due(frozenset(due))

    @override
    async def run_read_only(self, work: Callable[[UnitOfWork], T]) -> T:
        return await self.read(lambda connection: work(SqlUnitOfWork(connection, self._cipher)))

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Run `query` on a consistent snapshot; it cannot write. For the queries of this package."""
        return await _run_in_pool(self._readers, lambda: self._run_read_only(query))

    async def write(self, work: Callable[[Connection, Cipher], T]) -> T:
        """Run `work` on the tables themselves, and commit. For this package only."""

        def unit(connection: Connection) -> T:
            result = work(connection, self._cipher)
            connection.commit()
            return result

        return await _run_in_pool(self._writers, lambda: self._with_connection(unit))

    async def close(self) -> None:
        """Let running units of work end, then close the connections."""
        await asyncio.to_thread(self._close)

    def _run_unit_of_work(self, work: Callable[[UnitOfWork], T], due: set[JobKind]) -> T:
        def unit(connection: Connection) -> T:
            uow = SqlUnitOfWork(connection, self._cipher)
            try:
                return work(uow)
            finally:
                due.update(uow.jobs_due)

        return self._with_connection(unit)

    def _with_connection(self, work: Callable[[Connection], T]) -> T:
        with translate_errors(), self._engine.connect() as connection:
            if not self._key_verified:
                verify_key(connection, self._cipher)
                self._key_verified = True
            return work(connection)

    def _run_read_only(self, query: Callable[[Connection], T]) -> T:
        options = {READ_ONLY: True, "postgresql_readonly": True, "isolation_level": "REPEATABLE READ"}
        if self._engine.dialect.name == "sqlite":
            options = {READ_ONLY: True}
        with translate_errors(), self._engine.connect().execution_options(**options) as connection:
            return query(connection)

    def _close(self) -> None:
        self._writers.shutdown()
        self._readers.shutdown()
        self._engine.dispose()


async def _run_in_pool(pool: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, copy_context().run, call)
