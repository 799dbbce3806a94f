"""`SqlStore`: units of work on SQLite or PostgreSQL, in a bounded number of threads.

SQLite allows one write at a time, so one thread writes, for all who wait at once: our own queue is fair and costs nothing,
SQLite's lock is neither.
Reads (pages, commands, metrics) have threads of their own, and so has what the workers read beside the writer: a slow page never
delays them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import copy_context
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from typing_extensions import override

from lab_agent.audit_origin import find_origin
from lab_agent.crypto import Cipher
from lab_agent.domain.audit import AuditHead, AuditOrigin
from lab_agent.domain.job_records import FailureGroup, JobKind
from lab_agent.domain.records import WaitingGroup
from lab_agent.domain.store_health import StoreHealth
from lab_agent.errors import StoreError, StoreFault, StoreUnreachableError
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.store.activity import SqlActivityRepository
from lab_agent.store.all_groups import load_all_groups
from lab_agent.store.api_refusals import SqlApiRefusalRepository
from lab_agent.store.audit import SqlAuditRepository
from lab_agent.store.audit_mark import AuditMark, AuditMarkFile
from lab_agent.store.catalogue import SqlCatalogueRepository, SqlIssuedLabelRepository, SqlTurnaroundNoticeRepository
from lab_agent.store.credentials import SqlApiTokenRepository, SqlOAuthTokenRepository, SqlSessionRepository, SqlUserRepository
from lab_agent.store.database_files import DatabaseFiles, check_files
from lab_agent.store.engine import NO_TRANSACTION, is_answering, open_engine, open_reading_engine, parse_url, sqlite_file
from lab_agent.store.erasure import SqlErasure
from lab_agent.store.error_translation import translate_errors
from lab_agent.store.events import SqlAlertRepository, SqlEventRepository, SqlKeyValueRepository, SqlRejectionRepository
from lab_agent.store.group_commit import GroupCommitter
from lab_agent.store.integrity import check_content, check_file, check_identity, read_instance
from lab_agent.store.jobs import SqlJobRepository
from lab_agent.store.leases import SqlLeaseRepository
from lab_agent.store.notifications import SqlNotificationRepository
from lab_agent.store.orders import SqlOrderRepository
from lab_agent.store.programs import SqlProgramRepository
from lab_agent.store.refused_messages import SqlRefusedMessageRepository
from lab_agent.store.reports import SqlHostedDocumentRepository, SqlReportRepository, SqlUploadRepository
from lab_agent.store.retention import SqlPurge
from lab_agent.store.search_index import SqlSearchIndex
from lab_agent.store.session import Session, SessionConnection, Transaction
from lab_agent.store.space import free_pages
from lab_agent.store.vault import SqlVault, verify_key
from lab_agent.store.waiting_groups import load_waiting_groups
from lab_agent.store.workers import SqlWorkerRepository

T = TypeVar("T")
_PAGE_READ_THREADS, _WORKER_READ_THREADS = 2, 2
"""How many threads read for `read`, and how many for `run_read_only`."""
_WRITERS = {"sqlite": (1, 50), "postgresql": (6, 1)}
"""How many threads write, and how many units of work one transaction has at most."""
_REOPENED_FAULTS = frozenset({StoreFault.READ_ONLY, StoreFault.UNREACHABLE, StoreFault.DAMAGED})
_QUICK_SECONDS, _PLAIN_SECONDS = 2.0, 2.0
"""How long a reader waits before it asks PostgreSQL the plainest question, and how long that may take: a server that hangs would
keep pages waiting for ever, and a slow query is no outage.
"""
_NO_ANSWER = f"The database is unavailable: its server has not answered for {_QUICK_SECONDS + _PLAIN_SECONDS:.0f} seconds."
_PROBE_KEY = "store.probe"
_PROBE_SIZE = 64 * 1024
"""Bytes that are written to see whether a database takes what is written: so much room there must be on a disk that was full."""


class SqlUnitOfWork(UnitOfWork):
    """The repositories on the session of one unit of work."""

    def __init__(self, session: Session, cipher: Cipher, origin: AuditOrigin) -> None:
        self._session = session
        connection = cast("Connection", SessionConnection(session))  # it has what these repositories use of a connection
        self.orders = SqlOrderRepository(session)
        self.jobs = SqlJobRepository(session)
        self.reports = SqlReportRepository(session)
        self.uploads = SqlUploadRepository(session)
        self.vault = SqlVault(session, cipher)
        self.hosted_documents = SqlHostedDocumentRepository(session)
        self.events = SqlEventRepository(session)
        self.alerts = SqlAlertRepository(session)
        self.notifications = SqlNotificationRepository(session)
        self.rejections = SqlRejectionRepository(session)
        self.refused_messages = SqlRefusedMessageRepository(connection, cipher)
        self.key_values = SqlKeyValueRepository(session)
        self.oauth_tokens = SqlOAuthTokenRepository(connection, cipher)
        self.users = SqlUserRepository(connection)
        self.status_sessions = SqlSessionRepository(connection)
        self.catalogues = SqlCatalogueRepository(connection)
        self.turnaround_notices = SqlTurnaroundNoticeRepository(connection)
        self.issued_labels = SqlIssuedLabelRepository(session)
        self.api_tokens = SqlApiTokenRepository(connection)
        self.api_refusals = SqlApiRefusalRepository(session)
        self.workers = SqlWorkerRepository(session)
        self.programs = SqlProgramRepository(session)
        self.leases = SqlLeaseRepository(session)
        self.activity = SqlActivityRepository(connection)
        self.purge = SqlPurge(connection)
        self.erasure = SqlErasure(connection)
        self.search = SqlSearchIndex(session)
        self.audit = SqlAuditRepository(session, cipher, origin)

    @override
    def waiting_groups(self) -> tuple[WaitingGroup, ...]:
        return load_waiting_groups(self._session)

    @override
    def all_groups(self) -> tuple[tuple[FailureGroup, ...], tuple[WaitingGroup, ...]]:
        return load_all_groups(self._session)

    @override
    def commit(self) -> None:
        self.audit.flush()
        self._session.commit()

    @override
    def reading(self) -> AbstractContextManager[None]:
        return self._session.reading()


class SqlStore(Store):
    """The store in the database at `url`; `cipher` encrypts identification data, documents and tokens.

    Nothing is opened before the first unit of work. `patience` is how many seconds who writes waits for a lock, where that is
    not the usual time. `origin` says in the audit who runs this process, `audit_mark` is the file that marks how far the audit
    is. Raises `StoreError` for an invalid URL.
    """

    def __init__(
        self,
        url: str,
        cipher: Cipher,
        *,
        patience: float | None = None,
        origin: AuditOrigin | None = None,
        audit_mark: AuditMarkFile | None = None,
    ) -> None:
        threads, group_size = _WRITERS[parse_url(url).drivername.partition("+")[0]]
        path = sqlite_file(url)
        files = None if path is None else DatabaseFiles(path)
        self._engine = open_engine(url, connections=threads, files=files, patience=patience)
        self._reading_engine = open_reading_engine(url, connections=_PAGE_READ_THREADS + _WORKER_READ_THREADS, files=files)
        self._looking_engine = self._reading_engine.execution_options(**{NO_TRANSACTION: True})  # on the same connections
        self._url = url
        self._is_remote = path is None
        self.cipher = cipher
        self._origin = origin or find_origin()
        self.audit_mark = audit_mark
        self._key_verified = False
        self._instance: str | None = None
        self._writers = GroupCommitter(
            self._engine,
            threads=threads,
            group_size=group_size,
            set_up=self._before_transaction,
            check=check_files,
            on_jobs_due=self._announce_jobs_due,
        )
        self._page_readers = ThreadPoolExecutor(_PAGE_READ_THREADS, thread_name_prefix="store-read")
        self._worker_readers = ThreadPoolExecutor(_WORKER_READ_THREADS, thread_name_prefix="store-read-worker")
        self.on_jobs_due = lambda _: None
        self.health = StoreHealth()
        self.health.lock_wait = lambda: self._writers.lock_wait
        self.health.wait_fault = StoreFault.UNREACHABLE if path is None else StoreFault.LOCKED

    @override
    async def run(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run `work` as the port says; on SQLite, in one transaction with others that wait at the same time.

        Raises also `SchemaMismatchError`, and `WrongKeyError` where the database was written with other keys. A caller that is
        cancelled does not stop the thread: what `work` committed is committed.
        """
        self.health.check(reading=False)
        opened: list[SqlUnitOfWork] = []

        def unit(session: Session) -> T:
            opened.append(SqlUnitOfWork(session, self.cipher, self._origin))
            return work(opened[-1])

        result = await self._write_in_turn(unit)
        if self.audit_mark is not None and (reached := opened[-1].audit.reached) is not None:
            await self._advance_audit_mark(self.audit_mark, reached)
        return result

    @override
    async def run_read_only(self, work: Callable[[UnitOfWork], T]) -> T:
        return await self._look_in(self._worker_readers, work, one_moment=True)

    @override
    async def look(self, work: Callable[[UnitOfWork], T]) -> T:
        return await self._look_in(self._worker_readers, work, one_moment=False)

    @override
    async def verify(self) -> None:
        self._instance = await self._read_in(self._worker_readers, self._read_identity)

    @override
    async def probe(self) -> None:
        await asyncio.to_thread(self._drop_connections)
        await self.verify()
        if self.health.outage is not None and self.health.outage.fault is StoreFault.DAMAGED:
            await self._read_in(self._worker_readers, check_content)
        self.health.can_be_read()
        await self._write_in_turn(_write_probe)

    async def read(self, query: Callable[[Connection], T], *, one_moment: bool = True) -> T:
        """Run `query`; it cannot write. For the queries of this package.

        It sees one moment. One of a single statement does by itself, and is faster if `one_moment` is not asked for.
        """
        self.health.check(reading=True)
        return await self._read_in(self._page_readers, query, one_moment=one_moment)

    async def write(self, work: Callable[[Connection, Cipher], T]) -> T:
        """Run `work` on the tables themselves, and commit. For this package only."""

        def unit(session: Session) -> T:
            result = work(session.connection(), self.cipher)
            session.commit()
            return result

        self.health.check(reading=False)
        return await self._write_in_turn(unit)

    @override
    async def reclaim_space(self) -> int:
        if self._is_remote:
            return 0
        freed = 0
        while portion := await self.write(lambda connection, _: free_pages(connection)):
            freed += portion
        return freed

    async def close(self) -> None:
        """Let running units of work end, then close the connections."""
        await asyncio.to_thread(self._close)

    async def _write_in_turn(self, unit: Callable[[Session], T]) -> T:
        try:
            return await self._writers.run(unit)
        except StoreUnreachableError as exc:
            self.health.failed(exc, datetime.now(UTC))
            raise

    async def _advance_audit_mark(self, mark: AuditMarkFile, reached: AuditHead) -> None:
        """Let the file follow what is committed. Where it cannot be written, the next record tries again."""
        try:
            instance = self._instance
            if instance is None:
                instance = await self._read_in(self._worker_readers, read_instance)
            await asyncio.to_thread(mark.advance, AuditMark(instance, reached.number, reached.hash))
        except StoreError as exc:
            from lab_agent.logs import get_logger  # noqa: PLC0415 - commands begin without the log

            reason = str(exc)
            get_logger(__name__).error("the mark of the audit cannot be written", action="audit_mark_failed", reason=reason)

    def _before_transaction(self, connection: Connection) -> None:
        check_files(connection)
        if not self._key_verified:
            verify_key(connection, self.cipher)
            self._key_verified = True

    def _announce_jobs_due(self, kinds: frozenset[JobKind]) -> None:
        self.on_jobs_due(kinds)

    async def _look_in(self, threads: ThreadPoolExecutor, work: Callable[[UnitOfWork], T], *, one_moment: bool) -> T:
        def look(connection: Connection) -> T:
            return work(SqlUnitOfWork(Session(Transaction(connection, read_only=True)), self.cipher, self._origin))

        self.health.check(reading=True)
        return await self._read_in(threads, look, one_moment=one_moment)

    async def _read_in(self, threads: ThreadPoolExecutor, query: Callable[[Connection], T], *, one_moment: bool = True) -> T:
        call = partial(copy_context().run, self._run_read_only, query, one_moment=one_moment)
        try:
            answer = asyncio.get_running_loop().run_in_executor(threads, call)
            if self._is_remote:
                await self._wait_for_server(answer)
            return await answer
        except StoreUnreachableError as exc:
            self.health.failed(exc, datetime.now(UTC), reading=True)
            raise

    async def _wait_for_server(self, answer: asyncio.Future[T]) -> None:
        """Wait until there is an answer, or the server is known to give answers. Raises `StoreUnreachableError`."""
        await asyncio.wait({answer}, timeout=_QUICK_SECONDS)
        if answer.done():
            return
        plain = asyncio.ensure_future(asyncio.to_thread(is_answering, self._url))
        both: set[asyncio.Future[Any]] = {answer, plain}
        await asyncio.wait(both, timeout=_PLAIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done() and not (plain.done() and plain.result()):
            answer.cancel()  # what has not begun is not begun
            raise StoreUnreachableError(_NO_ANSWER, StoreFault.UNREACHABLE)

    def _run_read_only(self, query: Callable[[Connection], T], *, one_moment: bool) -> T:
        engine = self._reading_engine if one_moment else self._looking_engine
        with translate_errors():
            try:
                return _read_once(engine, query)
            except DBAPIError as exc:
                if not exc.connection_invalidated:
                    raise
                return _read_once(engine, query)  # it was lost while nobody used it, as at a restart of the server

    def _read_identity(self, connection: Connection) -> str:
        """The instance of the database, which must be the one that it was."""
        check_identity(connection, self.cipher, self._instance)
        if (path := sqlite_file(self._url)) is not None:
            check_file(path, self._instance)
        return read_instance(connection)

    def _drop_connections(self) -> None:
        """Open the file anew after a fault: one that was read-only stays so for a connection. A deleted one is kept open."""
        if self.health.outage is not None and self.health.outage.fault in _REOPENED_FAULTS:
            self._engine.dispose()
            self._reading_engine.dispose()

    def _close(self) -> None:
        self._writers.close()
        self._page_readers.shutdown()
        self._worker_readers.shutdown()
        self._engine.dispose()
        self._reading_engine.dispose()


def _read_once(engine: Engine, query: Callable[[Connection], T]) -> T:
    with engine.connect() as connection:
        check_files(connection)
        found = query(connection)
        connection.commit()  # psycopg forgets its prepared statements at a rollback, and each would be planned anew
        return found


def _write_probe(session: Session) -> None:
    values = SqlKeyValueRepository(session)
    values.set(_PROBE_KEY, secrets.token_urlsafe(_PROBE_SIZE * 3 // 4))  # PostgreSQL would compress what repeats itself
    session.commit()
    values.set(_PROBE_KEY, "")
    session.commit()
