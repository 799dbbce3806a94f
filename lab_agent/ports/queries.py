"""The port of what pages, commands and metrics read of the store (`read_models.py`).

Reading changes nothing and never delays the workers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Protocol

from lab_agent.conditions.model import AlertKey
from lab_agent.domain.activity import HourlyActivity
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.ids import JobId, OrderKey, ReportKey
from lab_agent.domain.job_records import Job, JobKind
from lab_agent.domain.records import Alert, Event
from lab_agent.domain.report_records import HoldReason, ReportRecord
from lab_agent.domain.state_machines import JobState, OrderState, ReportState
from lab_agent.ports.audit_queries import AuditQueries
from lab_agent.ports.read_models import (
    DEFAULT_PAGE_SIZE,
    AffectedNumbers,
    AgedFailures,
    AttentionItem,
    CatalogueVersionSummary,
    LisTraffic,
    OrderCriteria,
    OrderCursor,
    OrderDetail,
    OrderList,
    OrderSummary,
    OverdueResults,
    Overview,
    OverviewPage,
    Page,
    RecentActivity,
    ReportSummary,
    RestoredNumbers,
    RuleTrial,
    WaitingSpan,
)


class Queries(AuditQueries, Protocol):
    """Reads. Each call may raise `StoreUnreachableError` and `SchemaMismatchError`."""

    async def overview(self, *, now: datetime) -> Overview:
        """The state of everything, with ages and open alerts."""
        ...

    async def overview_page(self, *, now: datetime, since: datetime) -> OverviewPage:
        """The state of everything and the hours since then, from one snapshot."""
        ...

    async def affected_numbers(self) -> AffectedNumbers:
        """How much is unfinished, for the conditions that hold."""
        ...

    async def overdue_results(self, *, before: datetime) -> tuple[OverdueResults, ...]:
        """What should have been reported before then, by laboratory system; only of those that owe something."""
        ...

    async def restored_numbers(self, *, since: datetime) -> RestoredNumbers:
        """Count what was found since the database was restored."""
        ...

    async def recent_activity(self, *, since: datetime) -> RecentActivity:
        """How much was done since then."""
        ...

    async def activity(self, *, since: datetime) -> tuple[HourlyActivity, ...]:
        """What was recorded of the hours since then, oldest first."""
        ...

    async def measure_hour(self, hour: datetime) -> tuple[HourlyActivity, ...]:
        """Count what was done in the hour that began then, of the newest `MAX_COUNTED` of a kind."""
        ...

    async def failures_by_age(self, *, now: datetime) -> tuple[AgedFailures, ...]:
        """What fails or waits for a person, counted by cause and by how long it has."""
        ...

    async def change_stamps(self) -> Mapping[str, str]:
        """A text for each topic (`CHANGE_TOPICS`) that is another one once something of it has changed; cheap."""
        ...

    async def rule_hits(self, *, since: datetime) -> Mapping[str, int]:
        """How many orders each rule has rejected since then, in whole or in part; one that was rejected twice counts twice."""
        ...

    async def rule_trial(self, rule: str, *, newest: int) -> RuleTrial:
        """What a rule has done to the `newest` orders."""
        ...

    async def lis_traffic(self, adapter: str) -> LisTraffic:
        """When a laboratory system last got, and last sent, something."""
        ...

    async def catalogue_versions(self, *, limit: int = DEFAULT_PAGE_SIZE) -> tuple[CatalogueVersionSummary, ...]:
        """The stored versions of the catalogue, newest first, without their content."""
        ...

    async def catalogue_content(self, number: int) -> bytes | None:
        """The tables of a stored version, packed; None if there is none of that number."""
        ...

    async def issued_ranges(self, pattern: str) -> Mapping[int, int]:
        """The ranges of a pattern of which labels were issued: the next number of each, by its first."""
        ...

    async def labels_issued(self, pool: str, *, since: datetime) -> int:
        """How many labels of a pool were issued since then."""
        ...

    async def needs_attention(
        self,
        *,
        cause: AlertKey | None = None,
        span: WaitingSpan | None = None,
        offset: int = 0,
        limit: int = DEFAULT_PAGE_SIZE,
    ) -> Page[AttentionItem]:
        """What needs an operator, longest waiting first; that alone which waits for the cause that an alert tells.

        With a `span`, what has failed or waited since then, also what is tried again by itself.
        """
        ...

    async def orders(
        self,
        *,
        search: str | None = None,
        states: Collection[OrderState] = (),
        cause: str | None = None,
        offset: int = 0,
        limit: int = DEFAULT_PAGE_SIZE,
    ) -> Page[OrderSummary]:
        """Orders, newest first; held ones alone, or those that are held for a `cause`, longest held first.

        `search` is an order or line key, Task id, requisition, accession or barcode, whole.
        """
        ...

    async def order_list(
        self, criteria: OrderCriteria, *, cursor: OrderCursor | None = None, limit: int = DEFAULT_PAGE_SIZE
    ) -> OrderList:
        """A page of orders, newest first; those that are held for a cause, longest held first. Costs the same however many."""
        ...

    async def order(self, key: OrderKey) -> OrderDetail | None:
        """Everything about one order; None if it is unknown."""
        ...

    async def jobs(
        self,
        *,
        states: Collection[JobState] = (),
        kinds: Collection[JobKind] = (),
        cause: FailureCause | None = None,
        system: str | None = None,
        offset: int = 0,
        limit: int = DEFAULT_PAGE_SIZE,
    ) -> Page[Job]:
        """Jobs; those that have not ended, and those that fail of a cause, by when they were first due, others by number."""
        ...

    async def job(self, job: JobId) -> Job | None:
        """One job; None if it is unknown."""
        ...

    async def reports(
        self,
        *,
        states: Collection[ReportState] = (),
        hold_reason: HoldReason | None = None,
        offset: int = 0,
        limit: int = DEFAULT_PAGE_SIZE,
    ) -> Page[ReportSummary]:
        """Reports, newest first; those that wait for an operator alone, longest waiting first."""
        ...

    async def report(self, key: ReportKey) -> ReportRecord | None:
        """One report with its content; None if it is unknown."""
        ...

    async def report_events(self, report: ReportKey) -> tuple[Event, ...]:
        """The history of one report, oldest first: its states, who decided, when and why."""
        ...

    async def orphaned_documents(self, *, offset: int = 0, limit: int = DEFAULT_PAGE_SIZE) -> Page[Event]:
        """Uploads of documents whose reply was lost, newest first: the service may hold copies that no report names."""
        ...

    async def unmatched_reports(self, *, offset: int = 0, limit: int = DEFAULT_PAGE_SIZE) -> Page[ReportRecord]:
        """Reports that are unmatched, unmapped or held, with their content, longest waiting first."""
        ...

    async def versions(self, report: ReportRecord, *, limit: int = DEFAULT_PAGE_SIZE) -> tuple[ReportSummary, ...]:
        """Versions of the same report, this one among them, newest first.

        Of the same adapter and of the same order; while no order is known, those that have none either.
        """
        ...

    async def document_sizes(self, documents: Collection[str]) -> Mapping[str, int]:
        """Approximate sizes in bytes of documents in the vault, by id; purged ones are left out."""
        ...

    async def alerts(self, *, is_open: bool | None = None, offset: int = 0, limit: int = DEFAULT_PAGE_SIZE) -> Page[Alert]:
        """Alerts, newest first; or those alone that are open, the oldest first, or that are closed."""
        ...
