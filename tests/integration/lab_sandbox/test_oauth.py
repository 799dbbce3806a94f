"""Authentication: the authorize page, every grant, one-time codes, rotation, revocation, lifetimes."""

import base64
import hashlib
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.integration.lab_sandbox.world import diagnostics

CALLBACK = "http://127.0.0.1:9/callback"
CLIENT = {"client_id": "clinic-app", "client_secret": "secret-clinic"}
LAB_CLIENT = {"client_id": "lab-agent", "client_secret": "secret-lab"}
REQUEST = {
    "client_id": "clinic-app",
    "redirect_uri": CALLBACK,
    "state": "s&1",
    "response_type": "code",
    "scope": "offline_access",
}


async def sign_in(world, **more):
    answer = await world.client.post("/connect/authorize", data=REQUEST | {"login": "clinic", "password": "pw-clinic"} | more)
    assert answer.status_code == 302, answer.text
    assert answer.headers["location"].startswith(CALLBACK + "?")
    return parse_qs(urlsplit(answer.headers["location"]).query)


async def token(world, **form):
    return await world.client.post("/connect/token", data=CLIENT | form)


async def redeem(world, callback, **more):
    form = {"code": callback["code"][0], "redirect_uri": CALLBACK} | more
    return await token(world, grant_type="authorization_code", **form)


async def tokens_by_code(world):
    return (await redeem(world, await sign_in(world))).json()


async def refresh(world, tokens):
    return await token(world, grant_type="refresh_token", refresh_token=tokens["refresh_token"])


async def read_status(world, tokens):
    return await world.status("/fhir/Contract", {"Authorization": f"Bearer {tokens['access_token']}"})


async def authorize(world, **changes):
    return await world.client.get("/connect/authorize", params=REQUEST | changes)


async def test_authorize_shows_form_and_returns_code_and_state(world):
    page = await authorize(world)
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert 'value="s&amp;1"' in page.text
    wrong = await world.client.post("/connect/authorize", data=REQUEST | {"login": "clinic", "password": "no"})
    assert (wrong.status_code, "location" in wrong.headers) == (401, False)
    assert "Wrong login or password" in wrong.text
    callback = await sign_in(world)
    assert callback["state"] == ["s&1"]
    answer = (await redeem(world, callback)).json()
    assert (answer["token_type"], answer["expires_in"]) == ("Bearer", 3600)
    assert await read_status(world, answer) == 200


async def test_callback_url_must_match_exactly(world):
    for uri in (CALLBACK + "/", "http://evil.example/callback", ""):
        answer = await authorize(world, redirect_uri=uri)
        assert answer.status_code == 400
        assert "redirect_uri" in diagnostics(answer)
    assert (await authorize(world, client_id="nobody")).status_code == 400
    unsupported = await authorize(world, response_type="token")
    assert parse_qs(urlsplit(unsupported.headers["location"]).query)["error"] == ["unsupported_response_type"]


async def test_code_reuse_revokes_its_tokens(world):
    callback = await sign_in(world)
    first, second = (await redeem(world, callback)).json(), await redeem(world, callback)
    assert (second.status_code, second.json()["error"]) == (400, "invalid_grant")
    assert await read_status(world, first) == 401


async def test_pkce_verifier_checked(world, world_factory):
    verifier = "v" * 50
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    for given, status in ((verifier, 200), ("w" * 50, 400)):
        callback = await sign_in(world, code_challenge=challenge, code_challenge_method="S256")
        assert (await redeem(world, callback, code_verifier=given)).status_code == status
    for wrong in ("", "short", "+" * 43, "a" * 44):
        callback = await sign_in(world, code_challenge=wrong, code_challenge_method="S256")
        assert (callback["error"], "code" in callback) == (["invalid_request"], False)
    requiring = world_factory(tokens={"require_pkce": True})
    assert "code_challenge" in (await authorize(requiring)).headers["location"]


async def test_refresh_token_rotates(world, world_factory):
    first = await tokens_by_code(world)
    second = (await refresh(world, first)).json()
    assert second["refresh_token"] != first["refresh_token"]
    again = await refresh(world, first)
    assert (again.status_code, again.json()["error"]) == (400, "invalid_grant")
    assert await read_status(world, second) == 200
    strict = world_factory(tokens={"reuse_revokes": True})
    first = await tokens_by_code(strict)
    second = (await refresh(strict, first)).json()
    await refresh(strict, first)
    assert await read_status(strict, second) == 401
    keeping = world_factory(tokens={"rotate_refresh": False})
    first = await tokens_by_code(keeping)
    for _ in range(2):
        assert (await refresh(keeping, first)).json()["refresh_token"] == first["refresh_token"]


async def test_token_error_has_oauth_and_fhir_form(world):
    for form, status, error in (
        ({"grant_type": "password"}, 401, "invalid_client"),
        (CLIENT | {"grant_type": "magic"}, 400, "unsupported_grant_type"),
        (CLIENT | {"grant_type": "refresh_token", "refresh_token": "x"}, 400, "invalid_grant"),
    ):
        answer = await world.client.post("/connect/token", data=form)
        assert (answer.status_code, answer.json()["error"]) == (status, error)
        assert error in diagnostics(answer)


async def test_token_request_must_be_form(world):
    answer = await world.client.post("/connect/token", json=CLIENT)
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_request")
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    twice = await world.client.post("/connect/token", content="client_id=a&client_id=b", headers=form)
    assert twice.json()["error"] == "invalid_request"


async def test_refresh_token_revocation_ends_session(world):
    """But not by another client."""
    first = await tokens_by_code(world)
    for name in ("access_token", "refresh_token"):
        answer = await world.client.post("/connect/revocation", data=LAB_CLIENT | {"token": first[name]})
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_grant")
    assert await read_status(world, first) == 200
    answer = await world.client.post("/connect/revocation", data=CLIENT | {"token": first["refresh_token"]})
    assert answer.status_code == 200
    assert await read_status(world, first) == 401
    assert (await refresh(world, first)).status_code == 400


@pytest.mark.parametrize(
    "header",
    [None, "Bearer nonsense", "Basic !!!", "Basic eDp5", "Digest x", "Basic é".encode(), b"Basic \xff\xff", b"Bearer \xe9"],
)
async def test_missing_or_wrong_authorization_header_rejected(world, header):
    answer = await world.client.get("/fhir/Contract", headers={"Authorization": header} if header else {})
    assert answer.status_code == 401
    assert "Authorization" in diagnostics(answer)
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_basic_authentication_must_be_switched_on(world_factory):
    """The interface: later requests carry a bearer token. Basic is a switch, since the table of silences leaves it open."""
    for allowed, status in ((None, 401), (False, 401), (True, 200)):
        world = world_factory(tokens={} if allowed is None else {"allow_basic": allowed})
        assert (await world.client.get("/fhir/Contract", auth=("clinic", "pw-clinic"))).status_code == status
