"""The four endpoints over HTTP: bodies, caching, limits, errors."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from lab_agent import exact_json
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.nomenclature import nomenclature
from lab_agent.settings.api import ApiSettings
from lab_api.app import create_app
from lab_api.response_cache import CurrentCatalogue

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
BASKET = {
    "contract": "C-100",
    "analyticsrequests": [
        {"id": "002.002", "guid": "g1"},
        {"id": "003.001", "specimen_code": "10", "bodysite_code": None, "guid": "g2"},
        {"id": "004.001", "guid": "g3"},
    ],
}


def outcome(response: httpx.Response, status: int) -> list[dict[str, Any]]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body["resourceType"] == "OperationOutcome"
    assert all(set(issue) == {"severity", "code", "diagnostics"} for issue in body["issue"])
    assert body["issue"]
    return list(body["issue"])


async def test_nomenclature_lists_items(api: httpx.AsyncClient, current_catalogue: CurrentCatalogue) -> None:
    response = await api.get("nomenclature?contract=C-100")
    assert response.status_code == 200
    assert response.headers["cache-control"] == "private, max-age=86400"
    assert exact_json.loads(response.content) == nomenclature(current_catalogue.responses.catalogue.contract("C-100"))
    assert '"price":480.00' in response.text


async def test_each_contract_has_its_own_nomenclature(api: httpx.AsyncClient, current_catalogue: CurrentCatalogue) -> None:
    contracts = current_catalogue.responses.catalogue.contracts
    listed = {code: exact_json.loads((await api.get(f"nomenclature?contract={code}")).content) for code in ("C-100", "C-200")}
    assert listed == {code: nomenclature(contracts[code]) for code in listed}
    assert {each["id"] for each in listed["C-100"]} > {each["id"] for each in listed["C-200"]}


async def test_follow_up_study_is_taken_beside_other_tests(api: httpx.AsyncClient) -> None:
    """The agent takes the order that such a basket becomes (order rule 4 speaks of one without other tests)."""
    items = [*BASKET["analyticsrequests"], {"id": "190.1558", "guid": "g4"}]
    for path in ("questionnaire", "preanalytics"):
        response = await api.post(path, json={**BASKET, "analyticsrequests": items})
        assert response.status_code == 200, response.text
    assert "g4" in {guid for tube in response.json()["specimens"] for guid in tube["guids"]}


async def test_contract_cache_lifetime_overrides_default(api: httpx.AsyncClient) -> None:
    assert (await api.get("nomenclature?contract=C-200")).headers["cache-control"] == "private, max-age=43200"


@pytest.mark.parametrize("path", ["nomenclature", "eta"])
async def test_matching_etag_returns_304(api: httpx.AsyncClient, path: str) -> None:
    first = await api.get(f"{path}?contract=C-100")
    etag = first.headers["etag"]
    for field in (etag, etag.removeprefix("W/"), f'"other", {etag}', "*"):
        again = await api.get(f"{path}?contract=C-100", headers={"If-None-Match": field})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
        assert again.headers["cache-control"] == first.headers["cache-control"]
    other = await api.get(f"{path}?contract=C-200", headers={"If-None-Match": etag})
    assert other.status_code == 200


@pytest.mark.parametrize(
    ("accepted", "packed"), [("gzip", True), ("br, gzip;q=0.5", True), ("gzip;q=0", False), ("identity", False)]
)
async def test_response_compressed_only_if_accepted(
    settings: ApiSettings, current_catalogue: CurrentCatalogue, accepted: str, packed: bool
) -> None:
    headers = {"Authorization": "Bearer exchange-token", "Accept-Encoding": accepted}
    transport = httpx.ASGITransport(create_app(settings, current_catalogue))
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://lab/lab/", headers=headers) as client,
        client.stream("GET", "nomenclature?contract=C-100") as response,
    ):
        raw = b"".join([chunk async for chunk in response.aiter_raw()])
    assert ("content-encoding" in response.headers) is packed
    plain = gzip.decompress(raw) if packed else raw
    assert len(exact_json.loads(plain)) >= 30


async def test_large_basket_response_is_compressed(api: httpx.AsyncClient, current_catalogue: CurrentCatalogue) -> None:
    ids = [each for each, item in current_catalogue.responses.catalogue.contract("C-100").items.items() if len(item.options) == 1]
    body = {"contract": "C-100", "analyticsrequests": [{"id": each} for each in ids]}
    response = await api.post("preanalytics", json=body)
    assert response.headers["content-encoding"] == "gzip"
    assert len(response.json()["specimens"]) > 5


async def test_eta_revalidated_and_follows_notices(api: httpx.AsyncClient, clock: Any) -> None:
    """ETA answers are revalidated on each request, and change with the turnaround notices."""
    clock.now = datetime(2025, 12, 28, 20, 59, tzinfo=UTC)
    before = await api.get("eta?contract=C-100")
    assert before.headers["cache-control"] == "private, no-cache"
    assert {each["status"] for each in before.json()} == {"available"}
    clock.now = datetime(2025, 12, 28, 21, tzinfo=UTC)  # midnight three hours to the east, where the notice begins
    during = await api.get("eta?contract=C-100", headers={"If-None-Match": before.headers["etag"]})
    assert during.status_code == 200
    assert [each["id"] for each in during.json() if each["status"] == "delayed"] == ["190.200"]


async def test_questionnaire_lists_questions(api: httpx.AsyncClient) -> None:
    response = await api.post("questionnaire", json=BASKET)
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    assert response.json()["item"]["item"][0]["item"][0]["linkId"] == "anticoagulant"
    plain = {**BASKET, "analyticsrequests": [{"id": "001.001"}]}
    assert (await api.post("questionnaire", json=plain)).json() == {"resourceType": "Questionnaire", "status": "active"}


async def test_preanalytics_lists_tubes(api: httpx.AsyncClient) -> None:
    response = await api.post("preanalytics", json={**BASKET, "includetransportcontainer": True})
    assert response.status_code == 200
    serum, citrate = response.json()["specimens"]
    assert serum["guids"] == ["g1", "g2"]
    assert serum["label"] is None
    assert '"quantity":1.1' in response.text
    assert [each["type"] for each in citrate["container"]] == ["CIT27", "TR-COOL"]
    without = (await api.post("preanalytics", json=BASKET)).json()["specimens"]
    assert [each["type"] for each in without[1]["container"]] == ["CIT27"]


@pytest.mark.parametrize("path", ["questionnaire", "preanalytics"])
async def test_basket_with_invalid_items_rejected(api: httpx.AsyncClient, path: str) -> None:
    items = [{"id": "nope"}, {"id": "002.002", "specimen_code": "11"}]
    issues = outcome(await api.post(path, json={"contract": "C-100", "analyticsrequests": items}), 400)
    assert issues[0]["diagnostics"].startswith("analyticsrequests[0].id: item 'nope' is not in the nomenclature")
    assert "choose 10 (Serum)" in issues[1]["diagnostics"]
    unknown = {"contract": "C-100", "analyticsrequests": [{"id": "nope"}]}
    assert outcome(await api.post(path, json=unknown), 422)[0]["code"] == "not-found"
    assert outcome(await api.post(path, json={**BASKET, "contract": "C-300"}), 404)[0]["code"] == "not-found"
    too_many = {"contract": "C-100", "analyticsrequests": [{"id": "060.001"}] * 51}
    (limit,) = outcome(await api.post(path, json=too_many), 422)
    assert limit["code"] == "too-costly"
    assert "split" not in limit["diagnostics"]  # the interface asks for the whole basket at once
    assert "api.max_basket" in limit["diagnostics"]


@pytest.mark.parametrize("path", ["questionnaire", "preanalytics"])
@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON;charset=UTF-8", 200),
        ("", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/fhir+json", 415),
        ("application/jsonp", 415),
    ],
)
async def test_basket_is_taken_as_json_alone(api: httpx.AsyncClient, path: str, kind: str, status: int) -> None:
    del api.headers["Content-Type"]
    headers = {"Content-Type": kind} if kind else {}
    response = await api.post(path, content=exact_json.dumps(BASKET), headers=headers)
    assert response.status_code == status, response.text
    assert status == 200 or outcome(response, 415)[0]["code"] == "not-supported"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[" * 10_000, b"[]", b"NaN", b'{"contract":"\\ud800"}', b'{"contract":1e999}']
)
async def test_malformed_basket_body_rejected(api: httpx.AsyncClient, body: bytes) -> None:
    response = await api.post("preanalytics", content=body)
    assert outcome(response, 404 if b"1e999" in body else 400)


@pytest.mark.parametrize("body", [b'"\\ud800"', b'{"contract":"\\uDC00x"}', b'{"a":"\\ud800\\ud800"}', b'{"\\ud83d":1}'])
async def test_unpaired_surrogate_named_in_error(api: httpx.AsyncClient, body: bytes) -> None:
    (issue,) = outcome(await api.post("preanalytics", content=body), 400)
    assert "half of a character" in issue["diagnostics"]
    assert "truncated" not in issue["diagnostics"]


@pytest.mark.parametrize("body", [b'{"contract":"\\ud83d\\ude00"', b'{"contract":"\\ud8', b'{"a":"\\\\ud800"'])
async def test_truncated_escape_not_reported_as_surrogate(api: httpx.AsyncClient, body: bytes) -> None:
    """A body that is cut off is not reported as an unpaired surrogate."""
    (issue,) = outcome(await api.post("preanalytics", content=body), 400)
    assert "half of a character" not in issue["diagnostics"]


async def test_byte_order_mark_ignored(api: httpx.AsyncClient) -> None:
    plain = await api.post("preanalytics", json=BASKET)
    marked = await api.post("preanalytics", content=b"\xef\xbb\xbf" + plain.request.content)
    assert (marked.status_code, marked.content) == (200, plain.content)
    assert outcome(await api.post("preanalytics", content=b"\xef\xbb\xbf"), 400)


@pytest.mark.parametrize("code", ["13", "13.0", "13.00", '"13"', '"13.0"', "[13.0]"])
async def test_specimen_code_with_zero_decimals_accepted(
    api: httpx.AsyncClient, current_catalogue: CurrentCatalogue, code: str
) -> None:
    contract = current_catalogue.responses.catalogue.contract("C-100")
    item = next(each for each in contract.items.values() if len(each.options) == 1)
    code = code.replace("13", item.options[0].specimen_code)
    body = f'{{"contract":"C-100","analyticsrequests":[{{"id":"{item.id}","specimen_code":{code}}}]}}'
    response = await api.post("preanalytics", content=body)
    assert response.status_code == 200, response.text
    wrong = await api.post("preanalytics", content=body.replace(code, "13.5"))
    assert "'13.5'" in outcome(wrong, 422 if wrong.status_code == 422 else 400)[0]["diagnostics"]


async def test_body_size_and_encoding_limits_enforced(api: httpx.AsyncClient) -> None:
    (limit,) = outcome(await api.post("preanalytics", content=b" " * 20_001), 413)
    assert "api.max_body" in limit["diagnostics"]

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b" " * 1000

    assert outcome(await api.post("preanalytics", content=chunks()), 413)
    assert outcome(await api.post("preanalytics", content=b"x", headers={"Content-Encoding": "gzip"}), 415)


async def test_unknown_paths_methods_and_parameters_rejected(api: httpx.AsyncClient) -> None:
    assert outcome(await api.get("nothing"), 404)
    assert outcome(await api.get("http://lab/nomenclature?contract=C-100"), 404)
    assert outcome(await api.get("preanalytics"), 405)
    assert outcome(await api.get("eta"), 400)[0]["code"] == "required"
    assert outcome(await api.get("eta?contract="), 400)


async def test_internal_error_shows_no_traceback(api: httpx.AsyncClient, current_catalogue: CurrentCatalogue) -> None:
    current_catalogue.responses = None  # type: ignore[assignment]
    (issue,) = outcome(await api.get("eta?contract=C-100"), 500)
    assert "Traceback" not in issue["diagnostics"]
    assert "None" not in issue["diagnostics"]


async def test_health_and_readiness_need_no_credentials(api: httpx.AsyncClient, current_catalogue: CurrentCatalogue) -> None:
    alive = {"status": "ok", "service": "lab-api"}
    assert (await api.get("http://lab/healthz", headers={"Authorization": ""})).json() == alive
    assert (await api.get("healthz", headers={"Authorization": ""})).json() == alive
    ready = await api.get("http://lab/readyz", headers={"Authorization": ""})
    served = current_catalogue.responses.catalogue.version
    assert ready.json() == {
        "status": "ready",
        "service": "lab-api",
        "catalogue": served,
        "served_since": current_catalogue.since.isoformat(),
    }


async def test_response_bodies_prepared_once_per_version(current_catalogue: CurrentCatalogue) -> None:
    contract, served, now = current_catalogue.responses.catalogue.contract("C-100"), current_catalogue.responses, NOW
    assert await served.nomenclature(contract) is await served.nomenclature(contract)
    assert await served.eta(contract, now) is await served.eta(contract, now)
    current_catalogue.replace(served.catalogue)
    assert await current_catalogue.responses.nomenclature(contract) is await served.nomenclature(contract)


async def test_openapi_describes_every_response(api: httpx.AsyncClient, current_catalogue: CurrentCatalogue) -> None:
    document = (await api.get("openapi.json")).json()
    paths = document["paths"]
    assert set(paths) == {"/lab/nomenclature", "/lab/eta", "/lab/questionnaire", "/lab/preanalytics"}
    for path in paths.values():
        for operation in path.values():
            assert operation["responses"]["401"]["content"]["application/json"]["schema"]["$ref"].endswith("OperationOutcome")
    example = paths["/lab/preanalytics"]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert (await api.post("preanalytics", json=example)).status_code == 200
    catalogue: Catalogue = current_catalogue.responses.catalogue
    fields = set(document["components"]["schemas"]["NomenclatureItem"]["properties"])
    assert fields == set(nomenclature(catalogue.contract("C-100"))[0])


async def test_docs_pages_disabled_by_default(settings: ApiSettings, current_catalogue: CurrentCatalogue) -> None:
    transport = httpx.ASGITransport(create_app(ApiSettings(), current_catalogue))
    async with httpx.AsyncClient(transport=transport, base_url="http://lab/") as client:
        assert [(await client.get(path)).status_code for path in ("docs", "openapi.json")] == [404, 404]
