"""Leases by name, in the table `leases`."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete
from typing_extensions import override

from lab_agent.ports.leases import LeaseRepository
from lab_agent.store.row_mapping import upsert
from lab_agent.store.session import Session
from lab_agent.store.tables import leases


class SqlLeaseRepository(LeaseRepository):
    """Leases: each is taken in one statement, so two that ask at once do not both get it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @override
    def acquire(self, name: str, owner: str, *, now: datetime, lease: timedelta) -> bool:
        free = (leases.c.until <= now) | (leases.c.owner == owner)
        return upsert(
            self._session.connection(), leases, {"name": name, "owner": owner, "until": now + lease}, "name", where=free
        )

    @override
    def release(self, name: str, owner: str) -> None:
        self._session.connection().execute(delete(leases).where(leases.c.name == name, leases.c.owner == owner))

    @override
    def release_all(self, owner: str) -> None:
        self._session.connection().execute(delete(leases).where(leases.c.owner == owner))
