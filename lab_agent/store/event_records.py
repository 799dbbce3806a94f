"""Alerts, events, and what waits for one cause. Frozen; nothing in them identifies a patient."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.ids import OrderKey, RefusedKey, ReportKey


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingGroup:
    """How many orders, lines or results wait for one cause: the alert that says so, the oldest `since` when, and which that is.

    `order` is that of the oldest, if it has one, `reason` why it waits, where that is kept; neither identifies a patient.
    """

    key: AlertKey
    count: int
    since: datetime
    order: OrderKey | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """That a condition of the table (`lab_agent.shared.conditions`) holds, from its start to its end.

    `subject` says which one where there may be several, and `detail` what was found this time; neither identifies a patient.
    `since` is when it began: where something waits, when that was first due. `count` is how many orders, jobs or results it is
    about, where that was counted.
    """

    condition: ConditionId
    subject: str = ""
    detail: str = ""
    since: datetime
    opened_at: datetime
    closed_at: datetime | None = None
    count: int | None = None

    @property
    def key(self) -> AlertKey:
        """Its name: at most one of a key is open."""
        return AlertKey(self.condition, self.subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of an order's timeline, of a report's history, of both, or of a refused message's history alone."""

    order: OrderKey | None
    report: ReportKey | None = None
    refused_message: RefusedKey | None = None
    at: datetime
    action: str
    text: str
    by: str | None = None
