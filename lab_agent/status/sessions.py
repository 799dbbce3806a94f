"""Sessions of the status page: started, read, listed and ended.

A session is an encrypted cookie; the store lists sessions, and knows which were ended, so a restart signs nobody out.
It ends after its lifetime, when its user or an admin ends it, when the user is removed, and when role or password change.
That of a user without an account, whom an identity provider or a proxy vouches for, holds the role; it ends when the name gets an
account.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Any, Protocol

from lab_agent.operations.accounts import Account, Role, find_session
from lab_agent.operations.cause_groups import CauseGroup, read_groups
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import CryptoError, StoreError
from lab_agent.shared.logs import get_logger
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.credential_records import SessionRecord
from lab_agent.store.crypto import Cipher
from lab_agent.store.unit_of_work import Store, UnitOfWork

_log = get_logger(__name__)

SESSION_COOKIE = "lab_agent_session"
_KNOWN_COOKIES = 256
"""Cookies that are not decrypted again: a request looks at its own more than once."""
_COOKIE_PREFIX = b"status-session-2:"
_SEEN_EVERY = timedelta(minutes=1)


class SignInWay(StrEnum):
    """How a user signed in; the audit has it as `by`."""

    PASSWORD = "password"  # noqa: S105 - the name of a way, no secret
    OIDC = "oidc"
    PROXY = "proxy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What the cookie holds. `csrf_token` stands in every form of this session; `role` is that of a user without an account."""

    id: str
    user: str
    way: str
    role: str | None
    account_changed_at: str
    started_at: str
    csrf_token: str

    @property
    def record_id(self) -> str:
        """By what the store lists it: whoever reads the store cannot make the cookie of it."""
        return hashlib.sha256(self.id.encode()).hexdigest()


class SessionParts(Protocol):
    """What sessions work with."""

    @property
    def cipher(self) -> Cipher: ...  # noqa: D102
    @property
    def store(self) -> Store: ...  # noqa: D102
    @property
    def clock(self) -> Clock: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class CurrentUser:
    """Somebody who is signed in; where the page is `read_only`, nobody may do anything.

    `groups` is what fails or waits, where it was read at the same time: every page tells how much that is.
    """

    session: Session
    account: Account
    read_only: bool = False
    groups: tuple[CauseGroup, ...] | None = None

    @property
    def must_change_password(self) -> bool:
        """Whether the user signed in with a password that somebody else chose, and can choose another one here."""
        return self.account.must_change_password and self.session.way == SignInWay.PASSWORD and not self.read_only

    @property
    def name(self) -> str:
        """The account's name, as the timeline shows who acted."""
        return self.account.name

    def may(self, role: Role) -> bool:
        """Whether the user may do what `role` may do."""
        return not self.read_only and self.account.has_role(role)


