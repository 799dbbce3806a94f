"""Signing in with OpenID Connect, at a small provider that is served over HTTP: who gets in, and what is refused."""

from __future__ import annotations

import asyncio
import html
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc.jwk import OctKey, RSAKey
from playwright.async_api import async_playwright

from lab_agent import web_server
from lab_agent.accounts import Role
from lab_agent.domain.audit import AuditAction
from lab_agent.settings.status import StatusSettings
from lab_agent.status.app import create_app
from lab_agent.status.oidc import ATTEMPT_COOKIE
from lab_agent.status.oidc_faults import FaultDetail, OidcError, OidcFault, answer_for
from lab_agent.status.sessions import SESSION_COOKIE
from lab_agent.status.translation import speaking
from tests.harness.clock import DEADLINE
from tests.harness.oidc_provider import CLIENT_ID, CLIENT_SECRET, KEY, OTHER_KEY, Provider, oidc_provider
from tests.integration.status.conftest import BASE, PASSWORD, StatusPages
from tests.integration.status.test_audit_of_pages import records
from tests.integration.status.test_browser import ARGS, CHROMIUM

ROLES = {"staff": "viewer", "lab-operators": "operator"}


@pytest.fixture
async def provider(pages: StatusPages) -> AsyncIterator[Provider]:
    """A provider that the page trusts; its user is `anna`, an operator by her groups."""
    async with oidc_provider(pages.clock.now) as provider:
        provider.claims = {"preferred_username": "anna", "groups": ["staff", "lab-operators", "canteen"]}
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


async def assert_refused(pages: StatusPages, client: httpx.AsyncClient, answer: httpx.Response, reason: str) -> None:
    assert SESSION_COOKIE not in client.cookies
    (found,) = await records(pages, AuditAction.SIGN_IN_REJECTED)
    assert json.loads(found.details) == {"by": "oidc", "reason": reason}
    assert 'name="password"' in answer.text


async def test_role_comes_from_claim(pages: StatusPages, provider: Provider):
    client = pages.new_client()
    answer = await sign_in(client, "/orders?state=held")
    assert answer.status_code == 200
    assert 'content="0; url=/orders?state=held"' in answer.text
    shown = await client.get("/")
    assert "anna" in shown.text
    assert "(operator)" in shown.text
    (found,) = await records(pages, AuditAction.SIGNED_IN)
    assert (found.subject, found.actor, json.loads(found.details)) == ("anna", "anna", {"by": "oidc"})


async def test_account_of_that_name_gives_role(pages: StatusPages, provider: Provider):
    provider.claims |= {"preferred_username": " Admin", "groups": ["staff"]}
    client = pages.new_client()
    assert (await sign_in(client)).status_code == 200
    assert "(admin)" in (await client.get("/")).text
    await pages.context.accounts.set_role("admin", Role.VIEWER, now=pages.clock.now())
    assert (await client.get("/")).status_code == 303


async def test_session_cookie_is_strict_and_attempt_lax(pages: StatusPages, provider: Provider):
    client = pages.new_client()
    begun = await client.get("/sign-in/oidc")
    assert {"HttpOnly", "SameSite=lax", "Path=/sign-in/oidc", "Max-Age=600"} <= set(begun.headers["set-cookie"].split("; "))
    answer = await sign_in(client)
    (session,) = [each for each in answer.headers.get_list("set-cookie") if each.startswith(SESSION_COOKIE)]
    assert {"HttpOnly", "SameSite=strict"} <= set(session.split("; "))
    assert ATTEMPT_COOKIE not in client.cookies


async def test_session_ends_with_time_and_sign_out(pages: StatusPages, provider: Provider):
    client = pages.new_client()
    await sign_in(client)
    pages.clock.advance(hours=8.1)
    assert (await client.get("/")).status_code == 303
    await sign_in(client)
    token = (await client.get("/")).text.split('name="csrf_token" value="')[1].split('"')[0]
    assert (await client.post("/sign-out", data={"csrf_token": token})).status_code == 303
    assert (await client.get("/")).status_code == 303


