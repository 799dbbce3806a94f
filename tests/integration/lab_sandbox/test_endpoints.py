"""A test for each row of the endpoint table, named after its purpose."""

import base64
import json

import httpx
import pytest

from lab_sandbox.app import create_app
from tests.integration.lab_sandbox.world import (
    BASE,
    CLINIC,
    JSON_TYPE,
    LAB,
    LABORATORY,
    diagnostics,
    grant,
    make_config,
    order_bundle,
)

PDF = b"%PDF-1.4\x00\xff sample"
FHIR_JSON = "application/fhir+json;charset=utf-8"
BASKET = {"contract": "C-100", "analyticsrequests": [{"id": "001.000", "specimen_code": "108", "guid": "g-1"}]}
ANSWERS = {
    "nomenclature": b'[{"id": "001", "price": 1.20}]',
    "eta": b"[]",
    "questionnaire": b'{"resourceType": "Questionnaire", "status": "active"}',
    "preanalytics": b'{"specimens": []}',
}
BASKETS = ("questionnaire", "preanalytics")


@pytest.mark.parametrize("name", ANSWERS)
async def test_basket_functions_forwarded_with_laboratory_credentials(world, name):
    """To the address on the counterparty card; a basket as JSON, a list with its tag."""
    content, is_basket = ANSWERS[name], name in BASKETS
    world.lab.responses[f"/api/{name}"] = httpx.Response(200, content=content, headers={"ETag": '"n1"'})
    asked = {"json": BASKET} if is_basket else {"params": {"contract": "C-100"}}
    answer = await world.client.request("POST" if is_basket else "GET", f"/{name}", **asked, headers=world.clinic)
    assert (answer.status_code, answer.content) == (200, content)
    (forwarded,) = world.lab.requests
    assert str(forwarded.url).partition("?")[0] == f"http://lab.test/api/{name}"
    assert forwarded.headers["authorization"] == "Bearer for-the-lab"
    assert forwarded.headers.get("content-type") == ("application/json" if is_basket else None)
    if not is_basket:
        assert (answer.headers["etag"], forwarded.url.params["contract"]) == ('"n1"', "C-100")
        world.lab.responses[f"/api/{name}"] = httpx.Response(304, headers={"ETag": '"n1"'})
        assert await world.status(f"/{name}?contract=C-200", world.clinic | {"If-None-Match": '"n1"'}) == 304
        assert world.lab.requests[-1].headers["if-none-match"] == '"n1"'


async def test_basket_for_whole_order_keeps_digits(world):
    for name, content in (
        ("questionnaire", b'{"resourceType": "Questionnaire", "status": "active", "item": {"linkId": "1.10"}}'),
        ("preanalytics", b'{"specimens": [{"collection": {"quantity": 3.50}}]}'),
    ):
        world.lab.responses[f"/api/{name}"] = httpx.Response(200, content=content)
        body = json.dumps(BASKET).replace('"108"', "108.0")
        answer = await world.client.post(f"/{name}", content=body, headers=world.clinic | JSON_TYPE)
        assert answer.content == content
        assert b'"specimen_code":108.0' in world.lab.requests[-1].content


async def test_basket_request_with_wrong_contract_rejected(world):
    for path, status, name in (
        ("/nomenclature", 400, "contract"),
        ("/eta?contract=nope", 404, "nope"),
        ("/nomenclature?contract=C-900", 403, "C-900"),
    ):
        answer = await world.get(path, world.clinic)
        assert answer.status_code == status
        assert name in diagnostics(answer)
    assert world.lab.requests == []


