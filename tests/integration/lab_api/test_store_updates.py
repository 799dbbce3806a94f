"""What is served follows the store: imports, notices and tokens are seen without a restart; OAuth; the rate limit."""

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
from lab_agent.catalogue.spreadsheet import csv_files
from lab_agent.catalogue.spreadsheet.csv_files import read_tables
from lab_agent.catalogue_service.notices import Announcement, announce, lift_notices
from lab_agent.catalogue_service.versions import activate
from lab_agent.errors import CatalogueError
from lab_agent.settings.api import ApiSettings
from lab_api.app import create_app
from lab_api.auth import Clients
from lab_api.catalogue_sync import CatalogueSync
from lab_api.errors import ApiError
from lab_api.rate_limit import TokenBuckets
from lab_api.token_endpoint import SignedTokens, TokenEndpoint
from tests.fakes.memory_store import MemoryStore
from tests.harness.paths import CATALOGUE

KEYS = ("first-key", "second-key")


@dataclass
class Running:
    """An API on a store, as `lab-api run` puts it together, with a clock that is moved by hand."""

    store: MemoryStore
    sync: CatalogueSync
    client: httpx.AsyncClient
    clock: Any

    async def token(self, name: str, *contracts: str, **more: Any) -> tuple[str, str]:
        made, token = await ApiClients(self.store).create(name, contracts or None, now=self.clock.now, **more)
        await self.sync.refresh()
        return made.id, token

    async def eta(self, authorization: str, contract: str = "C-100") -> httpx.Response:
        return await self.client.get(f"eta?contract={contract}", headers={"Authorization": authorization})

    async def status(self, token: str, item: str = "001.001", contract: str = "C-100") -> str:
        answer = (await self.eta(f"Bearer {token}", contract)).json()
        return next(str(each["status"]) for each in answer if each["id"] == item)


@pytest.fixture
async def running(folder: Path, clock: Any) -> AsyncIterator[Running]:
    store = MemoryStore()
    sync = CatalogueSync(store, folder, clock)
    current = await sync.open()
    settings = ApiSettings(oauth=True, token_lifetime=60, rate=1000, burst=1000, docs=True)
    signed = SignedTokens(KEYS, settings.token_lifetime, clock)
    clients = Clients((), (), lambda: sync.tokens, signed, clock)
    tokens = TokenEndpoint(lambda: sync.tokens, signed, clock)
    transport = httpx.ASGITransport(create_app(settings, current, None, clients, tokens))
    async with httpx.AsyncClient(transport=transport, base_url="http://lab/") as client:
        yield Running(store, sync, client, clock)


# --- the catalogue ----------------------------------------------------------------------------------------------------------


async def test_catalogue_import_served_without_restart(running: Running, folder: Path) -> None:
    _, token = await running.token("x")
    headers = {"Authorization": f"Bearer {token}"}
    before = await running.client.get("nomenclature?contract=C-100", headers=headers)
    prices = folder / "contract_items.csv"
    prices.write_text(prices.read_text().replace("480.00", "512.30"))
    assert await running.sync.refresh() is False
    await activate(running.store, read_tables(folder), origin="x", by=None, now=running.clock.now)
    assert await running.sync.refresh() is True
    after = await running.client.get("nomenclature?contract=C-100", headers=headers)
    assert after.headers["etag"] != before.headers["etag"]
    assert after.json()[0]["price"] == 512.3


async def test_invalid_import_keeps_current_catalogue(running: Running, folder: Path) -> None:
    _, token = await running.token("x")
    (folder / "contracts.csv").unlink()
    with pytest.raises(CatalogueError):
        read_tables(folder)
    await running.sync.reload()
    assert (await running.eta(f"Bearer {token}")).status_code == 200


