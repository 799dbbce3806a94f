"""Signing in with OpenID Connect, at a small provider that is served over HTTP: who gets in, and what is refused."""

from __future__ import annotations

import html
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx
import pytest
from joserfc.jwk import OctKey, RSAKey
from playwright.async_api import Browser

from lab_agent.operations.accounts import Role
from lab_agent.settings.status import StatusSettings
from lab_agent.status.oidc import ATTEMPT_COOKIE
from lab_agent.status.sessions import SESSION_COOKIE
from lab_agent.store.audit_records import AuditAction
from tests.harness.browser import needs_chromium
from tests.harness.clock import DEADLINE
from tests.harness.oidc_provider import CLIENT_ID, CLIENT_SECRET, KEY, OTHER_KEY, Provider, oidc_provider
from tests.integration.status.conftest import BASE, PASSWORD, StatusPages, post, served

ROLES = {"staff": "viewer", "lab-operators": "operator"}
ANNA = {"preferred_username": "anna", "groups": ["staff", "lab-operators", "canteen"]}


@pytest.fixture
async def provider(pages: StatusPages) -> AsyncIterator[Provider]:
    """A provider that the page trusts; its user is `anna`, an operator by her groups."""
    async with oidc_provider(pages.clock.now) as provider:
        provider.claims = dict(ANNA)
        use_settings(pages, provider)
        yield provider


def use_settings(pages: StatusPages, provider: Provider, public_url: str = BASE, **changes: Any) -> None:
    oidc = {"issuer": provider.issuer, "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET, "public_url": public_url}
    oidc |= {"roles": ROLES, **changes.pop("oidc", {})}
    pages.context = replace(pages.context, settings=StatusSettings.model_validate({"oidc": oidc, **changes}))


async def visit_provider(client: httpx.AsyncClient, next_path: str = "/") -> str:
    """Begin a sign-in, and sign in at the provider; the address that it sends the browser back to."""
    begun = await client.get("/sign-in/oidc", params={"next": next_path})
    assert begun.status_code == 303
    async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE) as browser:
        return (await browser.get(begun.headers["location"])).headers["location"]


async def sign_in(client: httpx.AsyncClient, next_path: str = "/") -> httpx.Response:
    return await client.get(await visit_provider(client, next_path))


def text_of(answer: httpx.Response) -> str:
    return html.unescape(answer.text)


async def test_role_comes_from_claim(pages: StatusPages, provider: Provider):
    """The session's cookie is strict, that of the attempt lax; the session ends with time and by signing out."""
    client = pages.new_client()
    begun = await client.get("/sign-in/oidc")
    assert {"HttpOnly", "SameSite=lax", "Path=/sign-in/oidc", "Max-Age=600"} <= set(begun.headers["set-cookie"].split("; "))
    answer = await sign_in(client, "/orders?state=held")
    assert answer.status_code == 200
    assert 'content="0; url=/orders?state=held"' in answer.text
    (session,) = [each for each in answer.headers.get_list("set-cookie") if each.startswith(SESSION_COOKIE)]
    assert {"HttpOnly", "SameSite=strict"} <= set(session.split("; "))
    assert ATTEMPT_COOKIE not in client.cookies
    shown = await client.get("/")
    assert [each for each in ("anna", "(operator)") if each not in shown.text] == []
    (found,) = await pages.records(AuditAction.SIGNED_IN)
    assert (found.subject, found.actor, json.loads(found.details)) == ("anna", "anna", {"by": "oidc"})
    pages.clock.advance(hours=8.1)
    assert (await client.get("/")).status_code == 303
    await sign_in(client)
    assert (await post(client, "/sign-out", "/")).status_code == 303
    assert (await client.get("/")).status_code == 303


async def test_new_account_of_that_name_ends_session(pages: StatusPages, provider: Provider):
    """As does switching OpenID Connect off."""
    client = pages.new_client()
    await sign_in(client)
    cookie = client.cookies[SESSION_COOKIE]
    settings = pages.context.settings
    pages.context = replace(pages.context, settings=StatusSettings())
    later = pages.new_client(cookies={SESSION_COOKIE: cookie})
    assert [(await later.get(path)).status_code for path in ("/", "/sign-in/oidc")] == [303, 404]
    pages.context = replace(pages.context, settings=settings)
    assert (await pages.new_client(cookies={SESSION_COOKIE: cookie}).get("/")).status_code == 200
    await pages.context.accounts.add("anna", PASSWORD, Role.VIEWER, now=pages.clock.now())
    assert (await pages.new_client(cookies={SESSION_COOKIE: cookie}).get("/")).status_code == 303


