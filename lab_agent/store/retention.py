"""Deleting what was kept long enough, by class: finished work only, a bounded number at a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, Table, delete, literal_column, select, update

from lab_agent.catalogue.catalogue_tables import catalogues, issued_labels
from lab_agent.shared.state_machines import FINISHED_REPORTS, OPEN_JOBS, UNFINISHED_REPORTS, JobState
from lab_agent.store.row_mapping import chunked, in_states, unindexed
from lab_agent.store.search_tables import patient_digests
from lab_agent.store.session import Session
from lab_agent.store.tables import alerts, events, jobs, label_uses, lines, orders, rejections, reports, uploads, work_orders
from lab_agent.store.vault_tables import documents, hosted_documents, identities, reported_patients, service_messages


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeTimes:
    """What is older than these times has been kept long enough."""

    identities: datetime
    documents: datetime
    refused_contents: datetime
    refused_messages: datetime
    orders: datetime
    baskets: datetime
    catalogues: datetime
    audit: datetime


_FINISHED_JOB_STATES = frozenset(JobState) - OPEN_JOBS
_DOCUMENT_ID = re.compile(rb'"([0-9a-f]{64})"')
_ORDER_TABLES = (
    label_uses,
    lines,
    work_orders,
    jobs,
    events,
    rejections,
    uploads,
    reports,
    hosted_documents,
    identities,
    service_messages,
    patient_digests,
)
_SEALED_TABLES = (identities, service_messages, patient_digests)
"""What may name a patient, and is kept for a shorter time than the rest of an order."""


class Purge:
    """Deletes what was kept long enough, never unfinished work. Each call deletes up to `limit`, and gives how many."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def identities(self, *, before: datetime, limit: int = 500) -> int:
        """Delete the identification data of orders that closed before then and have no open job.

        What a result says of its patient goes with it, as soon as the result was delivered or dismissed before then.
        """
        removed = 0
        for table in _SEALED_TABLES:
            # What is kept is few beside the orders of years: the search begins with it.
            kept = unindexed(table.c.order_key) == orders.c.key
            found = _select_finished_orders(before, limit, unindexed(orders.c.state)).join(table, kept)
            removed += self._delete(table.c.order_key, set(self._session.scalars(found)))
        return removed + self._purge_reported_patients(before, limit)

    def documents(self, *, before: datetime, limit: int = 500) -> int:
        """Delete documents stored before then that no unfinished report names and that are not served (any more)."""
        needed = find_needed_documents(self._session, before)
        old = select(documents.c.id).where(documents.c.kept_at < before).order_by(documents.c.kept_at).limit(limit + len(needed))
        return self._delete(documents.c.id, [name for name in self._session.scalars(old) if name not in needed][:limit])

    def closed_orders(self, *, before: datetime, limit: int = 500) -> int:
        """Delete all about orders that closed before then, with no open job and no unfinished report; gives the number of orders.

        Closed alerts, rejections, and reports and jobs that belong to no order, if finished before then, go with them.
        """
        oldest_first = _select_finished_orders(before, limit).where(HAS_FINISHED_REPORTS).order_by(orders.c.changed_at)
        keys = self._session.scalars(oldest_first).all()
        for table in _ORDER_TABLES:
            self._delete(table.c.order_key, keys)
        self._purge_rows_without_order(before, limit)
        return self._delete(orders.c.key, keys)

    def baskets(self, *, before: datetime, limit: int = 500) -> int:
        """Forget which baskets got the labels that were issued before then. The barcodes stay known: none is issued again."""
        old = is_old_basket(before)
        numbers = self._session.scalars(select(issued_labels.c.number).where(old).limit(limit)).all()
        return sum(
            self._session.execute(update(issued_labels).where(issued_labels.c.number.in_(batch)).values(basket=None)).rowcount
            for batch in chunked(numbers)
        )

    def catalogues(self, *, before: datetime, keep: int, limit: int = 50) -> int:
        """Delete catalogue versions that were replaced before then, except for the newest `keep`."""
        first = find_first_kept_catalogue(self._session, before, keep)
        gone = select(catalogues.c.number).where(catalogues.c.number < first).order_by(catalogues.c.number)
        return self._delete(catalogues.c.number, self._session.scalars(gone.limit(limit)).all())

    def _purge_rows_without_order(self, before: datetime, limit: int) -> None:
        old_jobs = in_states(jobs.c.state, _FINISHED_JOB_STATES) & (jobs.c.changed_at < before)
        old_reports = in_states(unindexed(reports.c.state), FINISHED_REPORTS) & (reports.c.changed_at < before)
        self._delete_where(jobs, jobs.c.id, jobs.c.order_key.is_(None) & old_jobs, limit)
        self._delete_where(reports, reports.c.sequence, reports.c.order_key.is_(None) & old_reports, limit)
        own = events.c.order_key.is_(None) & events.c.refused_message.is_(None)
        without_report = own & events.c.report.not_in(select(reports.c.key))
        self._delete_where(events, events.c.number, without_report & (events.c.at < before), limit)
        self._delete_where(alerts, alerts.c.number, alerts.c.closed_at < before, limit)
        self._delete_where(rejections, rejections.c.number, rejections.c.at < before, limit)

    def _purge_reported_patients(self, before: datetime, limit: int) -> int:
        """Delete what finished reports said of their patients; one that waits is still to be compared."""
        old = select_old_patients(before).limit(limit)
        return self._delete(reported_patients.c.report, self._session.scalars(old).all())

    def _delete_where(self, table: Table, key: Any, which: Any, limit: int) -> None:
        self._delete(key, self._session.scalars(select(key).select_from(table).where(which).limit(limit)).all())

    def _delete(self, column: Any, keys: Any) -> int:
        return sum(self._session.execute(delete(column.table).where(column.in_(batch))).rowcount for batch in chunked(keys))


