"""Users of the status page with their roles, and clients of the laboratory's API.

An unknown name takes as much time as a wrong password, so that nobody learns which names exist.
"""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from lab_agent.catalogue.records import CATALOGUE_CHANGE_STAMP, ApiToken
from lab_agent.shared.errors import DataInvalidError, LastAdminError, Problem, StoreError
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.credential_records import Role, SessionRecord, UserRecord
from lab_agent.store.crypto import Passwords, hash_token, new_token
from lab_agent.store.unit_of_work import Store, UnitOfWork

__all__ = ["Account", "Accounts", "ApiClients", "Role", "find_session", "generate_password", "to_user_name"]

MIN_PASSWORD_LENGTH = 12
MAX_PASSWORD_LENGTH = 256
_CLIENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_USER_NAME = re.compile(r"[a-z0-9][a-z0-9._@-]{0,63}")
_LETTERS_OF_PASSWORDS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Without those that are taken for each other when somebody reads them out."""
_ROLES_BY_RANK = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A user without the password hash. Sessions older than `changed_at` (of role, password or right) are not valid any more.

    `may_reveal` is the right to search for patients and to see their names: no role has it by itself. One that
    `must_change_password` has a password that somebody else chose. One that is not `stored` is vouched for by an identity
    provider or a proxy, and lasts as long as its session.
    """

    name: str
    role: Role
    created_at: datetime
    changed_at: datetime
    may_reveal: bool = False
    must_change_password: bool = False
    stored: bool = True

    def has_role(self, role: Role) -> bool:
        """Whether the user may do what `role` may: an admin what an operator may, an operator what a viewer may."""
        return _ROLES_BY_RANK.index(self.role) >= _ROLES_BY_RANK.index(role)


def find_session(uow: UnitOfWork, session: str, name: str) -> tuple[SessionRecord | None, Account | None]:
    """A session as it is listed, and the user of this name; None for what is not there (any more)."""
    record, user = uow.status_sessions.get_with_user(session, _normalize_name(name))
    return record, None if user is None else _to_account(user)


class Accounts:
    """The users in the store. Names are compared in lower case."""

    def __init__(self, store: Store, passwords: Passwords) -> None:
        self._store = store
        self._passwords = passwords

    async def add(
        self, name: str, password: str, role: Role, *, by: str | None = None, now: datetime, must_change_password: bool = False
    ) -> Account:
        """Add a user. Raises `DataInvalidError` for an invalid name or password, `AlreadyExistsError` for a taken name."""
        problems = (*_name_problems(name), *_password_problems(password))
        if problems:
            raise DataInvalidError(problems)
        user = UserRecord(
            name=_normalize_name(name),
            role=role,
            password_hash=await self._passwords.hash_in_thread(password),
            created_at=now,
            changed_at=now,
            must_change_password=must_change_password,
        )

        def work(uow: UnitOfWork) -> None:
            uow.users.add(user)
            details = {"role": role.value}
            uow.audit.add(AuditEntry(at=now, action=AuditAction.USER_ADDED, subject=user.name, by=by, details=details))

        await self._store.transact(work)
        return _to_account(user)

    async def list(self) -> tuple[Account, ...]:
        """Every user, by name."""
        return await self._store.run_read_only(lambda uow: tuple(_to_account(user) for user in uow.users.all()))

    async def get(self, name: str) -> Account | None:
        """One user; None if there is none of that name (any more)."""
        user = await self._store.run_read_only(lambda uow: uow.users.get(_normalize_name(name)))
        return None if user is None else _to_account(user)

    async def remove(self, name: str, *, by: str | None = None, now: datetime, keep_admin: bool = False) -> bool:
        """Remove a user. False if there is none of that name.

        With `keep_admin`, raises `LastAdminError` for the only admin.
        """

        def work(uow: UnitOfWork) -> bool:
            if keep_admin:
                _keep_admin(uow, name)
            removed = uow.users.remove(_normalize_name(name))
            if removed:
                for each in uow.status_sessions.current(now=now):
                    if each.account == _normalize_name(name):
                        uow.status_sessions.save(replace(each, ended_at=now))
                uow.audit.add(AuditEntry(at=now, action=AuditAction.USER_REMOVED, subject=_normalize_name(name), by=by))
            return removed

        return await self._store.transact(work)

    async def set_password(
        self, name: str, password: str, *, by: str | None = None, now: datetime, must_change_password: bool = False
    ) -> None:
        """Give a user a new password. Raises `DataInvalidError`, and `StoreError` for an unknown user."""
        if problems := _password_problems(password):
            raise DataInvalidError(problems)
        hashed = await self._passwords.hash_in_thread(password)
        entry = AuditEntry(at=now, action=AuditAction.USER_PASSWORD_CHANGED, subject=_normalize_name(name), by=by)

        def change(user: UserRecord) -> UserRecord:
            return replace(user, password_hash=hashed, changed_at=now, must_change_password=must_change_password)

        await self._change(name, change, entry)

    async def set_role(self, name: str, role: Role, *, by: str | None = None, now: datetime, keep_admin: bool = False) -> None:
        """Give a user another role. Raises `StoreError` for an unknown user.

        With `keep_admin`, raises `LastAdminError` where the only admin would get another one.
        """
        details = {"role": role.value}
        entry = AuditEntry(at=now, action=AuditAction.USER_ROLE_CHANGED, subject=_normalize_name(name), by=by, details=details)
        keeps = keep_admin and role is not Role.ADMIN
        await self._change(name, lambda user: replace(user, role=role, changed_at=now), entry, keep_admin=keeps)

    async def set_reveal(self, name: str, *, may_reveal: bool, by: str | None = None, now: datetime) -> None:
        """Give a user the right to reveal patients, or take it; sessions end. Raises `StoreError` for an unknown user."""
        details = {"may_reveal": int(may_reveal)}
        entry = AuditEntry(at=now, action=AuditAction.USER_REVEAL_CHANGED, subject=_normalize_name(name), by=by, details=details)
        await self._change(name, lambda user: replace(user, may_reveal=may_reveal, changed_at=now), entry)

    async def verify(self, name: str, password: str) -> Account | None:
        """Give the user if name and password are right, else None, after the same time for an unknown name."""
        user = await self._user(name)
        tried = password[:MAX_PASSWORD_LENGTH]
        right = await self._passwords.verify_in_thread(tried, None if user is None else user.password_hash)
        if user is None or not right or len(password) > MAX_PASSWORD_LENGTH:
            return None
        if self._passwords.needs_rehash(user.password_hash):
            hashed = await self._passwords.hash_in_thread(password)
            verified = user.password_hash  # a password that was set meanwhile is left alone
            await self._change(name, lambda user: replace(user, password_hash=hashed) if user.password_hash == verified else user)
        return _to_account(user)

    async def _user(self, name: str) -> UserRecord | None:
        return await self._store.run_read_only(lambda uow: uow.users.get(_normalize_name(name)))

    async def _change(
        self,
        name: str,
        change: Callable[[UserRecord], UserRecord],
        entry: AuditEntry | None = None,
        *,
        keep_admin: bool = False,
    ) -> None:
        def work(uow: UnitOfWork) -> None:
            if keep_admin:
                _keep_admin(uow, name)
            user = uow.users.get(_normalize_name(name))
            if user is None:
                raise StoreError(f"There is no user {_normalize_name(name)}; `lab-agent user list` shows them.")
            uow.users.save(change(user))
            if entry is not None:
                uow.audit.add(entry)

        await self._store.transact(work)


