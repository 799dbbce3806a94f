import asyncio
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import respx

from lab_agent.exchange import browser_login
from lab_agent.exchange.browser_login import BrowserLogin
from lab_agent.exchange.token_client import CodeGrant
from lab_agent.settings.exchange import OAuthSettings
from lab_agent.shared import errors
from tests.harness.clock import DEADLINE
from tests.harness.programs import free_port

CALLBACK = "https://lab.example/cb?app=1"


def oauth(**changes: Any) -> OAuthSettings:
    given = {"grant": "authorization_code", "auth_url": "https://auth.example", "client_id": "lab", "redirect_uri": CALLBACK}
    return OAuthSettings.model_validate({**given, **changes})


def asked(sign_in: BrowserLogin) -> dict[str, str]:
    return {name: found[0] for name, found in parse_qs(urlsplit(sign_in.authorization_url).query).items()}


def test_authorization_url_has_state_scope_and_pkce() -> None:
    sign_in = browser_login.start_login(oauth())
    assert sign_in.authorization_url.startswith("https://auth.example/connect/authorize?")
    assert {name: value for name, value in asked(sign_in).items() if name not in {"state", "code_challenge"}} == {
        "response_type": "code",
        "client_id": "lab",
        "redirect_uri": CALLBACK,
        "scope": "offline_access",
        "code_challenge_method": "S256",
    }
    assert asked(sign_in)["state"] == sign_in.state
    assert sign_in.verifier is not None
    assert sign_in.verifier not in sign_in.authorization_url
    assert 43 <= len(sign_in.verifier) <= 128
    assert not sign_in.has_local_callback


def test_every_login_has_own_state_and_verifier() -> None:
    one, other = browser_login.start_login(oauth()), browser_login.start_login(oauth())
    assert one.state != other.state
    assert one.verifier != other.verifier
    plain = browser_login.start_login(oauth(pkce=False, scope=""))
    assert (set(asked(plain)), plain.verifier) == ({"response_type", "client_id", "redirect_uri", "state"}, None)
    with pytest.raises(errors.SettingsError, match="needs no sign-in"):
        browser_login.start_login(oauth(grant="basic", username="u", password="p"))


def test_pasted_callback_yields_code() -> None:
    """But not one of another sign-in, or a failed one."""
    sign_in = browser_login.start_login(oauth())
    found = browser_login.parse_callback(f"  {CALLBACK}&code=a%2Bb&state={sign_in.state}\n", sign_in)
    assert found == CodeGrant("a+b", sign_in.verifier)
    ours = f"state={sign_in.state}"
    for query in ("", "code=x", "code=x&state=other", f"code=x&{ours}&state=other", ours, f"{ours}&error=access_denied&code=x"):
        with pytest.raises(errors.AuthenticationRequired):
            browser_login.parse_callback(f"https://lab.example/cb?{query}", sign_in)


async def test_callback_received_and_other_requests_ignored(
    make_tokens: Callable[..., Any], router: respx.MockRouter, store: Any
) -> None:
    route = router.post("https://auth.example/connect/token").respond(json={"access_token": "t", "refresh_token": "r"})
    port = free_port()
    settings = oauth(redirect_uri=f"http://127.0.0.1:{port}/cb")
    sign_in = browser_login.start_login(settings)
    assert sign_in.has_local_callback
    async with (
        browser_login.callback_server(sign_in) as callback,
        httpx.AsyncClient(trust_env=False, timeout=DEADLINE) as browser,
    ):
        at = f"http://127.0.0.1:{port}"
        assert (await browser.get(f"{at}/favicon.ico")).status_code == 404
        assert (await browser.get(f"{at}/cb?code=evil&state=other")).status_code == 404
        assert (await browser.post(f"{at}/cb?code=evil&state={sign_in.state}")).status_code == 404
        assert not callback.done()
        shown = await browser.get(f"{at}/cb?code=good&state={sign_in.state}")
        assert (shown.status_code, "close this window" in shown.text) == (200, True)
        await browser_login.finish_login(
            await asyncio.wait_for(callback, DEADLINE), sign_in, make_tokens(**settings.model_dump(exclude_none=True))
        )
    form = parse_qs(route.calls.last.request.content.decode())
    assert (form["code"], form["code_verifier"], form["redirect_uri"]) == (["good"], [sign_in.verifier], [settings.redirect_uri])
    assert store.oauth_tokens.token.refresh_token == "r"


async def test_callback_listener_survives_invalid_requests() -> None:
    port = free_port()
    sign_in = browser_login.start_login(oauth(redirect_uri=f"http://127.0.0.1:{port}/cb"))
    async with browser_login.callback_server(sign_in) as callback:
        for rubbish in (b"\xff\xfe\r\n\r\n", b"GET\r\n\r\n", b"GET /" + b"a" * 20_000 + b"\r\n\r\n", b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(rubbish)
            writer.write_eof()
            await reader.read()
            writer.close()
        assert not callback.done()


async def test_occupied_callback_port_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        sign_in = browser_login.start_login(oauth(redirect_uri=f"http://127.0.0.1:{taken.getsockname()[1]}/cb"))
        with pytest.raises(errors.SettingsError, match="cannot listen"):
            async with browser_login.callback_server(sign_in):
                pytest.fail("listened on a port that is taken")
