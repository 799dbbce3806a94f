"""What all ways to sign in have in common: the cookie that begins a session, the record of it, and where to go on."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from lab_agent.operations.accounts import Account
from lab_agent.operations.audit_log import record
from lab_agent.shared.errors import StoreError
from lab_agent.shared.logs import get_logger
from lab_agent.status.context import StatusContext
from lab_agent.status.sessions import SESSION_COOKIE, Sessions, SignInWay
from lab_agent.store.audit_records import AuditEntry

_log = get_logger(__name__)


async def start_session(request: Request, response: Response, account: Account, way: SignInWay) -> None:
    """Begin a session with this response."""
    sessions: Sessions = request.app.state.sessions
    _set_session_cookie(request, response, await sessions.start(account, client_address(request), way))


def set_session_later(request: Request, cookie: str) -> None:
    """Set the session's cookie with whatever response this request gets."""
    response = Response()
    _set_session_cookie(request, response, cookie)
    request.state.session_cookie = response.headers["set-cookie"]


def add_session_cookie(scope: Scope, headers: MutableHeaders) -> None:
    """Add the cookie that `set_session_later` left for this response, unless it sets that cookie itself."""
    cookie = scope.get("state", {}).get("session_cookie")
    own = any(value.startswith(f"{SESSION_COOKIE}=") for value in headers.getlist("set-cookie"))
    if cookie is not None and not own:
        headers.append("Set-Cookie", cookie)


def client_address(request: Request) -> str:
    """The address of the person's browser, as far as it is known."""
    return request.client.host if request.client else "unknown"


async def note_sign_in(context: StatusContext, entry: AuditEntry) -> None:
    """Record it. While the database takes no writes, operators must get in to see why: then the log alone tells."""
    try:
        await record(context.store, entry)
    except StoreError as exc:
        _log.error("not in the audit", action="audit_failed", state=entry.action, by=entry.by, reason=str(exc))


def local_path(path: str) -> str:
    """The path if it leads to a page of ours, else the overview: signing in never redirects to another site."""
    is_local = path.startswith("/") and not path.startswith("//") and path.isprintable() and "\\" not in path
    return path if is_local and not path.startswith("/sign-") else "/"


def _set_session_cookie(request: Request, response: Response, cookie: str) -> None:
    sessions: Sessions = request.app.state.sessions
    response.set_cookie(
        SESSION_COOKIE,
        cookie,
        max_age=int(sessions.lifetime.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
