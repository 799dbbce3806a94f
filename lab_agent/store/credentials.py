"""Credentials: our sign-in at the service (encrypted), users of the status page and API tokens (hashes only)."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, delete, func, select, update
from typing_extensions import override

from lab_agent.crypto import Cipher
from lab_agent.domain.catalogue_records import ApiToken
from lab_agent.errors import AlreadyExistsError, LeaseLostError, StoreError
from lab_agent.ports.credential_repositories import (
    ApiTokenRepository,
    OAuthTokenRepository,
    SessionRecord,
    SessionRepository,
    StoredToken,
    UserRecord,
    UserRepository,
)
from lab_agent.store.page_tables import status_sessions
from lab_agent.store.row_mapping import insert_new, to_record, to_values, upsert
from lab_agent.store.tables import api_tokens, leases, oauth_tokens, users

_REFRESH_LEASE = "oauth_token.refresh"
_NEWER_GENERATION_STORED = "This generation of the sign-in, or a newer one, is stored already; nothing was written."

_USER = select(users).where(users.c.name == bindparam("of"))
_SESSION = select(status_sessions).where(status_sessions.c.id == bindparam("of"))
_USER_WITH_SESSION = select(users, status_sessions).where(users.c.name == bindparam("of"))
_USER_WITH_SESSION = _USER_WITH_SESSION.select_from(
    users.outerjoin(status_sessions, status_sessions.c.id == bindparam("of_session"))
)


class SqlOAuthTokenRepository(OAuthTokenRepository):
    """Generations of tokens, and the lease of the right to refresh them."""

    def __init__(self, connection: Connection, cipher: Cipher) -> None:
        self._connection = connection
        self._cipher = cipher

    @override
    def current(self) -> StoredToken | None:
        row = self._connection.execute(select(oauth_tokens).order_by(oauth_tokens.c.generation.desc()).limit(1)).one_or_none()
        if row is None:
            return None
        return StoredToken(
            generation=row.generation,
            access_token=self._cipher.decrypt(row.access_token).decode(),
            refresh_token=None if row.refresh_token is None else self._cipher.decrypt(row.refresh_token).decode(),
            expires_at=row.expires_at,
            signed_in_at=row.signed_in_at,
            obtained_at=row.obtained_at,
        )

    @override
    def add(self, token: StoredToken) -> None:
        newest = self._connection.scalar(select(func.max(oauth_tokens.c.generation)))
        refresh = token.refresh_token
        values = {
            "generation": token.generation,
            "access_token": self._cipher.encrypt(token.access_token.encode()),
            "refresh_token": None if refresh is None else self._cipher.encrypt(refresh.encode()),
            "expires_at": token.expires_at,
            "signed_in_at": token.signed_in_at,
            "obtained_at": token.obtained_at,
        }
        if (newest is not None and newest >= token.generation) or not insert_new(self._connection, oauth_tokens, values):
            raise LeaseLostError(_NEWER_GENERATION_STORED)
        self._connection.execute(delete(oauth_tokens).where(oauth_tokens.c.generation < token.generation - 1))

    @override
    def forget(self) -> None:
        self._connection.execute(delete(oauth_tokens))

    @override
    def acquire_refresh_lease(self, owner: str, *, now: datetime, lease: timedelta) -> bool:
        free = (leases.c.until <= now) | (leases.c.owner == owner)
        return upsert(
            self._connection, leases, {"name": _REFRESH_LEASE, "owner": owner, "until": now + lease}, "name", where=free
        )

    @override
    def release_refresh_lease(self, owner: str) -> None:
        self._connection.execute(delete(leases).where(leases.c.name == _REFRESH_LEASE, leases.c.owner == owner))


class SqlUserRepository(UserRepository):
    """Users, in the table of that name."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @override
    def add(self, user: UserRecord) -> None:
        if not insert_new(self._connection, users, to_values(user)):
            raise AlreadyExistsError(f"There is already a user {user.name}; nothing was written.")

    @override
    def get(self, name: str) -> UserRecord | None:
        row = self._connection.execute(_USER, {"of": name}).mappings().one_or_none()
        return None if row is None else to_record(UserRecord, row)

    @override
    def save(self, user: UserRecord) -> None:
        if not self._connection.execute(update(users).where(users.c.name == user.name).values(**to_values(user))).rowcount:
            raise StoreError(f"There is no user {user.name}.")

    @override
    def remove(self, name: str) -> bool:
        return self._connection.execute(delete(users).where(users.c.name == name)).rowcount > 0

    @override
    def all(self) -> tuple[UserRecord, ...]:
        rows = self._connection.execute(select(users).order_by(users.c.name)).mappings()
        return tuple(to_record(UserRecord, row) for row in rows)


class SqlSessionRepository(SessionRepository):
    """Sign-ins to the status page, in the table of that name."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @override
    def save(self, session: SessionRecord) -> None:
        upsert(self._connection, status_sessions, to_values(session), "id")

    @override
    def get(self, session: str) -> SessionRecord | None:
        row = self._connection.execute(_SESSION, {"of": session}).mappings().one_or_none()
        return None if row is None else to_record(SessionRecord, row)

    @override
    def get_with_user(self, session: str, user: str) -> tuple[SessionRecord | None, UserRecord | None]:
        row = self._connection.execute(_USER_WITH_SESSION, {"of": user, "of_session": session}).mappings().one_or_none()
        if row is None:
            return self.get(session), None
        return None if row[status_sessions.c.id] is None else to_record(SessionRecord, row), to_record(UserRecord, row)

    @override
    def current(self, *, now: datetime) -> tuple[SessionRecord, ...]:
        lasts = (status_sessions.c.ended_at.is_(None), status_sessions.c.expires_at > now)
        listed = select(status_sessions).where(*lasts).order_by(status_sessions.c.account, status_sessions.c.started_at.desc())
        return tuple(to_record(SessionRecord, row) for row in self._connection.execute(listed).mappings())

    @override
    def purge(self, *, before: datetime) -> int:
        return self._connection.execute(delete(status_sessions).where(status_sessions.c.expires_at < before)).rowcount


class SqlApiTokenRepository(ApiTokenRepository):
    """Credentials of callers of the laboratory's API."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @override
    def add(self, token: ApiToken) -> None:
        if not insert_new(self._connection, api_tokens, to_values(token)):
            raise AlreadyExistsError(f"There is already an API token {token.id}; nothing was written.")

    @override
    def all(self) -> tuple[ApiToken, ...]:
        found = select(api_tokens).order_by(api_tokens.c.name, api_tokens.c.created_at, api_tokens.c.id)
        return tuple(to_record(ApiToken, row) for row in self._connection.execute(found).mappings())

    @override
    def revoke(self, id_or_name: str, *, now: datetime) -> int:
        named = ((api_tokens.c.id == id_or_name) | (api_tokens.c.name == id_or_name)) & api_tokens.c.revoked_at.is_(None)
        return self._connection.execute(update(api_tokens).where(named).values(revoked_at=now)).rowcount
