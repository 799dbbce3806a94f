"""Authorization without a human: tokens, HTTP Basic, and contracts that a client is not tied to."""

from __future__ import annotations

import asyncio
import threading
from base64 import b64encode
from collections import Counter
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from lab_agent.settings.api import ApiSettings
from lab_api.auth import Clients
from lab_api.errors import ApiError
from tests.harness.clock import DEADLINE


def basic(text: str) -> str:
    return "Basic " + b64encode(text.encode()).decode()


def signed(authorization: str | bytes) -> list[tuple[bytes, bytes]]:
    return [(b"Authorization", authorization if isinstance(authorization, bytes) else authorization.encode())]


async def ask(api: httpx.AsyncClient, authorization: str | bytes, contract: str) -> httpx.Response:
    return await api.get(f"eta?contract={contract}", headers=signed(authorization))


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Bearer exchange-token x",
        "exchange-token",
        "Digest exchange-token",
        "Basic",
        "Basic ???",
        "Basic /w==",
        "Basic ä".encode("latin-1"),
        "Bearer ä".encode("latin-1"),
        basic("ward:wrong"),
        basic("nobody:lamp:shade"),
        basic("ward"),
        "Bearer " + "x" * 10_000,
    ],
)
async def test_request_without_valid_credentials_rejected(api: httpx.AsyncClient, authorization: str | bytes) -> None:
    response = await ask(api, authorization, "C-100")
    assert response.status_code == 401
    assert "Bearer" in response.headers["www-authenticate"]
    assert response.json()["issue"][0]["code"] == "login"
    assert (await api.post("preanalytics", json={}, headers=signed(authorization))).status_code == 401


@pytest.mark.parametrize("authorization", ["Bearer exchange-token", "bearer  exchange-token", basic("ward:lamp:shade")])
async def test_valid_credentials_accepted(api: httpx.AsyncClient, authorization: str) -> None:
    assert (await ask(api, authorization, "C-100")).status_code == 200
    assert (await ask(api, authorization, "C-100")).status_code == 200


async def test_foreign_contract_looks_like_unknown_contract(api: httpx.AsyncClient) -> None:
    """A contract outside the client's list answers exactly as an unknown one does."""
    assert (await ask(api, "Bearer tied-token", "C-200")).status_code == 200
    hidden, unknown = await ask(api, "Bearer tied-token", "C-100"), await ask(api, "Bearer tied-token", "C-300")
    assert (hidden.status_code, unknown.status_code) == (404, 404)
    assert hidden.text.replace("C-100", "C-300") == unknown.text
    assert hidden.headers == unknown.headers
    assert (await ask(api, basic("ward:lamp:shade"), "C-200")).status_code == 404
    body = {"contract": "C-100", "analyticsrequests": [{"id": "001.001"}]}
    for path in ("preanalytics", "questionnaire"):
        assert (await api.post(path, json=body, headers={"Authorization": "Bearer tied-token"})).status_code == 404
    assert (await ask(api, "Bearer nobody-token", "C-100")).status_code == 404


async def test_correct_password_hashed_once(settings: ApiSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = Clients((), settings.basic)
    hashed = []
    assert clients._passwords
    matches = clients._passwords.verify

    def counted(password: str, known: str | None) -> bool:
        hashed.append(1)
        return matches(password, known)

    monkeypatch.setattr(clients._passwords, "verify", counted)
    for _ in range(3):
        assert (await clients.authenticate(basic("ward:lamp:shade"))).name == "ward"
    assert len(hashed) == 1
    with pytest.raises(ApiError):
        await clients.authenticate(basic("ward:wrong"))
    with pytest.raises(ApiError):
        await clients.authenticate(basic("somebody:else"))
    assert len(hashed) == 3  # an unknown name costs as much as a known one


async def test_no_clients_configured_rejects_everyone() -> None:
    with pytest.raises(ApiError):
        await Clients((), ()).authenticate("Bearer exchange-token")


# --- guessing ---------------------------------------------------------------------------------------------------------------


class Slow:
    """Passwords whose check takes until it is let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.tried = 0

    def verify(self, password: str, known: str | None) -> bool:
        self.tried += 1
        self.go.wait(DEADLINE)
        return known is not None and password == "lamp:shade"


async def test_password_guessing_throttled_known_client_served(settings: ApiSettings) -> None:
    """Of two hundred guesses at once three are checked, and a client whose password is known is still served."""
    clients, slow = Clients((), settings.basic), Slow()
    assert (await clients.authenticate(basic("ward:lamp:shade"))).name == "ward"
    clients._passwords.verify = slow.verify  # type: ignore[union-attr, method-assign]
    guesses = [asyncio.create_task(_refusal(clients, f"ward:{number}")) for number in range(200)]
    while slow.tried < 2:  # noqa: ASYNC110 - threads, not tasks
        await asyncio.sleep(0.01)
    assert (await clients.authenticate(basic("ward:lamp:shade"))).name == "ward"  # while all slots are taken
    slow.go.set()
    refused = Counter((each.status, "Retry-After" in each.headers) for each in await asyncio.gather(*guesses))
    assert (slow.tried, refused) == (3, {(401, False): 3, (429, True): 197})


async def test_wrong_passwords_make_their_name_wait(settings: ApiSettings) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    clients = Clients((), settings.basic, now=lambda: now)
    waits = [0]
    for _ in range(6):
        now += timedelta(seconds=waits[-1])
        refusal = await _refusal(clients, "ward:guess", "198.51.100.7")
        waits.append(int(refusal.headers.get("Retry-After", 0)) if refusal.status == 429 else 0)
    assert waits[1:] == [0, 0, 0, 2, 0, 3]
    assert (await _refusal(clients, "ward:lamp:shade", "198.51.100.7")).status == 429
    assert (await clients.authenticate(basic("ward:lamp:shade"), "198.51.100.8")).name == "ward"
    assert (await clients.authenticate(basic("ward:lamp:shade"), "198.51.100.7")).name == "ward"  # verified now


async def test_requests_at_once_are_one_attempt(settings: ApiSettings) -> None:
    clients, slow = Clients((), settings.basic), Slow()
    clients._passwords.verify = slow.verify  # type: ignore[union-attr, method-assign]
    calls = [asyncio.create_task(clients.authenticate(basic("ward:lamp:shade"))) for _ in range(40)]
    slow.go.set()
    assert {each.name for each in await asyncio.gather(*calls)} == {"ward"}
    assert slow.tried == 1


async def test_verified_password_cache_accepts_no_other_password(settings: ApiSettings) -> None:
    clients = Clients((), settings.basic)
    await clients.authenticate(basic("ward:lamp:shade"))
    for guess in ("ward:", "ward:lamp:shade ", "Ward:lamp:shade"):
        assert (await _refusal(clients, guess)).status == 401


async def _refusal(clients: Clients, guess: str, address: str = "") -> ApiError:
    with pytest.raises(ApiError) as caught:
        await clients.authenticate(basic(guess), address)
    return caught.value
