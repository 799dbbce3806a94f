"""Authentication: the authorize page, every grant, one-time codes, rotation, revocation, lifetimes."""

import base64
import hashlib
from urllib.parse import parse_qs, urlsplit

import pytest

CALLBACK = "http://127.0.0.1:9/callback"
CLIENT = {"client_id": "clinic-app", "client_secret": "secret-clinic"}
REQUEST = {
    "response_type": "code",
    "client_id": "clinic-app",
    "redirect_uri": CALLBACK,
    "state": "s&1",
    "scope": "offline_access",
}


async def sign_in(world, **more):
    answer = await world.client.post("/connect/authorize", data=REQUEST | {"login": "clinic", "password": "pw-clinic"} | more)
    assert answer.status_code == 302, answer.text
    assert answer.headers["location"].startswith(CALLBACK + "?")
    return parse_qs(urlsplit(answer.headers["location"]).query)


async def token(world, **form):
    return await world.client.post("/connect/token", data=CLIENT | form)


async def tokens_by_code(world, **more):
    callback = await sign_in(world)
    return await token(world, grant_type="authorization_code", code=callback["code"][0], redirect_uri=CALLBACK, **more)


async def read_status(world, access):
    answer = await world.client.get("/fhir/Contract", headers={"Authorization": f"Bearer {access}"})
    return answer.status_code


async def test_authorize_shows_form_and_returns_code_and_state(world):
    page = await world.client.get("/connect/authorize", params=REQUEST)
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert 'value="s&amp;1"' in page.text
    callback = await sign_in(world)
    assert callback["state"] == ["s&1"]
    answer = (await token(world, grant_type="authorization_code", code=callback["code"][0], redirect_uri=CALLBACK)).json()
    assert answer["token_type"] == "Bearer"
    assert answer["expires_in"] == 3600
    assert await read_status(world, answer["access_token"]) == 200


async def test_wrong_password_shows_form_again(world):
    answer = await world.client.post("/connect/authorize", data=REQUEST | {"login": "clinic", "password": "no"})
    assert answer.status_code == 401
    assert "Wrong login or password" in answer.text
    assert "location" not in answer.headers


async def test_callback_url_must_match_exactly(world, helpers):
    for uri in (CALLBACK + "/", "http://evil.example/callback", ""):
        answer = await world.client.get("/connect/authorize", params=REQUEST | {"redirect_uri": uri})
        assert answer.status_code == 400
        assert "redirect_uri" in helpers.diagnostics(answer)
    unknown = await world.client.get("/connect/authorize", params=REQUEST | {"client_id": "nobody"})
    assert unknown.status_code == 400


async def test_unsupported_response_type_returned_to_client(world):
    answer = await world.client.get("/connect/authorize", params=REQUEST | {"response_type": "token"})
    assert parse_qs(urlsplit(answer.headers["location"]).query)["error"] == ["unsupported_response_type"]


async def test_code_reuse_revokes_its_tokens(world):
    """A code works once, and its second use revokes the tokens of the first one."""
    callback = await sign_in(world)
    form = {"grant_type": "authorization_code", "code": callback["code"][0], "redirect_uri": CALLBACK}
    first = (await token(world, **form)).json()
    second = await token(world, **form)
    assert second.status_code == 400
    assert second.json()["error"] == "invalid_grant"
    assert await read_status(world, first["access_token"]) == 401


async def test_code_expires(world):
    callback = await sign_in(world)
    world.clock.advance(301)
    answer = await token(world, grant_type="authorization_code", code=callback["code"][0], redirect_uri=CALLBACK)
    assert answer.json()["error"] == "invalid_grant"


async def test_code_bound_to_callback_url(world):
    callback = await sign_in(world)
    answer = await token(world, grant_type="authorization_code", code=callback["code"][0], redirect_uri=CALLBACK + "x")
    assert answer.json()["error"] == "invalid_grant"


@pytest.mark.parametrize("is_right", [True, False])
async def test_pkce_verifier_checked(world, is_right):
    verifier = "v" * 50
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    callback = await sign_in(world, code_challenge=challenge, code_challenge_method="S256")
    form = {"grant_type": "authorization_code", "code": callback["code"][0], "redirect_uri": CALLBACK}
    answer = await token(world, **form, code_verifier=verifier if is_right else "w" * 50)
    assert answer.status_code == (200 if is_right else 400)


async def test_pkce_can_be_required(world_factory):
    world = world_factory(tokens={"require_pkce": True})
    answer = await world.client.get("/connect/authorize", params=REQUEST)
    assert "code_challenge" in answer.headers["location"]


async def test_refresh_token_rotates(world):
    first = (await tokens_by_code(world)).json()
    second = (await token(world, grant_type="refresh_token", refresh_token=first["refresh_token"])).json()
    assert second["refresh_token"] != first["refresh_token"]
    again = await token(world, grant_type="refresh_token", refresh_token=first["refresh_token"])
    assert again.status_code == 400
    assert again.json()["error"] == "invalid_grant"
    assert await read_status(world, second["access_token"]) == 200