@pytest.mark.parametrize(
    ("call", "given", "status", "named"),
    [
        ("GET /eta?contract=C-100", httpx.Response(401, text="who are you"), 502, "laboratory"),
        ("GET /eta?contract=C-100", httpx.ConnectError("refused"), 502, "laboratory"),
        ("GET /eta?contract=C-100", httpx.Response(200, text="<html>"), 502, "not JSON"),
        ("POST /questionnaire", 422, 422, "guid twice"),
        ("GET /nomenclature?contract=C-100", b"{}", 502, "must be"),
        ("GET /eta?contract=C-100", b'"available"', 502, "must be"),
        ("POST /questionnaire", b'{"resourceType": "Questionnaire", "status": "draft"}', 502, "must be"),
        ("POST /questionnaire", b"[]", 502, "must be"),
        ("POST /preanalytics", b'{"specimens": {}}', 502, "must be"),
    ],
)
async def test_laboratory_answer_of_other_shape_rejected(world, call, given, status, named):
    """Also one that is an error, which an outcome explains, or none at all."""
    method, path = call.split()
    if isinstance(given, bytes):
        given = httpx.Response(200, content=given)
    elif isinstance(given, int):
        issue = {"severity": "error", "code": "invalid", "diagnostics": "guid twice"}
        given = httpx.Response(given, json={"resourceType": "OperationOutcome", "issue": [issue]})
    world.lab.responses[f"/api{path.partition('?')[0]}"] = given
    answer = await world.client.request(method, path, json=BASKET if method == "POST" else None, headers=world.clinic)
    assert answer.status_code == status
    assert named in diagnostics(answer)


async def test_basket_needs_json_content_type(world):
    for name in BASKETS:
        world.lab.responses[f"/api/{name}"] = httpx.Response(200, content=ANSWERS[name])
        for kind, status in (("application/json; charset=utf-8", 200), ("application/fhir+json", 415), ("", 415), (None, 415)):
            headers = world.clinic | ({} if kind is None else {"Content-Type": kind})
            assert await world.status(f"/{name}", headers, "POST", content=json.dumps(BASKET)) == status, kind


async def test_create_patient(world):
    rights = {"security": [{"system": "read", "code": guid} for guid in (LABORATORY, CLINIC)]}
    name = [{"family": "1234567890", "given": ["-", "-"]}]
    body = {"resourceType": "Patient", "name": name, "gender": "male", "birthDate": "1970-01-01", "meta": rights}
    answer = await world.client.post("/fhir/Patient", json=body, headers=world.clinic)
    made = answer.json()
    assert answer.status_code == 200
    assert answer.headers["etag"] == 'W/"1"'
    assert made["resourceType"] == "Patient"
    assert made["meta"]["versionId"] == "1"
    for right, guid in (("read", LABORATORY), ("owner", CLINIC)):
        assert {"system": f"{BASE}security/{right}", "code": guid} in made["meta"]["security"]
    assert (await world.get(f"/fhir/patient/{made['id']}", world.clinic)).json() == made


async def test_create_order_from_bundle(world):
    for spelling in ("/fhir/$CreateDiagnosticRequest", "/fhir/%24CreateDiagnosticRequest", "/$creatediagnosticrequest"):
        bundle = order_bundle(await world.patient())
        answer = await world.client.post(spelling, json=bundle, headers=world.clinic)
        assert answer.status_code == 200, answer.text
        created = answer.json()
        assert created["resourceType"] == "Bundle"
        assert all(entry["resource"]["id"] for entry in created["entry"])
        assert "urn:uuid:" not in answer.text
        assert len(created["entry"]) == len(bundle["entry"])


async def test_find_contract(world):
    found = await world.found("/fhir/Contract", identifier=f"{LAB}/contract|C-100")
    assert [each["id"] for each in found] == ["contract-100"]
    assert await world.found("/fhir/contract", world.clinic, identifier=f"{LAB}/contract|C-900") == []


async def test_laboratory_finds_new_order_tasks(world):
    created = await world.created_order()
    assert await world.found("/fhir/task?status=requested&code=OrderProcessingTask") == [created["Task"][0]]
    assert await world.found("/fhir/task?status=completed&code=OrderProcessingTask") == []
    assert await world.found("/fhir/task?status=requested", world.stranger) == []


async def test_laboratory_finds_line_tasks_of_order(world):
    await world.created_order(1)
    order, *lines = (await world.created_order(3))["Task"]
    for value in ("task/{}", "Task/{}", "{}", "http://exchange.test/fhir/Task/{}"):
        assert await world.found("/fhir/task", **{"part-of": value.format(order["id"])}) == lines


