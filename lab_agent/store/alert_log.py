"""Opens and closes alerts, each with one line in the log that names its condition; what is open or closed already has told it."""

from __future__ import annotations

from datetime import datetime

import structlog

from lab_agent.shared.conditions.model import AlertKey
from lab_agent.store.event_records import Alert
from lab_agent.store.unit_of_work import UnitOfWork

log = structlog.get_logger(__name__)


def open_alert(uow: UnitOfWork, alert: Alert, *, follow_oldest: bool = False) -> bool:
    """Open it; whether it was not open before. The detail is logged, so it must identify no patient, as that of every alert."""
    is_new = uow.alerts.open(alert, follow_oldest=follow_oldest)
    if is_new:
        reason = alert.detail or None
        log.warning("condition found", action="condition_found", alert=str(alert.key), count=alert.count, reason=reason)
    return is_new


def close_alert(uow: UnitOfWork, key: AlertKey, now: datetime) -> bool:
    """Close it; whether it was open."""
    was_open = uow.alerts.close(key, now=now)
    if was_open:
        log.info("condition ended", action="condition_ended", alert=str(key))
    return was_open
