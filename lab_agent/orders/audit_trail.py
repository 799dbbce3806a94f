"""What is recorded in the audit beside the words of a timeline: a decision, or a change of settings.

An event tells an order's story, in words. The audit says who acted, in codes; what a person wrote is kept with it encrypted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from lab_agent.store.audit_records import AuditAction, AuditEntry, AuditValue
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import Store, UnitOfWork

_SETTINGS_KEY = "audit.settings"


def note_decision(
    uow: UnitOfWork,
    event: Event,
    action: AuditAction,
    *,
    note: str | None = None,
    details: Mapping[str, AuditValue] | None = None,
    subject: str | None = None,
) -> None:
    """Add a person's decision to the timeline and to the audit. Its subject is that of the event, unless another is given."""
    uow.events.add(event)
    uow.audit.add(
        AuditEntry(
            at=event.at,
            action=action,
            subject=subject or event.refused_message or event.report or event.order or "",
            by=event.by,
            details=details or {},
            note=note,
            order=event.order,
        )
    )


async def note_settings(store: Store, values: Mapping[str, str], now: datetime) -> tuple[str, ...]:
    """Record which settings are others than at the last start, by their names; give these. Their values are kept as digests."""

    def write(uow: UnitOfWork) -> tuple[str, ...]:
        known = uow.key_values.get(_SETTINGS_KEY)
        before: dict[str, str] = json.loads(known) if known else {}
        present = uow.audit.digest_settings(values)
        names = tuple(sorted(name for name in {*before, *present} if before.get(name) != present.get(name)))
        if names and before:
            uow.audit.add(AuditEntry(at=now, action=AuditAction.SETTINGS_CHANGED, details={"changed": names}))
        elif names:
            uow.audit.add(AuditEntry(at=now, action=AuditAction.SETTINGS_CHANGED, details={"first_start_with": len(names)}))
        uow.key_values.set(_SETTINGS_KEY, json.dumps(dict(present), sort_keys=True))
        return names

    return await store.transact(write)