@pytest.mark.parametrize("kind", ["ProcedureRequest", "Specimen", "QuestionnaireResponse", "Task"])
async def test_read_resources_of_order(world, kind):
    resource = (await world.created_order())[kind][0]
    answer = await world.get(f"/fhir/{kind.lower()}/{resource['id']}")
    assert (answer.status_code, answer.headers["etag"], answer.json()) == (200, 'W/"1"', resource)


async def test_laboratory_reads_patient_of_order(world):
    patient = (await world.created_order())["ProcedureRequest"][0]["subject"]["reference"]
    answer = await world.get(f"/fhir/{patient}")
    assert (answer.status_code, answer.headers["etag"], answer.json()["gender"]) == (200, 'W/"1"', "female")


async def test_questionnaire_responses_found_by_subject(world, world_factory):
    created = await world.created_order()
    path = f"/fhir/questionnaireresponse?subject=procedurerequest/{created['ProcedureRequest'][0]['id']}"
    assert await world.found(path) == created["QuestionnaireResponse"]
    unable = world_factory(rules={"questionnaire_search": False})
    refused = await unable.get(path)
    assert refused.status_code == 501
    assert "QuestionnaireResponse" in diagnostics(refused)


async def test_path_prefix_accepted():
    changes = {"base_url": "http://exchange.test/exchange/api/", "auth_url": "http://exchange.test/auth"}
    app = create_app(make_config(tokens={"allow_basic": True}).model_copy(update=changes))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://exchange.test") as client:
        found = await client.get("/exchange/api/fhir/contract?_count=1", auth=("clinic", "pw-clinic"))
        assert found.json()["link"][1]["url"].startswith("http://exchange.test/exchange/api/fhir/Contract?")
        assert (await client.post("/auth/connect/token", data={"grant_type": "password"})).status_code == 401
    app.state.service.store.close()


# --- documents --------------------------------------------------------------------------------------------------------------


def binary(**changes):
    content = base64.b64encode(PDF).decode()
    shown = {"meta": grant("read", guid=CLINIC), "contentType": "application/pdf", "content": content}
    return {"resourceType": "Binary"} | shown | changes


@pytest.fixture
async def document(world):
    made = await world.upload(binary())
    assert made.status_code == 201
    return f"/fhir/Binary/{made.json()['id']}"


async def test_download_result_document(world, document):
    """In its own format where `Accept` takes that, and as a resource where it asks for one."""
    for accept in (
        "",
        "*/*",
        "application/pdf",
        "text/html;q=0.5, application/*",
        "text/html, application/pdf;q=0.1",
        "text/html;q=²,*/*",
        "application/json, application/pdf;q=0.5",
    ):
        answer = await world.get(document, world.clinic | {"Accept": accept.encode("latin-1")})
        assert (answer.status_code, answer.content) == (200, PDF), accept
        assert answer.headers["content-type"] == "application/pdf"
        assert answer.headers["content-length"] == str(len(PDF))
    for accept in ("application/fhir+json", "application/json+fhir, application/pdf;q=0.5"):
        answer = await world.get(document, world.clinic | {"Accept": accept})
        assert base64.b64decode(answer.json()["content"]) == PDF
        assert answer.headers["content-type"] == FHIR_JSON


async def test_document_unavailable_format_rejected(world, document):
    for accept in ("text/html", "image/png;q=1, application/pdf;q=0", "application/json"):
        answer = await world.get(document, world.clinic | {"Accept": accept})
        assert answer.status_code == 406, accept
        assert "Accept" in diagnostics(answer)


async def test_document_required_fields_checked(world):
    for changes in ({"contentType": ""}, {"content": "%%"}, {"content": "é"}, {"content": None}):
        answer = await world.upload(binary(**changes))
        assert answer.status_code == 422, changes
        assert f"Binary.{next(iter(changes))}" in diagnostics(answer)
