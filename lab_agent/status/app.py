"""The status page as an application: its rooms put together, its errors as pages.

Around every answer: headers that keep browsers from doing anything but show it, and the one boundary for what went wrong.
"""

from __future__ import annotations

from collections.abc import Callable
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

from lab_agent.errors import LabAgentError, SchemaMismatchError, StoreUnreachableError
from lab_agent.logs import get_logger
from lab_agent.status.actions import JobActions, ResultActions
from lab_agent.status.auth import AccessControl, HttpError, LoginRequired, Sessions
from lab_agent.status.context import StatusContext, TemplateRenderer
from lab_agent.status.health import HealthEndpoints
from lab_agent.status.login import LoginPages
from lab_agent.status.notice_pages import NoticePages
from lab_agent.status.pages import Pages
from lab_agent.status.result_pages import MappingRelease, ResultPages

log = get_logger(__name__)

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
STATIC_PREFIX = "/static/"


class SecurityHeadersMiddleware:
    """Sets the headers; an error that nobody expected becomes a page without a trace, and one line in the log."""

    def __init__(self, app: ASGIApp, error_page: Callable[[Request], Response]) -> None:
        self._app = app
        self._error_page = error_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def dressed(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                _set_headers(MutableHeaders(scope=message), scope["path"])
            await send(message)

        try:
            await self._app(scope, receive, dressed)
        except Exception:  # boundary: a bug in a page is shown as one sentence, logged whole, and hurts no other page
            log.exception("page failed", action="page_failed", path=getattr(scope.get("route"), "path", "unknown"))
            if begun:
                raise
            await self._error_page(Request(scope))(scope, receive, dressed)


def _set_headers(headers: MutableHeaders, path: str) -> None:
    for name, value in SECURITY_HEADERS.items():
        headers[name] = value
    headers["Cache-Control"] = "no-cache" if path.startswith(STATIC_PREFIX) else "no-store"


STATIC_FOLDER = Path(__file__).parent / "static"
_HTTP_ERROR_MESSAGES = {404: "There is no such page.", 405: "This page cannot be asked for in this way."}


def create_app(context: StatusContext) -> FastAPI:
    """Make the application of the parts in `house`."""
    app = FastAPI(title="Status of the lab agent", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    sessions = Sessions(context.cipher, context.accounts, timedelta(hours=context.settings.session_hours))
    gate, paper = AccessControl(sessions, context.clock), TemplateRenderer(context)
    for room in (
        HealthEndpoints(context),
        LoginPages(context.accounts, sessions, gate, paper, context.clock),
        Pages(context, gate, paper),
        JobActions(context, gate),
        MappingRelease(context, gate, paper),
        ResultPages(context, gate, paper),
        ResultActions(context, gate),
        NoticePages(context, gate, paper),
    ):
        app.include_router(room.routes())
    app.mount("/static", StaticFiles(directory=STATIC_FOLDER))
    errors = ErrorPages(paper)
    app.add_exception_handler(LoginRequired, errors.redirect_to_login)
    app.add_exception_handler(HttpError, errors.http_error)
    app.add_exception_handler(HTTPException, errors.http_exception)
    app.add_exception_handler(RequestValidationError, errors.bad_request)
    app.add_exception_handler(LabAgentError, errors.agent_error)
    app.add_middleware(SecurityHeadersMiddleware, error_page=errors.internal_error)
    return app


class ErrorPages:
    """Errors as pages: a sentence, and never a trace."""

    def __init__(self, renderer: TemplateRenderer) -> None:
        self._renderer = renderer

    async def redirect_to_login(self, request: Request, _: Exception) -> Response:
        """To the sign-in page, and back here afterwards; a form is not sent again."""
        onward = request.url.path + (f"?{request.url.query}" if request.url.query else "") if request.method == "GET" else "/"
        return RedirectResponse("/sign-in" if onward == "/" else f"/sign-in?next={quote(onward, safe='')}", 303)

    async def http_error(self, _: Request, exc: Exception) -> Response:
        """The visitor may not, or not like this."""
        return self._render(exc.status if isinstance(exc, HttpError) else 403, str(exc))

    async def http_exception(self, _: Request, exc: Exception) -> Response:
        """No such page, or no such method."""
        status = exc.status_code if isinstance(exc, HTTPException) else 500
        return self._render(status, _HTTP_ERROR_MESSAGES.get(status, "This cannot be done."))

    async def bad_request(self, _request: Request, _: Exception) -> Response:
        """An address with parameters that mean nothing."""
        return self._render(400, "The address is not understood.")

    async def agent_error(self, _: Request, exc: Exception) -> Response:
        """The store is away, or it is no longer as the page showed it."""
        if isinstance(exc, StoreUnreachableError | SchemaMismatchError):
            log.error("page without store", action="page_failed", reason=str(exc))
            return self._render(503, "The agent's own database does not answer. Nothing is lost; try again in a moment.")
        return self._render(409, f"Nothing was done: {exc}")

    def internal_error(self, _: Request) -> Response:
        """A bug of ours."""
        return self._render(500, "This page failed. The log of the agent says where; nothing else is affected.")

    def _render(self, status: int, sentence: str) -> Response:
        return self._renderer.render("error.html", status=status, number=status, sentence=sentence)
