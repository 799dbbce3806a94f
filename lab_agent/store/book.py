"""Alerts, timelines, refusals and small facts (`ports.store.Book`)."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, Connection, distinct, func, insert, select, update

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.journal import Alert, Event
from lab_agent.store.rows import insert_new, to_values, upsert
from lab_agent.store.tables import alerts, events, key_values, rejections


class SqlBook:
    """Alerts, events, refusals and notes, in the tables of those names."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def open_alert(self, alert: Alert) -> bool:
        """Open an alert. False if one of that key is open already: that one says from now on what this one says."""
        if insert_new(self._connection, alerts, to_values(alert)):
            return True
        says_other = _open_alert_condition(alert.key) & (alerts.c.text != alert.text)
        self._connection.execute(update(alerts).where(says_other).values(text=alert.text))
        return False

    def close_alert(self, key: str, *, now: datetime) -> bool:
        """Close an alert. False if none of that key is open."""
        return self._connection.execute(update(alerts).where(_open_alert_condition(key)).values(closed_at=now)).rowcount > 0

    def tell(self, event: Event) -> None:
        """Add a line to an order's timeline, to a report's history, or to both."""
        self._connection.execute(insert(events).values(**to_values(event)))

    def add_refusal(self, rule: str, order: OrderKey, *, at: datetime) -> None:
        """Remember that a rule refused a line of an order."""
        self._connection.execute(insert(rejections).values(rule=rule, order_key=order, at=at))

    def refusals_since(self, rule: str, since: datetime) -> int:
        """Number of orders that a rule refused since then."""
        counted = select(func.count(distinct(rejections.c.order_key))).where(rejections.c.rule == rule, rejections.c.at >= since)
        return self._connection.scalar(counted) or 0

    def note(self, key: str, value: str) -> None:
        """Keep a small fact under a key."""
        upsert(self._connection, key_values, {"key": key, "value": value}, "key")

    def noted(self, key: str) -> str | None:
        """A small fact."""
        return self._connection.scalar(select(key_values.c.value).where(key_values.c.key == key))


def _open_alert_condition(alert_key: str) -> ColumnElement[bool]:
    return (alerts.c.key == alert_key) & alerts.c.closed_at.is_(None)
