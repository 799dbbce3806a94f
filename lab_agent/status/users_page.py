"""Users of the status page: who they are, what they may do, and where they are signed in. Admins only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lab_agent.operations.accounts import MAX_PASSWORD_LENGTH, MIN_PASSWORD_LENGTH, Account, Role, generate_password
from lab_agent.shared.errors import AlreadyExistsError, DataInvalidError, LastAdminError
from lab_agent.shared.logs import get_logger
from lab_agent.status.auth import Admin, AdminReader, HttpError
from lab_agent.status.context import Context, Renderer, StatusContext, TemplateRenderer
from lab_agent.status.forms import Form, one_line
from lab_agent.status.pages import Flash
from lab_agent.status.sessions import CurrentUser, Sessions
from lab_agent.status.translation import gettext
from lab_agent.store.credential_records import SessionRecord

router = APIRouter()
_log = get_logger(__name__)

_MAX_NAME_LENGTH = 64
_EMPTY_FORM = {"name": "", "role": Role.VIEWER.value, "generate": ""}


async def get_sessions(request: Request) -> Sessions:
    """The sessions of this application."""
    sessions: Sessions = request.app.state.sessions
    return sessions


SignedIn = Annotated[Sessions, Depends(get_sessions)]


async def find_user(context: Context, _: AdminReader, name: str) -> Account:
    """The user of the address. Raises `HttpError`."""
    found = await context.accounts.get(one_line(name)[:_MAX_NAME_LENGTH])
    if found is None:
        raise HttpError(gettext("There is no such user (any more); nothing was done."), 404)
    return found


Which = Annotated[Account, Depends(find_user)]


@router.get("/users")
async def show_users(user: AdminReader, context: Context, renderer: Renderer, sessions: SignedIn, flash: Flash) -> Response:
    """Every user with the sessions, and the forms to change them."""
    return await _render(user, context, renderer, sessions, flash=flash)


async def _render(
    user: CurrentUser, context: StatusContext, renderer: TemplateRenderer, sessions: Sessions, **fields: Any
) -> Response:
    by_account: dict[str, list[SessionRecord]] = {}
    for each in await sessions.list():
        by_account.setdefault(each.account, []).append(each)
    users = await context.accounts.list()
    common: dict[str, Any] = {
        "users": users,
        "admins": sum(each.role is Role.ADMIN for each in users),
        "sessions": by_account,
        "own_session": user.session.record_id,
        "roles": tuple(Role),
        "fields": _EMPTY_FORM,
        "errors": {},
        "issued": None,
        "flash": None,
        "min_length": MIN_PASSWORD_LENGTH,
        "max_length": MAX_PASSWORD_LENGTH,
    }
    return await renderer.render_page("users.html", user, **(common | fields))


# --- users ---------------------------------------------------------------------------------------------------------------
@router.post("/users")
async def add_user(user: Admin, form: Form, context: Context, renderer: Renderer, sessions: SignedIn) -> Response:
    """Add a user with the password of the form, or with a generated one, which the answer alone shows."""
    fields = {name: one_line(form.get(name, ""))[:_MAX_NAME_LENGTH] for name in _EMPTY_FORM}
    password, problem = read_new_password(form)
    errors = {} if problem is None else {"password": problem}
    if fields["role"] not in list(Role):
        errors["role"] = gettext("Choose one of the roles.")
    if not errors:
        try:
            role, now = Role(fields["role"]), context.clock.now()
            made = await context.accounts.add(fields["name"], password, role, by=user.name, now=now, must_change_password=True)
        except (DataInvalidError, AlreadyExistsError) as exc:
            errors = _tell_problems(exc)
        else:
            _log.info("user added", action="user_added", by=user.name)
            if _is_generated(form):
                return await _render(user, context, renderer, sessions, issued=(made.name, password))
            return RedirectResponse("/users?flash=user-added", 303)
    return await _render(user, context, renderer, sessions, status=422, fields=fields, errors=errors)


@router.post("/users/{name}/role")
async def change_role(user: Admin, form: Form, context: Context, which: Which) -> Response:
    """Give a user another role; that user's sessions end."""
    wanted = form.get("role", "")
    if wanted not in list(Role):
        raise HttpError(gettext("Choose one of the roles."), 422)
    role = Role(wanted)
    if role is which.role:
        return RedirectResponse("/users?flash=nothing-changed", 303)
    _require_tick(user, which, form)
    try:
        await context.accounts.set_role(which.name, role, by=user.name, now=context.clock.now(), keep_admin=True)
    except LastAdminError as exc:
        raise _last_admin(which) from exc
    return RedirectResponse("/users?flash=role-changed", 303)


