"""What is served follows the store: imports, notices and tokens are seen without a restart; OAuth; the pace."""

from __future__ import annotations

import shutil
from base64 import b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey

from lab_agent.accounts import ApiClients
from lab_agent.catalogue.load import read_tables
from lab_agent.catalogues.keeping import activate
from lab_agent.catalogues.notices import Announcement, announce, lift_notices
from lab_agent.errors import CatalogueError
from lab_agent.settings.api import ApiSettings
from lab_agent.store.memory import MemoryStore
from lab_api.app import create_app
from lab_api.auth import Clients
from lab_api.oauth import SignedTokens, TokenEndpoint
from lab_api.pace import TokenBuckets
from lab_api.problems import ApiError
from lab_api.upkeep import CatalogueSync

SAMPLE = Path(__file__).parents[2] / "config" / "catalogue"
KEYS = ("first-key", "second-key")


@dataclass
class Running:
    """An API on a store, as `lab-api run` puts it together, with a clock that is moved by hand."""

    store: MemoryStore
    upkeep: CatalogueSync
    client: httpx.AsyncClient
    clock: Any

    async def token(self, name: str, *contracts: str, **more: Any) -> tuple[str, str]:
        made, token = await ApiClients(self.store).create(name, contracts or None, now=self.clock.now, **more)
        await self.upkeep.refresh()
        return made.id, token

    async def eta(self, authorization: str, contract: str = "C-100") -> httpx.Response:
        return await self.client.get(f"eta?contract={contract}", headers={"Authorization": authorization})

    async def status(self, token: str, item: str = "001.001", contract: str = "C-100") -> str:
        answer = (await self.eta(f"Bearer {token}", contract)).json()
        return next(str(each["status"]) for each in answer if each["id"] == item)


@pytest.fixture
async def running(folder: Path, clock: Any) -> AsyncIterator[Running]:
    store = MemoryStore()
    upkeep = CatalogueSync(store, folder, clock)
    shelf = await upkeep.open()
    settings = ApiSettings(oauth=True, token_lifetime=60, rate=1000, burst=1000, docs=True)
    signed = SignedTokens(KEYS, settings.token_lifetime, clock)
    clients = Clients((), (), lambda: upkeep.tokens, signed, clock)
    tokens = TokenEndpoint(lambda: upkeep.tokens, signed, clock)
    transport = httpx.ASGITransport(create_app(settings, shelf, None, clients, tokens))
    async with httpx.AsyncClient(transport=transport, base_url="http://lab/") as client:
        yield Running(store, upkeep, client, clock)


# --- the catalogue ----------------------------------------------------------------------------------------------------------


async def test_an_import_is_served_without_a_restart(running: Running, folder: Path) -> None:
    _, token = await running.token("x")
    headers = {"Authorization": f"Bearer {token}"}
    before = await running.client.get("nomenclature?contract=C-100", headers=headers)
    prices = folder / "contract_items.csv"
    prices.write_text(prices.read_text().replace("480.00", "512.30"))
    assert await running.upkeep.refresh() is False
    await activate(running.store, read_tables(folder), origin="x", by=None, now=running.clock.now)
    assert await running.upkeep.refresh() is True
    after = await running.client.get("nomenclature?contract=C-100", headers=headers)
    assert after.headers["etag"] != before.headers["etag"]
    assert after.json()[0]["price"] == 512.3


async def test_a_wrong_import_leaves_the_old_one(running: Running, folder: Path) -> None:
    _, token = await running.token("x")
    (folder / "contracts.csv").unlink()
    with pytest.raises(CatalogueError):
        read_tables(folder)
    await running.upkeep.reload()
    assert (await running.eta(f"Bearer {token}")).status_code == 200


async def test_the_folder_is_taken_over_when_it_has_changed_and_never_undoes_an_import(
    running: Running, folder: Path, tmp_path: Path
) -> None:
    first = await running.store.run(lambda uow: uow.catalogues.newest())
    other = Path(shutil.copytree(SAMPLE, tmp_path / "other"))
    (other / "contracts.csv").write_text("contract,name\nC-100,Another name\nC-200,B\n")
    await activate(running.store, read_tables(other), origin="command", by="anna", now=running.clock.now)
    await running.upkeep.reload()
    again = CatalogueSync(running.store, folder, running.clock)
    shelf = await again.open()  # a restart: the folder is as it was when it was taken over
    assert first is not None
    assert shelf.responses.catalogue.version != first.version
    (folder / "contracts.csv").write_text("contract,name\nC-100,Changed in the folder\nC-200,B\n")
    await running.upkeep.reload()
    newest = await running.store.run(lambda uow: uow.catalogues.newest())
    assert newest is not None
    assert newest.origin == str(folder)


async def test_no_catalogue_anywhere_is_one_clear_sentence(clock: Any, tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="import one: lab-agent catalogue import"):
        await CatalogueSync(MemoryStore(), None, clock).open()
    with pytest.raises(CatalogueError, match="is not a folder"):
        await CatalogueSync(MemoryStore(), tmp_path / "none", clock).open()


