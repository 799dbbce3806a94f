"""Leases by name, in the table `leases`."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete

from lab_agent.store.row_mapping import upsert
from lab_agent.store.session import Session
from lab_agent.store.tables import leases


class LeaseRepository:
    """Leases: each is taken in one statement, so two that ask at once do not both get it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def acquire(self, name: str, owner: str, *, now: datetime, lease: timedelta) -> bool:
        """Take or renew it. False if another owner holds it; then nothing is written."""
        free = (leases.c.until <= now) | (leases.c.owner == owner)
        return upsert(
            self._session.connection(), leases, {"name": name, "owner": owner, "until": now + lease}, "name", where=free
        )

    def release(self, name: str, owner: str) -> None:
        """Give it back, if this owner holds it."""
        self._session.connection().execute(delete(leases).where(leases.c.name == name, leases.c.owner == owner))

    def release_all(self, owner: str) -> None:
        """Give back whatever this owner holds: it ends."""
        self._session.connection().execute(delete(leases).where(leases.c.owner == owner))
