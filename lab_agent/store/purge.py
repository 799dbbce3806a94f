"""Forgetting on time (`ports.store.Purge`): finished work alone, a bounded number at a time."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, Table, delete, literal_column, select, update

from lab_agent.domain.lifecycle import OPEN_EFFECTS, EffectState
from lab_agent.store.rows import among, batches
from lab_agent.store.states import FINISHED_REPORTS
from lab_agent.store.tables import (
    alerts,
    catalogues,
    documents,
    effects,
    events,
    hosted,
    identities,
    labels,
    labels_given,
    lines,
    orders,
    refusals,
    reports,
    uploads,
)

_SETTLED = frozenset(EffectState) - OPEN_EFFECTS
_DOCUMENT_ID = re.compile(rb'"([0-9a-f]{64})"')
_OF_AN_ORDER = (labels, lines, effects, events, refusals, uploads, reports, hosted, identities)


class SqlPurge:
    """Deletes what is finished and old."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def identities(self, *, before: datetime, limit: int = 500) -> int:
        """Forget the identification data of orders that closed before then and have no open effect."""
        have = select(identities.c.order_key).where(identities.c.order_key == orders.c.key)
        return self._delete(identities.c.order_key, self._connection.scalars(_finished(before, limit).where(have.exists())).all())

    def documents(self, *, before: datetime, limit: int = 500) -> int:
        """Forget documents kept since before then that no unfinished report names and that are not served (any more)."""
        needed = self._documents_in_use() | self._documents_served(before)
        old = select(documents.c.id).where(documents.c.kept_at < before).order_by(documents.c.kept_at).limit(limit + len(needed))
        return self._delete(documents.c.id, [name for name in self._connection.scalars(old) if name not in needed][:limit])

    def journal(self, *, before: datetime, limit: int = 500) -> int:
        """Forget all about orders that are finished since before then, and what is finished and belongs to no order."""
        unfinished = select(reports.c.key).where(reports.c.order_key == orders.c.key, ~among(reports.c.state, FINISHED_REPORTS))
        keys = self._connection.scalars(_finished(before, limit).where(~unfinished.exists())).all()
        for table in _OF_AN_ORDER:
            self._delete(table.c.order_key, keys)
        self._forget_what_has_no_order(before, limit)
        return self._delete(orders.c.key, keys)

    def baskets(self, *, before: datetime, limit: int = 500) -> int:
        """Forget which baskets got the labels that were given before then; the barcodes stay."""
        old = (labels_given.c.given_at < before) & labels_given.c.basket.is_not(None)
        numbers = self._connection.scalars(select(labels_given.c.number).where(old).limit(limit)).all()
        return sum(
            self._connection.execute(update(labels_given).where(labels_given.c.number.in_(batch)).values(basket=None)).rowcount
            for batch in batches(numbers)
        )

    def catalogues(self, *, before: datetime, keep: int, limit: int = 50) -> int:
        """Forget catalogue versions that were replaced before then, but for the newest `keep`."""
        newest_first = select(catalogues.c.number).order_by(catalogues.c.number.desc())
        in_force = self._connection.scalar(newest_first.where(catalogues.c.since <= before).limit(1))
        kept = self._connection.scalar(newest_first.offset(keep - 1).limit(1))
        if in_force is None or kept is None:
            return 0
        gone = select(catalogues.c.number).where(catalogues.c.number < min(in_force, kept)).order_by(catalogues.c.number)
        return self._delete(catalogues.c.number, self._connection.scalars(gone.limit(limit)).all())

    def _forget_what_has_no_order(self, before: datetime, limit: int) -> None:
        old_effects = among(effects.c.state, _SETTLED) & (effects.c.changed_at < before)
        old_reports = among(reports.c.state, FINISHED_REPORTS) & (reports.c.changed_at < before)
        self._delete_some(effects, effects.c.id, effects.c.order_key.is_(None) & old_effects, limit)
        self._delete_some(reports, reports.c.sequence, reports.c.order_key.is_(None) & old_reports, limit)
        without_report = events.c.order_key.is_(None) & events.c.report.not_in(select(reports.c.key))
        self._delete_some(events, events.c.number, without_report & (events.c.at < before), limit)
        self._delete_some(alerts, alerts.c.number, alerts.c.closed_at < before, limit)
        self._delete_some(refusals, refusals.c.number, refusals.c.at < before, limit)

    def _documents_in_use(self) -> frozenset[str]:
        bodies = self._connection.scalars(select(reports.c.body).where(~among(reports.c.state, FINISHED_REPORTS)))
        return frozenset(name.decode() for body in bodies for name in _DOCUMENT_ID.findall(body))

    def _documents_served(self, since: datetime) -> frozenset[str]:
        lasting = hosted.c.expires_at.is_(None) | (hosted.c.expires_at >= since)
        return frozenset(self._connection.scalars(select(hosted.c.document).where(lasting)))

    def _delete_some(self, table: Table, key: Any, which: Any, limit: int) -> None:
        self._delete(key, self._connection.scalars(select(key).select_from(table).where(which).limit(limit)).all())

    def _delete(self, column: Any, keys: Any) -> int:
        return sum(self._connection.execute(delete(column.table).where(column.in_(batch))).rowcount for batch in batches(keys))


def _finished(before: datetime, limit: int) -> Select[Any]:
    open_effects = select(effects.c.id).where(effects.c.order_key == orders.c.key, among(effects.c.state, OPEN_EFFECTS))
    return (
        select(orders.c.key)
        .where(orders.c.state == literal_column("'closed'"), orders.c.changed_at < before, ~open_effects.exists())
        .order_by(orders.c.changed_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