@router.post("/users/{name}/reveal")
async def change_reveal(user: Admin, form: Form, context: Context, which: Which) -> Response:
    """Give the right to reveal patients, or take it; that user's sessions end."""
    may_reveal = form.get("may_reveal", "")
    if may_reveal not in {"yes", "no"}:
        raise HttpError(gettext("The form does not say whether the right is given or taken; nothing was done."), 422)
    if (may_reveal == "yes") is which.may_reveal:
        return RedirectResponse("/users?flash=nothing-changed", 303)
    now = context.clock.now()
    await context.accounts.set_reveal(which.name, may_reveal=may_reveal == "yes", by=user.name, now=now)
    return RedirectResponse(f"/users?flash=reveal-{'given' if may_reveal == 'yes' else 'taken'}", 303)


@router.post("/users/{name}/password")
async def set_password(
    user: Admin, form: Form, context: Context, renderer: Renderer, sessions: SignedIn, which: Which
) -> Response:
    """Set a user's password; that user's sessions end. A generated one is shown by the answer alone."""
    if which.name == user.name:
        raise HttpError(gettext("Change your own password under “Your account”, where the old one is asked for."), 422)
    password, problem = read_new_password(form)
    if problem is None:
        try:
            now = context.clock.now()
            await context.accounts.set_password(which.name, password, by=user.name, now=now, must_change_password=True)
        except DataInvalidError as exc:
            problem = _tell_problems(exc)["password"]
    if problem is not None:
        raise HttpError(problem, 422)
    if _is_generated(form):
        return await _render(user, context, renderer, sessions, issued=(which.name, password))
    return RedirectResponse("/users?flash=password-set", 303)


@router.post("/users/{name}/remove")
async def remove_user(user: Admin, form: Form, context: Context, which: Which) -> Response:
    """Remove a user; that user's sessions end."""
    _require_tick(user, which, form)
    try:
        removed = await context.accounts.remove(which.name, by=user.name, now=context.clock.now(), keep_admin=True)
    except LastAdminError as exc:
        raise _last_admin(which) from exc
    return RedirectResponse(f"/users?flash={'user-removed' if removed else 'nothing-changed'}", 303)


def _require_tick(user: CurrentUser, which: Account, form: Mapping[str, str]) -> None:
    if which.name == user.name and form.get("confirmed") != "yes":
        sentence = gettext(
            "This is your own account: afterwards you cannot manage users, and only another admin can undo it."
            " Tick that you mean it; nothing was done."
        )
        raise HttpError(sentence, 422)


def _last_admin(which: Account) -> HttpError:
    sentence = gettext(
        "%(name)s is the only admin: without one, nobody could manage users here."
        " Make somebody else admin first; nothing was done."
    )
    return HttpError(sentence % {"name": which.name}, 409)


# --- passwords -----------------------------------------------------------------------------------------------------------
def _is_generated(form: Mapping[str, str]) -> bool:
    return form.get("generate") == "yes"


def read_new_password(form: Mapping[str, str]) -> tuple[str, str | None]:
    """The password of the form, or a generated one; and what is wrong with it."""
    if _is_generated(form):
        return generate_password(), None
    password = form.get("password", "")
    if password != form.get("password_again", ""):
        return "", gettext("The two passwords differ.")
    if not MIN_PASSWORD_LENGTH <= len(password) <= MAX_PASSWORD_LENGTH:
        return "", password_length_problem()
    return password, None


def password_length_problem() -> str:
    """That a password is too short or too long."""
    lengths = {"least": MIN_PASSWORD_LENGTH, "most": MAX_PASSWORD_LENGTH}
    return gettext("A password has %(least)s to %(most)s characters.") % lengths


def _tell_problems(exc: DataInvalidError | AlreadyExistsError) -> dict[str, str]:
    """The problems by their fields, in the language of the request."""
    if isinstance(exc, AlreadyExistsError):
        return {"name": gettext("There is already a user of this name.")}
    told = {
        "name": gettext("A name has 1 to 64 letters a-z, digits and . _ @ -, and begins with a letter or digit."),
        "password": password_length_problem(),
    }
    return {problem.where: told[problem.where] for problem in exc.problems}


# --- sessions ------------------------------------------------------------------------------------------------------------
@router.post("/sessions/{session}/end")
async def end_session(user: Admin, _: Form, sessions: SignedIn, session: str) -> Response:
    """End one session of anybody; it does not work any more from the next request on."""
    ended = await sessions.end_other(one_line(session)[:_MAX_NAME_LENGTH], by=user.name)
    return RedirectResponse(f"/users?flash={'nothing-changed' if ended is None else 'session-ended'}", 303)


@router.post("/users/{name}/sessions/end")
async def end_sessions(user: Admin, _: Form, sessions: SignedIn, which: Which) -> Response:
    """End all sessions of a user; one's own goes on."""
    ended = await sessions.end_all(which.name, by=user.name, but=user.session.record_id)
    return RedirectResponse(f"/users?flash=sessions-ended&done={ended}", 303)
