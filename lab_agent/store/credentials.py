"""Our sign-in at the service, encrypted (`ports.store.Tokens`).

Users of the status page (`ports.store.Users`).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, func, select, update

from lab_agent.crypto import Cipher
from lab_agent.domain.records import StoredToken
from lab_agent.errors import AlreadyExistsError, LeaseLostError, StoreError
from lab_agent.ports.repositories import UserRecord
from lab_agent.store.row_mapping import insert_new, to_record, to_values, upsert
from lab_agent.store.tables import leases, oauth_tokens, users

_REFRESH_LEASE = "oauth_token.refresh"
_NEWER_GENERATION_STORED = "This generation of the sign-in, or a newer one, is stored already; nothing was written."


class SqlOAuthTokenRepository:
    """Generations of tokens, and the lease of the right to refresh them."""

    def __init__(self, connection: Connection, cipher: Cipher) -> None:
        self._connection = connection
        self._cipher = cipher

    def current(self) -> StoredToken | None:
        """The newest generation. Raises `CryptoError`."""
        row = self._connection.execute(select(oauth_tokens).order_by(oauth_tokens.c.generation.desc()).limit(1)).one_or_none()
        if row is None:
            return None
        return StoredToken(
            generation=row.generation,
            access_token=self._cipher.decrypt(row.access_token).decode(),
            refresh_token=None if row.refresh_token is None else self._cipher.decrypt(row.refresh_token).decode(),
            expires_at=row.expires_at,
        )

    def add(self, token: StoredToken) -> None:
        """Store the next generation, and forget all but the one before it. Raises `LeaseLostError` if it is not the newest."""
        newest = self._connection.scalar(select(func.max(oauth_tokens.c.generation)))
        refresh = token.refresh_token
        values = {
            "generation": token.generation,
            "access_token": self._cipher.encrypt(token.access_token.encode()),
            "refresh_token": None if refresh is None else self._cipher.encrypt(refresh.encode()),
            "expires_at": token.expires_at,
        }
        if (newest is not None and newest >= token.generation) or not insert_new(self._connection, oauth_tokens, values):
            raise LeaseLostError(_NEWER_GENERATION_STORED)
        self._connection.execute(delete(oauth_tokens).where(oauth_tokens.c.generation < token.generation - 1))

    def acquire_refresh_lease(self, owner: str, *, now: datetime, lease: timedelta) -> bool:
        """Take the right to refresh, for one process at a time. False while another holds it."""
        free = (leases.c.until <= now) | (leases.c.owner == owner)
        return upsert(self._connection, leases, {"name": _REFRESH_LEASE, "owner": owner, "until": now + lease}, "name", free)

    def release_refresh_lease(self, owner: str) -> None:
        """Give the right to refresh back; harmless where another holds it by now."""
        self._connection.execute(delete(leases).where(leases.c.name == _REFRESH_LEASE, leases.c.owner == owner))


class SqlUserRepository:
    """Users, in the table of that name."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add(self, user: UserRecord) -> None:
        """Write a new user. Raises `AlreadyKnownError`."""
        if not insert_new(self._connection, users, to_values(user)):
            raise AlreadyExistsError(f"There is a user {user.name} already; nothing was written.")

    def get(self, name: str) -> UserRecord | None:
        """One user."""
        row = self._connection.execute(select(users).where(users.c.name == name)).mappings().one_or_none()
        return None if row is None else to_record(UserRecord, row)

    def save(self, user: UserRecord) -> None:
        """Write a changed user. Raises `StoreError` if unknown."""
        if not self._connection.execute(update(users).where(users.c.name == user.name).values(**to_values(user))).rowcount:
            raise StoreError(f"There is no user {user.name}.")

    def remove(self, name: str) -> bool:
        """Remove a user. False if there is none of that name."""
        return self._connection.execute(delete(users).where(users.c.name == name)).rowcount > 0

    def all(self) -> tuple[UserRecord, ...]:
        """Every user, by name."""
        rows = self._connection.execute(select(users).order_by(users.c.name)).mappings()
        return tuple(to_record(UserRecord, row) for row in rows)
