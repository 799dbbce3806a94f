"""Pages of the status page as a signed-in user gets them; and the same pages from constants."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from lab_agent import bootstrap, result_bootstrap
from lab_agent.bootstrap import Components
from lab_agent.operations.accounts import Accounts, Role
from lab_agent.orders.order_assessment import reassess
from lab_agent.results.refused_message_actions import RefusedMessageDesk
from lab_agent.shared.web_server import listen, serve
from lab_agent.status.app import SecurityHeadersMiddleware, create_app
from lab_agent.status.context import ConnectionDesk, StatusContext, TemplateRenderer
from lab_agent.status.page_look import PageLookMiddleware
from lab_agent.status.sessions import SESSION_COOKIE
from lab_agent.store.crypto import Passwords
from lab_agent.store.opening import build_cipher

_USER = "benchmark"
_BASE = "http://status.test"


async def _do_nothing() -> None:
    pass


async def _check_nothing(name: str) -> None:
    del name


_NO_CONNECTION = ConnectionDesk(base_url="", grant="basic", scopes=(), check=_do_nothing, refresh=_do_nothing, forget=_do_nothing)


@dataclass(slots=True)
class _Recorder:
    """The renderer of an application, which keeps what it rendered last: that, rendered again, is a page from constants."""

    renderer: TemplateRenderer
    last: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def render(self, *args: Any, **fields: Any) -> Response:
        """Render as ever."""
        self.last = (args, fields)
        return TemplateRenderer.render(self.renderer, *args, **fields)


@dataclass(frozen=True, slots=True)
class StatusPage:
    """The page, a session of a user, and a server of what was rendered last: once more, without a question to the database."""

    app: ASGIApp
    constant: ASGIApp
    cookie: str

    async def show(self, path: str) -> None:
        """Get a page once, without a socket in between. Raises `RuntimeError` if it is not shown."""
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url=_BASE, cookies={SESSION_COOKIE: self.cookie}) as client:
            answer = await client.get(path)
        if answer.status_code != 200:
            raise RuntimeError(f"{path} was answered with {answer.status_code}: {answer.text[-600:]}")

    def serve(self) -> tuple[list[asyncio.Task[None]], list[int]]:
        """Serve both for as long as the tasks run; their ports."""
        sockets = [listen("127.0.0.1", 0, settings_group="status") for _ in range(2)]
        tasks = [
            asyncio.create_task(serve(app, sock, drain=1)) for app, sock in zip((self.app, self.constant), sockets, strict=True)
        ]
        return tasks, [sock.getsockname()[1] for sock in sockets]


async def open_status_page(components: Components) -> StatusPage:
    """Make the application over the components, with a user who is signed in."""
    accounts = Accounts(components.store, Passwords())
    now = components.clock.now()
    account = await accounts.get(_USER) or await accounts.add(_USER, "correct horse battery staple", Role.VIEWER, now=now)
    app = create_app(
        StatusContext(
            settings=components.settings.status,
            store=components.store,
            queries=components.queries,
            accounts=accounts,
            cipher=build_cipher(components.settings.store),
            metrics=components.metrics,
            clock=components.clock,
            adapters=(),
            mode="normal",
            create_matcher=lambda: result_bootstrap.build_manual_matcher(components.settings, components.catalogue_cache.view),
            assess_order=partial(reassess, components.store, bootstrap.build_assessor(components)),
            refused_messages=RefusedMessageDesk(components.store, components.clock, components.adapters),
            catalogue=lambda: None,
            connection=_NO_CONNECTION,
            check_adapter=_check_nothing,
            missing_tasks=tuple,
            observed_conditions=tuple,
        )
    )
    recorder = _Recorder(app.state.renderer)
    app.state.renderer.render = recorder.render
    cookie = await app.state.sessions.start(account, "")

    async def render_again(_: Request) -> Response:
        if recorder.last is None:
            raise RuntimeError("no page was rendered yet")
        args, fields = recorder.last
        return TemplateRenderer.render(recorder.renderer, *args, **fields)

    floor = Starlette(routes=[Route("/", render_again)])
    floor.add_middleware(PageLookMiddleware, default="en")
    floor.add_middleware(SecurityHeadersMiddleware)
    return StatusPage(app, floor, cookie)