async def test_user_with_neither_role_nor_account_is_told(pages: StatusPages, provider: Provider):
    """In the language of the browser."""
    provider.claims["groups"] = ["canteen", "<b>choir</b>"]
    assert "hat canteen" in text_of(await sign_in(pages.new_client(headers={"accept-language": "de"})))
    client = pages.new_client()
    answer = await sign_in(client)
    assert (answer.status_code, "<b>choir" in answer.text) == (403, False)
    for part in ("anna", "`groups`", "canteen, <b>choir</b>", "status.oidc.roles", "lab-agent user add anna"):
        assert part in text_of(answer)
    assert SESSION_COOKIE not in client.cookies


async def test_role_comes_from_path_userinfo_or_account(pages: StatusPages, provider: Provider):
    """And counts as long as the account has it; a clock may differ by a minute."""

    async def shown(*parts: str) -> httpx.AsyncClient:
        client = pages.new_client()
        await sign_in(client)
        text = (await client.get("/")).text
        assert [each for each in parts if each not in text] == []
        return client

    provider.now = lambda: pages.clock.now() + timedelta(seconds=50)
    provider.claims |= {"groups": None, "realm_access": {"roles": "lab-operators"}}
    use_settings(pages, provider, oidc={"role_claim": "realm_access.roles"})
    await shown("(operator)")
    provider.userinfo = {"sub": "42", "groups": ["lab-operators"], "preferred_username": "somebody"}
    use_settings(pages, provider)
    await shown("anna", "(operator)")
    provider.claims |= {"preferred_username": " Admin", "groups": ["staff"]}
    client = await shown("(admin)")
    await pages.context.accounts.set_role("admin", Role.VIEWER, now=pages.clock.now())
    assert (await client.get("/")).status_code == 303


async def test_secret_is_sent_as_provider_wants(pages: StatusPages, provider: Provider):
    """A public client sends none."""
    for methods, changes, in_form in (
        (["client_secret_post"], {}, True),
        (["client_secret_basic", "client_secret_post"], {}, False),
        (["client_secret_post"], {"client_secret": None}, False),
    ):
        provider.metadata["token_endpoint_auth_methods_supported"] = methods
        use_settings(pages, provider, oidc=changes)
        assert (await sign_in(pages.new_client())).status_code == 200
        assert ("client_secret" in provider.forms[-1]) == in_form


WRONG_CLAIMS = (
    ({"nonce": "of another sign-in"}, "`nonce`"),
    ({"nonce": None}, "`nonce`"),
    ({"aud": "another-client"}, "`aud`"),
    ({"aud": [CLIENT_ID, "another-client"]}, "`azp`"),
    ({"azp": "another-client"}, "`azp`"),
    ({"iss": "https://id.example"}, "`iss`"),
    ({"exp": 1}, "`exp`"),
    ({"exp": None}, "`exp`"),
    ({"sub": None}, "`sub`"),
)
WRONG_KEYS = (
    (OTHER_KEY, "RS256"),
    (RSAKey.generate_key(2048, {"kid": "new"}), "RS256"),
    (OctKey.import_key(KEY.as_pem(private=False).hex()), "HS256"),
)
USELESS_CLAIMS = (
    ({"preferred_username": None}, "no_name", "`preferred_username`"),
    ({"preferred_username": ["anna"]}, "no_name", "`preferred_username`"),
    ({"preferred_username": "LAB\\anna"}, "name_invalid", "anna"),
    ({"groups": None}, "no_role", "`groups` is missing"),
    ({"groups": {"staff": True}}, "no_role", "`groups` is missing"),
)
REFUSED = (
    *(({"claims": claims}, 401, "id_token_invalid", part) for claims, part in WRONG_CLAIMS),
    *(({"key": key, "algorithm": name}, 401, "id_token_invalid", "`signature`") for key, name in WRONG_KEYS),
    *(({"claims": claims}, 403, reason, part) for claims, reason, part in USELESS_CLAIMS),
    ({"error": "access_denied"}, 403, "refused_by_provider", "access_denied"),
    ({"userinfo": {"sub": "43"}, "claims": {"groups": None}}, 502, "provider_answer_invalid", ""),
)


async def test_sign_in_is_refused_with_its_reason(pages: StatusPages, provider: Provider):
    usual = {name: getattr(provider, name) for name in ("claims", "key", "algorithm", "error", "userinfo")}
    for changes, status, _, part in REFUSED:
        for name, value in {**usual, **changes, "claims": ANNA | changes.get("claims", {})}.items():
            setattr(provider, name, value)
        use_settings(pages, provider)
        client = pages.new_client()
        answer = await sign_in(client)
        missing = [each for each in (part, 'name="password"') if each not in text_of(answer)]
        assert (answer.status_code, missing, SESSION_COOKIE in client.cookies) == (status, [], False), changes
    found = await pages.records(AuditAction.SIGN_IN_REJECTED)
    assert [json.loads(each.details) for each in found] == [{"by": "oidc", "reason": each[2]} for each in REFUSED]


