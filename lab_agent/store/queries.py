"""`Queries`: what pages, commands and metrics read, each from one consistent snapshot of what is committed.

It has connections of its own for reading, so that no page delays the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    func,
    literal_column,
    select,
    union_all,
)

from lab_agent.orders.records import LabelUse, LineRecord, OrderRecord, WorkOrder
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.results.records import HoldReason, ReportRecord
from lab_agent.shared.conditions.model import AlertKey
from lab_agent.shared.ids import JobId, OrderKey, ReportKey
from lab_agent.shared.state_machines import (
    OPEN_JOBS,
    REPORTS_NEEDING_OPERATOR,
    UNFINISHED_REPORTS,
    JobState,
    OrderState,
    ReportState,
)
from lab_agent.store import operation_queries
from lab_agent.store.activity import load_activity, measure_hour
from lab_agent.store.activity_records import HourlyActivity
from lab_agent.store.attention_queries import load_attention_items
from lab_agent.store.audit_queries import AuditQueries
from lab_agent.store.change_stamps import load_change_stamps
from lab_agent.store.crypto import decrypted_size
from lab_agent.store.event_records import Alert, Event
from lab_agent.store.failure_matrix import load_failure_matrix
from lab_agent.store.order_list import HELD_STATES, is_one_statement, load_order_list
from lab_agent.store.order_summaries import select_order_summaries, to_order_summary
from lab_agent.store.overdue_results import load_overdue_results
from lab_agent.store.overview_queries import load_affected_numbers, load_overview, load_overview_page, load_restored_numbers
from lab_agent.store.query_pages import fetch_page, fetch_records, is_in, record_factory
from lab_agent.store.read_models import (
    DEFAULT_PAGE_SIZE,
    DOCUMENT_ORPHAN_ACTION,
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
from lab_agent.store.recent_activity import load_recent_activity
from lab_agent.store.row_mapping import in_states
from lab_agent.store.tables import alerts, events, jobs, label_uses, lines, orders, reports, work_orders
from lab_agent.store.vault_tables import documents

T = TypeVar("T")


class Queries(AuditQueries):
    """Reads. Each call may raise `StoreUnreachableError` and `SchemaMismatchError`."""

    async def overview(self, *, now: datetime) -> Overview:
        """The state of everything, with ages and open alerts."""
        return await self._store.read(lambda connection: load_overview(connection, now), one_moment=False)

    async def overview_page(self, *, now: datetime, since: datetime) -> OverviewPage:
        """The state of everything and the hours since then, from one snapshot."""
        return await self._store.read(lambda connection: load_overview_page(connection, now, since), one_moment=False)

    async def affected_numbers(self) -> AffectedNumbers:
        """How much is unfinished, for the conditions that hold."""
        return await self._store.read(load_affected_numbers)

    async def overdue_results(self, *, before: datetime) -> tuple[OverdueResults, ...]:
        """What should have been reported before then, by laboratory system; only of those that owe something."""
        return await self._store.read(lambda connection: load_overdue_results(connection, before))

    async def restored_numbers(self, *, since: datetime) -> RestoredNumbers:
        """Count what was found since the database was restored."""
        return await self._store.read(lambda connection: load_restored_numbers(connection, since))

    async def recent_activity(self, *, since: datetime) -> RecentActivity:
        """How much was done since then."""
        return await self._store.read(lambda connection: load_recent_activity(connection, since))

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
        return await self._store.read(lambda connection: load_attention_items(connection, cause, offset, limit, span))

    async def activity(self, *, since: datetime) -> tuple[HourlyActivity, ...]:
        """What was recorded of the hours since then, oldest first."""
        return await self._store.read(lambda connection: load_activity(connection, since))

    async def measure_hour(self, hour: datetime) -> tuple[HourlyActivity, ...]:
        """Count what was done in the hour that began then, of the newest `MAX_COUNTED` of a kind."""
        return await self._store.read(lambda connection: measure_hour(connection, hour))

    async def failures_by_age(self, *, now: datetime) -> tuple[AgedFailures, ...]:
        """What fails or waits for a person, counted by cause and by how long it has."""
        return await self._store.read(lambda connection: load_failure_matrix(connection, now))

    async def rule_hits(self, *, since: datetime) -> Mapping[str, int]:
        """How many orders each rule has rejected since then, in whole or in part; one that was rejected twice counts twice."""
        return await self._store.read(lambda connection: operation_queries.load_rule_hits(connection, since))

    async def rule_trial(self, rule: str, *, newest: int) -> RuleTrial:
        """What a rule has done to the `newest` orders."""
        return await self._store.read(lambda connection: operation_queries.load_rule_trial(connection, rule, newest))

    async def lis_traffic(self, adapter: str) -> LisTraffic:
        """When a laboratory system last got, and last sent, something."""
        return await self._store.read(lambda connection: operation_queries.load_lis_traffic(connection, adapter))

    async def catalogue_versions(self, *, limit: int = DEFAULT_PAGE_SIZE) -> tuple[CatalogueVersionSummary, ...]:
        """The stored versions of the catalogue, newest first, without their content."""
        return await self._store.read(lambda connection: operation_queries.load_catalogue_versions(connection, limit))

    async def catalogue_content(self, number: int) -> bytes | None:
        """The tables of a stored version, packed; None if there is none of that number."""
        return await self._store.read(lambda connection: operation_queries.load_catalogue_content(connection, number))

    async def issued_ranges(self, pattern: str) -> Mapping[int, int]:
        """The ranges of a pattern of which labels were issued: the next number of each, by its first."""
        return await self._store.read(lambda connection: operation_queries.load_issued_ranges(connection, pattern))

    async def labels_issued(self, pool: str, *, since: datetime) -> int:
        """How many labels of a pool were issued since then."""
        return await self._store.read(lambda connection: operation_queries.count_labels_issued(connection, pool, since))

    async def change_stamps(self) -> Mapping[str, str]:
        """A text for each topic (`CHANGE_TOPICS`) that is another one once something of it has changed; cheap."""
        return await self._store.read(load_change_stamps)

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
        only_held = cause is not None or frozenset(states) == HELD_STATES
        states = HELD_STATES if only_held else states
        which = [is_in(orders.c.state, states, many=OrderState.CLOSED in states)] if states else []
        which += [_order_matches(search.strip())] if search and search.strip() else []
        which += [orders.c.hold_cause == cause] if cause is not None else []
        order = (orders.c.held_since, orders.c.key) if only_held else (orders.c.seen_at.desc(), orders.c.key.desc())

        def load(connection: Connection) -> Page[OrderSummary]:
            listed = select_order_summaries(connection.dialect.name).where(*which).order_by(*order)
            return fetch_page(connection, listed, select(orders.c.key).where(*which), to_order_summary, offset, limit)

        return await self._store.read(load)

    async def order_list(
        self, criteria: OrderCriteria, *, cursor: OrderCursor | None = None, limit: int = DEFAULT_PAGE_SIZE
    ) -> OrderList:
        """A page of orders, newest first; those that are held for a cause, longest held first. Costs the same however many."""
        cipher = self._store.cipher
        one_moment = not is_one_statement(criteria, cursor)
        return await self._store.read(
            lambda connection: load_order_list(connection, cipher, criteria, cursor, limit), one_moment=one_moment
        )

    async def order(self, key: OrderKey) -> OrderDetail | None:
        """Everything about one order; None if it is unknown."""
        return await self._store.read(lambda connection: _load_order_detail(connection, key))

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
        only_open = bool(states) and OPEN_JOBS.issuperset(states)
        which = [in_states(jobs.c.state, OPEN_JOBS)] if only_open else []  # as the index of open jobs says it
        which += [is_in(jobs.c.state, states, many=not only_open)] if states and frozenset(states) != OPEN_JOBS else []
        which += [jobs.c.kind.in_(sorted(kinds))] if kinds else []
        which += [jobs.c.failing_since.is_not(None), jobs.c.failure_cause == cause] if cause is not None else []
        which += [jobs.c.system == system] if system is not None else []
        by_age = only_open or cause is not None
        listed = select(jobs).where(*which).order_by(*((jobs.c.first_due_at, jobs.c.id) if by_age else (jobs.c.id,)))
        return await self._load_page(listed, select(jobs.c.id).where(*which), record_factory(Job), offset, limit)

    async def job(self, job: JobId) -> Job | None:
        """One job; None if it is unknown."""
        found = await self._store.read(lambda connection: fetch_records(connection, Job, select(jobs).where(jobs.c.id == job)))
        return found[0] if found else None

    async def reports(
        self,
        *,
        states: Collection[ReportState] = (),
        hold_reason: HoldReason | None = None,
        offset: int = 0,
        limit: int = DEFAULT_PAGE_SIZE,
    ) -> Page[ReportSummary]:
        """Reports, newest first; those that wait for an operator alone, longest waiting first."""
        states = {ReportState.HELD} if hold_reason is not None else states
        only_waiting = bool(states) and REPORTS_NEEDING_OPERATOR.issuperset(states)
        which = [in_states(reports.c.state, REPORTS_NEEDING_OPERATOR)] if only_waiting else []
        which += [is_in(reports.c.state, states, many=not UNFINISHED_REPORTS.issuperset(states))] if states else []
        which += [reports.c.hold_reason == hold_reason] if hold_reason is not None else []
        arrival = reports.c.sequence if only_waiting else reports.c.sequence.desc()
        listed = _select_report_summaries().where(*which).order_by(arrival)
        return await self._load_page(
            listed, select(reports.c.sequence).where(*which), record_factory(ReportSummary), offset, limit
        )

    async def report(self, key: ReportKey) -> ReportRecord | None:
        """One report with its content; None if it is unknown."""
        wanted = select(reports).where(reports.c.key == key)
        found = await self._store.read(lambda connection: fetch_records(connection, ReportRecord, wanted))
        return found[0] if found else None

    async def unmatched_reports(self, *, offset: int = 0, limit: int = DEFAULT_PAGE_SIZE) -> Page[ReportRecord]:
        """Reports that are unmatched, unmapped or held, with their content, longest waiting first."""
        listed = _select_reports_needing_operator()
        whole = listed.with_only_columns(reports.c.sequence).order_by(None)
        return await self._load_page(listed, whole, record_factory(ReportRecord), offset, limit)

    async def versions(self, report: ReportRecord, *, limit: int = DEFAULT_PAGE_SIZE) -> tuple[ReportSummary, ...]:
        """Versions of the same report, this one among them, newest first.

        Of the same adapter and of the same order; while no order is known, those that have none either.
        """
        wanted = _select_report_versions(report).order_by(reports.c.sequence.desc()).limit(limit)
        return await self._store.read(lambda connection: fetch_records(connection, ReportSummary, wanted))

    async def document_sizes(self, documents: Collection[str]) -> Mapping[str, int]:
        """Approximate sizes in bytes of documents in the vault, by id; purged ones are left out."""
        return await self._store.read(lambda connection: _load_document_sizes(connection, documents))

    async def report_events(self, report: ReportKey) -> tuple[Event, ...]:
        """The history of one report, oldest first: its states, who decided, when and why."""
        wanted = select(events).where(events.c.report == report).order_by(events.c.at, events.c.number)
        return await self._store.read(lambda connection: fetch_records(connection, Event, wanted))

    async def orphaned_documents(self, *, offset: int = 0, limit: int = DEFAULT_PAGE_SIZE) -> Page[Event]:
        """Uploads of documents whose reply was lost, newest first: the service may hold copies that no report names."""
        which = events.c.action == literal_column(f"'{DOCUMENT_ORPHAN_ACTION}'")  # a literal, as in the condition of its index
        listed = select(events).where(which).order_by(events.c.at.desc(), events.c.number.desc())
        return await self._load_page(listed, select(events.c.number).where(which), record_factory(Event), offset, limit)

    async def alerts(self, *, is_open: bool | None = None, offset: int = 0, limit: int = DEFAULT_PAGE_SIZE) -> Page[Alert]:
        """Alerts, newest first; or those alone that are open, the oldest first, or that are closed."""
        wanted = [] if is_open is None else [alerts.c.closed_at.is_(None) if is_open else alerts.c.closed_at.is_not(None)]
        newest_first = (alerts.c.opened_at.desc(), alerts.c.number.desc())
        listed = select(alerts).where(*wanted).order_by(*((alerts.c.since, alerts.c.number) if is_open else newest_first))
        return await self._load_page(listed, select(alerts.c.number).where(*wanted), record_factory(Alert), offset, limit)

    async def _load_page(
        self, listed: Select[Any], whole: Select[Any], make: Callable[[Any], T], offset: int, limit: int
    ) -> Page[T]:
        return await self._store.read(lambda connection: fetch_page(connection, listed, whole, make, offset, limit))


def _select_report_summaries() -> Select[Any]:
    return select(*(column for column in reports.c if column.name not in {"body", "outgoing_body"}))


def _select_reports_needing_operator() -> Select[Any]:
    return select(reports).where(in_states(reports.c.state, REPORTS_NEEDING_OPERATOR)).order_by(reports.c.sequence)


def _select_report_versions(report: ReportRecord) -> Select[Any]:
    if report.report_id is None:
        return _select_report_summaries().where(reports.c.key == report.key)
    about = reports.c.order_key.is_(None) if report.order is None else reports.c.order_key == report.order
    return _select_report_summaries().where(about, reports.c.source == report.source, reports.c.report_id == report.report_id)


def _load_document_sizes(connection: Connection, document_ids: Collection[str]) -> Mapping[str, int]:
    lengths = select(documents.c.id, func.length(documents.c.ciphertext)).where(documents.c.id.in_(sorted(document_ids)))
    return {name: decrypted_size(length) for name, length in connection.execute(lengths)}


def _load_order_detail(connection: Connection, key: OrderKey) -> OrderDetail | None:
    found = fetch_records(connection, OrderRecord, select(orders).where(orders.c.key == key))
    if not found:
        return None
    return OrderDetail(
        order=found[0],
        work_orders=fetch_records(
            connection, WorkOrder, select(work_orders).where(work_orders.c.order_key == key).order_by(work_orders.c.adapter)
        ),
        lines=fetch_records(connection, LineRecord, select(lines).where(lines.c.order_key == key).order_by(lines.c.number)),
        labels=fetch_records(
            connection, LabelUse, select(label_uses).where(label_uses.c.order_key == key).order_by(label_uses.c.number)
        ),
        jobs=fetch_records(connection, Job, select(jobs).where(jobs.c.order_key == key).order_by(jobs.c.id)),
        reports=fetch_records(
            connection, ReportSummary, _select_report_summaries().where(reports.c.order_key == key).order_by(reports.c.sequence)
        ),
        events=fetch_records(
            connection, Event, select(events).where(events.c.order_key == key).order_by(events.c.at, events.c.number)
        ),
    )


def _order_matches(search: str) -> ColumnElement[bool]:
    """Whether an order has this key, Task id, requisition, accession or barcode, itself or on a line."""
    on_lines = select(lines.c.order_key).where(
        (lines.c.key == search.upper()) | (lines.c.task_id == search) | (lines.c.accession == search)
    )
    numbered = select(work_orders.c.order_key).where(work_orders.c.accession == search)
    on_labels = select(label_uses.c.order_key).where(label_uses.c.barcode == search)
    return (
        (orders.c.key == search.upper())
        | (orders.c.task_id == search)
        | (orders.c.requisition_value == search)
        | orders.c.key.in_(union_all(on_lines, numbered, on_labels))
    )