HAS_FINISHED_REPORTS = (
    ~select(reports.c.key)
    .where(reports.c.order_key == orders.c.key, ~in_states(reports.c.state, FINISHED_REPORTS))
    .correlate(orders)
    .exists()
)
"""Whether no report of an order waits, or is being delivered."""


def is_finished_order(before: datetime, state: ColumnElement[Any] = orders.c.state) -> ColumnElement[bool]:
    """Whether an order closed before then, and has no open job."""
    open_jobs = select(jobs.c.id).where(jobs.c.order_key == orders.c.key, in_states(jobs.c.state, OPEN_JOBS)).correlate(orders)
    return (state == literal_column("'closed'")) & (orders.c.changed_at < before) & ~open_jobs.exists()


def is_old_basket(before: datetime) -> ColumnElement[bool]:
    """Whether a label was issued before then, and its basket is known."""
    return (issued_labels.c.issued_at < before) & issued_labels.c.basket.is_not(None)


def select_old_patients(before: datetime) -> Select[Any]:
    """What reports say of their patients that were finished before then."""
    is_old = in_states(unindexed(reports.c.state), FINISHED_REPORTS) & (reports.c.changed_at < before)
    return select(reported_patients.c.report).join(reports, reports.c.key == unindexed(reported_patients.c.report)).where(is_old)


def find_first_kept_catalogue(connection: Connection | Session, before: datetime, keep: int) -> int:
    """The number of the first catalogue version that stays: that in force then, and the newest `keep`."""
    newest_first = select(catalogues.c.number).order_by(catalogues.c.number.desc())
    in_force = connection.scalar(newest_first.where(catalogues.c.since <= before).limit(1))
    kept = connection.scalar(newest_first.offset(keep - 1).limit(1))
    return 0 if in_force is None or kept is None else min(in_force, kept)


def find_needed_documents(connection: Connection | Session, since: datetime) -> frozenset[str]:
    """The documents that unfinished reports name, or that are served."""
    return find_documents_in(connection, in_states(reports.c.state, UNFINISHED_REPORTS)) | _hosted_document_ids(connection, since)


def find_documents_in(connection: Connection | Session, which: ColumnElement[bool]) -> frozenset[str]:
    """The documents that these reports name."""
    rows = connection.execute(select(reports.c.body, reports.c.outgoing_body).where(which))
    found = (body for row in rows for body in row if body is not None)
    return frozenset(name.decode() for body in found for name in _DOCUMENT_ID.findall(body))


def _hosted_document_ids(connection: Connection | Session, since: datetime) -> frozenset[str]:
    lasting = hosted_documents.c.expires_at.is_(None) | (hosted_documents.c.expires_at >= since)
    return frozenset(connection.scalars(select(hosted_documents.c.document).where(lasting)))


def _select_finished_orders(before: datetime, limit: int, state: ColumnElement[Any] = orders.c.state) -> Select[Any]:
    return select(orders.c.key).where(is_finished_order(before, state)).limit(limit).with_for_update(skip_locked=True, of=orders)
