"""Authorization without a human: tokens, HTTP Basic, OAuth, and contracts that a client is not tied to."""

from __future__ import annotations

import asyncio
import threading
from base64 import b64encode, urlsafe_b64encode
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from lab_agent.operations.accounts import ApiClients
from lab_agent.settings.api import ApiSettings
from lab_api.app import create_app
from lab_api.auth import Clients
from lab_api.catalogue_sync import CatalogueSync
from lab_api.errors import ApiError
from lab_api.token_endpoint import SignedTokens, TokenEndpoint
from tests.harness.clock import DEADLINE, VirtualClock
from tests.harness.paths import CATALOGUE
from tests.integration.lab_api.parts import TroubledStore, basic, basket, bearer, caller

WARD = basic("ward:lamp:shade")
KEYS = ("first-key", "second-key")


async def ask(api: httpx.AsyncClient, authorization: str | bytes, contract: str = "C-100", **more: Any) -> httpx.Response:
    raw = authorization if isinstance(authorization, bytes) else authorization.encode()
    asked = {"method": "GET", "url": f"eta?contract={contract}", **more}
    return await api.request(**asked, headers=[(b"Authorization", raw)])


@pytest.mark.parametrize(
    "authorization",
    [
        *("", "Bearer", "Bearer ", "Bearer wrong", "Bearer exchange-token x", "exchange-token", "Digest exchange-token"),
        *("Basic", "Basic ???", "Basic /w==", "Basic ä".encode("latin-1"), "Bearer ä".encode("latin-1")),
        *(basic("ward:wrong"), basic("nobody:lamp:shade"), basic("ward"), "Bearer " + "x" * 10_000),
    ],
)
async def test_request_without_valid_credentials_rejected(api: httpx.AsyncClient, authorization: str | bytes) -> None:
    response = await ask(api, authorization)
    assert response.status_code == 401
    assert "Bearer" in response.headers["www-authenticate"]
    assert response.json()["issue"][0]["code"] == "login"
    assert (await ask(api, authorization, method="POST", url="preanalytics", json={})).status_code == 401


@pytest.mark.parametrize("authorization", ["Bearer exchange-token", "bearer  exchange-token", WARD])
async def test_valid_credentials_accepted(api: httpx.AsyncClient, authorization: str) -> None:
    assert [(await ask(api, authorization)).status_code for _ in range(2)] == [200, 200]


async def test_foreign_contract_looks_like_unknown_contract(api: httpx.AsyncClient) -> None:
    assert (await ask(api, "Bearer tied-token", "C-200")).status_code == 200
    hidden, unknown = await ask(api, "Bearer tied-token", "C-100"), await ask(api, "Bearer tied-token", "C-300")
    assert (hidden.status_code, unknown.status_code) == (404, 404)
    assert hidden.text.replace("C-100", "C-300") == unknown.text
    assert hidden.headers == unknown.headers
    assert (await ask(api, WARD, "C-200")).status_code == 404
    for path in ("preanalytics", "questionnaire"):
        assert (await api.post(path, json=basket("001.001"), headers=bearer("tied-token"))).status_code == 404
    assert (await ask(api, "Bearer nobody-token", "C-100")).status_code == 404


# --- passwords --------------------------------------------------------------------------------------------------------------


