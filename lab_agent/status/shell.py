"""Around every answer: headers that keep browsers from doing anything but show it, and the one boundary for what went wrong."""

from __future__ import annotations

from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lab_agent.logs import get_logger

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