class Sessions:
    """Starts, reads and ends sessions. The cookie says all of one; the store lists them, and says which were ended.

    Where the store takes no writes, a session begins all the same (operators must get in to see why), and is not listed.
    """

    def __init__(
        self,
        context: SessionParts,
        lifetime: timedelta,
        *,
        read_only: bool = False,
        ways: Iterable[SignInWay] = SignInWay,
    ) -> None:
        self._cipher, self._store = context.cipher, context.store
        self._clock = context.clock
        self._read_only = read_only
        self.lifetime = lifetime
        self._ways = frozenset(ways)
        self._ended_sessions: dict[str, datetime] = {}
        self._decrypt = lru_cache(maxsize=_KNOWN_COOKIES)(self._decrypt_cookie)

    async def start(self, account: Account, address: str, way: SignInWay = SignInWay.PASSWORD) -> str:
        """Give the cookie of a new session."""
        session = self.new(account, way)
        await self.enlist(session, address)
        return self.seal(session)

    def new(self, account: Account, way: SignInWay) -> Session:
        """Make a session."""
        now = self._clock.now()
        return Session(
            id=secrets.token_urlsafe(16),
            user=account.name,
            way=way.value,
            role=None if account.stored else account.role.value,
            account_changed_at=account.changed_at.isoformat(),
            started_at=now.isoformat(),
            csrf_token=secrets.token_urlsafe(24),
        )

    async def enlist(self, session: Session, address: str) -> None:
        """Let the store list a session that begins."""
        now = self._clock.now()
        record = SessionRecord(
            id=session.record_id,
            account=session.user,
            address=address,
            started_at=now,
            seen_at=now,
            expires_at=now + self.lifetime,
        )
        try:
            await self._save(record)
        except StoreError as exc:
            _log.error("session not listed", action="session_not_listed", by=session.user, reason=str(exc))

    def seal(self, session: Session) -> str:
        """Give the cookie of a session."""
        return self._cipher.encrypt(_COOKIE_PREFIX + json.dumps(asdict(session)).encode()).decode("ascii")

    async def current_user(self, cookie: str | None, *, with_groups: bool = False) -> CurrentUser | None:
        """The user of this cookie; None if it is no valid session (any more), or one that a proxy has to confirm."""
        session = self.current_session(cookie)
        if session is None or session.way == SignInWay.PROXY:
            return None

        def read(uow: UnitOfWork) -> tuple[SessionRecord | None, Account | None, tuple[CauseGroup, ...] | None]:
            groups = read_groups(uow, self._clock.now()) if with_groups else None
            return *find_session(uow, session.record_id, session.user), groups

        record, stored, groups = await self._store.look(read)
        account = account_of(session, stored)
        return None if account is None else await self._admit(session, account, record, groups)

    async def admit(self, session: Session, account: Account) -> CurrentUser | None:
        """The user of a session that belongs to this account; None if somebody has ended it."""
        return await self._admit(
            session, account, await self._store.run_read_only(lambda uow: uow.status_sessions.get(session.record_id))
        )

    async def _admit(
        self,
        session: Session,
        account: Account,
        record: SessionRecord | None,
        groups: tuple[CauseGroup, ...] | None = None,
    ) -> CurrentUser | None:
        if record is not None and record.ended_at is not None:
            return None
        await self._note_seen(record)
        return CurrentUser(session, account, self._read_only, groups)

    def introduce(self, session: Session, account: Account) -> CurrentUser:
        """The user of a session that begins."""
        return CurrentUser(session, account, self._read_only)

    def has_session(self, cookie: str | None) -> bool:
        """Whether somebody signed in with it, as far as that is known without the database."""
        return self.current_session(cookie) is not None

    async def end(self, session: Session) -> None:
        """End a session before its time, whoever else holds a copy of its cookie."""
        now = self._clock.now()
        self._ended_sessions = {key: until for key, until in self._ended_sessions.items() if until > now}
        self._ended_sessions[session.record_id] = now + self.lifetime
        started = datetime.fromisoformat(session.started_at)
        record = SessionRecord(
            id=session.record_id,
            account=session.user,
            address="",
            started_at=started,
            seen_at=now,
            expires_at=started + self.lifetime,
            ended_at=now,
        )
        try:
            await self._save(record)
        except StoreError as exc:  # this process knows that it has ended
            _log.error("end of session not stored", action="session_not_listed", by=session.user, reason=str(exc))

    async def list(self) -> tuple[SessionRecord, ...]:
        """The sessions of everybody that last; without those that ended with a change of their account."""
        now = self._clock.now()

        def read(uow: UnitOfWork) -> tuple[SessionRecord, ...]:
            changed = {user.name: user.changed_at for user in uow.users.all()}
            listed = uow.status_sessions.current(now=now)
            return tuple(each for each in listed if each.started_at >= changed.get(each.account, each.started_at))

        return await self._store.run_read_only(read)

    async def end_other(self, record_id: str, *, by: str) -> SessionRecord | None:
        """End somebody's session; None if it has ended before, or is unknown."""
        now = self._clock.now()

        def work(uow: UnitOfWork) -> SessionRecord | None:
            found = uow.status_sessions.get(record_id)
            if found is None or found.ended_at is not None:
                return None
            uow.status_sessions.save(replace(found, ended_at=now))
            uow.audit.add(AuditEntry(at=now, action=AuditAction.SESSION_ENDED, subject=found.account, by=by))
            return found

        return await self._store.transact(work)

    async def end_all(self, account: str, *, by: str, but: str | None = None) -> int:
        """End the listed sessions of a user, `but` one of them where it is given; how many were ended."""
        now = self._clock.now()

        def work(uow: UnitOfWork) -> int:
            found = [each for each in uow.status_sessions.current(now=now) if each.account == account and each.id != but]
            for each in found:
                uow.status_sessions.save(replace(each, ended_at=now))
            if found:
                details = {"sessions": len(found)}
                uow.audit.add(AuditEntry(at=now, action=AuditAction.SESSION_ENDED, subject=account, by=by, details=details))
            return len(found)

        return await self._store.transact(work)

    async def _save(self, record: SessionRecord) -> None:
        def work(uow: UnitOfWork) -> None:
            uow.status_sessions.save(record)
            uow.status_sessions.purge(before=self._clock.now())

        await self._store.transact(work)

    async def _note_seen(self, record: SessionRecord | None) -> None:
        """Keep to the minute when a session was last used; nobody waits for it where nothing can be written."""
        now = self._clock.now()
        if record is None or now - record.seen_at < _SEEN_EVERY:
            return
        session = record.id

        def work(uow: UnitOfWork) -> None:
            known = uow.status_sessions.get(session)
            if known is not None and known.ended_at is None:  # it may have been ended meanwhile, and stays so
                uow.status_sessions.save(replace(known, seen_at=now))

        with suppress(StoreError):
            await self._store.transact(work)

    def current_session(self, cookie: str | None) -> Session | None:
        """The session of this cookie, as far as it is known without the database; None if it has ended or is none."""
        session = self._decrypt(cookie) if cookie else None
        return session if session and session.record_id not in self._ended_sessions and self._is_current(session) else None

    def _is_current(self, session: Session) -> bool:
        started = datetime.fromisoformat(session.started_at)
        return session.way in self._ways and started <= self._clock.now() < started + self.lifetime

    def _decrypt_cookie(self, cookie: str) -> Session | None:
        """What was encrypted with the same key for another purpose lacks the prefix."""
        try:
            content = self._cipher.decrypt(cookie.encode())
        except CryptoError:
            return None
        if not content.startswith(_COOKIE_PREFIX):
            return None
        fields: dict[str, Any] = json.loads(content.removeprefix(_COOKIE_PREFIX))
        return Session(**fields)


def account_of(session: Session, stored: Account | None) -> Account | None:
    """Give whom a session is of; `stored` is the account of its name. None where that has changed, gone or come since."""
    if session.role is None:
        return stored if stored and stored.changed_at.isoformat() == session.account_changed_at else None
    if stored is not None:
        return None
    return unstored_account(session.user, Role(session.role), datetime.fromisoformat(session.account_changed_at))


def unstored_account(name: str, role: Role, since: datetime) -> Account:
    """Give the account of a user whom somebody else vouches for since then."""
    return Account(name=name, role=role, created_at=since, changed_at=since, stored=False)