async def test_new_account_of_that_name_ends_session(pages: StatusPages, provider: Provider):
    client = pages.new_client()
    await sign_in(client)
    await pages.context.accounts.add("anna", PASSWORD, Role.VIEWER, now=pages.clock.now())
    assert (await client.get("/")).status_code == 303


async def test_session_ends_when_oidc_is_switched_off(pages: StatusPages, provider: Provider):
    client = pages.new_client()
    await sign_in(client)
    cookie = client.cookies[SESSION_COOKIE]
    pages.context = replace(pages.context, settings=StatusSettings())
    later = pages.new_client(cookies={SESSION_COOKIE: cookie})
    assert (await later.get("/")).status_code == 303
    assert (await later.get("/sign-in/oidc")).status_code == 404


async def test_user_with_neither_role_nor_account_is_told(pages: StatusPages, provider: Provider):
    provider.claims["groups"] = ["canteen", "<b>choir</b>"]
    client = pages.new_client()
    answer = await sign_in(client)
    assert answer.status_code == 403
    assert "<b>choir" not in answer.text
    for part in ("anna", "`groups`", "canteen, <b>choir</b>", "status.oidc.roles", "lab-agent user add anna"):
        assert part in text_of(answer)
    await assert_refused(pages, client, answer, "no_role")
    (found,) = await records(pages, AuditAction.SIGN_IN_REJECTED)
    assert found.subject == "anna"


@pytest.mark.parametrize(
    ("claims", "reason", "part"),
    [
        ({"preferred_username": None}, "no_name", "`preferred_username`"),
        ({"preferred_username": ["anna"]}, "no_name", "`preferred_username`"),
        ({"preferred_username": "LAB\\anna"}, "name_invalid", "anna"),
        ({"groups": None}, "no_role", "`groups` is missing"),
        ({"groups": {"staff": True}}, "no_role", "`groups` is missing"),
    ],
)
async def test_missing_claim_is_named(pages: StatusPages, provider: Provider, claims: dict[str, Any], reason: str, part: str):
    provider.claims |= claims
    client = pages.new_client()
    answer = await sign_in(client)
    assert answer.status_code == 403
    assert part in text_of(answer)
    await assert_refused(pages, client, answer, reason)


async def test_role_claim_may_be_a_path(pages: StatusPages, provider: Provider):
    provider.claims |= {"groups": None, "realm_access": {"roles": "lab-operators"}}
    use_settings(pages, provider, oidc={"role_claim": "realm_access.roles"})
    client = pages.new_client()
    await sign_in(client)
    assert "(operator)" in (await client.get("/")).text


async def test_claims_may_come_from_userinfo(pages: StatusPages, provider: Provider):
    provider.userinfo = {"sub": "42", "groups": ["lab-operators"], "preferred_username": "somebody"}
    provider.claims["groups"] = None
    client = pages.new_client()
    await sign_in(client)
    shown = await client.get("/")
    assert "(operator)" in shown.text
    assert "anna" in shown.text


async def test_userinfo_of_somebody_else_is_refused(pages: StatusPages, provider: Provider):
    provider.userinfo = {"sub": "43", "groups": ["lab-operators"]}
    provider.claims["groups"] = None
    client = pages.new_client()
    await assert_refused(pages, client, await sign_in(client), "provider_answer_invalid")


@pytest.mark.parametrize(
    ("methods", "sends_secret"), [(["client_secret_post"], True), (["client_secret_basic", "client_secret_post"], False)]
)
async def test_secret_is_sent_as_provider_wants(pages: StatusPages, provider: Provider, methods: list[str], sends_secret: bool):
    provider.metadata["token_endpoint_auth_methods_supported"] = methods
    assert (await sign_in(pages.new_client())).status_code == 200
    assert ("client_secret" in provider.forms[0]) == sends_secret


async def test_public_client_sends_no_secret(pages: StatusPages, provider: Provider):
    use_settings(pages, provider, oidc={"client_secret": None})
    assert (await sign_in(pages.new_client())).status_code == 200
    assert provider.forms[0]["client_id"] == CLIENT_ID
    assert "client_secret" not in provider.forms[0]


def _wrong(**claims: Any) -> Callable[[Provider], None]:
    return lambda provider: provider.claims.update(claims)


