"""Credentials: our sign-in at the service (encrypted), users of the status page and API tokens (hashes only)."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import bindparam, delete, func, select, update

from lab_agent.catalogue.records import ApiToken
from lab_agent.shared.errors import AlreadyExistsError, LeaseLostError, StoreError
from lab_agent.store.credential_records import SessionRecord, StoredToken, UserRecord
from lab_agent.store.crypto import Cipher
from lab_agent.store.page_tables import status_sessions
from lab_agent.store.row_mapping import insert_new, to_record, to_values, upsert
from lab_agent.store.session import Session
from lab_agent.store.tables import api_tokens, leases, oauth_tokens, users

_REFRESH_LEASE = "oauth_token.refresh"
_NEWER_GENERATION_STORED = "This generation of the sign-in, or a newer one, is stored already; nothing was written."

_USER = select(users).where(users.c.name == bindparam("of"))
_SESSION = select(status_sessions).where(status_sessions.c.id == bindparam("of"))
_USER_WITH_SESSION = select(users, status_sessions).where(users.c.name == bindparam("of"))
_USER_WITH_SESSION = _USER_WITH_SESSION.select_from(
    users.outerjoin(status_sessions, status_sessions.c.id == bindparam("of_session"))
)


class OAuthTokenRepository:
    """Generations of tokens, and the lease of the right to refresh them."""

    def __init__(self, session: Session, cipher: Cipher) -> None:
        self._session = session
        self._cipher = cipher

    def current(self) -> StoredToken | None:
        """The newest generation."""
        row = self._session.execute(select(oauth_tokens).order_by(oauth_tokens.c.generation.desc()).limit(1)).one_or_none()
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

    def add(self, token: StoredToken) -> None:
        """Store the next generation, and forget all but the one before it.

        Raises `LeaseLostError` if that generation, or a newer one, is stored already."""
        newest = self._session.scalar(select(func.max(oauth_tokens.c.generation)))
        refresh = token.refresh_token
        values = {
            "generation": token.generation,
            "access_token": self._cipher.encrypt(token.access_token.encode()),
            "refresh_token": None if refresh is None else self._cipher.encrypt(refresh.encode()),
            "expires_at": token.expires_at,
            "signed_in_at": token.signed_in_at,
            "obtained_at": token.obtained_at,
        }
        if (newest is not None and newest >= token.generation) or not insert_new(self._session, oauth_tokens, values):
            raise LeaseLostError(_NEWER_GENERATION_STORED)
        self._session.execute(delete(oauth_tokens).where(oauth_tokens.c.generation < token.generation - 1))

    def forget(self) -> None:
        """Delete every generation."""
        self._session.execute(delete(oauth_tokens))

    def acquire_refresh_lease(self, owner: str, *, now: datetime, lease: timedelta) -> bool:
        """Take the right to refresh, for one process at a time. False while another holds it."""
        free = (leases.c.until <= now) | (leases.c.owner == owner)
        return upsert(self._session, leases, {"name": _REFRESH_LEASE, "owner": owner, "until": now + lease}, "name", where=free)

    def release_refresh_lease(self, owner: str) -> None:
        """Give the right to refresh back; harmless where another process holds it by now."""
        self._session.execute(delete(leases).where(leases.c.name == _REFRESH_LEASE, leases.c.owner == owner))


class UserRepository:
    """Users, in the table of that name."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, user: UserRecord) -> None:
        """Write a new user. Raises `AlreadyExistsError`."""
        if not insert_new(self._session, users, to_values(user)):
            raise AlreadyExistsError(f"There is already a user {user.name}; nothing was written.")

    def get(self, name: str) -> UserRecord | None:
        """One user."""
        row = self._session.execute(_USER, {"of": name}).mappings().one_or_none()
        return None if row is None else to_record(UserRecord, row)

    def save(self, user: UserRecord) -> None:
        """Write a changed user. Raises `StoreError` if unknown."""
        if not self._session.execute(update(users).where(users.c.name == user.name).values(**to_values(user))).rowcount:
            raise StoreError(f"There is no user {user.name}.")

    def remove(self, name: str) -> bool:
        """Remove a user. False if there is none of that name."""
        return self._session.execute(delete(users).where(users.c.name == name)).rowcount > 0

    def all(self) -> tuple[UserRecord, ...]:
        """Every user, by name."""
        rows = self._session.execute(select(users).order_by(users.c.name)).mappings()
        return tuple(to_record(UserRecord, row) for row in rows)


class SessionRepository:
    """Sign-ins to the status page, in the table of that name."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def save(self, session: SessionRecord) -> None:
        """Write a session, or replace it."""
        upsert(self._session, status_sessions, to_values(session), "id")

    def get(self, session: str) -> SessionRecord | None:
        """One session."""
        row = self._session.execute(_SESSION, {"of": session}).mappings().one_or_none()
        return None if row is None else to_record(SessionRecord, row)

    def get_with_user(self, session: str, user: str) -> tuple[SessionRecord | None, UserRecord | None]:
        """One session, and the user of this name: what every request asks."""
        row = self._session.execute(_USER_WITH_SESSION, {"of": user, "of_session": session}).mappings().one_or_none()
        if row is None:
            return self.get(session), None
        return None if row[status_sessions.c.id] is None else to_record(SessionRecord, row), to_record(UserRecord, row)

    def current(self, *, now: datetime) -> tuple[SessionRecord, ...]:
        """Those that last: neither ended nor expired; by account, the newest first."""
        lasts = (status_sessions.c.ended_at.is_(None), status_sessions.c.expires_at > now)
        listed = select(status_sessions).where(*lasts).order_by(status_sessions.c.account, status_sessions.c.started_at.desc())
        return tuple(to_record(SessionRecord, row) for row in self._session.execute(listed).mappings())

    def purge(self, *, before: datetime) -> int:
        """Remove what expired before then; the number."""
        return self._session.execute(delete(status_sessions).where(status_sessions.c.expires_at < before)).rowcount


class ApiTokenRepository:
    """Credentials of callers of the laboratory's API."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, token: ApiToken) -> None:
        """Write a new token. Raises `AlreadyExistsError` for a known id."""
        if not insert_new(self._session, api_tokens, to_values(token)):
            raise AlreadyExistsError(f"There is already an API token {token.id}; nothing was written.")

    def all(self) -> tuple[ApiToken, ...]:
        """Every token, by name and time."""
        found = select(api_tokens).order_by(api_tokens.c.name, api_tokens.c.created_at, api_tokens.c.id)
        return tuple(to_record(ApiToken, row) for row in self._session.execute(found).mappings())

    def revoke(self, id_or_name: str, *, now: datetime) -> int:
        """Revoke those of this id or name that are not revoked yet; their number."""
        named = ((api_tokens.c.id == id_or_name) | (api_tokens.c.name == id_or_name)) & api_tokens.c.revoked_at.is_(None)
        return self._session.execute(update(api_tokens).where(named).values(revoked_at=now)).rowcount
