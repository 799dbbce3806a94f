"""Whether anything has changed since the last look, by topic: of each, what an index or a small table says at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Select, func, select

from lab_agent.catalogue.records import CATALOGUE_CHANGE_STAMP
from lab_agent.results.refused_message_repository import refused_messages
from lab_agent.results.refused_records import RefusedState
from lab_agent.shared.state_machines import JOBS_NEEDING_OPERATOR, OPEN_JOBS, REPORTS_NEEDING_OPERATOR, OrderState
from lab_agent.store.row_mapping import in_states
from lab_agent.store.tables import alerts, events, jobs, key_values, orders, reports

_OPEN_JOBS = in_states(jobs.c.state, OPEN_JOBS)


def load_change_stamps(connection: Connection) -> Mapping[str, str]:
    """Give what `Queries.change_stamps` promises."""

    def stamp(*queries: Select[Any]) -> str:
        return "/".join(str(connection.scalar(each)) for each in queries)

    story = stamp(select(func.max(events.c.number)), select(func.max(orders.c.seen_at)))
    moved = stamp(select(func.count()).select_from(jobs).where(_OPEN_JOBS), select(func.max(jobs.c.id)))
    waiting = stamp(
        select(func.count()).select_from(jobs).where(in_states(jobs.c.state, JOBS_NEEDING_OPERATOR)),
        select(func.count()).select_from(jobs).where(jobs.c.failing_since.is_not(None)),
        select(func.count()).select_from(orders).where(in_states(orders.c.state, {OrderState.HELD})),
        select(func.count()).select_from(reports).where(in_states(reports.c.state, REPORTS_NEEDING_OPERATOR)),
        select(func.count()).select_from(refused_messages).where(in_states(refused_messages.c.state, {RefusedState.WAITING})),
    )
    open_alerts = select(func.count()).select_from(alerts).where(alerts.c.closed_at.is_(None))
    return {
        "orders": f"{story} {moved}",
        "results": f"{stamp(select(func.max(reports.c.sequence)))} {story} {moved}",
        "waiting": waiting,
        "alerts": stamp(open_alerts, select(func.max(alerts.c.number))),
        "catalogue": stamp(select(key_values.c.value).where(key_values.c.key == CATALOGUE_CHANGE_STAMP)),
    }
