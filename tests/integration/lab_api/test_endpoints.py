"""The four endpoints over HTTP: bodies, caching, limits, errors."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from lab_agent.catalogue.nomenclature import nomenclature
from lab_agent.settings.api import ApiSettings
from lab_agent.shared import exact_json
from lab_api.app import create_app
from lab_api.response_cache import CurrentCatalogue
from tests.harness.clock import VirtualClock
from tests.integration.lab_api.parts import ETA, basket, caller, plain_items, sample

BASKETS = ("questionnaire", "preanalytics")
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


async def test_nomenclature_lists_items(api: httpx.AsyncClient) -> None:
    response = await api.get("nomenclature?contract=C-100")
    assert response.status_code == 200
    assert response.headers["cache-control"] == "private, max-age=86400"
    assert exact_json.loads(response.content) == nomenclature(sample().contract("C-100"))
    assert '"price":480.00' in response.text


async def test_each_contract_has_its_own_nomenclature(api: httpx.AsyncClient) -> None:
    listed = {code: exact_json.loads((await api.get(f"nomenclature?contract={code}")).content) for code in ("C-100", "C-200")}
    assert listed == {code: nomenclature(sample().contract(code)) for code in listed}
    assert {each["id"] for each in listed["C-100"]} > {each["id"] for each in listed["C-200"]}


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
    assert (await api.get(f"{path}?contract=C-200", headers={"If-None-Match": etag})).status_code == 200


async def test_response_compressed_only_if_accepted(api: httpx.AsyncClient) -> None:
    for accepted, packed in (("gzip", True), ("br, gzip;q=0.5", True), ("gzip;q=0", False), ("identity", False)):
        async with api.stream("GET", "nomenclature?contract=C-100", headers={"Accept-Encoding": accepted}) as response:
            raw = b"".join([chunk async for chunk in response.aiter_raw()])
        assert ("content-encoding" in response.headers) is packed, accepted
        assert len(exact_json.loads(gzip.decompress(raw) if packed else raw)) >= 30
    large = await api.post("preanalytics", json=basket(*plain_items(50)))
    assert large.headers["content-encoding"] == "gzip"
    assert len(large.json()["specimens"]) > 5


async def test_eta_revalidated_and_follows_notices(api: httpx.AsyncClient, clock: VirtualClock) -> None:
    clock.time = datetime(2025, 12, 28, 20, 59, tzinfo=UTC)
    before = await api.get(ETA)
    assert before.headers["cache-control"] == "private, no-cache"
    assert {each["status"] for each in before.json()} == {"available"}
    clock.advance(minutes=1)  # midnight three hours to the east, where the notice begins
    during = await api.get(ETA, headers={"If-None-Match": before.headers["etag"]})
    assert during.status_code == 200
    assert [each["id"] for each in during.json() if each["status"] == "delayed"] == ["190.200"]


async def test_questionnaire_lists_questions(api: httpx.AsyncClient) -> None:
    response = await api.post("questionnaire", json=BASKET)
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    assert response.json()["item"]["item"][0]["item"][0]["linkId"] == "anticoagulant"
    plain = await api.post("questionnaire", json=basket("001.001"))
    assert plain.json() == {"resourceType": "Questionnaire", "status": "active"}


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


@pytest.mark.parametrize("path", BASKETS)
async def test_basket_with_invalid_items_rejected(api: httpx.AsyncClient, path: str) -> None:
    items = [{"id": "nope"}, {"id": "002.002", "specimen_code": "11"}]
    issues = outcome(await api.post(path, json={"contract": "C-100", "analyticsrequests": items}), 400)
    assert issues[0]["diagnostics"].startswith("analyticsrequests[0].id: item 'nope' is not in the nomenclature")
    assert "choose 10 (Serum)" in issues[1]["diagnostics"]
    assert outcome(await api.post(path, json=basket("nope")), 422)[0]["code"] == "not-found"
    assert outcome(await api.post(path, json={**BASKET, "contract": "C-300"}), 404)[0]["code"] == "not-found"
    (limit,) = outcome(await api.post(path, json=basket(*["060.001"] * 51)), 422)
    assert limit["code"] == "too-costly"
    assert "split" not in limit["diagnostics"]  # the interface asks for the whole basket at once
    assert "api.max_basket" in limit["diagnostics"]


@pytest.mark.parametrize("path", BASKETS)
async def test_basket_is_taken_as_json_alone(api: httpx.AsyncClient, path: str) -> None:
    del api.headers["Content-Type"]
    for kind in ("application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8"):
        response = await api.post(path, content=exact_json.dumps(BASKET), headers={"Content-Type": kind})
        assert response.status_code == 200, response.text
    for kind in ("", "text/plain", "application/x-www-form-urlencoded", "application/fhir+json", "application/jsonp"):
        headers = {"Content-Type": kind} if kind else {}
        response = await api.post(path, content=exact_json.dumps(BASKET), headers=headers)
        assert outcome(response, 415)[0]["code"] == "not-supported", kind


@pytest.mark.parametrize(
    ("body", "halved"),
    [
        *((each, False) for each in (b"", b"{", b"\xff", b"[" * 10_000, b"[]", b"NaN", b"\xef\xbb\xbf", b'{"contract":1e999}')),
        *((each, True) for each in (b'"\\ud800"', b'{"contract":"\\uDC00x"}', b'{"a":"\\ud800\\ud800"}', b'{"\\ud83d":1}')),
        *((each, False) for each in (b'{"contract":"\\ud83d\\ude00"', b'{"contract":"\\ud8', b'{"a":"\\\\ud800"')),
    ],
)
async def test_malformed_basket_body_rejected(api: httpx.AsyncClient, body: bytes, halved: bool) -> None:
    """Half of a character is named so; a body that is cut off is not."""
    issues = outcome(await api.post("preanalytics", content=body), 404 if b"1e999" in body else 400)
    assert ("half of a character" in issues[0]["diagnostics"]) is halved
    assert not (halved and "truncated" in issues[0]["diagnostics"])


async def test_byte_order_mark_ignored(api: httpx.AsyncClient) -> None:
    plain = await api.post("preanalytics", json=BASKET)
    marked = await api.post("preanalytics", content=b"\xef\xbb\xbf" + plain.request.content)
    assert (marked.status_code, marked.content) == (200, plain.content)


async def test_specimen_code_with_zero_decimals_accepted(api: httpx.AsyncClient) -> None:
    forms = dict.fromkeys(("10", "10.0", "10.00", '"10"', '"10.0"', "[10.0]"), 200) | {"13.5": 400}
    for form, status in forms.items():
        body = f'{{"contract":"C-100","analyticsrequests":[{{"id":"003.001","specimen_code":{form}}}]}}'
        response = await api.post("preanalytics", content=body)
        assert response.status_code == status, form
    assert "'13.5'" in outcome(response, 400)[0]["diagnostics"]


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


async def test_openapi_describes_every_response(api: httpx.AsyncClient, current_catalogue: CurrentCatalogue) -> None:
    """Where the settings ask for it."""
    document = (await api.get("openapi.json")).json()
    paths = document["paths"]
    assert set(paths) == {"/lab/nomenclature", "/lab/eta", "/lab/questionnaire", "/lab/preanalytics"}
    for path in paths.values():
        for operation in path.values():
            assert operation["responses"]["401"]["content"]["application/json"]["schema"]["$ref"].endswith("OperationOutcome")
    example = paths["/lab/preanalytics"]["post"]["requestBody"]["content"]["application/json"]["example"]
    assert (await api.post("preanalytics", json=example)).status_code == 200
    fields = set(document["components"]["schemas"]["NomenclatureItem"]["properties"])
    assert fields == set(nomenclature(sample().contract("C-100"))[0])
    async with caller(create_app(ApiSettings(), current_catalogue), base="http://lab/") as client:
        assert [(await client.get(path)).status_code for path in ("docs", "openapi.json")] == [404, 404]