def _signed(key: Any, algorithm: str = "RS256") -> Callable[[Provider], None]:
    def change(provider: Provider) -> None:
        provider.key, provider.algorithm = key, algorithm

    return change


PUBLIC_KEY_AS_SECRET = OctKey.import_key(KEY.as_pem(private=False).hex())


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (_wrong(nonce="of another sign-in"), "`nonce`"),
        (_wrong(nonce=None), "`nonce`"),
        (_wrong(aud="another-client"), "`aud`"),
        (_wrong(aud=[CLIENT_ID, "another-client"]), "`azp`"),
        (_wrong(azp="another-client"), "`azp`"),
        (_wrong(iss="https://id.example"), "`iss`"),
        (_wrong(exp=1), "`exp`"),
        (_wrong(exp=None), "`exp`"),
        (_wrong(sub=None), "`sub`"),
        (_signed(OTHER_KEY), "`signature`"),
        (_signed(RSAKey.generate_key(2048, {"kid": "new"})), "`signature`"),
        (_signed(PUBLIC_KEY_AS_SECRET, "HS256"), "`signature`"),
    ],
)
async def test_wrong_token_is_refused(pages: StatusPages, provider: Provider, change: Callable[[Provider], None], part: str):
    change(provider)
    client = pages.new_client()
    answer = await sign_in(client)
    assert answer.status_code == 401
    assert part in text_of(answer)
    await assert_refused(pages, client, answer, "id_token_invalid")


async def test_clock_may_differ_by_a_minute(pages: StatusPages, provider: Provider):
    provider.now = lambda: pages.clock.now() + timedelta(seconds=50)
    assert (await sign_in(pages.new_client())).status_code == 200


async def test_wrong_state_is_refused(pages: StatusPages, provider: Provider):
    client = pages.new_client()
    back = await visit_provider(client)
    answer = await client.get(back.replace(parse_qs(urlsplit(back).query)["state"][0], "another"))
    assert answer.status_code == 400
    await assert_refused(pages, client, answer, "wrong_state")
    assert provider.forms == []


async def test_return_from_another_issuer_is_refused(pages: StatusPages, provider: Provider):
    client = pages.new_client()
    back = await visit_provider(client)
    answer = await client.get("/sign-in/oidc/return", params={**dict(httpx.URL(back).params), "iss": "https://id.example"})
    await assert_refused(pages, client, answer, "wrong_state")


async def test_return_in_another_browser_is_refused(pages: StatusPages, provider: Provider):
    """Somebody is led to the end of a sign-in that somebody else began."""
    back = await visit_provider(pages.new_client())
    other = pages.new_client()
    assert (await other.get(back)).status_code == 400
    assert SESSION_COOKIE not in other.cookies
    assert await records(pages, AuditAction.SIGN_IN_REJECTED) == []


@pytest.mark.parametrize("forged", ["", "x", "gAAAAA==", "a" * 5000])
async def test_forged_attempt_is_refused(pages: StatusPages, provider: Provider, forged: str):
    client = pages.new_client(headers={"cookie": f"{ATTEMPT_COOKIE}={forged}"})
    assert (await client.get("/sign-in/oidc/return", params={"code": "1", "state": "1"})).status_code == 400


async def test_attempt_is_over_after_ten_minutes(pages: StatusPages, provider: Provider):
    client = pages.new_client()
    back = await visit_provider(client)
    pages.clock.advance(minutes=10)
    assert (await client.get(back)).status_code == 400


async def test_return_cannot_be_repeated(pages: StatusPages, provider: Provider):
    client = pages.new_client()
    back = await visit_provider(client)
    cookie = client.cookies[ATTEMPT_COOKIE]
    assert (await client.get(back)).status_code == 200
    thief = pages.new_client(headers={"cookie": f"{ATTEMPT_COOKIE}={cookie}"})
    assert (await thief.get(back)).status_code == 502
    assert SESSION_COOKIE not in thief.cookies


async def test_refusal_of_provider_is_shown(pages: StatusPages, provider: Provider):
    provider.error = "access_denied"
    client = pages.new_client()
    answer = await sign_in(client)
    assert answer.status_code == 403
    assert "access_denied" in answer.text
    await assert_refused(pages, client, answer, "refused_by_provider")


