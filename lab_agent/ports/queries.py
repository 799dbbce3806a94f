"""What pages, commands and metrics see of the store: frozen pictures, nothing that identifies a patient.

Looking never holds up the work, and changes nothing. Times are aware and in UTC; an age is `now` minus such a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from lab_agent.domain.ids import JobId, LineKey, OrderKey, ReportKey
from lab_agent.domain.records import Alert, Event, HoldReason, Job, JobKind, LabelUse, LineRecord, OrderRecord, ReportRecord
from lab_agent.domain.state_machines import JobState, LineState, OrderState, ReportState
from lab_agent.domain.values import Identifier

T = TypeVar("T")

LAST_POLL_KEY = "poll.succeeded"
"""Note that holds when the service was last polled with success, as an ISO 8601 time with offset."""
DEFAULT_PAGE_SIZE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Part of a list: `total` is the length of the whole, `offset` the number of items before these."""

    items: tuple[T, ...]
    total: int
    offset: int

    @property
    def has_more(self) -> bool:
        """Whether items follow."""
        return self.offset + len(self.items) < self.total


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """How things stand. States of which there is none are missing from the counts.

    `oldest_…` say since when the oldest one has been in its state (the change that brought it there). `due_since` is when the
    longest waiting effect that could be done now became due, as of `now`; None while nothing waits.
    """

    orders: Mapping[OrderState, int]
    lines: Mapping[LineState, int]
    jobs: Mapping[JobState, int]
    reports: Mapping[ReportState, int]
    oldest_orders: Mapping[OrderState, datetime]
    oldest_jobs: Mapping[JobState, datetime]
    oldest_reports: Mapping[ReportState, datetime]
    due_since: datetime | None
    overdue_orders: int
    alerts: tuple[Alert, ...]
    last_poll: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSummary:
    """An order in a list.

    `ended_lines` of its `lines` have ended; `troubles` are effects and reports of it that wait for a person.
    """

    key: OrderKey
    task_id: str
    state: OrderState
    contract: str | None
    requisition: Identifier | None
    accession: str | None
    adapter: str | None
    reason: str | None
    seen_at: datetime
    changed_at: datetime
    expected_at: datetime | None
    lines: int
    ended_lines: int
    open_jobs: int
    attention_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSummary:
    """A report in a list: all but its content."""

    key: ReportKey
    source: str
    message: str
    sequence: int
    report_id: str | None
    version: int | None
    issued: datetime | None
    state: ReportState
    order: OrderKey | None
    lines: tuple[LineKey, ...]
    hold_reason: HoldReason | None
    reason: str | None
    received_at: datetime
    changed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDetail:
    """All about one order: effects and events oldest first, reports by their arrival."""

    order: OrderRecord
    lines: tuple[LineRecord, ...]
    labels: tuple[LabelUse, ...]
    jobs: tuple[Job, ...]
    reports: tuple[ReportSummary, ...]
    events: tuple[Event, ...]


class AttentionKind(StrEnum):
    """What a failure is about."""

    ORDER = "order"
    JOB = "job"
    REPORT = "report"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionItem:
    """Something that waits for a person.

    A held order, a parked or doubtful effect, or a report that fits nothing. `ref` is its key or number; `kind` is the kind
    of an effect, the adapter of a report, or the contract of an order; `hold_reason` is that of a held report.
    """

    attention_kind: AttentionKind
    ref: str
    state: str
    kind: str | None
    order: OrderKey | None
    target: str | None
    hold_reason: HoldReason | None
    reason: str | None
    since: datetime
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCounts:
    """Numbers for metrics."""

    orders: Mapping[OrderState, int]
    lines: Mapping[LineState, int]
    jobs: Mapping[tuple[JobKind, JobState], int]
    reports: Mapping[ReportState, int]
    alerts: int
    due_since: datetime | None
    last_poll: datetime | None


class Queries(Protocol):
    """Reads. Each call may raise `StoreUnreachableError` and `SchemaMismatchError`."""

    async def overview(self, *, now: datetime) -> Overview:
        """How things stand."""
        ...

    async def counts(self, *, now: datetime) -> StateCounts:
        """Numbers for metrics."""
        ...

    async def needs_attention(self, *, offset: int = 0, limit: int = DEFAULT_PAGE_SIZE) -> Page[AttentionItem]:
        """What waits for a person, longest first."""
        ...

    async def attention_counts(self) -> Mapping[AttentionKind, int]:
        """How many of each sort wait for a person: the numbers of `failures`."""
        ...

    async def orders(
        self, *, search: str | None = None, states: Collection[OrderState] = (), offset: int = 0, limit: int = DEFAULT_PAGE_SIZE
    ) -> Page[OrderSummary]:
        """Orders, newest first; `search` is an order or line key, Task id, requisition, accession or barcode, whole."""
        ...

    async def order(self, key: OrderKey) -> OrderDetail | None:
        """All about one order; None if it is unknown."""
        ...

    async def jobs(
        self,
        *,
        states: Collection[JobState] = (),
        kinds: Collection[JobKind] = (),
        offset: int = 0,
        limit: int = DEFAULT_PAGE_SIZE,
    ) -> Page[Job]:
        """Effects, oldest first."""
        ...

    async def job(self, job: JobId) -> Job | None:
        """One effect; None if it is unknown."""
        ...

    async def reports(
        self, *, states: Collection[ReportState] = (), offset: int = 0, limit: int = DEFAULT_PAGE_SIZE
    ) -> Page[ReportSummary]:
        """Reports, newest first."""
        ...

    async def report(self, key: ReportKey) -> ReportRecord | None:
        """One report with its content; None if it is unknown."""
        ...

    async def report_events(self, report: ReportKey) -> tuple[Event, ...]:
        """What was told of one report, oldest first: where it stood, who decided, when and why."""
        ...

    async def unmatched_reports(self, *, offset: int = 0, limit: int = DEFAULT_PAGE_SIZE) -> Page[ReportRecord]:
        """What waits at the match desk, with its content: reports that are unmatched, unmapped or held, longest waiting first."""
        ...

    async def versions(self, report: ReportRecord, *, limit: int = DEFAULT_PAGE_SIZE) -> tuple[ReportSummary, ...]:
        """Messages of the same report, this one among them, newest first.

        Of the same order; while no order is known, those of the same adapter that have none either.
        """
        ...

    async def document_sizes(self, documents: Collection[str]) -> Mapping[str, int]:
        """About how many bytes documents in the vault have, by their ids; those that were purged are left out."""
        ...

    async def alerts(self, *, offset: int = 0, limit: int = DEFAULT_PAGE_SIZE) -> Page[Alert]:
        """Alerts, open and closed, newest first."""
        ...
