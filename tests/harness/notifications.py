"""Conditions and messages for the tests of notifications."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from lab_agent.operations.notification.message import Change, Item, Message
from lab_agent.shared.conditions.model import AffectedCount, ConditionId, OpenCondition
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.store.event_records import Alert

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SERVICE_DOWN = ConditionId.EXCHANGE_UNAVAILABLE
LIS_DOWN = ConditionId.LIS_UNAVAILABLE


def make_alert(condition: ConditionId = SERVICE_DOWN, subject: str = "", *, at: datetime = NOW, **fields: Any) -> Alert:
    return Alert(condition=condition, subject=subject, since=fields.pop("since", at), opened_at=at, **fields)


def make_item(
    condition: ConditionId = SERVICE_DOWN, subject: str = "", *, change: Change = Change.STARTED, detail: str = "", **fields: Any
) -> Item:
    affected = (AffectedCount(number=12, noun="order", rest=" to fetch"),)
    of = OpenCondition(
        condition=CONDITIONS[condition], subject=subject, detail=detail, since=NOW - timedelta(hours=2), affected=affected
    )
    return Item(change=change, condition=of, **fields)


def make_message(*items: Item, **fields: Any) -> Message:
    return Message(**{"id": "0123456789abcdef", "laboratory": "Example Lab", "at": NOW, "items": items, **fields})
