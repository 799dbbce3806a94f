"""Events, alerts, rejections and single values: four small repositories; and the mark that shows whether all were restored."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.records import Alert, Event
from lab_agent.domain.restoration import MarkedNumber


class EventRepository(Protocol):
    """Entries of timelines."""

    def add(self, event: Event) -> None:
        """Add an entry to an order's timeline, to a report's history, to both, or to a refused message's history."""
        ...

    def add_once(self, event: Event, *, since: datetime) -> bool:
        """Add an entry to an order's timeline, unless that has one of its action and text since then. Whether it was added."""
        ...


class AlertRepository(Protocol):
    """Alerts; at most one of a key is open."""

    def open(self, alert: Alert, *, follow_oldest: bool = False) -> bool:
        """Open an alert. False if one of that key is open already; its detail and number become these, and its beginning if this
        is earlier.

        `follow_oldest`: its beginning becomes this one even if it is later, as that of a group whose oldest member has gone.
        """
        ...

    def close(self, key: AlertKey, *, now: datetime) -> bool:
        """Close an alert. False if none of that key is open."""
        ...

    def open_among(self, keys: Collection[AlertKey]) -> frozenset[AlertKey]:
        """Which of these alerts are open."""
        ...

    def open_of(self, conditions: Collection[ConditionId]) -> frozenset[AlertKey]:
        """The open alerts of these conditions."""
        ...

    def all_open(self) -> tuple[Alert, ...]:
        """The open alerts, in the order in which they were opened."""
        ...

    def close_all(self, keys: Collection[AlertKey], *, now: datetime) -> None:
        """Close those of these alerts that are open."""
        ...

    def reopen(self, key: AlertKey, *, closed_after: datetime) -> bool:
        """Open the alert of that key again that was closed last, if that was after `closed_after` and none is open."""
        ...


class RejectionRepository(Protocol):
    """Which rule rejected which order (law 10 counts them)."""

    def add(self, rule: str, order: OrderKey, *, at: datetime) -> None:
        """Record that a rule rejected a line of an order."""
        ...

    def count_since(self, rule: str, since: datetime) -> int:
        """Number of orders that a rule has rejected since then."""
        ...


INSTANCE_ID_KEY = "instance"
"""Key of the id that a database has from its creation on; a copy of it has the same one."""
CREATED_AT_KEY = "created_at"
"""Key of the time when a database was made, in ISO 8601; one that an older program made has none."""


class KeyValueRepository(Protocol):
    """Single values, such as when the last poll succeeded."""

    def get(self, key: str) -> str | None:
        """Give the value of a key; None if it was never set."""
        ...

    def set(self, key: str, value: str) -> None:
        """Set the value of a key. Whoever else sets it waits until this unit of work has ended, so a key can be a lock."""
        ...


class StoreMark(Protocol):
    """How far the database was, outside the database and its backups. Both calls block."""

    def read(self) -> MarkedNumber | None:
        """Give the mark; None if there is none yet. Raises `StoreError` if it cannot be read."""
        ...

    def write(self, number: MarkedNumber) -> None:
        """Put the mark on the disk. Raises `StoreError` if it cannot be written."""
        ...
