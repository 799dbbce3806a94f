"""What a purge would remove now, by class: how much, and how old the oldest of it is. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from lab_agent.catalogue.catalogue_tables import catalogues, issued_labels
from lab_agent.results.refused_message_repository import refused_messages
from lab_agent.results.refused_records import RefusedState
from lab_agent.store.audit_tables import audit_head, audit_records
from lab_agent.store.retention import (
    HAS_FINISHED_REPORTS,
    PurgeTimes,
    find_first_kept_catalogue,
    find_needed_documents,
    is_finished_order,
    is_old_basket,
    select_old_patients,
)
from lab_agent.store.row_mapping import in_states, unindexed
from lab_agent.store.tables import orders, reports
from lab_agent.store.vault_tables import documents, identities, service_messages


@dataclass(frozen=True, slots=True)
class PurgePreview:
    """How many of a class would go, and since when the oldest of them has been kept."""

    name: str
    number: int
    oldest: datetime | None


def preview_purge(
    connection: Connection, times: PurgeTimes, *, catalogues_before: datetime, keep_catalogues: int
) -> tuple[PurgePreview, ...]:
    """Count what would go, class by class, as the purge of that class finds it."""
    queries = _queries(connection, times, catalogues_before, keep_catalogues)
    counted = (PurgePreview(name, *connection.execute(query).one()) for name, query in queries)
    return (*counted, _preview_documents(connection, times.documents))


def _preview_documents(connection: Connection, before: datetime) -> PurgePreview:
    needed = find_needed_documents(connection, before)
    old = connection.execute(select(documents.c.id, documents.c.kept_at).where(documents.c.kept_at < before))
    times = [row.kept_at for row in old if row.id not in needed]
    return PurgePreview("documents", len(times), min(times, default=None))


def _queries(
    connection: Connection, times: PurgeTimes, catalogues_before: datetime, keep_catalogues: int
) -> Iterator[tuple[str, Any]]:
    for name, table in (("identities", identities), ("service_messages", service_messages)):
        sealed = _count(orders.c.changed_at, is_finished_order(times.identities, unindexed(orders.c.state)))
        yield name, sealed.join_from(orders, table, unindexed(table.c.order_key) == orders.c.key)
    of = select_old_patients(times.identities).with_only_columns(func.count(), func.min(reports.c.changed_at))
    yield "reported_patients", of
    kept = refused_messages.c.is_kept & (refused_messages.c.last_seen_at < times.refused_contents)
    yield "refused_contents", _count(refused_messages.c.last_seen_at, kept)
    done = ~in_states(refused_messages.c.state, {RefusedState.WAITING})
    finished = done & (refused_messages.c.changed_at < times.refused_messages)
    yield "refused_messages", _count(refused_messages.c.changed_at, finished)
    yield "orders", _count(orders.c.changed_at, is_finished_order(times.orders) & HAS_FINISHED_REPORTS)
    yield "baskets", _count(issued_labels.c.issued_at, is_old_basket(times.baskets))
    first = find_first_kept_catalogue(connection, catalogues_before, keep_catalogues)
    yield "catalogues", _count(catalogues.c.since, catalogues.c.number < first)
    yield "audit", _count(audit_records.c.at, _is_old_record(connection, times.audit))


def _count(time: ColumnElement[Any], which: ColumnElement[bool]) -> Any:
    return select(func.count(), func.min(time)).where(which)


def _is_old_record(connection: Connection, before: datetime) -> ColumnElement[bool]:
    """Records before the first that is too new, but for the newest of all."""
    too_new = connection.scalar(select(func.min(audit_records.c.number)).where(audit_records.c.at >= before))
    newest = connection.scalar(select(func.max(audit_head.c.number))) or 0
    return audit_records.c.number < (newest if too_new is None else min(newest, too_new))
