"""How a page looks to the browser that asks: language and theme, of a cookie that says nothing about who it is."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from lab_agent.status.translation import LANGUAGES, choose_language, speaking

THEMES = ("auto", "light", "dark")
LOOK_COOKIE = "lab_agent_look"


@dataclass(frozen=True, slots=True)
class Preferences:
    """A language of `LANGUAGES` (None: the browser's), and a theme of `THEMES`."""

    language: str | None = None
    theme: str = "auto"


def read_preferences(request: Request) -> Preferences:
    """What the cookie says; whatever it does not say as it should is not chosen."""
    language, _, theme = request.cookies.get(LOOK_COOKIE, "").partition("-")
    return Preferences(language if language in LANGUAGES else None, theme if theme in THEMES else "auto")


@dataclass(frozen=True, slots=True)
class PageLook:
    """How the page that is being answered looks, and its address, which a form comes back to."""

    theme: str = "auto"
    path: str = "/"


_LOOK: ContextVar[PageLook] = ContextVar("look")


def current_look() -> PageLook:
    """That of this request."""
    return _LOOK.get(PageLook())


class PageLookMiddleware:
    """Lets each request be answered in its language; `default` is that of a browser that asks for none of ours."""

    def __init__(self, app: ASGIApp, default: str) -> None:
        self._app, self._default = app, default

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        chosen = read_preferences(request)
        query = f"?{request.url.query}" if request.url.query else ""
        _LOOK.set(PageLook(chosen.theme, f"{request.url.path}{query}" if request.method == "GET" else "/"))
        with speaking(choose_language(request, chosen.language, self._default)):
            await self._app(scope, receive, send)
