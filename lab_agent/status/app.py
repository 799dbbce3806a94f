"""The status page as an application: routes, error pages, and security headers around every response."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lab_agent.catalogue.notices import NoticeBoard
from lab_agent.operations.verdict import give_verdict
from lab_agent.settings.status import StatusSettings
from lab_agent.shared.errors import CryptoError, LabAgentError, StoreFault, StoreUnreachableError
from lab_agent.shared.logs import get_logger
from lab_agent.status import (
    account_page,
    actions,
    audit_page,
    catalogue_page,
    condition_pages,
    group_pages,
    health,
    live,
    login,
    notice_pages,
    oidc,
    operation_pages,
    order_decisions,
    order_list,
    order_page,
    order_results,
    overview,
    preferences,
    refused_pages,
    result_pages,
    users_page,
)
from lab_agent.status.auth import HttpError, LoginRequired, OwnPasswordRequired
from lab_agent.status.condition_pages import list_store_conditions
from lab_agent.status.context import StatusContext, TemplateRenderer
from lab_agent.status.page_look import PageLookMiddleware
from lab_agent.status.password_attempts import PasswordAttempts
from lab_agent.status.proxy_header import ProxyUsers
from lab_agent.status.session_start import add_session_cookie
from lab_agent.status.sessions import SESSION_COOKIE, Sessions, SignInWay
from lab_agent.status.translation import gettext, marked

_log = get_logger(__name__)

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    # Not `no-referrer`: with that one browsers send `Origin: null` with our own forms.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
STATIC_FOLDER = Path(__file__).parent / "static"
STATIC_PREFIX = "/static/"
PAGE_MODULES = (
    overview,
    order_list,
    order_page,
    order_results,
    order_decisions,
    live,
    health,
    condition_pages,
    group_pages,
    result_pages,
    actions,
    refused_pages,
    notice_pages,
    catalogue_page,
    operation_pages,
    audit_page,
    users_page,
    account_page,
    login,
    oidc,
    preferences,
)
"""What is asked most comes first: an address is looked up in one after the other."""
_RETRY_AFTER = "10"
_HTTP_ERROR_MESSAGES = {404: marked("Page not found."), 405: marked("This address does not support this method.")}


def create_app(context: StatusContext) -> FastAPI:
    """Make the application."""
    app = FastAPI(
        title="Status of the lab agent",
        routes=[route for module in PAGE_MODULES for route in module.router.routes],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.context = context
    app.state.renderer = TemplateRenderer(context)
    lifetime = timedelta(hours=context.settings.session_hours)
    app.state.sessions = Sessions(context, lifetime, read_only=context.settings.read_only, ways=_ways(context.settings))
    app.state.header_users = ProxyUsers(context, app.state.sessions) if context.settings.proxy.is_on else None
    app.state.password_attempts = PasswordAttempts()
    app.state.oidc_throttle = oidc.make_throttle()
    app.state.notice_board = NoticeBoard(context.store)
    app.state.change_feed = live.ChangeFeed(context.queries)
    app.mount("/static", StaticFiles(directory=STATIC_FOLDER))
    app.add_exception_handler(LoginRequired, _redirect_to_login)
    app.add_exception_handler(OwnPasswordRequired, _redirect_to_account)
    app.add_exception_handler(HttpError, _show_http_error)
    app.add_exception_handler(HTTPException, _show_http_exception)
    app.add_exception_handler(RequestValidationError, _show_bad_request)
    app.add_exception_handler(LabAgentError, _show_agent_error)
    app.add_middleware(PageLookMiddleware, default=context.settings.language)
    app.add_middleware(SecurityHeadersMiddleware)
    return app


def _ways(settings: StatusSettings) -> list[SignInWay]:
    """The ways to sign in that are on: sessions that began in another one are over."""
    on = {SignInWay.PASSWORD: settings.password, SignInWay.OIDC: settings.oidc.is_on, SignInWay.PROXY: settings.proxy.is_on}
    return [way for way, is_on in on.items() if is_on]


class SecurityHeadersMiddleware:
    """Sets the headers on every response. An unexpected error becomes a page without a traceback, and one log line with it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        response_started = False
        scope.setdefault("state", {})

        async def send_with_headers(message: Message) -> None:
            nonlocal response_started
            if message["type"] == "http.response.start":
                response_started = True
                headers = MutableHeaders(scope=message)
                _set_headers(headers, scope["path"])
                add_session_cookie(scope, headers)
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception:  # boundary: a bug in one page must not affect the others
            _log.exception("page failed", action="page_failed", path=getattr(scope.get("route"), "path", "unknown"))
            if response_started:
                raise
            page = _error_page(
                Request(scope), 500, marked("This page failed. The agent's log has the details; nothing else is affected.")
            )
            await page(scope, receive, send_with_headers)