# --- notices ----------------------------------------------------------------------------------------------------------------


async def test_a_stop_is_seen_at_once_and_ends_in_time(running: Running) -> None:
    _, token = await running.token("x")
    now = running.clock.now
    assert await running.status(token) == "available"
    said = Announcement(item="001.001", start=now + timedelta(hours=1), end=now + timedelta(hours=3), caption="No reagent")
    await announce(running.store, said, by=None, now=now)
    await running.upkeep.refresh()
    assert await running.status(token) == "available"
    running.clock.now = now + timedelta(hours=1)
    (item,) = [each for each in (await running.eta(f"Bearer {token}")).json() if each["id"] == "001.001"]
    assert (item["status"], item["caption"], item["delayDuration"]) == ("stopped", "No reagent", None)
    assert set(item["effectivePeriod"]) == {"start", "end"}
    running.clock.now = now + timedelta(hours=3)
    assert await running.status(token) == "available"


async def test_a_delay_of_one_contract_is_cleared_by_hand(running: Running) -> None:
    _, token = await running.token("x")
    now = running.clock.now
    end = now + timedelta(days=1)
    said = Announcement(item="001.001", start=now, end=end, contract="C-200", delay_hours=Decimal("12.0"))
    await announce(running.store, said, by=None, now=now)
    await running.upkeep.refresh()
    (item,) = [each for each in (await running.eta(f"Bearer {token}", "C-200")).json() if each["id"] == "001.001"]
    assert (item["status"], item["delayDuration"]) == ("delayed", {"value": "12.0", "unit": "h"})
    assert await running.status(token) == "available"
    before = (await running.client.get("nomenclature?contract=C-200", headers={"Authorization": f"Bearer {token}"})).headers
    assert await lift_notices(running.store, "001.001", None, now=now + timedelta(minutes=1)) == 1
    running.clock.now = now + timedelta(minutes=1)
    await running.upkeep.refresh()
    assert await running.status(token, contract="C-200") == "available"
    after = (await running.client.get("nomenclature?contract=C-200", headers={"Authorization": f"Bearer {token}"})).headers
    assert before["etag"] == after["etag"]


# --- callers ----------------------------------------------------------------------------------------------------------------


def basic(text: str) -> str:
    return "Basic " + b64encode(text.encode()).decode()


async def test_a_token_of_the_store_opens_its_contracts_until_it_ends(running: Running) -> None:
    which, token = await running.token("clinic", "C-200", expires_at=running.clock.now + timedelta(days=1))
    for authorization in (f"Bearer {token}", basic(f"clinic:{token}")):
        assert (await running.eta(authorization, "C-200")).status_code == 200
        assert (await running.eta(authorization, "C-100")).status_code == 404
    assert (await running.eta(basic(f"other:{token}"), "C-200")).status_code == 401
    assert (await running.eta(basic("clinic:wrong"), "C-200")).status_code == 401
    running.clock.now += timedelta(days=1)
    assert (await running.eta(f"Bearer {token}", "C-200")).status_code == 401
    running.clock.now -= timedelta(days=1)
    await ApiClients(running.store).revoke(which, now=running.clock.now)
    await running.upkeep.refresh()
    assert (await running.eta(f"Bearer {token}", "C-200")).status_code == 401


async def fetch(running: Running, name: str, secret: str, *, post: bool = False, **form: str) -> httpx.Response:
    data = {"grant_type": "client_credentials", **form}
    if post:
        return await running.client.post("token", data={**data, "client_id": name, "client_secret": secret})
    return await running.client.post("token", data=data, headers={"Authorization": basic(f"{name}:{secret}")})


@pytest.mark.parametrize("post", [True, False])
async def test_client_credentials_give_a_short_lived_token(running: Running, post: bool) -> None:
    which, secret = await running.token("clinic", "C-200")
    response = await fetch(running, "clinic", secret, post=post)
    assert response.status_code == 200, response.text
    assert response.headers["cache-control"] == "no-store"
    answer = response.json()
    assert (answer["token_type"], answer["expires_in"]) == ("Bearer", 60)
    assert "refresh_token" not in answer
    bearer = f"Bearer {answer['access_token']}"
    assert (await running.eta(bearer, "C-200")).status_code == 200
    assert (await running.eta(bearer, "C-100")).status_code == 404
    running.clock.now += timedelta(seconds=60)
    assert (await running.eta(bearer, "C-200")).status_code == 401
    running.clock.now -= timedelta(seconds=30)
    await ApiClients(running.store).revoke(which, now=running.clock.now)
    await running.upkeep.refresh()
    assert (await running.eta(bearer, "C-200")).status_code == 401