async def test_changed_folder_activated_but_never_undoes_import(running: Running, folder: Path, tmp_path: Path) -> None:
    """The folder is followed until a person imports: neither a restart nor a change there undoes that."""
    (folder / "contracts.csv").write_text("contract,name\nC-100,Changed in the folder\nC-200,B\n")
    await running.sync.reload()
    followed = await running.store.run(lambda uow: uow.catalogues.newest())
    assert (followed.origin, followed.version) == (str(folder), csv_files.content_version(read_tables(folder)))
    other = Path(shutil.copytree(CATALOGUE, tmp_path / "other"))
    (other / "contracts.csv").write_text("contract,name\nC-100,Another name\nC-200,B\n")
    await activate(running.store, read_tables(other), origin="command", by="anna", now=running.clock.now)
    (folder / "contracts.csv").write_text("contract,name\nC-100,Changed once more\nC-200,B\n")
    await running.sync.reload()
    current = await CatalogueSync(running.store, folder, running.clock).open()
    assert current.responses.catalogue.version == csv_files.content_version(read_tables(other))


async def test_no_catalogue_reported_in_one_sentence(clock: Any, tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="lab-agent catalogue import"):
        await CatalogueSync(MemoryStore(), None, clock).open()
    with pytest.raises(CatalogueError, match="is not a folder"):
        await CatalogueSync(MemoryStore(), tmp_path / "none", clock).open()


# --- notices ----------------------------------------------------------------------------------------------------------------


async def test_stop_notice_effective_immediately_and_ends_on_time(running: Running) -> None:
    _, token = await running.token("x")
    now = running.clock.now
    assert await running.status(token) == "available"
    said = Announcement(item="001.001", start=now + timedelta(hours=1), end=now + timedelta(hours=3), caption="No reagent")
    await announce(running.store, said, by=None, now=now)
    await running.sync.refresh()
    assert await running.status(token) == "available"
    running.clock.now = now + timedelta(hours=1)
    (item,) = [each for each in (await running.eta(f"Bearer {token}")).json() if each["id"] == "001.001"]
    assert (item["status"], item["caption"], item["delayDuration"]) == ("stopped", "No reagent", None)
    assert set(item["effectivePeriod"]) == {"start", "end"}
    running.clock.now = now + timedelta(hours=3)
    assert await running.status(token) == "available"


async def test_contract_delay_notice_lifted_manually(running: Running) -> None:
    _, token = await running.token("x")
    now = running.clock.now
    end = now + timedelta(days=1)
    said = Announcement(item="001.001", start=now, end=end, contract="C-200", delay_hours=Decimal("12.0"))
    await announce(running.store, said, by=None, now=now)
    await running.sync.refresh()
    (item,) = [each for each in (await running.eta(f"Bearer {token}", "C-200")).json() if each["id"] == "001.001"]
    assert (item["status"], item["delayDuration"]) == ("delayed", {"value": "12.0", "unit": "h"})
    assert await running.status(token) == "available"
    before = (await running.client.get("nomenclature?contract=C-200", headers={"Authorization": f"Bearer {token}"})).headers
    assert await lift_notices(running.store, "001.001", None, now=now + timedelta(minutes=1)) == 1
    running.clock.now = now + timedelta(minutes=1)
    await running.sync.refresh()
    assert await running.status(token, contract="C-200") == "available"
    after = (await running.client.get("nomenclature?contract=C-200", headers={"Authorization": f"Bearer {token}"})).headers
    assert before["etag"] == after["etag"]


# --- callers ----------------------------------------------------------------------------------------------------------------


def basic(text: str) -> str:
    return "Basic " + b64encode(text.encode()).decode()


async def test_stored_token_opens_its_contracts_until_expiry(running: Running) -> None:
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
    await running.sync.refresh()
    assert (await running.eta(f"Bearer {token}", "C-200")).status_code == 401


async def fetch(running: Running, name: str, secret: str, *, post: bool = False, **form: str) -> httpx.Response:
    data = {"grant_type": "client_credentials", **form}
    if post:
        return await running.client.post("token", data={**data, "client_id": name, "client_secret": secret})
    return await running.client.post("token", data=data, headers={"Authorization": basic(f"{name}:{secret}")})


