"""One alert for all orders, or lines, that wait for the same cause. It opens with the first of them, at once.

How many there are, and when none is left, is the attention task's to say (`attention_alerts`), which counts them in the store.
"""

from __future__ import annotations

from datetime import datetime

import structlog

from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.ids import OrderKey
from lab_agent.store.event_records import Alert
from lab_agent.store.unit_of_work import UnitOfWork

log = structlog.get_logger(__name__)

HELD_LINES_ALERT = AlertKey(ConditionId.LINES_HELD)
ORDER_TASKS_ALERT = AlertKey(ConditionId.ORDERS_TASK_UNREADABLE)
LINE_TASKS_ALERT = AlertKey(ConditionId.LINES_TASK_UNREADABLE)


def held_orders_alert_key(cause: str) -> AlertKey:
    """The alert of all orders that are held for this cause (`OrderRecord.hold_cause`)."""
    return AlertKey(ConditionId.ORDERS_HELD, cause)


def waiting_parts_alert_key(adapter: str) -> AlertKey:
    """The alert of all parts for one laboratory system that wait while another one has its own."""
    return AlertKey(ConditionId.ORDERS_PART_WAITS, adapter)


def describe_oldest(order: OrderKey | None) -> str:
    """The member of a group that has waited for longest, as its example; empty where that has no order.

    Why it waits is left to its page: that may quote what a clinic wrote, and an alert is told away from the machine (law 7).
    """
    return "" if order is None else f"order {order} for longest"


def open_at_once(uow: UnitOfWork, key: AlertKey, order: OrderKey, since: datetime, now: datetime) -> None:
    """Open the alert of a group with its first member; where it is open already, nothing is changed."""
    if key not in uow.alerts.open_among([key]):
        detail = describe_oldest(order)
        alert = Alert(condition=key.condition, subject=key.subject, detail=detail, since=since, opened_at=now, count=1)
        uow.alerts.open(alert)
        log.warning("condition found", action="condition_found", alert=str(key), order=order)
