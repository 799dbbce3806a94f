"""Workers and their heartbeats: a row for each run, replaced every few seconds, so that others see whether one lives."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Table, bindparam, delete, select
from sqlmodel import Field

from lab_agent.store.column_types import IndexableText, PlainText, UtcDateTime
from lab_agent.store.row_mapping import RecordMapping, upsert_by
from lab_agent.store.session import Query, Session, Write
from lab_agent.store.table_base import METADATA, TableRow


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRecord:
    """One run of `lab-agent run`, with its last heartbeat.

    `loop_lag_ms` is how late its event loop was at most since the heartbeat before, in milliseconds. Where that was long,
    `stalled_at` is when the process went on, and `stalled_ms` for how long it had stood still: the last such time stays.
    `ended_part` is the part of it that ended by itself, and `fault` the type of the error that it ended with. `stopped_at` is set
    once it has ended in order, `stopped_by` names the signal that asked for it; a process that was killed or lost its machine
    has neither.
    """

    name: str
    host: str
    pid: int
    version: str
    mode: str
    started_at: datetime
    beat_at: datetime
    loop_lag_ms: int = 0
    stalled_at: datetime | None = None
    stalled_ms: int = 0
    ended_part: str | None = None
    fault: str | None = None
    stopped_at: datetime | None = None
    stopped_by: str | None = None


class WorkerRow(TableRow, table=True):
    """A run of a worker (`WorkerRecord`)."""

    __tablename__ = "workers"
    name: str = Field(sa_type=IndexableText, primary_key=True)
    host: str = Field(sa_type=PlainText)
    pid: int
    version: str = Field(sa_type=PlainText)
    mode: str = Field(sa_type=PlainText)
    started_at: datetime = Field(sa_type=UtcDateTime)
    beat_at: datetime = Field(sa_type=UtcDateTime, index=True)
    loop_lag_ms: int
    stalled_at: datetime | None = Field(sa_type=UtcDateTime)
    stalled_ms: int
    ended_part: str | None = Field(sa_type=PlainText)
    fault: str | None = Field(sa_type=PlainText)
    stopped_at: datetime | None = Field(sa_type=UtcDateTime)
    stopped_by: str | None = Field(sa_type=PlainText)


workers: Table = METADATA.tables["workers"]
_WORKERS = RecordMapping(WorkerRecord, workers)
_SAVE = Write.insert(workers, upsert_by("name"))
_NEWEST = Query(select(*_WORKERS.columns).order_by(workers.c.beat_at.desc(), workers.c.name).limit(bindparam("limit")))
_PURGE = Write.of(workers, delete(workers).where(workers.c.beat_at < bindparam("before", type_=workers.c.beat_at.type)))


class WorkerRepository:
    """Runs of workers, each with its last heartbeat."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def save(self, worker: WorkerRecord) -> None:
        """Write or replace what a worker says of itself, in one statement."""
        self._session.put(_SAVE, worker.name, _WORKERS.to_values(worker))

    def newest(self, *, limit: int = 100) -> tuple[WorkerRecord, ...]:
        """Workers, latest heartbeat first."""
        return _WORKERS.to_records(self._session.execute(_NEWEST, {"limit": limit}))

    def purge(self, *, before: datetime) -> int:
        """Delete those whose last heartbeat was before then; gives how many."""
        return self._session.send(_PURGE, {"before": before}).rowcount
