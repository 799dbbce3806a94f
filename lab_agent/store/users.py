"""Users of the status page (`ports.store.Users`)."""

from __future__ import annotations

from sqlalchemy import Connection, delete, select, update

from lab_agent.errors import AlreadyExistsError, StoreError
from lab_agent.ports.store import UserRecord
from lab_agent.store.rows import insert_new, to_record, to_values
from lab_agent.store.tables import users


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
