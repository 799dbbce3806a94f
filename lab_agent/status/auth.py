"""Who is signed in, what they may do, and whether they meant it: the dependencies of every page and action.

A page declares `user: Viewer` or `user: Operator`; an action declares `form: Form` as well, which checks that the form came from
our own page (CSRF token and origin).

A session is an encrypted cookie. The server keeps nothing but the ids of sessions that were signed out, so a restart signs nobody
out. A session ends after its lifetime, when the user signs out or is removed, and when role or password change. One of a user
without an account, whom an identity provider or a proxy vouches for, holds the role; it ends when the name gets an account.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends
from starlette.requests import Request

from lab_agent.accounts import Account, Accounts, Role
from lab_agent.crypto import Cipher
from lab_agent.errors import CryptoError, InputError
from lab_agent.ports.clock import Clock
from lab_agent.workflow.operator_jobs import validate_note

SESSION_COOKIE = "lab_agent_session"
MAX_FORM_BYTES = 16_384
_COOKIE_PREFIX = b"status-session-2:"
_MAX_FORM_FIELDS = 400
"""A large order has a tick for each of its lines."""


class LoginRequired(Exception):
    """Nobody is signed in: the browser is redirected to the sign-in page."""


class HttpError(Exception):
    """The request cannot be answered; the message says why, and becomes a page with this HTTP status."""

    def __init__(self, message: str, status: int = 403) -> None:
        super().__init__(message)
        self.status = status


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


@dataclass(frozen=True, slots=True)
class CurrentUser:
    """Somebody who is signed in."""

    session: Session
    account: Account

    @property
    def name(self) -> str:
        """The account's name, as the timeline shows who acted."""
        return self.account.name


class Sessions:
    """Starts, reads and ends sessions."""

    def __init__(
        self, cipher: Cipher, accounts: Accounts, clock: Clock, lifetime: timedelta, ways: Iterable[SignInWay] = SignInWay
    ) -> None:
        self._cipher = cipher
        self._accounts = accounts
        self._clock = clock
        self.lifetime = lifetime
        self._ways = frozenset(ways)
        self._ended_sessions: dict[str, datetime] = {}

    def start(self, account: Account, way: SignInWay = SignInWay.PASSWORD) -> str:
        """Give the cookie of a new session."""
        return self.seal(self.new(account, way))

    def new(self, account: Account, way: SignInWay) -> Session:
        """Make a session."""
        return Session(
            id=secrets.token_urlsafe(16),
            user=account.name,
            way=way.value,
            role=None if account.stored else account.role.value,
            account_changed_at=account.changed_at.isoformat(),
            started_at=self._clock.now().isoformat(),
            csrf_token=secrets.token_urlsafe(24),
        )

    def seal(self, session: Session) -> str:
        """Give the cookie of a session."""
        return self._cipher.encrypt(_COOKIE_PREFIX + json.dumps(asdict(session)).encode()).decode("ascii")

    async def current_user(self, cookie: str | None) -> CurrentUser | None:
        """The user of this cookie; None if it is no valid session (any more), or one that a proxy has to confirm."""
        session = self.current_session(cookie)
        if session is None or session.way == SignInWay.PROXY:
            return None
        account = account_of(session, await self._accounts.get(session.user))
        return None if account is None else CurrentUser(session, account)

    def has_session(self, cookie: str | None) -> bool:
        """Whether somebody signed in with it, as far as that is known without the database."""
        return self.current_session(cookie) is not None

    def end(self, session: Session) -> None:
        """End a session before its time, whoever else holds a copy of its cookie."""
        now = self._clock.now()
        self._ended_sessions = {key: until for key, until in self._ended_sessions.items() if until > now}
        self._ended_sessions[session.id] = now + self.lifetime

    def current_session(self, cookie: str | None) -> Session | None:
        """The session of this cookie, as far as it is known without the database; None if it has ended or is none."""
        session = self._decrypt(cookie) if cookie else None
        return session if session and session.id not in self._ended_sessions and self._is_current(session) else None

    def _is_current(self, session: Session) -> bool:
        started = datetime.fromisoformat(session.started_at)
        return session.way in self._ways and started <= self._clock.now() < started + self.lifetime

    def _decrypt(self, cookie: str) -> Session | None:
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


class HeaderUsers(Protocol):
    """The users whom a reverse proxy names in a header (`proxy_header.py`)."""

    async def current_user(self, request: Request) -> CurrentUser | None:
        """The user whom a trusted proxy names, if this is its request. Raises `HttpError` for a user without a role."""
        ...

    def forget(self, name: str) -> None:
        """Record the next sign-in of this user, who has signed out."""
        ...


async def require_viewer(request: Request) -> CurrentUser:
    """Whoever is signed in; whom a trusted proxy names, before all others. Raises `LoginRequired` and `HttpError`."""
    sessions: Sessions = request.app.state.sessions
    header_users: HeaderUsers | None = request.app.state.header_users
    user = await header_users.current_user(request) if header_users else None
    if user is None:
        user = await sessions.current_user(request.cookies.get(SESSION_COOKIE))
    if user is None:
        raise LoginRequired
    return user


Viewer = Annotated[CurrentUser, Depends(require_viewer)]


async def require_operator(user: Viewer) -> CurrentUser:
    """An operator or admin. Raises `LoginRequired` and `HttpError`."""
    if not user.account.has_role(Role.OPERATOR):
        raise HttpError(f"You are signed in as {user.account.role.value}; this needs the role {Role.OPERATOR.value}.")
    return user


Operator = Annotated[CurrentUser, Depends(require_operator)]


def require_same_origin(request: Request) -> None:
    """Raise `HttpError` if the browser says that another site sent the form."""
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if (origin is not None and urlsplit(origin).netloc != host) or site not in {"same-origin", "none"}:
        raise HttpError("This form came from another site; nothing was done.")


async def read_form(request: Request) -> Mapping[str, str]:
    """The fields of a form; the last value of a repeated one. Raises `HttpError`, also for a form of another site."""
    require_same_origin(request)
    if request.headers.get("content-type", "").split(";")[0].strip() != "application/x-www-form-urlencoded":
        raise HttpError("This is not a form of this page.", 415)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_FORM_BYTES:
            raise HttpError("The form is too large.", 413)
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FORM_FIELDS))
    except ValueError as exc:
        raise HttpError("The form cannot be read.", 400) from exc


UnverifiedForm = Annotated[Mapping[str, str], Depends(read_form)]
"""For signing in alone: whoever has no session yet has no CSRF token."""


async def verify_csrf_token(user: Viewer, form: UnverifiedForm) -> Mapping[str, str]:
    """The fields of a form that a page of this session has sent. Raises `LoginRequired` and `HttpError`."""
    if not hmac.compare_digest(form.get("csrf_token", "").encode(), user.session.csrf_token.encode()):
        raise HttpError("This form does not belong to your current session. Open the page again and repeat the action.")
    return form


Form = Annotated[Mapping[str, str], Depends(verify_csrf_token)]


def one_line(text: str) -> str:
    """Text as one line, without characters that nobody types and no database accepts, such as NUL."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


async def read_note(form: Form) -> str:
    """The note of an action. Raises `HttpError` where it is empty or too long."""
    try:
        return validate_note(one_line(form.get("note", "")))
    except InputError as exc:
        raise HttpError(str(exc), 422) from exc


Note = Annotated[str, Depends(read_note)]
