"""The status page of a daemon that cannot open its database yet: every address says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from lab_agent.shared.conditions.model import OpenCondition
from lab_agent.status.app import STATIC_FOLDER, SecurityHeadersMiddleware
from lab_agent.status.health import tell_readiness
from lab_agent.status.page_look import PageLookMiddleware
from lab_agent.status.store_page import render_store_page

_METHODS = ["GET", "POST"]


def create_waiting_app(
    find_condition: Callable[[], OpenCondition], now: Callable[[], datetime], mode: str, language: str = "en"
) -> Starlette:
    """Make the application; `find_condition` gives what is wrong now. `/healthz` is 200: the process lives."""

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok", "missing": []})

    async def readyz(_: Request) -> Response:
        return tell_readiness(mode, (find_condition(),), None, in_full=False)

    async def page(request: Request) -> Response:
        return render_store_page(request, find_condition(), now())

    routes = [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Mount("/static", StaticFiles(directory=STATIC_FOLDER)),
        Route("/{path:path}", page, methods=_METHODS),
    ]
    return Starlette(
        routes=routes, middleware=[Middleware(SecurityHeadersMiddleware), Middleware(PageLookMiddleware, default=language)]
    )
