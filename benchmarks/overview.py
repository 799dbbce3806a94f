"""Pages of the status page as a signed-in user gets them, without a socket in between; and the same pages from constants."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lab_agent import bootstrap
from lab_agent.accounts import Accounts, Role
from lab_agent.bootstrap import Components
from lab_agent.crypto import Passwords
from lab_agent.status.app import SecurityHeadersMiddleware, create_app
from lab_agent.status.auth import SESSION_COOKIE
from lab_agent.status.context import ConnectionDesk, StatusContext, TemplateRenderer
from lab_agent.status.page_look import PageLookMiddleware
from lab_agent.store.opening import build_cipher
from lab_agent.workflow.order_assessment import reassess
from lab_agent.workflow.refused_message_desk import RefusedMessageDesk

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
class StatusPageClient:
    """A client of the page with a session, and one that gets what was rendered last again, without a question to the store."""

    client: httpx.AsyncClient
    constant: httpx.AsyncClient

    async def show(self, path: str) -> None:
        """Get a page once. Raises `RuntimeError` if it is not shown."""
        answer = await self.client.get(path)
        if answer.status_code != 200:
            raise RuntimeError(f"{path} was answered with {answer.status_code}: {answer.text[-600:]}")

    async def time_pairs(self, path: str, times: int) -> tuple[list[float], list[float]]:
        """Seconds of each request of a page, and of the same page from constants, in turns."""
        ours, floor = list[float](), list[float]()
        await self.show(path)
        for _ in range(times):
            for client, address, taken in ((self.client, path, ours), (self.constant, "/", floor)):
                begun = time.perf_counter()
                answer = await client.get(address)
                taken.append(time.perf_counter() - begun)
                if answer.status_code != 200:
                    raise RuntimeError(f"{path} was answered with {answer.status_code}")
        return ours, floor


async def open_status_page(components: Components) -> StatusPageClient:
    """Make the application over the components, with a user who is signed in."""
    if components.queries is None:
        raise RuntimeError("the status page needs a database")
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
            create_matcher=lambda: bootstrap.build_manual_matcher(components.settings, components.catalogue_cache.view),
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
    cookies = {SESSION_COOKIE: await app.state.sessions.start(account, "")}

    async def render_again(_: Request) -> Response:
        if recorder.last is None:
            raise RuntimeError("no page was rendered yet")
        args, fields = recorder.last
        return TemplateRenderer.render(recorder.renderer, *args, **fields)

    floor = Starlette(routes=[Route("/", render_again)])
    floor.add_middleware(PageLookMiddleware, default="en")
    floor.add_middleware(SecurityHeadersMiddleware)
    return StatusPageClient(
        client=httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=_BASE, cookies=cookies),
        constant=httpx.AsyncClient(transport=httpx.ASGITransport(floor), base_url=_BASE),
    )


def percentile_95(seconds: Sequence[float]) -> float:
    """The time that 95 of 100 do not exceed."""
    return sorted(seconds)[int(len(seconds) * 0.95)]