class Slow:
    """Passwords whose check takes until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.tried = 0

    def verify(self, password: str, known: str | None) -> bool:
        self.tried += 1
        self.go.wait(DEADLINE)
        return known is not None and password == "lamp:shade"


@pytest.fixture
def clients(settings: ApiSettings, clock: VirtualClock) -> Clients:
    return Clients((), settings.basic, now=clock.now)


async def refusal(clients: Clients, guess: str, address: str = "") -> ApiError:
    with pytest.raises(ApiError) as caught:
        await clients.authenticate(basic(guess), address)
    return caught.value


async def test_verified_password_checked_once(clients: Clients) -> None:
    """And no other is taken for it; an unknown name costs as much as a known one; without clients nobody enters."""
    quick = Slow()
    quick.go.set()
    clients._passwords.verify = quick.verify  # type: ignore[union-attr, method-assign]
    for _ in range(3):
        assert (await clients.authenticate(WARD)).name == "ward"
    assert quick.tried == 1
    for number, guess in enumerate(("ward:", "ward:lamp:shade ", "Ward:lamp:shade"), 2):
        assert (await refusal(clients, guess)).status == 401
        assert quick.tried == number
    with pytest.raises(ApiError):
        await Clients((), ()).authenticate("Bearer exchange-token")


async def test_password_guessing_throttled_known_client_served(clients: Clients) -> None:
    """Of two hundred guesses at once three are checked, and a client whose password is known is still served."""
    slow = Slow()
    assert (await clients.authenticate(WARD)).name == "ward"
    clients._passwords.verify = slow.verify  # type: ignore[union-attr, method-assign]
    guesses = [asyncio.create_task(refusal(clients, f"ward:{number}")) for number in range(200)]
    while slow.tried < 2:  # noqa: ASYNC110 - threads, not tasks
        await asyncio.sleep(0.01)
    assert (await clients.authenticate(WARD)).name == "ward"  # while all slots are taken
    slow.go.set()
    refused = Counter((each.status, "Retry-After" in each.headers) for each in await asyncio.gather(*guesses))
    assert (slow.tried, refused) == (3, {(401, False): 3, (429, True): 197})


async def test_wrong_passwords_make_their_name_wait(clients: Clients, clock: VirtualClock) -> None:
    waits = [0]
    for _ in range(6):
        clock.advance(waits[-1])
        refused = await refusal(clients, "ward:guess", "198.51.100.7")
        waits.append(int(refused.headers.get("Retry-After", 0)) if refused.status == 429 else 0)
    assert waits[1:] == [0, 0, 0, 2, 0, 3]
    assert (await refusal(clients, "ward:lamp:shade", "198.51.100.7")).status == 429
    assert (await clients.authenticate(WARD, "198.51.100.8")).name == "ward"
    assert (await clients.authenticate(WARD, "198.51.100.7")).name == "ward"  # verified now


async def test_requests_at_once_are_one_attempt(clients: Clients) -> None:
    slow = Slow()
    clients._passwords.verify = slow.verify  # type: ignore[union-attr, method-assign]
    calls = [asyncio.create_task(clients.authenticate(WARD)) for _ in range(40)]
    slow.go.set()
    assert {each.name for each in await asyncio.gather(*calls)} == {"ward"}
    assert slow.tried == 1


# --- tokens of the store ----------------------------------------------------------------------------------------------------


@dataclass
class Running:
    """An API on a store, as `lab-api run` puts it together."""

    store: TroubledStore
    sync: CatalogueSync
    client: httpx.AsyncClient

    async def token(self, name: str, *contracts: str, **more: Any) -> tuple[str, str]:
        made, token = await ApiClients(self.store).create(name, contracts or None, now=self.sync._now(), **more)
        await self.sync.refresh()
        return made.id, token

    async def revoke(self, which: str) -> None:
        await ApiClients(self.store).revoke(which, now=self.sync._now())
        await self.sync.refresh()

    async def statuses(self, authorization: str) -> list[int]:
        """Answers for C-200 and C-100."""
        return [(await ask(self.client, authorization, contract)).status_code for contract in ("C-200", "C-100")]


@pytest.fixture
async def running(store: TroubledStore, clock: VirtualClock) -> AsyncIterator[Running]:
    sync = CatalogueSync(store, CATALOGUE, clock.now)
    current = await sync.open()
    settings = ApiSettings(oauth=True, token_lifetime=60, rate=1000, burst=1000, docs=True)
    signed = SignedTokens(KEYS, settings.token_lifetime, clock.now)
    clients = Clients((), (), lambda: sync.tokens, signed, clock.now)
    app = create_app(settings, current, None, clients, TokenEndpoint(lambda: sync.tokens, signed, clock.now))
    async with caller(app, "", base="http://lab/") as client:
        del client.headers["Content-Type"]
        yield Running(store, sync, client)


async def test_stored_token_opens_its_contracts_until_expiry(running: Running, clock: VirtualClock) -> None:
    which, token = await running.token("clinic", "C-200", expires_at=clock.now() + timedelta(days=1))
    for authorization in (f"Bearer {token}", basic(f"clinic:{token}")):
        assert await running.statuses(authorization) == [200, 404]
    for wrong in (f"other:{token}", "clinic:wrong"):
        assert await running.statuses(basic(wrong)) == [401, 401]
    clock.advance(days=1)
    assert await running.statuses(f"Bearer {token}") == [401, 401]
    clock.advance(days=-1)
    await running.revoke(which)
    assert await running.statuses(f"Bearer {token}") == [401, 401]


async def fetch(running: Running, name: str, secret: str, *, post: bool = False, **form: str) -> httpx.Response:
    data = {"grant_type": "client_credentials", **form}
    if post:
        return await running.client.post("token", data={**data, "client_id": name, "client_secret": secret})
    return await running.client.post("token", data=data, headers={"Authorization": basic(f"{name}:{secret}")})


@pytest.mark.parametrize("post", [True, False])
async def test_client_credentials_give_short_lived_token(running: Running, clock: VirtualClock, post: bool) -> None:
    which, secret = await running.token("clinic", "C-200")
    response = await fetch(running, "clinic", secret, post=post)
    assert response.status_code == 200, response.text
    assert response.headers["cache-control"] == "no-store"
    answer = response.json()
    assert (answer["token_type"], answer["expires_in"]) == ("Bearer", 60)
    assert "refresh_token" not in answer
    authorization = f"Bearer {answer['access_token']}"
    assert await running.statuses(authorization) == [200, 404]
    clock.advance(60)
    assert await running.statuses(authorization) == [401, 401]
    clock.advance(-30)
    await running.revoke(which)
    assert await running.statuses(authorization) == [401, 401]


async def test_rotated_key_still_verifies_older_tokens(running: Running, clock: VirtualClock) -> None:
    which, _ = await running.token("clinic")
    token = SignedTokens(KEYS[1:], 60, clock.now).issue(running.sync.tokens[0])
    assert await running.statuses(f"Bearer {token}") == [200, 200]
    assert SignedTokens(("foreign",), 60, clock.now).client_id(token) is None
    assert SignedTokens(KEYS, 60, clock.now).client_id(token) == which


async def test_forged_or_malformed_tokens_rejected(running: Running) -> None:
    await running.token("clinic")
    key = OctKey.import_key(b"first-key" * 4)
    claims = ({}, {"iss": "lab-api", "cid": "x"}, {"iss": "other", "exp": 9999999999})
    forged = [jwt.encode({"alg": "HS256"}, each, key) for each in claims]
    headers = ("1", "[]", "[" * 2500, '{"alg":1}', '{"alg":"HS256","crit":5}', '{"alg":"HS256","crit":[{}]}')
    odd = [urlsafe_b64encode(each.encode()).rstrip(b"=").decode() + ".e30.eA" for each in headers]
    unsigned = "eyJhbGciOiJub25lIn0.eyJpc3MiOiJsYWItYXBpIn0."
    for token in (*forged, *odd, unsigned, "a.b.c", "..", "eyJ.x.ä"):
        assert (await ask(running.client, b"Bearer " + token.encode("latin-1"))).status_code == 401, token


async def test_token_endpoint_errors_follow_rfc_6749(running: Running) -> None:
    _, secret = await running.token("clinic")
    wrong, unknown = await fetch(running, "clinic", "wrong"), await fetch(running, "nobody", "wrong")
    assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_client")
    assert (unknown.status_code, unknown.json()) == (401, wrong.json())
    other = await fetch(running, "clinic", secret, grant_type="password")
    assert (other.status_code, other.json()["error"]) == (400, "unsupported_grant_type")
    form = {"grant_type": "client_credentials"}
    for odd in (b"Basic " + b64encode(b"\xff\xfe:x"), b"Basic \xe9"):
        response = await running.client.post("token", data=form, headers=[(b"Authorization", odd)])
        assert (response.status_code, response.json()["error"]) == (401, "invalid_client")
    nothing = await running.client.post("token")
    large = await running.client.post("token", content=b"x" * 20_000)
    for response, status in ((wrong, 401), (other, 400), (nothing, 400), (large, 413)):
        failure = response.json()
        assert (response.status_code, failure["resourceType"]) == (status, "OperationOutcome")
        (issue,) = failure["issue"]
        assert issue["diagnostics"] == f"{failure['error']}: {failure['error_description']}"
        assert (issue["severity"], issue["code"]) == ("error", "login" if status == 401 else "invalid")
    for malformed in (b"&".join(b"a%d=1" % number for number in range(60)), b"grant_type=client_credentials&" * 2):
        response = await running.client.post("token", content=malformed)
        assert (response.status_code, response.json()["error"]) == (400, "invalid_request")