async def test_a_rotated_key_still_reads_what_the_old_one_signed(running: Running, clock: Any) -> None:
    which, _ = await running.token("clinic")
    token = SignedTokens(KEYS[1:], 60, clock).issue(running.upkeep.tokens[0])
    assert (await running.eta(f"Bearer {token}")).status_code == 200
    assert SignedTokens(("foreign",), 60, clock).client_id(token) is None
    assert SignedTokens(KEYS, 60, clock).client_id(token) == which


@pytest.mark.parametrize("claims", [{}, {"iss": "lab-api", "cid": "x"}, {"iss": "other", "exp": 9999999999}])
async def test_forged_tokens_open_nothing(running: Running, claims: dict[str, Any]) -> None:
    await running.token("clinic")
    forged = jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(b"first-key" * 4))
    unsigned = "eyJhbGciOiJub25lIn0.eyJpc3MiOiJsYWItYXBpIn0."
    for token in (forged, unsigned, "a.b.c", "..", "eyJ.x.ä"):
        header = (b"Authorization", b"Bearer " + token.encode("latin-1"))
        assert (await running.client.get("eta?contract=C-100", headers=[header])).status_code == 401


async def test_the_token_endpoint_refuses_as_rfc_6749_says(running: Running) -> None:
    _, secret = await running.token("clinic")
    wrong, unknown = await fetch(running, "clinic", "wrong"), await fetch(running, "nobody", "wrong")
    assert (wrong.status_code, wrong.json()["error"]) == (401, "invalid_client")
    assert (unknown.status_code, unknown.json()) == (401, wrong.json())
    other = await running.client.post(
        "token", data={"grant_type": "password"}, headers={"Authorization": basic(f"clinic:{secret}")}
    )
    assert (other.status_code, other.json()["error"]) == (400, "unsupported_grant_type")
    nothing = await running.client.post("token")
    assert nothing.status_code == 400
    for odd in (b"Basic " + b64encode(b"\xff\xfe:x"), b"Basic \xe9"):
        headers = [(b"Authorization", odd)]
        response = await running.client.post("token", data={"grant_type": "client_credentials"}, headers=headers)
        assert (response.status_code, response.json()["error"]) == (401, "invalid_client")
    assert (await running.client.post("token", content=b"x" * 20_000)).status_code == 413


@pytest.mark.parametrize("form", [b"&".join(b"a%d=1" % number for number in range(60)), b"grant_type=client_credentials&" * 2])
async def test_a_form_that_no_client_sends_is_refused(running: Running, form: bytes) -> None:
    response = await running.client.post("token", content=form)
    assert (response.status_code, response.json()["error"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    "header", ["1", "[]", "[" * 2500, '{"alg":1}', '{"alg":"HS256","crit":5}', '{"alg":"HS256","crit":[{}]}']
)
async def test_a_token_with_an_odd_header_is_not_believed(running: Running, header: str) -> None:
    odd = urlsafe_b64encode(header.encode()).rstrip(b"=").decode()
    assert (await running.eta(f"Bearer {odd}.e30.eA")).status_code == 401


async def test_the_document_names_the_token_endpoint(running: Running) -> None:
    document = (await running.client.get("openapi.json")).json()
    flow = document["components"]["securitySchemes"]["oauth"]["flows"]["clientCredentials"]
    assert flow == {"tokenUrl": "/token", "scopes": {}}
    assert {"oauth": []} in document["paths"]["/eta"]["get"]["security"]
    assert "/token" not in document["paths"]


# --- the pace ---------------------------------------------------------------------------------------------------------------


def test_a_contract_that_asks_too_often_is_told_when_to_ask_again() -> None:
    moment = [0.0]
    pace = TokenBuckets(2.0, 3, lambda: moment[0])
    for _ in range(3):
        pace.consume("C-1")
    with pytest.raises(ApiError) as caught:
        pace.consume("C-1")
    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "1"})
    pace.consume("C-2")
    moment[0] = 0.5
    pace.consume("C-1")
    with pytest.raises(ApiError):
        pace.consume("C-1")
    moment[0] = 100.0
    for _ in range(3):
        pace.consume("C-1")
    with pytest.raises(ApiError):
        pace.consume("C-1")


async def test_429_over_http_for_one_contract_alone(settings: ApiSettings, current_catalogue: Any) -> None:
    slow = settings.model_copy(update={"rate": 0.01, "burst": 2})
    transport = httpx.ASGITransport(create_app(slow, current_catalogue))
    headers = {"Authorization": "Bearer exchange-token"}
    async with httpx.AsyncClient(transport=transport, base_url="http://lab/lab/", headers=headers) as client:
        body = {"contract": "C-100", "analyticsrequests": [{"id": "001.001"}]}
        assert [(await client.post("preanalytics", json=body)).status_code for _ in range(3)] == [200, 200, 429]
        late = await client.get("eta?contract=C-100")
        assert (late.status_code, late.json()["issue"][0]["code"]) == (429, "throttled")
        assert int(late.headers["retry-after"]) > 1
        assert (await client.get("eta?contract=C-200")).status_code == 200
        unknown = await client.get("eta?contract=C-300")
        assert unknown.status_code == 404
