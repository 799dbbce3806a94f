"""Events, alerts, rejections and single values: four small repositories."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    bindparam,
    case,
    distinct,
    func,
    insert,
    literal_column,
    select,
    update,
)

from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.ids import OrderKey
from lab_agent.store.event_records import Alert, Event
from lab_agent.store.row_mapping import RecordMapping, chunked, upsert_by
from lab_agent.store.session import Query, Session, Write
from lab_agent.store.tables import alerts, events, key_values, rejections

_EVENTS = RecordMapping(Event, events)
_ALERTS = RecordMapping(Alert, alerts)

_KEY: BindParameter[str] = bindparam("of")
_IS_OPEN = (
    (alerts.c.condition == bindparam("of_condition", type_=alerts.c.condition.type))
    & (alerts.c.subject == bindparam("of_subject"))
    & alerts.c.closed_at.is_(None)
)
_ADD_EVENT = Write.of(events, insert(events).inline())
_SAME_EVENT = Query(
    select(events.c.number)
    .where(
        events.c.order_key == bindparam("of_order"),
        events.c.action == bindparam("of_action"),
        events.c.text == bindparam("of_text"),
        events.c.at >= bindparam("since"),
    )
    .limit(literal_column("1"))
)
_OPEN_ALERT = Write.insert(alerts, lambda insert: insert.on_conflict_do_nothing().returning(literal_column("1")))
_NEW_SINCE: BindParameter[datetime] = bindparam("new_since", type_=alerts.c.since.type)


def _renew_alert(begins_anew: ColumnElement[bool]) -> Write:
    return Write.of(
        alerts,
        update(alerts)
        .where(
            _IS_OPEN,
            (alerts.c.detail != bindparam("new_detail"))
            | begins_anew
            | alerts.c["count"].is_distinct_from(bindparam("new_count", type_=alerts.c["count"].type)),
        )
        .values(
            detail=bindparam("new_detail"),
            since=case((begins_anew, _NEW_SINCE), else_=alerts.c.since),
            count=bindparam("new_count", type_=alerts.c["count"].type),
        ),
    )


_RENEW_ALERT = _renew_alert(alerts.c.since > _NEW_SINCE)
_FOLLOW_OLDEST = _renew_alert(alerts.c.since != _NEW_SINCE)
_CLOSE_ALERT = Write.of(alerts, update(alerts).where(_IS_OPEN).values(closed_at=bindparam("now")))
_REOPEN_ALERT = Write.of(alerts, update(alerts).where(alerts.c.number == bindparam("which")).values(closed_at=None))
_ALERT_IS_OPEN = Query(select(alerts.c.number).where(_IS_OPEN))
_OPEN_AMONG = Query(
    select(alerts.c.condition, alerts.c.subject).where(
        alerts.c.subject.in_(bindparam("subjects", expanding=True)), alerts.c.closed_at.is_(None)
    )
)
_OPEN_OF = Query(
    select(alerts.c.condition, alerts.c.subject).where(
        alerts.c.condition.in_(bindparam("conditions", expanding=True, type_=alerts.c.condition.type)),
        alerts.c.closed_at.is_(None),
    )
)
_ALL_OPEN = Query(select(*_ALERTS.columns).where(alerts.c.closed_at.is_(None)).order_by(alerts.c.opened_at, alerts.c.number))
_NEWEST_CLOSED = Query(
    select(alerts.c.number)
    .where(
        alerts.c.condition == bindparam("of_condition", type_=alerts.c.condition.type),
        alerts.c.subject == bindparam("of_subject"),
        alerts.c.closed_at > bindparam("after"),
    )
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


class EventRepository:
    """Entries of timelines, in the table `events`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, event: Event) -> None:
        """Add an entry to an order's timeline, to a report's history, to both, or to a refused message's history."""
        self._session.append(_ADD_EVENT, [_EVENTS.to_values(event)])

    def add_once(self, event: Event, *, since: datetime) -> bool:
        """Add an entry to an order's timeline, unless that has one of its action and text since then. Whether it was added."""
        same = {"of_order": event.order, "of_action": event.action, "of_text": event.text, "since": since}
        if self._session.execute(_SAME_EVENT, same).first() is not None:
            return False
        self.add(event)
        return True