def _set_headers(headers: MutableHeaders, path: str) -> None:
    for name, value in SECURITY_HEADERS.items():
        headers[name] = value
    headers["Cache-Control"] = "no-cache" if path.startswith(STATIC_PREFIX) else "no-store"


async def _redirect_to_login(request: Request, _: Exception) -> Response:
    """To the sign-in page, and back here afterwards; a form is not sent again."""
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "") if request.method == "GET" else "/"
    return RedirectResponse("/sign-in" if target == "/" else f"/sign-in?next={quote(target, safe='')}", 303)


async def _redirect_to_account(_: Request, __: Exception) -> Response:
    """To the form of the password, which comes before everything else."""
    return RedirectResponse("/account", 303)


async def _show_http_error(request: Request, exc: Exception) -> Response:
    return _error_page(request, exc.status if isinstance(exc, HttpError) else 403, str(exc))


async def _show_http_exception(request: Request, exc: Exception) -> Response:
    status = exc.status_code if isinstance(exc, HTTPException) else 500
    return _error_page(request, status, _HTTP_ERROR_MESSAGES.get(status, marked("This request cannot be answered.")))


async def _show_bad_request(request: Request, _: Exception) -> Response:
    return _error_page(request, 400, marked("The address has invalid parameters."))


async def _show_agent_error(request: Request, exc: Exception) -> Response:
    """The database does not work, or its content has changed since the page showed it."""
    if isinstance(exc, StoreUnreachableError | CryptoError) and getattr(exc, "fault", StoreFault.OTHER_KEY) is not None:
        return _store_page(request, exc)
    if request.method in {"GET", "HEAD"}:
        return _error_page(request, 500, gettext("This page cannot be shown: %(reason)s") % {"reason": exc})
    return _error_page(request, 409, gettext("Nothing was done: %(reason)s") % {"reason": exc})


def _store_page(request: Request, exc: StoreUnreachableError | CryptoError) -> Response:
    """What is wrong with the database, without reading it. What may name a path is for whoever has a session."""
    context: StatusContext = request.app.state.context
    renderer: TemplateRenderer = request.app.state.renderer
    sessions: Sessions = request.app.state.sessions
    now = context.clock.now()
    conditions = list_store_conditions(context, exc)
    _log.debug("page without database", action="page_failed", reason=str(exc))
    response = renderer.render(
        "store_unavailable.html",
        status=503,
        conditions=conditions,
        verdict=give_verdict(conditions, now),
        with_detail=sessions.has_session(request.cookies.get(SESSION_COOKIE)),
        was_action=request.method not in {"GET", "HEAD"},
        path=request.url.path if request.method == "GET" else "/",
    )
    response.headers["Retry-After"] = _RETRY_AFTER
    return response


def _error_page(request: Request, status: int, message: str) -> Response:
    renderer: TemplateRenderer = request.app.state.renderer
    return renderer.render("error.html", status=status, status_code=status, message=gettext(message))