class ApiClients:
    """Clients of the laboratory's API: a token each, of which only the hash is stored."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(
        self, name: str, contracts: tuple[str, ...] | None, *, now: datetime, expires_at: datetime | None = None
    ) -> tuple[ApiToken, str]:
        """Make a token for a client, and give it in clear text this once. Raises `DataInvalidError` for an invalid name."""
        if not _CLIENT_NAME.fullmatch(name):
            hint = "use 1 to 64 letters, digits and . _ -"
            raise DataInvalidError((Problem("name", "not a valid client name", hint),))
        token = new_token()
        made = ApiToken(
            id=secrets.token_hex(4),
            name=name,
            sha256=hash_token(token),
            contracts=contracts,
            created_at=now,
            expires_at=expires_at,
        )

        def work(uow: UnitOfWork) -> None:
            uow.api_tokens.add(made)
            details = {"client": made.name}
            uow.audit.add(AuditEntry(at=now, action=AuditAction.API_TOKEN_CREATED, subject=made.id, details=details))
            _update_change_stamp(uow)

        await self._store.transact(work)
        return made, token

    async def list(self) -> tuple[ApiToken, ...]:
        """Every token, revoked ones too, by name."""
        return await self._store.run_read_only(lambda uow: uow.api_tokens.all())

    async def revoke(self, id_or_name: str, *, now: datetime) -> int:
        """Revoke the token of this id, or all of this name; their number."""

        def work(uow: UnitOfWork) -> int:
            revoked = uow.api_tokens.revoke(id_or_name, now=now)
            if revoked:
                details = {"tokens": revoked}
                uow.audit.add(AuditEntry(at=now, action=AuditAction.API_TOKEN_REVOKED, subject=id_or_name, details=details))
            _update_change_stamp(uow)
            return revoked

        return await self._store.transact(work)


def generate_password() -> str:
    """Make a password to be handed over, as in `k7pd-…`: five groups of four letters, of some 99 bits."""
    return "-".join("".join(secrets.choice(_LETTERS_OF_PASSWORDS) for _ in range(4)) for _ in range(5))


def _update_change_stamp(uow: UnitOfWork) -> None:
    """Let every process of the API read the tokens again."""
    uow.key_values.set(CATALOGUE_CHANGE_STAMP, uuid.uuid4().hex)


def _keep_admin(uow: UnitOfWork, name: str) -> None:
    admins = {user.name for user in uow.users.all() if user.role is Role.ADMIN}
    if admins == {_normalize_name(name)}:
        raise LastAdminError(f"{_normalize_name(name)} is the only admin: make somebody else admin first.")


def to_user_name(text: str) -> str | None:
    """Give the name of a user as accounts have it; None for what cannot be one."""
    return None if _name_problems(text) else _normalize_name(text)


def _to_account(user: UserRecord) -> Account:
    return Account(
        name=user.name,
        role=user.role,
        created_at=user.created_at,
        changed_at=user.changed_at,
        may_reveal=user.may_reveal,
        must_change_password=user.must_change_password,
    )


def _normalize_name(name: str) -> str:
    return name.strip().lower()


def _name_problems(name: str) -> tuple[Problem, ...]:
    if _USER_NAME.fullmatch(_normalize_name(name)):
        return ()
    hint = "use 1 to 64 letters a-z, digits and . _ @ -, beginning with a letter or digit"
    return (Problem("name", "not a valid user name", hint),)


def _password_problems(password: str) -> tuple[Problem, ...]:
    if MIN_PASSWORD_LENGTH <= len(password) <= MAX_PASSWORD_LENGTH:
        return ()
    return (Problem("password", "too short or too long", f"use {MIN_PASSWORD_LENGTH} to {MAX_PASSWORD_LENGTH} characters"),)
