"""What pages, commands and metrics read of the store: frozen read models, nothing that identifies a patient.

Times are aware and in UTC; an age is `now` minus such a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, TypeVar

from lab_agent.orders.patient_search import PatientCriteria
from lab_agent.orders.records import LabelUse, LineRecord, OrderRecord, WorkOrder
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.results.records import HoldReason
from lab_agent.shared.conditions.model import AlertKey
from lab_agent.shared.ids import LineKey, OrderKey, ReportKey
from lab_agent.shared.state_machines import ENDED_LINES, JobState, LineState, OrderState, ReportState
from lab_agent.shared.values import Identifier
from lab_agent.store.activity_records import HourlyActivity
from lab_agent.store.event_records import Alert, Event

T = TypeVar("T")

LAST_POLL_KEY = "poll.succeeded"
"""Key of the time of the last successful poll, in ISO 8601 with offset."""
DEFAULT_PAGE_SIZE = 50
MAX_COUNTED = 10_000
"""How many items of a list are counted. A list of everything has millions after some years, and nobody needs their number."""
MAX_MATCHED = 1_000
"""How many orders that have what is searched for are looked at, the newest."""
CLOSED_ORDERS_PERIOD = timedelta(days=1)
"""How far back the overview counts orders that are closed."""
DOCUMENT_ORPHAN_ACTION = "document_orphan"
"""Action of the events that say which documents the service may hold without a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Part of a list: `total` is the length of the whole, `offset` the number of items before these.

    More than `MAX_COUNTED` are not counted: then `total` is that number, and `is_total_exact` false.
    """

    items: tuple[T, ...]
    total: int
    offset: int
    has_more: bool
    """Whether items follow."""
    is_total_exact: bool = True

    @property
    def total_text(self) -> str:
        """The length of the whole in words."""
        return f"{self.total}" if self.is_total_exact else f"more than {self.total}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The state of everything that is not finished. A state that nothing is in is missing from the counts.

    What is finished is not counted, since it grows for years; `closed_orders` closed within `CLOSED_ORDERS_PERIOD`.
    `oldest_…` say since when the oldest one has been in its state. `due_since` is when the job that is due for longest became
    due; None while none is due.
    """

    orders: Mapping[OrderState, int]
    closed_orders: int
    lines: Mapping[LineState, int]
    jobs: Mapping[JobState, int]
    jobs_by_kind: Mapping[tuple[JobKind, JobState], int]
    reports: Mapping[ReportState, int]
    refused_messages: Mapping[str, int]
    """By adapter: refused messages that wait for a person."""
    oldest_orders: Mapping[OrderState, datetime]
    oldest_jobs: Mapping[JobState, datetime]
    oldest_reports: Mapping[ReportState, datetime]
    due_since: datetime | None
    overdue_orders: int
    alerts: tuple[Alert, ...]
    last_poll: datetime | None
    next_due: datetime | None
    """When the next result is expected, of orders that are not overdue."""
    sign_in_until: datetime | None
    """When our sign-in at the exchange service expires; None where there is none."""
    affected: AffectedNumbers


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewPage:
    """What the overview shows, of one moment, with the hours behind its charts."""

    overview: Overview
    hours: tuple[HourlyActivity, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSummary:
    """An order in a list.

    `work_orders` are its parts, one for each laboratory system. `ended_lines` of its `lines` have ended;
    `attention_count` counts its jobs and reports that need an operator.
    """

    key: OrderKey
    task_id: str
    state: OrderState
    contract: str | None
    requisition: Identifier | None
    work_orders: tuple[WorkOrder, ...]
    reason: str | None
    seen_at: datetime
    changed_at: datetime
    expected_at: datetime | None
    held_since: datetime | None
    hold_cause: str | None
    lines: int
    ended_lines: int
    open_jobs: int
    attention_count: int
    items: tuple[str, ...] = ()
    """Codes of the tests, as far as a list shows them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderCriteria:
    """What a list of orders is narrowed to; everything that is given must be so.

    `search` is any part (of three characters or more) of a key, Task id, requisition, accession or barcode; shorter ones must be
    whole. `item` is the code of a test, `adapter` a laboratory system. `seen_from` and `seen_before` are times of the first
    sight. `patient` is looked up by keyed digests: all its words, and the birth date, must be those of the order's patient.
    """

    search: str = ""
    states: frozenset[OrderState] = frozenset()
    cause: str | None = None
    contract: str = ""
    item: str = ""
    adapter: str = ""
    seen_from: datetime | None = None
    seen_before: datetime | None = None
    patient: PatientCriteria | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderCursor:
    """Where a page of a list of orders begins: after that order, in the list's direction, or (`backwards`) before it."""

    at: datetime
    key: OrderKey
    backwards: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderList:
    """A page of orders, and whether others come before and after it.

    `is_cut` says that more orders than `MAX_MATCHED` have what was searched for, and the newest of them alone were looked at.
    """

    orders: tuple[OrderSummary, ...]
    has_before: bool
    has_after: bool
    is_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSummary:
    """A report in a list: everything but its content."""

    key: ReportKey
    source: str
    message: str
    sequence: int
    report_id: str | None
    version: int | None
    issued: datetime | None
    state: ReportState
    order: OrderKey | None
    matched_adapter: str | None
    lines: tuple[LineKey, ...]
    hold_reason: HoldReason | None
    reason: str | None
    received_at: datetime
    changed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDetail:
    """Everything about one order: jobs and events oldest first, reports in the order of arrival."""

    order: OrderRecord
    work_orders: tuple[WorkOrder, ...]
    lines: tuple[LineRecord, ...]
    labels: tuple[LabelUse, ...]
    jobs: tuple[Job, ...]
    reports: tuple[ReportSummary, ...]
    events: tuple[Event, ...]

    @property
    def times_read(self) -> int:
        """How often an order that waits for its decision was read from the service."""
        return sum(job.attempts for job in self.jobs if job.kind is JobKind.FETCH_ORDER and job.is_waiting)

    def progress_of(self, part: WorkOrder) -> str:
        """How many of a part's lines have ended, as in `2/3`."""
        lines = [line for line in self.lines if line.adapter == part.adapter]
        return f"{sum(line.state in ENDED_LINES for line in lines)}/{len(lines)}"


class AttentionKind(StrEnum):
    """What needs attention."""

    ORDER = "order"
    LINE = "line"
    JOB = "job"
    REPORT = "report"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionItem:
    """What needs an operator: a held order or line, a dead letter or a job in review, an undeliverable report, a refused message.

    `ref` is its key or number; `kind` is the kind of a job, the adapter of a report or message, the contract of an order, or the
    item of a line; `hold_reason` is that of a held report. `since` is when it was first due, or held, or received. `cause` is the
    code by which it is put together with others, `system` the laboratory system that it is about, empty for none.
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
    cause: str | None
    system: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AffectedNumbers:
    """How much is unfinished, by what it waits for. Numbers by the names of adapters have no entry where nothing waits."""

    unfinished_orders: int
    unfinished_results: int
    orders_to_fetch: int
    results_to_deliver: int
    tasks_to_update: int
    orders_to_hand_over: Mapping[str, int]
    """By adapter."""
    waiting_lines: Mapping[str, int]
    """By adapter: lines that went there, or go there, and have no final result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredNumbers:
    """What was found since a database was restored: orders of which lines were completed by us before, or were withdrawn; and
    the cancellations that laboratory systems are to be told of.
    """

    orders_completed_before: int
    orders_withdrawn: int
    cancellations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentActivity:
    """How much was done of late. Of what is done again and again only the newest `MAX_COUNTED` are looked at."""

    orders_seen: int
    orders_handed_over: int
    """Handovers that ended: of an order for several laboratory systems, each counts."""
    results_received: int
    results_delivered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueResults:
    """What a laboratory system (`adapter`) owes beyond a limit: results of `orders`, the first of which was due at `since`.

    `last_result_at` is when it last sent a result of any order, None if it never did; `lines_since_last` are the lines that were
    due only after that, the first of them at `since_last`.
    """

    adapter: str
    orders: int
    since: datetime
    last_result_at: datetime | None
    lines_since_last: int
    since_last: datetime | None


CHANGE_TOPICS = ("orders", "results", "waiting", "alerts", "catalogue")
"""What pages are about, as far as they are told that it has changed."""
AGE_LIMITS = (timedelta(hours=1), timedelta(hours=3), timedelta(hours=24), timedelta(days=3), timedelta(days=7))
"""Between these ages lie the columns of what fails, by how long it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingSpan:
    """Since when something has failed or waited: after a time, until another one; None for no limit."""

    after: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgedFailures:
    """How many fail or wait for one cause, by their ages: `counts[0]` for less than an hour, the last for more than a week."""

    key: AlertKey
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueVersionSummary:
    """A stored version of the catalogue, without its content."""

    number: int
    version: str
    since: datetime
    origin: str
    by: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTrial:
    """What a rule has done to the newest orders: how many were looked at, and which it had rejected, or holds now."""

    looked_at: int
    rejected: tuple[OrderKey, ...]
    held: tuple[OrderKey, ...]

    @property
    def concerned(self) -> int:
        """How many orders it rejected or holds; one of which it did both counts once."""
        return len({*self.rejected, *self.held})


@dataclass(frozen=True, slots=True, kw_only=True)
class LisTraffic:
    """When a laboratory system last got something, and last sent something; None where it never did."""

    handed_over_at: datetime | None
    received_at: datetime | None