async def test_wrong_state_or_issuer_is_refused(pages: StatusPages, provider: Provider):
    for changes in ({"state": "another"}, {"iss": "https://id.example"}):
        client = pages.new_client()
        back = dict(httpx.URL(await visit_provider(client)).params)
        answer = await client.get("/sign-in/oidc/return", params={**back, **changes})
        assert (answer.status_code, SESSION_COOKIE in client.cookies) == (400, False)
    found = await pages.records(AuditAction.SIGN_IN_REJECTED)
    assert [json.loads(each.details) for each in found] == [{"by": "oidc", "reason": "wrong_state"}] * 2
    assert provider.forms == []


async def test_return_works_once_in_its_browser_within_ten_minutes(pages: StatusPages, provider: Provider):
    """Else somebody could be led to the end of a sign-in that somebody else began."""
    client = pages.new_client()
    back = await visit_provider(client)
    cookie = client.cookies[ATTEMPT_COOKIE]
    for forged in ("", "x", "gAAAAA==", "a" * 5000):
        other = pages.new_client(headers={"cookie": f"{ATTEMPT_COOKIE}={forged}"})
        assert ((await other.get(back)).status_code, SESSION_COOKIE in other.cookies) == (400, False)
    assert await pages.records(AuditAction.SIGN_IN_REJECTED) == []
    assert (await client.get(back)).status_code == 200
    thief = pages.new_client(headers={"cookie": f"{ATTEMPT_COOKIE}={cookie}"})
    assert ((await thief.get(back)).status_code, SESSION_COOKIE in thief.cookies) == (502, False)
    client = pages.new_client()
    back = await visit_provider(client)
    pages.clock.advance(minutes=10)
    assert (await client.get(back)).status_code == 400


async def test_failures_of_one_address_are_throttled(pages: StatusPages, provider: Provider):
    client = pages.new_client()
    statuses = [(await client.get("/sign-in/oidc/return")).status_code for _ in range(21)]
    assert statuses == [400] * 20 + [429]
    assert (await sign_in(pages.new_client())).status_code == 200  # a sign-in under way waits for nobody
    assert (await client.post("/sign-in", data={"name": "viewer", "password": PASSWORD})).status_code == 303


async def test_useless_issuer_leaves_password_form(pages: StatusPages, provider: Provider):
    for status, metadata, answered in (
        (500, {}, 503),
        (404, {}, 502),
        (200, {"issuer": "https://id.example"}, 502),
        (200, {"token_endpoint": None}, 502),
        (200, {"jwks_uri": "ftp://id.example/keys"}, 502),
    ):
        provider.status, provider.metadata = status, metadata
        assert (await pages.new_client().get("/sign-in/oidc")).status_code == answered, metadata
    provider.issuer = "http://127.0.0.1:9"
    use_settings(pages, provider)
    client = pages.new_client()
    answer = await client.get("/sign-in/oidc")
    assert (answer.status_code, 'name="password"' in answer.text) == (503, True)
    assert (await client.post("/sign-in", data={"name": "operator", "password": PASSWORD})).status_code == 303


async def test_sign_in_leads_to_own_pages_only(pages: StatusPages, provider: Provider):
    for path in ("https://elsewhere.example/", "//elsewhere.example", "/sign-out"):
        assert 'content="0; url=/"' in (await sign_in(pages.new_client(), path)).text, path
    shown = (await pages.new_client().get("/sign-in", params={"next": "/orders?state=held"})).text
    assert f'href="{BASE}/sign-in/oidc?next=/orders%3Fstate%3Dheld">Sign in with 127.0.0.1</a>' in shown
    assert 'name="password"' in shown


async def test_password_can_be_switched_off(pages: StatusPages, provider: Provider):
    before = (await pages.signed_in_client(Role.ADMIN)).cookies[SESSION_COOKIE]
    use_settings(pages, provider, password=False)
    client = pages.new_client()
    assert 'name="password"' not in (await client.get("/sign-in")).text
    assert (await client.post("/sign-in", data={"name": "admin", "password": PASSWORD})).status_code == 403
    assert (await pages.new_client(cookies={SESSION_COOKIE: before}).get("/")).status_code == 303
    assert (await sign_in(client)).status_code == 200


@needs_chromium
@pytest.mark.slow
async def test_browser_is_signed_in_after_coming_back(pages: StatusPages, provider: Provider, browser: Browser):
    """A real browser: a Strict cookie is kept and sent although another site has led here."""
    provider.issuer, provider.has_page = provider.issuer.replace("127.0.0.1", "localhost"), True
    async with served(pages, lambda base: use_settings(pages, provider, base)) as base:
        tab = await browser.new_page()
        await tab.goto(f"{base}/orders")
        await tab.get_by_role("link", name="Sign in with localhost").click()
        await tab.get_by_role("link", name="Yes, it is me").click()
        await tab.wait_for_url("**/orders")
        await tab.get_by_text("(operator)").wait_for()
