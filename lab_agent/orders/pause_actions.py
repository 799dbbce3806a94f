"""Pausing a laboratory system, as for its maintenance: nothing is handed over, cancelled or verified there until it is resumed.

The pause is in the database, and the statement that claims jobs reads it: so it holds for all workers at once, from its commit
on, and a restart keeps it. Results that the laboratory system sends are taken in and delivered as ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import structlog

from lab_agent.queue.pauses import AdapterPause, pause_key
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.shared.errors import InvalidTransitionError
from lab_agent.store.alert_log import close_alert, open_alert
from lab_agent.store.audit_records import AuditAction, AuditEntry, short_name
from lab_agent.store.event_records import Alert
from lab_agent.store.unit_of_work import UnitOfWork

log = structlog.get_logger(__name__)


def load_pauses(uow: UnitOfWork, systems: Iterable[str]) -> dict[str, AdapterPause]:
    """Those of these laboratory systems that are paused."""
    found = ((system, uow.key_values.get(pause_key(system))) for system in sorted(set(systems)))
    return {system: AdapterPause.from_json(system, stored) for system, stored in found if stored}


def pause_adapter(uow: UnitOfWork, system: str, *, by: str, note: str, now: datetime) -> AdapterPause:
    """Pause it; what is running there is finished. `note` is kept in the audit. Raises `InvalidTransitionError`."""
    if known := load_pauses(uow, [system]).get(system):
        raise InvalidTransitionError(f"{system} is paused already, by {known.by} since {known.since:%Y-%m-%d %H:%M} UTC.")
    pause = AdapterPause(system=system, since=now, by=short_name(by))
    uow.key_values.set(pause_key(system), pause.to_json())
    detail = f"by {pause.by}; the audit has the reason"
    open_alert(uow, Alert(condition=ConditionId.LIS_PAUSED, subject=system, detail=detail, since=now, opened_at=now))
    uow.audit.add(AuditEntry(at=now, action=AuditAction.ADAPTER_PAUSED, subject=system, by=by, note=note))
    log.warning("laboratory system paused", action="adapter_paused", adapter=system, by=by)
    return pause


def resume_adapter(uow: UnitOfWork, system: str, *, by: str, note: str, now: datetime) -> None:
    """Let it go on where it stopped: what waits is due. Raises `InvalidTransitionError`."""
    if not load_pauses(uow, [system]):
        raise InvalidTransitionError(f"{system} is not paused; there is nothing to resume.")
    uow.key_values.set(pause_key(system), "")
    close_alert(uow, AlertKey(ConditionId.LIS_PAUSED, system), now)
    uow.audit.add(AuditEntry(at=now, action=AuditAction.ADAPTER_RESUMED, subject=system, by=by, note=note))
    log.warning("laboratory system resumed", action="adapter_resumed", adapter=system, by=by)