async def test_failures_of_one_address_are_throttled(pages: StatusPages, provider: Provider):
    client = pages.new_client()
    statuses = [(await client.get("/sign-in/oidc/return")).status_code for _ in range(21)]
    assert statuses == [400] * 20 + [429]
    assert (await sign_in(pages.new_client())).status_code == 200  # a sign-in under way waits for nobody
    assert (await client.post("/sign-in", data={"name": "viewer", "password": PASSWORD})).status_code == 303


async def test_unreachable_issuer_leaves_password_form(pages: StatusPages, provider: Provider):
    provider.issuer = "http://127.0.0.1:9"
    use_settings(pages, provider)
    client = pages.new_client()
    answer = await client.get("/sign-in/oidc")
    assert answer.status_code == 503
    assert "cannot be asked who you are" in answer.text
    assert 'name="password"' in answer.text
    answer = await client.post("/sign-in", data={"name": "operator", "password": PASSWORD})
    assert answer.status_code == 303


@pytest.mark.parametrize(
    ("status", "metadata", "answered"),
    [
        (500, {}, 503),
        (404, {}, 502),
        (200, {"issuer": "https://id.example"}, 502),
        (200, {"token_endpoint": None}, 502),
        (200, {"jwks_uri": "ftp://id.example/keys"}, 502),
    ],
)
async def test_useless_discovery_document_is_refused(
    pages: StatusPages, provider: Provider, status: int, metadata: dict[str, Any], answered: int
):
    provider.status, provider.metadata = status, metadata
    assert (await pages.new_client().get("/sign-in/oidc")).status_code == answered


@pytest.mark.parametrize("path", ["https://elsewhere.example/", "//elsewhere.example", "/sign-out"])
async def test_sign_in_leads_to_own_pages_only(pages: StatusPages, provider: Provider, path: str):
    assert 'content="0; url=/"' in (await sign_in(pages.new_client(), path)).text


async def test_sign_in_page_offers_provider_beside_form(pages: StatusPages, provider: Provider):
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


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")
async def test_browser_is_signed_in_after_coming_back(pages: StatusPages, provider: Provider):
    """A real browser: a Strict cookie is kept and sent although another site has led here."""
    provider.issuer, provider.has_page = provider.issuer.replace("127.0.0.1", "localhost"), True
    sock = web_server.listen("127.0.0.1", 0, settings_group="status")
    base = f"http://127.0.0.1:{sock.getsockname()[1]}"
    use_settings(pages, provider, base)
    serving = asyncio.create_task(web_server.serve(create_app(pages.context), sock, drain=2))
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=ARGS)
            tab = await browser.new_page()
            await tab.goto(f"{base}/orders")
            await tab.get_by_role("link", name="Sign in with localhost").click()
            await tab.get_by_role("link", name="Yes, it is me").click()
            await tab.wait_for_url("**/orders")
            await tab.get_by_text("(operator)").wait_for()
            await browser.close()
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize(("language", "told"), [("de", "hat lab-doctors"), ("ru", "указано lab-doctors")])
async def test_fault_is_told_in_the_language_of_the_browser_and_logged_in_english(
    pages: StatusPages, provider: Provider, capsys: pytest.CaptureFixture[str], language: str, told: str
):
    provider.claims |= {"groups": ["lab-doctors"]}
    client = pages.new_client(headers={"accept-language": language})
    answer = await sign_in(client)
    assert answer.status_code == 403
    assert told in text_of(answer)
    logged = capsys.readouterr()
    assert "to which status.oidc.roles gives no role" in logged.out + logged.err


@pytest.mark.parametrize("language", ["de", "ru"])
async def test_detail_of_a_fault_has_no_english(pages: StatusPages, language: str):
    said = FaultDetail("%(what)s comes with the status %(status)s", {"what": "its keys", "status": "404"})
    _, english = answer_for(OidcError(OidcFault.ANSWER_INVALID, said), "id.example")
    assert "its keys comes with the status 404" in english
    with speaking(language):
        _, text = answer_for(OidcError(OidcFault.ANSWER_INVALID, said), "id.example")
    assert "404" in text
    assert "status 404" not in text
    assert "keys" not in text
