"""How much was done of late, counted from the newest rows backwards, so that the history of years costs nothing."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, literal_column, select

from lab_agent.queue.job_records import JobKind
from lab_agent.shared.state_machines import JobState
from lab_agent.store.read_models import MAX_COUNTED, RecentActivity
from lab_agent.store.tables import jobs, orders, reports


def load_recent_activity(connection: Connection, since: datetime) -> RecentActivity:
    """Count what was done since then."""
    newest_reports = select(reports.c.received_at.label("at")).order_by(reports.c.sequence.desc()).limit(MAX_COUNTED)
    seen = select(func.count()).select_from(orders).where(orders.c.seen_at >= since)
    return RecentActivity(
        orders_seen=connection.scalar(seen) or 0,
        orders_handed_over=_count(connection, _newest_done(JobKind.SUBMIT_ORDER), since),
        results_received=_count(connection, newest_reports, since),
        results_delivered=_count(connection, _newest_done(JobKind.DELIVER_REPORT), since),
    )


def _newest_done(kind: JobKind) -> Select[Any]:
    """The newest jobs of a kind that are done, in the order of the index on kind, state and id."""
    done: ColumnElement[str] = literal_column(f"'{JobState.DONE.value}'")
    of_kind = (jobs.c.kind == kind) & (jobs.c.state == done)
    return select(jobs.c.changed_at.label("at")).where(of_kind).order_by(jobs.c.id.desc()).limit(MAX_COUNTED)


def _count(connection: Connection, newest: Select[Any], since: datetime) -> int:
    found = newest.subquery()
    return connection.scalar(select(func.count()).select_from(found).where(found.c.at >= since)) or 0
