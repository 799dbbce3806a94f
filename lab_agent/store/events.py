"""Events, alerts, rejections and key-value pairs: four small repositories (`ports.store`)."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ColumnElement, Connection, distinct, func, insert, select, update

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.records import Alert, Event
from lab_agent.store.row_mapping import insert_new, to_values, upsert
from lab_agent.store.tables import alerts, events, key_values, rejections


class SqlEventRepository:
    """Lines of timelines, in the table `events`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, event: Event) -> None:
        """Add a line to an order's timeline, to a report's history, or to both."""
        self._connection.execute(insert(events).values(**to_values(event)))


class SqlAlertRepository:
    """Alerts, in the table `alerts`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def open(self, alert: Alert) -> bool:
        """Open an alert. False if one of that key is open already; its text becomes this one's."""
        if insert_new(self._connection, alerts, to_values(alert)):
            return True
        has_other_text = _is_open(alert.key) & (alerts.c.text != alert.text)
        self._connection.execute(update(alerts).where(has_other_text).values(text=alert.text))
        return False

    def close(self, key: str, *, now: datetime) -> bool:
        """Close an alert. False if none of that key is open."""
        return self._connection.execute(update(alerts).where(_is_open(key)).values(closed_at=now)).rowcount > 0


class SqlRejectionRepository:
    """Which rule rejected which order, in the table `rejections`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, rule: str, order: OrderKey, *, at: datetime) -> None:
        """Record that a rule rejected a line of an order."""
        self._connection.execute(insert(rejections).values(rule=rule, order_key=order, at=at))

    def count_since(self, rule: str, since: datetime) -> int:
        """Number of orders that a rule has rejected since then."""
        counted = select(func.count(distinct(rejections.c.order_key))).where(rejections.c.rule == rule, rejections.c.at >= since)
        return self._connection.scalar(counted) or 0


class SqlKeyValueRepository:
    """Single values, in the table `key_values`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, key: str) -> str | None:
        """Give the value of a key; None if it was never set."""
        return self._connection.scalar(select(key_values.c.value).where(key_values.c.key == key))

    def set(self, key: str, value: str) -> None:
        """Set the value of a key."""
        upsert(self._connection, key_values, {"key": key, "value": value}, "key")


def _is_open(key: str) -> ColumnElement[bool]:
    return (alerts.c.key == key) & alerts.c.closed_at.is_(None)