async def test_reused_refresh_token_can_end_session(world_factory):
    world = world_factory(tokens={"reuse_revokes": True})
    first = (await tokens_by_code(world)).json()
    second = (await token(world, grant_type="refresh_token", refresh_token=first["refresh_token"])).json()
    await token(world, grant_type="refresh_token", refresh_token=first["refresh_token"])
    assert await read_status(world, second["access_token"]) == 401


async def test_refresh_without_rotation_keeps_refresh_token(world_factory):
    world = world_factory(tokens={"rotate_refresh": False})
    first = (await tokens_by_code(world)).json()
    for _ in range(2):
        answer = (await token(world, grant_type="refresh_token", refresh_token=first["refresh_token"])).json()
        assert answer["refresh_token"] == first["refresh_token"]


async def test_expired_access_token_is_refreshed(world_factory):
    world = world_factory(tokens={"lifetime_seconds": 60})
    first = (await tokens_by_code(world)).json()
    assert first["expires_in"] == 60
    world.clock.advance(60)
    assert await read_status(world, first["access_token"]) == 401
    second = (await token(world, grant_type="refresh_token", refresh_token=first["refresh_token"])).json()
    assert await read_status(world, second["access_token"]) == 200


async def test_token_response_without_expires_in(world_factory):
    world = world_factory(tokens={"send_expires_in": False})
    assert "expires_in" not in (await tokens_by_code(world)).json()


async def test_password_grant_secret_in_header_or_form(world):
    form = {"grant_type": "password", "username": "laboratory", "password": "pw-lab"}
    posted = await world.client.post("/connect/token", data=form | {"client_id": "lab-agent", "client_secret": "secret-lab"})
    basic = await world.client.post("/connect/token", data=form, auth=("lab-agent", "secret-lab"))
    assert posted.json()["refresh_token"] != basic.json()["refresh_token"]
    assert await read_status(world, basic.json()["access_token"]) == 200
    wrong = await world.client.post("/connect/token", data=form | {"password": "no"}, auth=("lab-agent", "secret-lab"))
    assert wrong.json()["error"] == "invalid_grant"


async def test_client_credentials_give_no_refresh_token(world):
    answer = (await token(world, grant_type="client_credentials")).json()
    assert "refresh_token" not in answer
    assert await read_status(world, answer["access_token"]) == 200


@pytest.mark.parametrize(
    ("form", "status", "error"),
    [
        ({"grant_type": "password"}, 401, "invalid_client"),
        (CLIENT | {"grant_type": "magic"}, 400, "unsupported_grant_type"),
        (CLIENT | {"grant_type": "refresh_token", "refresh_token": "x"}, 400, "invalid_grant"),
    ],
)
async def test_token_error_has_oauth_and_fhir_form(world, helpers, form, status, error):
    answer = await world.client.post("/connect/token", data=form)
    assert answer.status_code == status
    assert answer.json()["error"] == error
    assert error in helpers.diagnostics(answer)


async def test_token_request_must_be_form(world):
    answer = await world.client.post("/connect/token", json=CLIENT)
    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid_request"
    twice = await world.client.post(
        "/connect/token", content="client_id=a&client_id=b", headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert twice.json()["error"] == "invalid_request"


async def test_refresh_token_revocation_ends_session(world):
    first = (await tokens_by_code(world)).json()
    answer = await world.client.post("/connect/revocation", data=CLIENT | {"token": first["refresh_token"]})
    assert answer.status_code == 200
    assert await read_status(world, first["access_token"]) == 401
    assert (await token(world, grant_type="refresh_token", refresh_token=first["refresh_token"])).status_code == 400


async def test_missing_or_wrong_authorization_header_rejected(world, helpers):
    for header in (None, "Bearer nonsense", "Basic !!!", "Basic eDp5", "Digest x"):
        answer = await world.client.get("/fhir/Contract", headers={"Authorization": header} if header else {})
        assert answer.status_code == 401
        assert "Authorization" in helpers.diagnostics(answer)
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_basic_authentication_must_be_switched_on(world_factory):
    """The interface: later requests carry a bearer token. Basic is a switch, since the table of silences leaves it open."""
    for allowed, status in ((None, 401), (False, 401), (True, 200)):
        world = world_factory(tokens={} if allowed is None else {"allow_basic": allowed})
        assert (await world.client.get("/fhir/Contract", auth=("clinic", "pw-clinic"))).status_code == status


async def test_other_clients_token_not_revoked(world):
    first = (await tokens_by_code(world)).json()
    other = {"client_id": "lab-agent", "client_secret": "secret-lab"}
    for name in ("access_token", "refresh_token"):
        answer = await world.client.post("/connect/revocation", data=other | {"token": first[name]})
        assert answer.status_code == 400
        assert answer.json()["error"] == "invalid_grant"
    assert await read_status(world, first["access_token"]) == 200


async def test_verifier_without_challenge_rejected(world):
    """A code that was requested without PKCE but redeemed with it may have been injected by an attacker."""
    assert (await tokens_by_code(world, code_verifier="v" * 50)).json()["error"] == "invalid_grant"


@pytest.mark.parametrize("challenge", ["", "short", "+" * 43, "a" * 44])
async def test_invalid_challenge_rejected_immediately(world, challenge):
    callback = await sign_in(world, code_challenge=challenge, code_challenge_method="S256")
    assert callback["error"] == ["invalid_request"]
    assert "code" not in callback
