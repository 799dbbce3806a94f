"""The overview of the status page as a signed-in user gets it, without a socket in between."""

from __future__ import annotations

from functools import partial

import httpx

from lab_agent import bootstrap
from lab_agent.accounts import Accounts, Role
from lab_agent.bootstrap import Components
from lab_agent.crypto import Passwords
from lab_agent.status.app import create_app
from lab_agent.status.auth import SESSION_COOKIE
from lab_agent.status.context import ConnectionDesk, StatusContext
from lab_agent.store.opening import build_cipher
from lab_agent.workflow.order_assessment import reassess
from lab_agent.workflow.refused_message_desk import RefusedMessageDesk

_USER = "benchmark"


async def _do_nothing() -> None:
    pass


async def _check_nothing(name: str) -> None:
    del name


_NO_CONNECTION = ConnectionDesk(base_url="", grant="basic", scopes=(), check=_do_nothing, refresh=_do_nothing, forget=_do_nothing)


async def open_overview(components: Components) -> httpx.AsyncClient:
    """A client of the page with a session."""
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
    cookies = {SESSION_COOKIE: await app.state.sessions.start(account, "")}
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://status.test", cookies=cookies)


async def show_overview(client: httpx.AsyncClient) -> None:
    """Get the page once. Raises `RuntimeError` if it is not shown."""
    answer = await client.get("/")
    if answer.status_code != 200:
        raise RuntimeError(f"the overview was answered with {answer.status_code}")
