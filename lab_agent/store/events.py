"""Events, alerts, rejections and single values: four small repositories."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import BindParameter, bindparam, distinct, func, insert, literal_column, select, update
from typing_extensions import override

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.records import Alert, Event
from lab_agent.ports.repositories import AlertRepository, EventRepository, KeyValueRepository, RejectionRepository
from lab_agent.store.row_mapping import RecordMapping, chunked, upsert_by
from lab_agent.store.session import Query, Session, Write
from lab_agent.store.tables import alerts, events, key_values, rejections

_EVENTS = RecordMapping(Event, events)
_ALERTS = RecordMapping(Alert, alerts)

_KEY: BindParameter[str] = bindparam("of")
_IS_OPEN = (alerts.c.key == _KEY) & alerts.c.closed_at.is_(None)
_ADD_EVENT = Write.of(events, insert(events).inline())
_OPEN_ALERT = Write.insert(alerts, lambda insert: insert.on_conflict_do_nothing().returning(literal_column("1")))
_RENAME_ALERT = Write.of(
    alerts, update(alerts).where(_IS_OPEN, alerts.c.text != bindparam("words")).values(text=bindparam("words"))
)
_CLOSE_ALERT = Write.of(alerts, update(alerts).where(_IS_OPEN).values(closed_at=bindparam("now")))
_REOPEN_ALERT = Write.of(alerts, update(alerts).where(alerts.c.number == bindparam("which")).values(closed_at=None))
_ALERT_IS_OPEN = Query(select(alerts.c.number).where(_IS_OPEN))
_OPEN_AMONG = Query(select(alerts.c.key).where(alerts.c.key.in_(bindparam("keys", expanding=True)), alerts.c.closed_at.is_(None)))
_NEWEST_CLOSED = Query(
    select(alerts.c.number)
    .where(alerts.c.key == _KEY, alerts.c.closed_at > bindparam("after"))
    .order_by(alerts.c.closed_at.desc(), alerts.c.number.desc())
    .limit(literal_column("1"))
)
_ADD_REJECTION = Write.of(rejections, insert(rejections).inline())
_COUNT_REJECTIONS = Query(
    select(func.count(distinct(rejections.c.order_key))).where(
        rejections.c.rule == bindparam("by_rule"), rejections.c.at >= bindparam("since")
    )
)
_VALUE = Query(select(key_values.c.value).where(key_values.c.key == _KEY))
_SET_VALUE = Write.insert(key_values, upsert_by("key"))


class SqlEventRepository(EventRepository):
    """Entries of timelines, in the table `events`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @override
    def add(self, event: Event) -> None:
        self._session.append(_ADD_EVENT, [_EVENTS.to_values(event)])


class SqlAlertRepository(AlertRepository):
    """Alerts, in the table `alerts`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @override
    def open(self, alert: Alert) -> bool:
        if self._session.send(_OPEN_ALERT, _ALERTS.to_values(alert)).scalar() is not None:
            return True
        self._session.send(_RENAME_ALERT, {"of": alert.key, "words": alert.text})
        return False

    @override
    def close(self, key: str, *, now: datetime) -> bool:
        if self._session.execute(_ALERT_IS_OPEN, {"of": key}).first() is None:
            return False
        return self._session.send(_CLOSE_ALERT, {"of": key, "now": now}).rowcount > 0

    @override
    def open_among(self, keys: Collection[str]) -> frozenset[str]:
        found: set[str] = set()
        for batch in chunked(sorted(set(keys))):
            found.update(self._session.execute(_OPEN_AMONG, {"keys": batch}).scalars())
        return frozenset(found)

    @override
    def close_all(self, keys: Collection[str], *, now: datetime) -> None:
        for key in self.open_among(keys):
            self._session.send(_CLOSE_ALERT, {"of": key, "now": now})

    @override
    def reopen(self, key: str, *, closed_after: datetime) -> bool:
        if self._session.execute(_ALERT_IS_OPEN, {"of": key}).first() is not None:
            return False
        newest = self._session.execute(_NEWEST_CLOSED, {"of": key, "after": closed_after}).scalar()
        if newest is not None:
            self._session.send(_REOPEN_ALERT, {"which": newest})
        return newest is not None


class SqlRejectionRepository(RejectionRepository):
    """Which rule rejected which order, in the table `rejections`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @override
    def add(self, rule: str, order: OrderKey, *, at: datetime) -> None:
        self._session.append(_ADD_REJECTION, [{"rule": rule, "order_key": order, "at": at}])

    @override
    def count_since(self, rule: str, since: datetime) -> int:
        return self._session.execute(_COUNT_REJECTIONS, {"by_rule": rule, "since": since}).scalar() or 0


class SqlKeyValueRepository(KeyValueRepository):
    """Single values, in the table `key_values`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @override
    def get(self, key: str) -> str | None:
        known: str | None = self._session.known((key_values, key))
        return self._session.execute(_VALUE, {"of": key}).scalar() if known is None else known

    @override
    def set(self, key: str, value: str) -> None:
        row = {"key": key, "value": value}
        if self._session.kind == "sqlite":
            self._session.put(_SET_VALUE, key, row)
        else:  # at once, as the row is a lock too; what was read before others gave it back may be out of date
            self._session.send(_SET_VALUE, row)
            self._session.forget()
        self._session.remember((key_values, key), value)