class AlertRepository:
    """Alerts; at most one of a key is open."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def open(self, alert: Alert, *, follow_oldest: bool = False) -> bool:
        """Open an alert. False if one of that key is open already; its detail and number become these, and its beginning if this
        is earlier.

        `follow_oldest`: its beginning becomes this one even if it is later, as that of a group whose oldest member has gone.
        """
        if self._session.send(_OPEN_ALERT, _ALERTS.to_values(alert)).scalar() is not None:
            return True
        new = {"new_detail": alert.detail, "new_since": alert.since, "new_count": alert.count}
        self._session.send(_FOLLOW_OLDEST if follow_oldest else _RENEW_ALERT, {**_which(alert.key), **new})
        return False

    def close(self, key: AlertKey, *, now: datetime) -> bool:
        """Close an alert. False if none of that key is open."""
        if self._session.execute(_ALERT_IS_OPEN, _which(key)).first() is None:
            return False
        return self._session.send(_CLOSE_ALERT, {**_which(key), "now": now}).rowcount > 0

    def open_among(self, keys: Collection[AlertKey]) -> frozenset[AlertKey]:
        """Which of these alerts are open."""
        found: set[AlertKey] = set()
        for batch in chunked(sorted({key.subject for key in keys})):
            found.update(AlertKey(*row) for row in self._session.execute(_OPEN_AMONG, {"subjects": batch}))
        return frozenset(found.intersection(keys))

    def open_of(self, conditions: Collection[ConditionId]) -> frozenset[AlertKey]:
        """The open alerts of these conditions."""
        found = self._session.execute(_OPEN_OF, {"conditions": sorted(conditions)})
        return frozenset(AlertKey(*row) for row in found)

    def all_open(self) -> tuple[Alert, ...]:
        """The open alerts, in the order in which they were opened."""
        return _ALERTS.to_records(self._session.execute(_ALL_OPEN))

    def close_all(self, keys: Collection[AlertKey], *, now: datetime) -> None:
        """Close those of these alerts that are open."""
        for key in self.open_among(keys):
            self._session.send(_CLOSE_ALERT, {**_which(key), "now": now})

    def reopen(self, key: AlertKey, *, closed_after: datetime) -> bool:
        """Open the alert of that key again that was closed last, if that was after `closed_after` and none is open."""
        if self._session.execute(_ALERT_IS_OPEN, _which(key)).first() is not None:
            return False
        newest = self._session.execute(_NEWEST_CLOSED, {**_which(key), "after": closed_after}).scalar()
        if newest is not None:
            self._session.send(_REOPEN_ALERT, {"which": newest})
        return newest is not None


def _which(key: AlertKey) -> dict[str, object]:
    return {"of_condition": key.condition, "of_subject": key.subject}


class RejectionRepository:
    """Which rule rejected which order, in the table `rejections`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, rule: str, order: OrderKey, *, at: datetime) -> None:
        """Record that a rule rejected a line of an order."""
        self._session.append(_ADD_REJECTION, [{"rule": rule, "order_key": order, "at": at}])

    def count_since(self, rule: str, since: datetime) -> int:
        """Number of orders that a rule has rejected since then."""
        return self._session.execute(_COUNT_REJECTIONS, {"by_rule": rule, "since": since}).scalar() or 0


class KeyValueRepository:
    """Single values, such as when the last poll succeeded."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get(self, key: str) -> str | None:
        """Give the value of a key; None if it was never set."""
        known: str | None = self._session.known((key_values, key))
        return self._session.execute(_VALUE, {"of": key}).scalar() if known is None else known

    def set(self, key: str, value: str) -> None:
        """Set the value of a key. Whoever else sets it waits until this unit of work has ended, so a key can be a lock."""
        row = {"key": key, "value": value}
        if self._session.kind == "sqlite":
            self._session.put(_SET_VALUE, key, row)
        else:  # at once, as the row is a lock too; what was read before others gave it back may be out of date
            self._session.send(_SET_VALUE, row)
            self._session.forget()
        self._session.remember((key_values, key), value)
