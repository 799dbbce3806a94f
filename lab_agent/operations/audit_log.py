"""Recording in the audit what no decision of the workflow records: looks at what is confidential, and what commands did."""

from __future__ import annotations

from datetime import datetime

from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.unit_of_work import Store, UnitOfWork


async def note_look(store: Store, action: AuditAction, subject: str, *, by: str | None, now: datetime) -> None:
    """Record that somebody looks at what is confidential, before it is shown: no record, no look.

    Raises `StoreUnreachableError`.
    """
    await record(store, AuditEntry(at=now, action=action, subject=subject, by=by))


async def record(store: Store, entry: AuditEntry) -> None:
    """Record what was done outside of a unit of work."""

    def write(uow: UnitOfWork) -> None:
        uow.audit.add(entry)

    await store.transact(write)
