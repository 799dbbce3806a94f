"""Hours: what was done in each, counted from the newest rows backwards, and kept in a row of its own for the charts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, func, literal_column, select

from lab_agent.queue.job_records import JobKind
from lab_agent.shared.state_machines import JobState
from lab_agent.store.activity_records import HOUR, HourlyActivity, Measure, summarize
from lab_agent.store.page_tables import hourly_activity
from lab_agent.store.read_models import MAX_COUNTED
from lab_agent.store.row_mapping import in_states, to_record, to_values, upsert
from lab_agent.store.session import Session
from lab_agent.store.tables import jobs, orders, reports

_SINCE = (
    select(hourly_activity)
    .where(hourly_activity.c.hour >= bindparam("since"), in_states(hourly_activity.c.measure, Measure))
    .order_by(hourly_activity.c.hour, hourly_activity.c.measure)
)


class ActivityRepository:
    """Hours, in the table of that name."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def save(self, hours: Sequence[HourlyActivity]) -> None:
        """Write them, each over what was known of its hour and measure."""
        for each in hours:
            upsert(self._session, hourly_activity, to_values(each), "hour", "measure")

    def get(self, hour: datetime, measure: Measure) -> HourlyActivity | None:
        """What is known of an hour."""
        found = select(hourly_activity).where(hourly_activity.c.hour == hour, hourly_activity.c.measure == measure)
        row = self._session.execute(found).mappings().one_or_none()
        return None if row is None else _to_activity(row)

    def purge(self, *, before: datetime) -> int:
        """Remove older hours; their number."""
        return self._session.execute(delete(hourly_activity).where(hourly_activity.c.hour < before)).rowcount


def _to_activity(row: Any) -> HourlyActivity:
    return to_record(HourlyActivity, {**row, "measure": Measure(row["measure"])})  # type: ignore[arg-type]


def load_activity(connection: Connection, since: datetime) -> tuple[HourlyActivity, ...]:
    """Give what `Queries.activity` promises."""
    return tuple(_to_activity(row) for row in connection.execute(_SINCE, {"since": since}).mappings())


def measure_hour(connection: Connection, hour: datetime) -> tuple[HourlyActivity, ...]:
    """Give what `Queries.measure_hour` promises."""
    end = hour + HOUR
    seen = select(func.count()).select_from(orders).where(orders.c.seen_at >= hour, orders.c.seen_at < end)
    newest = select(reports.c.received_at.label("at")).order_by(reports.c.sequence.desc()).limit(MAX_COUNTED).subquery()
    received = select(func.count()).select_from(newest).where(newest.c.at >= hour, newest.c.at < end)
    handed_over = _newest_done(JobKind.SUBMIT_ORDER).subquery()
    to_lis = select(handed_over.c.at, orders.c.seen_at).join(orders, orders.c.key == handed_over.c.target)
    delivered = _newest_done(JobKind.DELIVER_REPORT).subquery()
    to_clinic = select(delivered.c.at, reports.c.received_at).join(reports, reports.c.key == delivered.c.target)
    lis = _seconds(connection, to_lis.where(handed_over.c.at >= hour, handed_over.c.at < end))
    clinic = _seconds(connection, to_clinic.where(delivered.c.at >= hour, delivered.c.at < end))
    return (
        summarize(hour, Measure.ORDERS_SEEN, connection.scalar(seen) or 0),
        summarize(hour, Measure.ORDERS_HANDED_OVER, len(lis), lis),
        summarize(hour, Measure.RESULTS_RECEIVED, connection.scalar(received) or 0),
        summarize(hour, Measure.RESULTS_DELIVERED, len(clinic), clinic),
    )


def _newest_done(kind: JobKind) -> Select[Any]:
    """The newest jobs of a kind that are done, in the order of the index on kind, state and id."""
    done: Any = literal_column(f"'{JobState.DONE.value}'")
    of_kind = (jobs.c.kind == kind) & (jobs.c.state == done)
    return select(jobs.c.changed_at.label("at"), jobs.c.target).where(of_kind).order_by(jobs.c.id.desc()).limit(MAX_COUNTED)


def _seconds(connection: Connection, spans: Select[Any]) -> list[float]:
    return [max(0.0, (end - start).total_seconds()) for end, start in connection.execute(spans)]
