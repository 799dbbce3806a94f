"""The gate before every page and every deed: who is it, may they, and did they mean it.

A deed needs a form of our own page (its token belongs to the session) and, where the browser names the page's origin, our own.

Who is signed in: a sealed cookie that says who, since when, and which form token belongs to it.

Nothing is kept on the server but the ids of sessions that were ended before their time; so a restart of the agent signs nobody
out. A session ends when its hours are over, when the user signs out or is removed, and when role or password change.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request

from lab_agent.accounts import Account, Accounts, Role
from lab_agent.crypto import Cipher
from lab_agent.errors import CryptoError, InputError
from lab_agent.ports.clock import Clock
from lab_agent.workflow.operator_jobs import validate_note

SESSION_COOKIE = "lab_agent_session"
_COOKIE_PREFIX = b"status-session-1:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What the cookie holds. `changed_at` is the account's, `form_token` stands in every form of this session."""

    id: str
    user: str
    account_changed_at: str
    started_at: str
    csrf_token: str


@dataclass(frozen=True, slots=True)
class CurrentUser:
    """Somebody who is signed in."""

    session: Session
    account: Account


class Sessions:
    """Begins, reads and ends sessions."""

    def __init__(self, cipher: Cipher, accounts: Accounts, lifetime: timedelta) -> None:
        self._cipher = cipher
        self._accounts = accounts
        self.lifetime = lifetime
        self._ended_sessions: dict[str, datetime] = {}

    def start(self, account: Account, now: datetime) -> str:
        """Give the cookie of a new session."""
        session = Session(
            id=secrets.token_urlsafe(16),
            user=account.name,
            account_changed_at=account.changed_at.isoformat(),
            started_at=now.isoformat(),
            csrf_token=secrets.token_urlsafe(24),
        )
        return self._cipher.encrypt(_COOKIE_PREFIX + json.dumps(asdict(session)).encode()).decode("ascii")

    async def current_user(self, cookie: str | None, now: datetime) -> CurrentUser | None:
        """Give who is signed in with this cookie; None if it is nobody (any more)."""
        session = self._decrypt(cookie) if cookie else None
        if session is None or session.id in self._ended_sessions or not self._is_valid(session, now):
            return None
        account = await self._accounts.get(session.user)
        if account is None or account.changed_at.isoformat() != session.account_changed_at:
            return None
        return CurrentUser(session, account)

    def end(self, session: Session, now: datetime) -> None:
        """End a session before its time, whoever still holds its cookie."""
        self._ended_sessions = {key: until for key, until in self._ended_sessions.items() if until > now}
        self._ended_sessions[session.id] = now + self.lifetime

    def _is_valid(self, session: Session, now: datetime) -> bool:
        began = datetime.fromisoformat(session.started_at)
        return began <= now < began + self.lifetime

    def _decrypt(self, cookie: str) -> Session | None:
        """Open the seal. What is sealed with the same key for another purpose lacks the mark."""
        try:
            content = self._cipher.decrypt(cookie.encode())
        except CryptoError:
            return None
        if not content.startswith(_COOKIE_PREFIX):
            return None
        fields: dict[str, Any] = json.loads(content.removeprefix(_COOKIE_PREFIX))
        return Session(**fields)


MAX_FORM_BYTES = 16_384
"""Bytes that a form may have."""
_MAX_FORM_FIELDS = 400
"""A large order has a tick for each of its lines."""


class LoginRequired(Exception):
    """Nobody is signed in: the visitor is sent to the sign-in page."""


class HttpError(Exception):
    """The visitor may not do this; the message says why, the status is the HTTP one."""

    def __init__(self, message: str, status: int = 403) -> None:
        super().__init__(message)
        self.status = status


class AccessControl:
    """Lets visitors in, or not."""

    def __init__(self, sessions: Sessions, clock: Clock) -> None:
        self._sessions = sessions
        self._clock = clock

    async def authorize_view(self, request: Request, role: Role = Role.VIEWER) -> CurrentUser:
        """Give who looks. Raises `SignInFirst`, and `Refused` for whoever may not look at this."""
        visitor = await self._sessions.current_user(request.cookies.get(SESSION_COOKIE), self._clock.now())
        if visitor is None:
            raise LoginRequired
        _require_role(visitor, role)
        return visitor

    async def authorize_action(self, request: Request, role: Role = Role.OPERATOR) -> tuple[CurrentUser, Mapping[str, str]]:
        """Give who acts, and the fields of the form. Raises `SignInFirst` and `Refused`."""
        require_same_origin(request)
        visitor = await self.authorize_view(request)
        form = await read_form(request)
        if not hmac.compare_digest(form.get("token", "").encode(), visitor.session.csrf_token.encode()):
            raise HttpError("This form is not from your present sign-in. Open the page again, and repeat what you did.")
        _require_role(visitor, role)
        return visitor, form


def one_line(text: str) -> str:
    """Text as one line: without characters that nobody types and no database takes, such as NUL."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def read_note(form: Mapping[str, str]) -> str:
    """The note of a deed. Raises `Refused` where it says nothing, or too much."""
    try:
        return validate_note(one_line(form.get("note", "")))
    except InputError as exc:
        raise HttpError(str(exc), 422) from exc


def require_same_origin(request: Request) -> None:
    """Raise `Refused` if the browser says that another site sent the form."""
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if (origin is not None and urlsplit(origin).netloc != host) or site not in {"same-origin", "none"}:
        raise HttpError("This form came from another site; nothing was done.")


async def read_form(request: Request) -> Mapping[str, str]:
    """Give the fields of a form; of a field that comes twice, the last one. Raises `Refused`."""
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


def _require_role(user: CurrentUser, role: Role) -> None:
    if not user.account.has_role(role):
        raise HttpError(f"You are signed in as {user.account.role.value}; this needs {role.value}.")
