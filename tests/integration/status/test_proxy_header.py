"""Users whom a reverse proxy names in a header: over real connections, as it counts where these come from."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import httpx
import pytest

from lab_agent.operations.accounts import Role
from lab_agent.settings.status import StatusSettings
from lab_agent.status.sessions import SESSION_COOKIE
from lab_agent.store.audit_records import AuditAction
from tests.harness.clock import DEADLINE
from tests.integration.status.conftest import PASSWORD, StatusPages, form_token, post
from tests.integration.status.conftest import served as serving

PROXY, ELSEWHERE = "127.0.0.1", "127.0.0.2"
HEADER = "X-Remote-User"


class ServedPages:
    """The page on a socket, with clients that come from addresses of this machine."""

    base = ""

    def __init__(self, pages: StatusPages, stack: AsyncExitStack) -> None:
        self.pages, self._stack = pages, stack

    async def serve(self, **proxy: Any) -> None:
        table = {"header": HEADER, "trusted_addresses": [PROXY, "fd00::/8"], **proxy}
        self.pages.context = replace(self.pages.context, settings=StatusSettings.model_validate({"proxy": table}))
        self.base = await self._stack.enter_async_context(serving(self.pages))

    async def client(self, name: str | None, address: str = PROXY, **headers: str) -> httpx.AsyncClient:
        transport = httpx.AsyncHTTPTransport(local_address=address)
        sent = headers if name is None else {HEADER: name, **headers}
        client = httpx.AsyncClient(transport=transport, base_url=self.base, headers=sent, timeout=DEADLINE)
        return await self._stack.enter_async_context(client)

    async def visit(self, name: str | None, address: str = PROXY, **headers: str) -> httpx.Response:
        """The overview, as a new client gets it."""
        return await (await self.client(name, address, **headers)).get("/")

    async def signed_in(self) -> list[Any]:
        return await self.pages.records(AuditAction.SIGNED_IN)


@pytest.fixture
async def served(pages: StatusPages) -> AsyncIterator[ServedPages]:
    """The page, not served yet."""
    async with AsyncExitStack() as stack:
        yield ServedPages(pages, stack)


async def test_named_user_has_role_of_account(served: ServedPages):
    """Kept from page to page; a changed role begins a new session."""
    await served.serve()
    client = await served.client("Operator")
    shown = await client.get("/")
    assert (shown.status_code, "(operator)" in shown.text) == (200, True)
    assert {"HttpOnly", "SameSite=strict"} <= set(shown.headers["set-cookie"].split("; "))
    (found,) = await served.signed_in()
    assert (found.subject, found.actor, json.loads(found.details)) == ("operator", "operator", {"by": "proxy"})
    second = await client.get("/orders")
    assert "set-cookie" not in second.headers
    assert form_token(shown.text) == form_token(second.text)
    await served.pages.context.accounts.set_role("operator", Role.VIEWER, now=served.pages.clock.now())
    changed = await client.get("/")
    assert ("(viewer)" in changed.text, "set-cookie" in changed.headers) == (True, True)


async def test_named_user_without_account_has_configured_role(served: ServedPages):
    """An empty header names nobody, and an impossible name gets in nowhere."""
    await served.serve(role="viewer")
    shown = (await served.visit("anna")).text
    assert [each for each in ("anna", "(viewer)") if each not in shown] == []
    for name, status in (("LAB\\anna", 403), ("<script>", 403), ("a" * 65, 403), ("", 303)):
        answer = await served.visit(name)
        assert (name, answer.status_code, "<script>" in answer.text) == (name, status, False)


async def test_user_without_account_or_role_is_told(served: ServedPages):
    """Two headers are refused: a proxy adds its own to the one that it was sent."""
    await served.serve()
    client = await served.client("anna")
    answer = await client.get("/")
    assert (answer.status_code, SESSION_COOKIE in client.cookies) == (403, False)
    assert [each for each in (HEADER, "lab-agent user add anna", "status.proxy.role") if each not in answer.text] == []
    await client.get("/orders")
    (found,) = await served.pages.records(AuditAction.SIGN_IN_REJECTED)
    assert (found.subject, json.loads(found.details)) == ("anna", {"by": "proxy"})
    answer = await (await served.client(None)).get("/", headers=[(HEADER, "admin"), (HEADER, "viewer")])
    assert answer.status_code == 400


async def test_spoofed_header_from_elsewhere_is_ignored(served: ServedPages):
    await served.serve(role="admin")
    for forwarded in ({}, {"X-Forwarded-For": PROXY}, {"X-Real-IP": PROXY, "Forwarded": f"for={PROXY}"}):
        answer = await served.visit("admin", ELSEWHERE, **forwarded)
        assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in")
        assert "set-cookie" not in answer.headers
    assert await served.signed_in() == []


async def test_forwarded_address_does_not_become_trusted(served: ServedPages):
    """uvicorn believes X-Forwarded-For of this machine; another proxy here must not be able to lend an address."""
    await served.serve(trusted_addresses=["10.0.0.5"], role="admin")
    assert (await served.visit("admin", PROXY, **{"X-Forwarded-For": "10.0.0.5"})).status_code == 303
    await served.serve()
    assert (await served.visit("operator", **{"X-Forwarded-For": "192.0.2.7"})).status_code == 200
    (found,) = await served.signed_in()
    assert found.origin == "192.0.2.7", "but the proxy stays trusted when it forwards"


async def test_cookie_alone_opens_nothing(served: ServedPages):
    await served.serve(role="operator")
    client = await served.client("anna")
    await client.get("/")
    cookie = client.cookies[SESSION_COOKIE]
    for name, address in ((None, PROXY), ("anna", ELSEWHERE)):
        other = await served.client(name, address)
        other.cookies.set(SESSION_COOKIE, cookie, domain="127.0.0.1")
        assert (await other.get("/")).status_code == 303


async def test_header_goes_before_session_of_another(served: ServedPages):
    await served.serve()
    client = await served.client(None)
    await client.post("/sign-in", data={"name": "admin", "password": PASSWORD})
    assert "(admin)" in (await client.get("/")).text
    assert "(viewer)" in (await client.get("/", headers={HEADER: "viewer"})).text


async def test_forms_need_token_of_session(served: ServedPages):
    await served.serve()
    client, stranger = await served.client("operator"), await served.client("operator")
    token = form_token((await client.get("/")).text)
    for sender, sent, headers in ((client, "", {}), (stranger, token, {}), (client, token, {"Origin": "http://evil"})):
        assert (await sender.post("/sign-out", data={"csrf_token": sent}, headers=headers)).status_code == 403
    assert (await client.post("/sign-out", data={"csrf_token": token})).status_code == 303


async def test_program_without_cookies_is_recorded_once(served: ServedPages):
    """Each sign-in after the session has ended, or was ended, is recorded again."""
    await served.serve()
    for _ in range(3):
        assert (await served.visit("viewer")).status_code == 200
    assert len(await served.signed_in()) == 1
    served.pages.clock.advance(hours=8)
    client = await served.client("viewer")
    assert (await post(client, "/sign-out")).status_code == 303
    assert len(await served.signed_in()) == 2
    assert (await client.get("/")).status_code == 200
    assert len(await served.signed_in()) == 3


async def test_header_means_nothing_without_setting(pages: StatusPages):
    assert (await pages.new_client(headers={HEADER: "admin"}).get("/")).status_code == 303