@pytest.mark.parametrize("post", [True, False])
async def test_client_credentials_give_short_lived_token(running: Running, post: bool) -> None:
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
    await running.sync.refresh()
    assert (await running.eta(bearer, "C-200")).status_code == 401


async def test_rotated_key_still_verifies_older_tokens(running: Running, clock: Any) -> None:
    which, _ = await running.token("clinic")
    token = SignedTokens(KEYS[1:], 60, clock).issue(running.sync.tokens[0])
    assert (await running.eta(f"Bearer {token}")).status_code == 200
    assert SignedTokens(("foreign",), 60, clock).client_id(token) is None
    assert SignedTokens(KEYS, 60, clock).client_id(token) == which


@pytest.mark.parametrize("claims", [{}, {"iss": "lab-api", "cid": "x"}, {"iss": "other", "exp": 9999999999}])
async def test_forged_tokens_rejected(running: Running, claims: dict[str, Any]) -> None:
    await running.token("clinic")
    forged = jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(b"first-key" * 4))
    unsigned = "eyJhbGciOiJub25lIn0.eyJpc3MiOiJsYWItYXBpIn0."
    for token in (forged, unsigned, "a.b.c", "..", "eyJ.x.ä"):
        header = (b"Authorization", b"Bearer " + token.encode("latin-1"))
        assert (await running.client.get("eta?contract=C-100", headers=[header])).status_code == 401


async def test_token_endpoint_errors_follow_rfc_6749(running: Running) -> None:
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
    large = await running.client.post("token", content=b"x" * 20_000)
    for response, status in ((wrong, 401), (other, 400), (nothing, 400), (large, 413)):
        failure = response.json()
        assert (response.status_code, failure["resourceType"]) == (status, "OperationOutcome")
        (issue,) = failure["issue"]
        assert issue["diagnostics"] == f"{failure['error']}: {failure['error_description']}"
        assert (issue["severity"], issue["code"]) == ("error", "login" if status == 401 else "invalid")


@pytest.mark.parametrize("form", [b"&".join(b"a%d=1" % number for number in range(60)), b"grant_type=client_credentials&" * 2])
async def test_malformed_token_form_rejected(running: Running, form: bytes) -> None:
    response = await running.client.post("token", content=form)
    assert (response.status_code, response.json()["error"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    "header", ["1", "[]", "[" * 2500, '{"alg":1}', '{"alg":"HS256","crit":5}', '{"alg":"HS256","crit":[{}]}']
)
async def test_token_with_malformed_header_rejected(running: Running, header: str) -> None:
    odd = urlsafe_b64encode(header.encode()).rstrip(b"=").decode()
    assert (await running.eta(f"Bearer {odd}.e30.eA")).status_code == 401


async def test_openapi_names_token_endpoint(running: Running) -> None:
    document = (await running.client.get("openapi.json")).json()
    flow = document["components"]["securitySchemes"]["oauth"]["flows"]["clientCredentials"]
    assert flow == {"tokenUrl": "/token", "scopes": {}}
    assert {"oauth": []} in document["paths"]["/eta"]["get"]["security"]
    assert "/token" not in document["paths"]


# --- the rate limit ---------------------------------------------------------------------------------------------------------


def test_contract_over_rate_limit_told_retry_after() -> None:
    moment = [0.0]
    buckets = TokenBuckets(2.0, 3, lambda: moment[0])
    for _ in range(3):
        buckets.consume("C-1")
    with pytest.raises(ApiError) as caught:
        buckets.consume("C-1")
    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "1"})
    buckets.consume("C-2")
    moment[0] = 0.5
    buckets.consume("C-1")
    with pytest.raises(ApiError):
        buckets.consume("C-1")
    moment[0] = 100.0
    for _ in range(3):
        buckets.consume("C-1")
    with pytest.raises(ApiError):
        buckets.consume("C-1")


async def test_rate_limited_contract_gets_429_others_served(settings: ApiSettings, current_catalogue: Any) -> None:
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
