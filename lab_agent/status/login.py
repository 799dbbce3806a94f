"""Signing in and out. An unknown name and a wrong password look the same and take the same time; guessing is slowed down."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.shared.conditions.model import OpenCondition
from lab_agent.shared.logs import get_logger
from lab_agent.status.auth import HeaderUsers, HttpError, Viewer
from lab_agent.status.context import Context, Renderer, TemplateRenderer
from lab_agent.status.forms import Form, UnverifiedForm, one_line
from lab_agent.status.password_attempts import AttemptRefusedError, PasswordAttempts
from lab_agent.status.session_start import client_address, local_path, note_sign_in, start_session
from lab_agent.status.sessions import SESSION_COOKIE, Sessions, SignInWay
from lab_agent.status.translation import gettext
from lab_agent.store.audit_records import AuditAction, AuditEntry

router = APIRouter()
_log = get_logger(__name__)


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
    attempts: PasswordAttempts = request.app.state.password_attempts
    name, next_path = one_line(form.get("name", "")).lower()[:64], local_path(form.get("next", "/"))
    address, now = client_address(request), context.clock.now()
    verify = partial(context.accounts.verify, name, form.get("password", ""))
    try:
        account = await attempts.check(name, address, now, verify)
    except AttemptRefusedError as exc:
        return render_throttled(renderer, exc.seconds, next_path)
    if account is None:
        known = await context.accounts.get(name)
        subject = known.name if known else ""
        await note_sign_in(context, AuditEntry(at=now, action=AuditAction.SIGN_IN_REJECTED, subject=subject, address=address))
        # Without the name: people type passwords into the wrong field.
        _log.warning("sign-in rejected", action="sign_in_rejected", address=address)
        return render_login(renderer, status=401, next_path=next_path, error=gettext("Wrong name or password."))
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


def render_throttled(renderer: TemplateRenderer, seconds: int, next_path: str = "/") -> Response:
    """Render the sign-in page for somebody who has to wait."""
    error = gettext("Too many attempts. Try again in %(seconds)d s.") % {"seconds": seconds}
    response = render_login(renderer, status=429, next_path=next_path, error=error)
    response.headers["Retry-After"] = str(seconds)
    return response
