"""What the overview says beside what is unfinished: a few numbers and times, open alerts, and the hours of its charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    BindParameter,
    bindparam,
    func,
    literal_column,
    select,
    type_coerce,
)

from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.state_machines import ORDERS_AWAITING_RESULTS, OrderState
from lab_agent.store.activity_records import HourlyActivity, Measure
from lab_agent.store.column_types import PlainText, UtcDateTime
from lab_agent.store.event_records import Alert
from lab_agent.store.overview_rows import select_rows
from lab_agent.store.page_tables import hourly_activity
from lab_agent.store.read_models import LAST_POLL_KEY
from lab_agent.store.row_mapping import in_states
from lab_agent.store.tables import alerts, key_values, oauth_tokens, orders

_NOW: BindParameter[datetime] = bindparam("now", type_=UtcDateTime)
_CLOSED_SINCE: BindParameter[datetime] = bindparam("closed_since", type_=UtcDateTime)


@dataclass(frozen=True, slots=True)
class OverviewFacts:
    """What was read: `hours` is empty where none were asked for."""

    closed_orders: int
    overdue_orders: int
    next_due: datetime | None
    last_poll: datetime | None
    sign_in_until: datetime | None
    alerts: tuple[Alert, ...]
    hours: tuple[HourlyActivity, ...]


_IS_CLOSED = orders.c.state == literal_column(f"'{OrderState.CLOSED.value}'")
_IS_OPEN = orders.c.state != literal_column(f"'{OrderState.CLOSED.value}'")
_IS_AWAITED = in_states(orders.c.state, ORDERS_AWAITING_RESULTS)
_SIGN_IN_UNTIL = (
    select(oauth_tokens.c.expires_at).order_by(oauth_tokens.c.generation.desc()).limit(literal_column("1")).scalar_subquery()
)
FACTS = (
    select_rows("closed", number=func.count()).where(_IS_CLOSED, orders.c.changed_at >= _CLOSED_SINCE),
    select_rows("overdue", number=func.count()).where(_IS_AWAITED, _IS_OPEN, orders.c.expected_at < _NOW),
    select_rows("next due", since=func.min(orders.c.expected_at, type_=UtcDateTime)).where(
        _IS_OPEN, _IS_AWAITED, orders.c.expected_at >= _NOW
    ),
    select_rows("last poll", state=key_values.c.value).where(key_values.c.key == literal_column(f"'{LAST_POLL_KEY}'")),
    select_rows("sign-in", since=_SIGN_IN_UNTIL),
    select_rows(
        "alert",
        state=type_coerce(alerts.c.condition, PlainText),
        by=alerts.c.subject,
        detail=alerts.c.detail,
        number=alerts.c.count,
        place=alerts.c.number,
        since=alerts.c.since,
        opened_at=alerts.c.opened_at,
    ).where(alerts.c.closed_at.is_(None)),
)
HOURS = select_rows(
    "hour",
    state=hourly_activity.c.measure,
    number=hourly_activity.c.count,
    since=hourly_activity.c.hour,
    median=hourly_activity.c.median,
    percentile_95=hourly_activity.c.percentile_95,
).where(hourly_activity.c.hour >= bindparam("hours_since", type_=UtcDateTime), in_states(hourly_activity.c.measure, Measure))


def read_facts(parts: Mapping[str, Sequence[Any]]) -> OverviewFacts:
    """Make them of the rows that were found, by their parts."""
    last_poll = parts.get("last poll")
    return OverviewFacts(
        closed_orders=parts["closed"][0].number,
        overdue_orders=parts["overdue"][0].number,
        next_due=parts["next due"][0].since,
        last_poll=datetime.fromisoformat(last_poll[0].state) if last_poll else None,
        sign_in_until=parts["sign-in"][0].since,
        alerts=_to_alerts(parts.get("alert", ())),
        hours=tuple(map(_to_hour, sorted(parts.get("hour", ()), key=attrgetter("since", "state")))),
    )


def _to_alerts(rows: Sequence[Any]) -> tuple[Alert, ...]:
    """The oldest first."""
    return tuple(
        Alert(
            condition=ConditionId(row.state),
            subject=row.by,
            detail=row.detail,
            since=row.since,
            opened_at=row.opened_at,
            count=row.number,
        )
        for row in sorted(rows, key=attrgetter("opened_at", "place"))
    )


def _to_hour(row: Any) -> HourlyActivity:
    return HourlyActivity(
        hour=row.since, measure=Measure(row.state), count=row.number, median=row.median, percentile_95=row.percentile_95
    )
