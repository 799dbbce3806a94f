"""Who is signed in, and what they may do: the dependencies of every page and action.

A page declares `user: Viewer` or `user: Operator`; an action declares a form of `forms.py` as well.
"""

from __future__ import annotations

from typing import Annotated, Protocol

from fastapi import Depends
from starlette.requests import Request

from lab_agent.operations.accounts import Role
from lab_agent.status.sessions import SESSION_COOKIE, CurrentUser, Sessions
from lab_agent.status.translation import gettext

_OWN_PASSWORD_PATHS = frozenset({"/account", "/account/password", "/sign-out"})
"""All that is open to somebody who has to choose a password first."""


class OwnPasswordRequired(Exception):
    """Somebody else chose the password of this user, who has to choose another one first."""


class LoginRequired(Exception):
    """Nobody is signed in: the browser is redirected to the sign-in page."""


class HttpError(Exception):
    """The request cannot be answered; the message says why, and becomes a page with this HTTP status."""

    def __init__(self, message: str, status: int = 403) -> None:
        super().__init__(message)
        self.status = status


class HeaderUsers(Protocol):
    """The users whom a reverse proxy names in a header (`proxy_header.py`)."""

    async def current_user(self, request: Request) -> CurrentUser | None:
        """The user whom a trusted proxy names, if this is its request. Raises `HttpError` for a user without a role."""
        ...

    def forget(self, name: str) -> None:
        """Record the next sign-in of this user, who has signed out."""
        ...


async def require_viewer(request: Request) -> CurrentUser:
    """Whoever is signed in; whom a trusted proxy names, before all others.

    Raises `LoginRequired`, `OwnPasswordRequired` and `HttpError`.
    """
    sessions: Sessions = request.app.state.sessions
    header_users: HeaderUsers | None = request.app.state.header_users
    user = await header_users.current_user(request) if header_users else None
    if user is None:
        user = await sessions.current_user(request.cookies.get(SESSION_COOKIE), with_groups=request.method == "GET")
    if user is None:
        raise LoginRequired
    if user.must_change_password and request.url.path not in _OWN_PASSWORD_PATHS:
        raise OwnPasswordRequired
    return user


Viewer = Annotated[CurrentUser, Depends(require_viewer)]


def _require_role(user: CurrentUser, role: Role) -> CurrentUser:
    if not user.account.has_role(role):
        needed = {"role": gettext(user.account.role.value), "needed": gettext(role.value)}
        raise HttpError(gettext("You are signed in as %(role)s; this needs the role %(needed)s.") % needed)
    return user


def _require(user: CurrentUser, role: Role) -> CurrentUser:
    _require_role(user, role)
    if user.read_only:
        raise HttpError(gettext("This page is set to show only (`status.read_only`): nothing was done."))
    return user


async def require_own_action(user: Viewer) -> CurrentUser:
    """Whoever is signed in, to change something of their own. Raises `LoginRequired` and `HttpError`."""
    return _require(user, Role.VIEWER)


async def require_operator(user: Viewer) -> CurrentUser:
    """An operator or admin. Raises `LoginRequired` and `HttpError`."""
    return _require(user, Role.OPERATOR)


async def require_admin(user: Viewer) -> CurrentUser:
    """An admin. Raises `LoginRequired` and `HttpError`."""
    return _require(user, Role.ADMIN)


async def require_admin_reader(user: Viewer) -> CurrentUser:
    """An admin who only looks, also where nobody may act. Raises `LoginRequired` and `HttpError`."""
    return _require_role(user, Role.ADMIN)


async def require_revealer(user: Viewer) -> CurrentUser:
    """Somebody with the right to reveal patients, of whatever role. Raises `LoginRequired` and `HttpError`."""
    if not user.account.may_reveal:
        raise HttpError(gettext("You may not see patients' names: an admin can give you the right to reveal them."))
    return user


Operator = Annotated[CurrentUser, Depends(require_operator)]
Admin = Annotated[CurrentUser, Depends(require_admin)]
AdminReader = Annotated[CurrentUser, Depends(require_admin_reader)]
OwnAction = Annotated[CurrentUser, Depends(require_own_action)]
Revealer = Annotated[CurrentUser, Depends(require_revealer)]
