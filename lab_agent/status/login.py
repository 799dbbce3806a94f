"""Signing in and out. An unknown name and a wrong password look the same and take the same time; guessing is slowed down."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.conditions.model import OpenCondition
from lab_agent.domain.audit import AuditAction, AuditEntry
from lab_agent.logs import get_logger
from lab_agent.status.auth import HeaderUsers, HttpError, Viewer
from lab_agent.status.context import Context, Renderer, TemplateRenderer
from lab_agent.status.forms import Form, UnverifiedForm, one_line
from lab_agent.status.session_start import client_address, local_path, note_sign_in, start_session
from lab_agent.status.sessions import SESSION_COOKIE, Sessions, SignInWay
from lab_agent.status.translation import gettext

router = APIRouter()
_log = get_logger(__name__)

MAX_WAIT = timedelta(seconds=60)
_RESET_AFTER = timedelta(minutes=15)
_MAX_KEYS = 2_000
_MAX_PARALLEL_CHECKS = 2
"""Passwords checked at once: each check takes 64 MiB, and guessing must not use up this machine's memory."""


class LoginThrottle:
    """Counts failures by key, in memory. The first ones are free; fifteen minutes without a failure reset the count."""

    def __init__(self, free_attempts: int) -> None:
        self._free_attempts = free_attempts
        self._failures: dict[str, tuple[int, datetime]] = {}

    def remaining_wait(self, key: str, now: datetime) -> timedelta:
        """How long `key` has to wait before it may try; zero if it may try now."""
        count, last = self._recent_failures(key, now)
        if count < self._free_attempts:
            return timedelta()
        wait = min(MAX_WAIT, timedelta(seconds=2.0 ** min(count - self._free_attempts, 10)))
        return max(last + wait - now, timedelta())

    def record_failure(self, key: str, now: datetime) -> None:
        """Count a failure. Of very many keys the oldest are forgotten, so that guessing fills no memory."""
        count, _ = self._recent_failures(key, now)
        self._failures.pop(key, None)
        self._failures[key] = (count + 1, now)
        while len(self._failures) > _MAX_KEYS:
            del self._failures[next(iter(self._failures))]

    def reset(self, key: str) -> None:
        """Forget the failures of `key`, since it succeeded."""
        self._failures.pop(key, None)

    def _recent_failures(self, key: str, now: datetime) -> tuple[int, datetime]:
        count, last = self._failures.get(key, (0, now))
        return (0, now) if now - last > _RESET_AFTER else (count, last)


class LoginRateLimit:
    """Limits attempts to sign in, by name and by address."""

    def __init__(self) -> None:
        self._by_name = LoginThrottle(free_attempts=3)
        self._by_address = LoginThrottle(free_attempts=20)
        self.password_checks = asyncio.Semaphore(_MAX_PARALLEL_CHECKS)

    def remaining_wait(self, name: str, address: str, now: datetime) -> timedelta:
        """How long this attempt has to wait."""
        return max(self._by_name.remaining_wait(name, now), self._by_address.remaining_wait(address, now))

    def record_failure(self, name: str, address: str, now: datetime) -> None:
        """Count a failed attempt."""
        self._by_name.record_failure(name, now)
        self._by_address.record_failure(address, now)

    def record_success(self, name: str) -> None:
        """Forget the failures of the name; those of the address stay, since it may have guessed other names."""
        self._by_name.reset(name)


@router.get("/sign-in")
async def show_login(request: Request, context: Context, renderer: Renderer) -> Response:
    """The form; and why nobody can sign in, where the database does not work."""
    next_path = local_path(request.query_params.get("next", "/"))
    conditions = [each for each in context.observed_conditions() if each.condition.is_unready]
    return render_login(renderer, next_path=next_path, conditions=conditions)


@router.post("/sign-in")
async def sign_in(request: Request, form: UnverifiedForm, context: Context, renderer: Renderer) -> Response:
    """Check name and password; on success the session's cookie is set and the page that was asked for follows."""
    if not context.settings.password:
        raise HttpError("Signing in with a password is switched off (status.password).")
    limit: LoginRateLimit = request.app.state.login_rate_limit
    name, next_path = one_line(form.get("name", "")).lower()[:64], local_path(form.get("next", "/"))
    address, now = client_address(request), context.clock.now()
    if wait := limit.remaining_wait(name, address, now):
        return render_throttled(renderer, wait, next_path)
    async with limit.password_checks:
        account = await context.accounts.verify(name, form.get("password", ""))
    if account is None:
        limit.record_failure(name, address, now)
        known = await context.accounts.get(name)
        subject = known.name if known else ""
        await note_sign_in(context, AuditEntry(at=now, action=AuditAction.SIGN_IN_REJECTED, subject=subject, address=address))
        # Without the name: people type passwords into the wrong field.
        _log.warning("sign-in rejected", action="sign_in_rejected", address=address)
        return render_login(renderer, status=401, next_path=next_path, error=gettext("Wrong name or password."))
    limit.record_success(name)
    entry = AuditEntry(at=now, action=AuditAction.SIGNED_IN, subject=account.name, by=account.name, address=address)
    await note_sign_in(context, entry)
    _log.info("signed in", action="signed_in", by=account.name)
    response = RedirectResponse(next_path, 303)
    await start_session(request, response, account, SignInWay.PASSWORD)
    return response


@router.post("/sign-out")
async def sign_out(request: Request, user: Viewer, form: Form, context: Context) -> Response:  # noqa: ARG001 - the form's token is checked
    """End the session, also for whoever else holds its cookie."""
    sessions: Sessions = request.app.state.sessions
    await sessions.end(user.session)
    header_users: HeaderUsers | None = request.app.state.header_users
    if header_users is not None:
        header_users.forget(user.name)
    now = context.clock.now()
    await note_sign_in(context, AuditEntry(at=now, action=AuditAction.SIGNED_OUT, subject=user.name, by=user.name))
    response = RedirectResponse("/sign-in", 303)
    response.delete_cookie(SESSION_COOKIE)
    return response


def render_login(
    renderer: TemplateRenderer,
    *,
    next_path: str,
    status: int = 200,
    error: str | None = None,
    conditions: Sequence[OpenCondition] = (),
) -> Response:
    """Render the sign-in page, with the ways that the settings leave."""
    return renderer.render("login.html", status=status, next_path=next_path, error=error, conditions=conditions)


def render_throttled(renderer: TemplateRenderer, wait: timedelta, next_path: str = "/") -> Response:
    """Render the sign-in page for somebody who has to wait."""
    seconds = int(wait.total_seconds()) + 1
    error = gettext("Too many attempts. Try again in %(seconds)d s.") % {"seconds": seconds}
    response = render_login(renderer, status=429, next_path=next_path, error=error)
    response.headers["Retry-After"] = str(seconds)
    return response
