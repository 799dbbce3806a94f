"""`Store`: units of work on SQLite or PostgreSQL, in a bounded number of threads.

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
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from lab_agent.catalogue.catalogue_repository import CatalogueRepository, IssuedLabelRepository, TurnaroundNoticeRepository
from lab_agent.orders.order_repository import OrderRepository
from lab_agent.queue.job_records import FailureGroup, JobKind
from lab_agent.queue.job_repository import JobRepository
from lab_agent.queue.leases import LeaseRepository
from lab_agent.queue.workers import WorkerRepository
from lab_agent.results.refused_message_repository import RefusedMessageRepository
from lab_agent.results.report_repository import HostedDocumentRepository, ReportRepository, UploadRepository
from lab_agent.shared.errors import StoreError, StoreFault, StoreUnreachableError
from lab_agent.store.activity import ActivityRepository
from lab_agent.store.all_groups import load_all_groups
from lab_agent.store.api_refusals import ApiRefusalRepository
from lab_agent.store.audit import AuditRepository
from lab_agent.store.audit_mark import AuditMark, AuditMarkFile
from lab_agent.store.audit_origin import find_origin
from lab_agent.store.audit_records import AuditHead, AuditOrigin
from lab_agent.store.credentials import ApiTokenRepository, OAuthTokenRepository, SessionRepository, UserRepository
from lab_agent.store.crypto import Cipher
from lab_agent.store.database_files import DatabaseFiles, check_files
from lab_agent.store.engine import NO_TRANSACTION, is_answering, open_engine, open_reading_engine, parse_url, sqlite_file
from lab_agent.store.erasure import Erasure
from lab_agent.store.error_translation import translate_errors
from lab_agent.store.event_records import WaitingGroup
from lab_agent.store.events import AlertRepository, EventRepository, KeyValueRepository, RejectionRepository
from lab_agent.store.group_commit import GroupCommitter
from lab_agent.store.integrity import check_content, check_file, check_identity, read_instance
from lab_agent.store.notifications import NotificationRepository
from lab_agent.store.programs import ProgramRepository
from lab_agent.store.retention import Purge
from lab_agent.store.search_index import SearchIndex
from lab_agent.store.session import Session, Transaction
from lab_agent.store.space import free_pages
from lab_agent.store.store_health import StoreHealth
from lab_agent.store.vault import Vault, verify_key
from lab_agent.store.waiting_groups import load_waiting_groups

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


class UnitOfWork:
    """What is written together or not at all (`Store.transact`).

    What was read or written in it is not read again; an error about what was written may be raised as late as by the commit.
    """

    def __init__(self, session: Session, cipher: Cipher, origin: AuditOrigin) -> None:
        self._session = session
        self.orders = OrderRepository(session)
        self.jobs = JobRepository(session)
        self.reports = ReportRepository(session)
        self.uploads = UploadRepository(session)
        self.vault = Vault(session, cipher)
        self.hosted_documents = HostedDocumentRepository(session)
        self.events = EventRepository(session)
        self.alerts = AlertRepository(session)
        self.notifications = NotificationRepository(session)
        self.rejections = RejectionRepository(session)
        self.refused_messages = RefusedMessageRepository(session, cipher)
        self.key_values = KeyValueRepository(session)
        self.oauth_tokens = OAuthTokenRepository(session, cipher)
        self.users = UserRepository(session)
        self.status_sessions = SessionRepository(session)
        self.catalogues = CatalogueRepository(session)
        self.turnaround_notices = TurnaroundNoticeRepository(session)
        self.issued_labels = IssuedLabelRepository(session)
        self.api_tokens = ApiTokenRepository(session)
        self.api_refusals = ApiRefusalRepository(session)
        self.workers = WorkerRepository(session)
        self.programs = ProgramRepository(session)
        self.leases = LeaseRepository(session)
        self.activity = ActivityRepository(session)
        self.purge = Purge(session)
        self.erasure = Erasure(session)
        self.search = SearchIndex(session)
        self.audit = AuditRepository(session, cipher, origin)

    def waiting_groups(self) -> tuple[WaitingGroup, ...]:
        """What waits, counted by why: held orders by cause, held lines, parts that wait by laboratory system, orders and lines
        with unreadable Tasks; results that are unmatched, unmapped, or held for a reason; refused messages by adapter.
        """
        return load_waiting_groups(self._session)

    def all_groups(self) -> tuple[tuple[FailureGroup, ...], tuple[WaitingGroup, ...]]:
        """What fails (`jobs.failure_groups`) and what waits (`waiting_groups`), read together."""
        return load_all_groups(self._session)

    def commit(self) -> AuditHead | None:
        """Write everything at once, at the end of `Store.transact`; gives the new end of the audit, where that has grown."""
        self.audit.flush()
        self._session.commit()
        return self.audit.reached

    def reading(self) -> AbstractContextManager[None]:
        """Inside the block nothing is locked, whatever reads: what is read may be changed by others before it is used.

        For what belongs to others than this unit of work is about: two that lock several orders would wait for each other.
        """
        return self._session.reading()


class Store:
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
        self.on_jobs_due: Callable[[frozenset[JobKind]], None] = lambda _: None
        """Called in the event loop after a commit that made jobs due (`JobRepository.made_due`), with their kinds."""
        self.health = StoreHealth()
        """What is wrong with the database, as far as is known."""
        self.health.lock_wait = lambda: self._writers.lock_wait
        self.health.wait_fault = StoreFault.UNREACHABLE if path is None else StoreFault.LOCKED

    async def transact(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run `work` in a unit of work: all that it wrote is committed when this returns, and undone where it raises.

        It runs in one thread hop; on SQLite, in one transaction with others that wait at the same time. Raises what `work`
        raises, `StoreUnreachableError` (nothing was written; try again later), `SchemaMismatchError`, and `WrongKeyError` where
        the database was written with other keys. A caller that is cancelled does not stop the thread.
        """
        self.health.check(reading=False)
        reached: list[AuditHead | None] = []

        def unit(session: Session) -> T:
            uow = UnitOfWork(session, self.cipher, self._origin)
            result = work(uow)
            reached.append(uow.commit())
            return result

        result = await self._write_in_turn(unit)
        if self.audit_mark is not None and (head := reached[-1]) is not None:
            await self._advance_audit_mark(self.audit_mark, head)
        return result

    async def rehearse(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run `work` as `transact` does, and undo what it wrote: for saying what something would do. Raises the same."""
        self.health.check(reading=False)
        return await self._write_in_turn(lambda session: work(UnitOfWork(session, self.cipher, self._origin)))

    async def run_read_only(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run `work` on what is committed, beside whoever writes: it sees one moment, locks nothing, and cannot write.

        Raises `StoreUnreachableError`, and what `work` raises.
        """
        return await self._look_in(self._worker_readers, work, one_moment=True)

    async def look(self, work: Callable[[UnitOfWork], T]) -> T:
        """Run `work` like `run_read_only`, but each thing that it reads may be as it is at a moment of its own.

        That is faster, and enough where what is read need not fit together to the millisecond.
        """
        return await self._look_in(self._worker_readers, work, one_moment=False)

    async def verify(self) -> None:
        """Read whether the database is still the one that was opened, with its schema and key. Raises `StoreUnreachableError`."""
        self._instance = await self._read_in(self._worker_readers, self._read_identity)

    async def probe(self) -> None:
        """Try whether it can be read and written, also in an outage. Raises `StoreUnreachableError`."""
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

    async def reclaim_space(self) -> int:
        """Give room that was freed in the database back to the disk, in small portions, where that can be done beside the work.

        How many bytes. Raises `StoreUnreachableError`.
        """
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
            from lab_agent.shared.logs import get_logger  # noqa: PLC0415 - commands begin without the log

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
            return work(UnitOfWork(Session(Transaction(connection, read_only=True)), self.cipher, self._origin))

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
    values = KeyValueRepository(session)
    values.set(_PROBE_KEY, secrets.token_urlsafe(_PROBE_SIZE * 3 // 4))  # PostgreSQL would compress what repeats itself
    session.commit()
    values.set(_PROBE_KEY, "")
    session.commit()
