"""The gate before every page and every deed: who is it, may they, and did they mean it.

A deed needs a form of our own page (its token belongs to the session) and, where the browser names the page's origin, our own.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from starlette.requests import Request

from lab_agent.accounts import Role
from lab_agent.errors import InputError
from lab_agent.ports.clock import Clock
from lab_agent.status.sessions import SESSION_COOKIE, CurrentUser, Sessions
from lab_agent.steps.notes import validate_note

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
