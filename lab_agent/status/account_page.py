"""One's own account, of whatever role: what one may do, where one is signed in, and a new password."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.operations.accounts import MAX_PASSWORD_LENGTH, MIN_PASSWORD_LENGTH
from lab_agent.operations.audit_log import record
from lab_agent.shared.logs import get_logger
from lab_agent.status.auth import HttpError, OwnAction, Viewer
from lab_agent.status.context import Context, Renderer, StatusContext, TemplateRenderer
from lab_agent.status.forms import Form, one_line
from lab_agent.status.pages import Flash
from lab_agent.status.password_attempts import AttemptRefusedError, PasswordAttempts
from lab_agent.status.session_start import client_address, start_session
from lab_agent.status.sessions import CurrentUser, Sessions, SignInWay
from lab_agent.status.translation import gettext
from lab_agent.status.users_page import SignedIn, read_new_password
from lab_agent.store.audit_records import AuditAction, AuditEntry

router = APIRouter()
_log = get_logger(__name__)
_MAX_ID_LENGTH = 64


@router.get("/account")
async def show_account(user: Viewer, renderer: Renderer, sessions: SignedIn, flash: Flash) -> Response:
    """The role and the rights, the sessions, and the form of the password."""
    return await _render(user, renderer, sessions, flash=flash)


async def _render(user: CurrentUser, renderer: TemplateRenderer, sessions: Sessions, **fields: Any) -> Response:
    common: dict[str, Any] = {
        "sessions": [each for each in await sessions.list() if each.account == user.name],
        "own_session": user.session.record_id,
        "must_change_password": user.must_change_password,
        "error": None,
        "flash": None,
        "min_length": MIN_PASSWORD_LENGTH,
        "max_length": MAX_PASSWORD_LENGTH,
    }
    return await renderer.render_page("account.html", user, **(common | fields))


@router.post("/account/password")
async def change_own_password(
    request: Request, user: OwnAction, form: Form, context: Context, renderer: Renderer, sessions: SignedIn
) -> Response:
    """Change one's own password; the old one is asked for, as often as at the sign-in. All sessions end but this one."""
    attempts: PasswordAttempts = request.app.state.password_attempts
    address, now = client_address(request), context.clock.now()
    password, problem = read_new_password({**form, "generate": ""})
    if problem is None and password == form.get("old_password"):
        problem = gettext("The new password is the old one; choose another one.")
    if problem is not None:
        return await _render(user, renderer, sessions, status=422, error=problem)
    verify = partial(context.accounts.verify, user.name, form.get("old_password", ""))
    try:
        known = await attempts.check(user.name, address, now, verify)
    except AttemptRefusedError as exc:
        error = gettext("Too many attempts. Try again in %(seconds)s s.") % {"seconds": exc.seconds}
        response = await _render(user, renderer, sessions, status=429, error=error)
        response.headers["Retry-After"] = str(exc.seconds)
        return response
    if known is None:
        await _note_wrong_password(context, user, address, now)
        return await _render(
            user, renderer, sessions, status=422, error=gettext("The old password is wrong; nothing was changed.")
        )
    await context.accounts.set_password(user.name, password, by=user.name, now=now)
    _log.info("own password changed", action="own_password_changed", by=user.name)
    changed = await context.accounts.get(user.name)
    shown = "/account" if not user.must_change_password else "/"
    response = RedirectResponse(f"{shown}?flash=own-password-set", 303)
    await start_session(request, response, changed or known, SignInWay.PASSWORD)
    return response


async def _note_wrong_password(context: StatusContext, user: CurrentUser, address: str, now: datetime) -> None:
    """Record it as a wrong password at the sign-in: whoever holds somebody's session must not guess the password with it."""
    entry = AuditEntry(
        at=now,
        action=AuditAction.SIGN_IN_REJECTED,
        subject=user.name,
        by=user.name,
        address=address,
        details={"form": "own_password"},
    )
    await record(context.store, entry)
    _log.warning("old password wrong", action="sign_in_rejected", address=address)


@router.post("/account/sessions/{session}/end")
async def end_own_session(user: OwnAction, _: Form, sessions: SignedIn, session: str) -> Response:
    """End one of one's own sessions. Raises `HttpError` for somebody else's."""
    wanted = one_line(session)[:_MAX_ID_LENGTH]
    if wanted not in {each.id for each in await sessions.list() if each.account == user.name}:
        raise HttpError(gettext("You have no such session (any more); nothing was done."), 404)
    await sessions.end_other(wanted, by=user.name)
    return RedirectResponse("/account?flash=session-ended", 303)


@router.post("/account/sessions/end")
async def end_own_sessions(user: OwnAction, _: Form, sessions: SignedIn) -> Response:
    """End all of one's own sessions but this one."""
    ended = await sessions.end_all(user.name, by=user.name, but=user.session.record_id)
    return RedirectResponse(f"/account?flash=sessions-ended&done={ended}", 303)
