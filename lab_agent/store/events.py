"""Events, alerts, rejections and single values: four small repositories."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, distinct, func, insert, select, update
from typing_extensions import override

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.records import Alert, Event
from lab_agent.ports.repositories import AlertRepository, EventRepository, KeyValueRepository, RejectionRepository
from lab_agent.store.row_mapping import insert_new, to_values, upsert
from lab_agent.store.tables import alerts, events, key_values, rejections


class SqlEventRepository(EventRepository):
    """Entries of timelines, in the table `events`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @override
    def add(self, event: Event) -> None:
        self._connection.execute(insert(events).values(**to_values(event)))


class SqlAlertRepository(AlertRepository):
    """Alerts, in the table `alerts`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @override
    def open(self, alert: Alert) -> bool:
        if insert_new(self._connection, alerts, to_values(alert)):
            return True
        has_other_text = _is_open(alert.key) & (alerts.c.text != alert.text)
        self._connection.execute(update(alerts).where(has_other_text).values(text=alert.text))
        return False

    @override
    def close(self, key: str, *, now: datetime) -> bool:
        return self._connection.execute(update(alerts).where(_is_open(key)).values(closed_at=now)).rowcount > 0

    @override
    def close_all(self, keys: Collection[str], *, now: datetime) -> None:
        is_open = alerts.c.key.in_(keys) & alerts.c.closed_at.is_(None)
        self._connection.execute(update(alerts).where(is_open).values(closed_at=now))

    @override
    def reopen(self, key: str, *, closed_after: datetime) -> bool:
        if self._connection.execute(select(alerts.c.number).where(_is_open(key))).first() is not None:
            return False
        closed = select(alerts.c.number).where(alerts.c.key == key, alerts.c.closed_at > closed_after)
        newest = self._connection.execute(closed.order_by(alerts.c.closed_at.desc(), alerts.c.number.desc()).limit(1)).first()
        if newest is not None:
            self._connection.execute(update(alerts).where(alerts.c.number == newest[0]).values(closed_at=None))
        return newest is not None


class SqlRejectionRepository(RejectionRepository):
    """Which rule rejected which order, in the table `rejections`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @override
    def add(self, rule: str, order: OrderKey, *, at: datetime) -> None:
        self._connection.execute(insert(rejections).values(rule=rule, order_key=order, at=at))

    @override
    def count_since(self, rule: str, since: datetime) -> int:
        counted = select(func.count(distinct(rejections.c.order_key))).where(rejections.c.rule == rule, rejections.c.at >= since)
        return self._connection.scalar(counted) or 0


class SqlKeyValueRepository(KeyValueRepository):
    """Single values, in the table `key_values`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @override
    def get(self, key: str) -> str | None:
        return self._connection.scalar(select(key_values.c.value).where(key_values.c.key == key))

    @override
    def set(self, key: str, value: str) -> None:
        upsert(self._connection, key_values, {"key": key, "value": value}, "key")


def _is_open(key: str) -> ColumnElement[bool]:
    return (alerts.c.key == key) & alerts.c.closed_at.is_(None)
