"""One suite over two stores: on SQLite, and on PostgreSQL."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lab_agent.orders.records import LabelUse, LineRecord, OrderRecord
from lab_agent.queue.job_records import Job, JobKind, NewJob
from lab_agent.results.records import ReportRecord, UploadRecord
from lab_agent.shared.ids import LineKey, OrderKey, ReportKey, ResourceId
from lab_agent.store.crypto import Cipher, new_key
from lab_agent.store.schema import upgrade
from lab_agent.store.table_base import METADATA
from lab_agent.store.unit_of_work import Store, UnitOfWork
from tests.harness.clock import DEADLINE
from tests.harness.databases import create_database

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LEASE = timedelta(minutes=1)


@dataclass
class RecordFactory:
    """Makes records that differ from each other."""

    now: datetime = NOW

    def __post_init__(self) -> None:
        self._numbers = count(1)

    def order(self, key: str | None = None, **fields: Any) -> OrderRecord:
        number = next(self._numbers)
        start: dict[str, Any] = {"key": OrderKey(key or f"R{number:015}"), "task_id": ResourceId(f"task-{number}")}
        return OrderRecord(**{**start, "seen_at": self.now, "changed_at": self.now, **fields})

    def line(self, order: str, key: str | None = None, **fields: Any) -> LineRecord:
        number = next(self._numbers)
        start: dict[str, Any] = {"key": LineKey(key or f"L{number:015}"), "task_id": ResourceId(f"line-task-{number}")}
        return LineRecord(**{**start, "order": OrderKey(order), "changed_at": self.now, "adapter": "folder", **fields})

    def label(self, barcode: str, line: LineRecord, patient: str = "patient/1") -> LabelUse:
        return LabelUse(barcode=barcode, order=line.order, line=line.key, specimen_id="s", patient_reference=patient)

    def job(self, dedup_key: str | None = None, **fields: Any) -> NewJob:
        name = dedup_key or f"job-{next(self._numbers)}"
        start: dict[str, Any] = {"kind": JobKind.UPDATE_LINE_TASK, "ordering_key": name, "target": "x", "due_at": self.now}
        return NewJob(dedup_key=name, **{**start, **fields})

    def report(self, key: str | None = None, **fields: Any) -> ReportRecord:
        number = next(self._numbers)
        start: dict[str, Any] = {"key": ReportKey(key or f"P{number:015}"), "source": "folder", "message": f"m{number}"}
        return ReportRecord(**{**start, "received_at": self.now, "changed_at": self.now, "body": b"{}", **fields})

    def upload(self, identifier: str) -> UploadRecord:
        start: dict[str, Any] = {"resource_type": "Observation", "resource_id": ResourceId("1"), "version": "1", "digest": "d"}
        return UploadRecord(identifier=identifier, order=OrderKey("R1"), report=ReportKey("P1"), **start)


class _Calls:
    """Calls of one repository, each in a unit of work of its own."""

    def __init__(self, run: UnitOfWorkRunner, repository: str) -> None:
        self._run, self._repository = run, repository

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        return lambda *args, **more: self._run(lambda uow: getattr(getattr(uow, self._repository), name)(*args, **more))


@dataclass
class UnitOfWorkRunner:
    """Short ways to use a store in a test: each is one unit of work, committed; `transact.orders.get(key)` is one, too."""

    store: Store

    def __getattr__(self, repository: str) -> _Calls:
        return _Calls(self, repository)

    async def __call__(self, work: Callable[[UnitOfWork], Any]) -> Any:
        def committed(uow: UnitOfWork) -> Any:
            return work(uow)

        return await self.store.transact(committed)

    async def claim(self, *, now: datetime = NOW, limit: int = 100, owner: str = "one", **options: Any) -> tuple[Job, ...]:
        """Claim as a worker does: first it takes jobs from those that are gone."""
        asked: dict[str, Any] = {"kinds": list(JobKind), "lease": LEASE, **options}
        limits = {frozenset(asked.pop("kinds")): limit}

        def take(uow: UnitOfWork) -> tuple[Job, ...]:
            if uow.jobs.pending((), now=now).has_expired_lease:
                uow.jobs.expire_leases(now)
            return uow.jobs.claim(limits, owner=owner, now=now, **asked)

        found: tuple[Job, ...] = await self(take)
        return found


@asynccontextmanager
async def begun(store: Store, work: Callable[[UnitOfWork], object] = lambda _: None) -> AsyncIterator[asyncio.Task[Any]]:
    """A unit of work that has done its work in the block, and is committed at the end of it."""
    done, go_on = threading.Event(), threading.Event()

    def held(uow: UnitOfWork) -> None:
        work(uow)
        done.set()
        assert go_on.wait(2 * DEADLINE)

    task = asyncio.create_task(UnitOfWorkRunner(store)(held))
    assert await asyncio.to_thread(done.wait, DEADLINE)
    yield task
    go_on.set()
    await asyncio.wait({task})


async def with_store(url: str, work: Callable[[Store], Awaitable[Any]], *keys: str) -> Any:
    """Do something with a store that is closed afterwards."""
    store = Store(url, Cipher(*keys))
    try:
        return await work(store)
    finally:
        await store.close()


@pytest.fixture
def factory() -> RecordFactory:
    return RecordFactory()


@pytest.fixture(scope="session")
def key() -> str:
    return new_key()


@pytest.fixture(scope="session")
def cipher(key: str) -> Cipher:
    return Cipher(key)


@pytest.fixture(scope="session")
def postgres_shared(postgres_server: str) -> str:
    """Address of a database with our schema, used by one test after the other: emptying it is quicker than making one."""
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE lab_shared")
    url = postgres_server.replace("/postgres?", "/lab_shared?")
    upgrade(url)
    return url


@pytest.fixture
def postgres_empty_url(postgres_shared: str) -> str:
    """Address of a PostgreSQL database with our schema and nothing in it."""
    tables = ", ".join(f'"{name}"' for name in METADATA.tables)
    with psycopg.connect(postgres_shared, autocommit=True) as connection:
        connection.execute(f"TRUNCATE {tables} RESTART IDENTITY")
        connection.execute("INSERT INTO key_values (key, value) VALUES ('instance', md5(random()::text))")
    return postgres_shared


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return create_database(tmp_path / "lab.db")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def sql_url(request: pytest.FixtureRequest) -> str:
    """Address of a fresh database with our schema."""
    return str(request.getfixturevalue("sqlite_url" if request.param == "sqlite" else "postgres_empty_url"))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a database without a schema; the file of SQLite, and its folder, are not there yet."""
    is_sqlite = request.param == "sqlite"
    return f"sqlite:///{tmp_path / 'with space %20' / 'lab.db'}" if is_sqlite else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def fresh(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    """Another database of the same kind, which stays empty until the test upgrades it."""
    if url.startswith("sqlite"):
        yield f"sqlite:///{tmp_path / 'fresh.db'}"
        return
    server: str = request.getfixturevalue("postgres_server")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE fresh")
        yield server.replace("/postgres?", "/fresh?")
        connection.execute("DROP DATABASE fresh WITH (FORCE)")


@pytest.fixture
async def store(sql_url: str, cipher: Cipher) -> AsyncIterator[Store]:
    """Each of the two stores, empty."""
    opened = Store(sql_url, cipher)
    yield opened
    await opened.close()


@pytest.fixture
def transact(store: Store) -> UnitOfWorkRunner:
    return UnitOfWorkRunner(store)
