"""A test for each row of the endpoint table, named after its purpose."""

import base64
import json

import httpx
import pytest

from lab_sandbox.app import create_app

BASKET = {"contract": "C-100", "analyticsrequests": [{"id": "001.000", "specimen_code": "108", "guid": "g-1"}]}
ANSWERS = {
    "nomenclature": b'[{"id": "001", "price": 1.20}]',
    "eta": b"[]",
    "questionnaire": b'{"resourceType": "Questionnaire", "status": "active"}',
    "preanalytics": b'{"specimens": []}',
}


async def test_nomenclature_forwarded_with_its_etag(world):
    world.lab.responses["/api/nomenclature"] = httpx.Response(
        200, content=b'[{"id": "001", "price": 1.20}]', headers={"ETag": '"n1"'}
    )
    answer = await world.client.get("/nomenclature", params={"contract": "C-100"}, headers=world.clinic)
    assert answer.status_code == 200
    assert answer.content == b'[{"id": "001", "price": 1.20}]'
    assert answer.headers["etag"] == '"n1"'
    forwarded = world.lab.requests[-1]
    assert forwarded.url.params["contract"] == "C-100"


@pytest.mark.parametrize("name", ["nomenclature", "eta", "questionnaire", "preanalytics"])
async def test_basket_functions_forwarded_with_laboratory_credentials(world, name):
    """To the address on the counterparty card; a basket as JSON."""
    content, is_basket = ANSWERS[name], name in {"questionnaire", "preanalytics"}
    world.lab.responses[f"/api/{name}"] = httpx.Response(200, content=content)
    asked = {"json": BASKET} if is_basket else {"params": {"contract": "C-100"}}
    answer = await world.client.request("POST" if is_basket else "GET", f"/{name}", **asked, headers=world.clinic)
    assert (answer.status_code, answer.content) == (200, content)
    (forwarded,) = world.lab.requests
    assert str(forwarded.url).partition("?")[0] == f"http://lab.test/api/{name}"
    assert forwarded.headers["authorization"] == "Bearer for-the-lab"
    assert forwarded.headers.get("content-type") == ("application/json" if is_basket else None)


async def test_eta_forwards_conditional_request(world):
    world.lab.responses["/api/eta"] = httpx.Response(304, headers={"ETag": '"e1"'})
    answer = await world.client.get("/eta?contract=C-200", headers=world.clinic | {"If-None-Match": '"e1"'})
    assert answer.status_code == 304
    assert world.lab.requests[-1].headers["if-none-match"] == '"e1"'


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("questionnaire", b'{"resourceType": "Questionnaire", "status": "active", "item": {"linkId": "1.10"}}'),
        ("preanalytics", b'{"specimens": [{"collection": {"quantity": 3.50}}]}'),
    ],
)
async def test_basket_for_whole_order_keeps_digits(world, name, content):
    world.lab.responses[f"/api/{name}"] = httpx.Response(200, content=content)
    body = json.dumps(BASKET).replace('"108"', "108.0")
    answer = await world.client.post(f"/{name}", content=body, headers=world.clinic | {"Content-Type": "application/json"})
    assert answer.content == content
    assert b'"specimen_code":108.0' in world.lab.requests[-1].content


@pytest.mark.parametrize(
    ("path", "status", "names"),
    [("/nomenclature", 400, "contract"), ("/eta?contract=nope", 404, "nope"), ("/nomenclature?contract=C-900", 403, "C-900")],
)
async def test_basket_request_with_wrong_contract_rejected(world, helpers, path, status, names):
    answer = await world.client.get(path, headers=world.clinic)
    assert answer.status_code == status
    assert names in helpers.diagnostics(answer)
    assert world.lab.requests == []


async def test_laboratory_error_becomes_operation_outcome(world, helpers):
    world.lab.responses["/api/eta"] = httpx.Response(401, text="who are you")
    answer = await world.client.get("/eta?contract=C-100", headers=world.clinic)
    assert answer.status_code == 502
    assert "laboratory" in helpers.diagnostics(answer)
    outcome = {
        "resourceType": "OperationOutcome",
        "issue": [{"severity": "error", "code": "invalid", "diagnostics": "guid twice"}],
    }
    world.lab.responses["/api/questionnaire"] = httpx.Response(422, json=outcome)
    answer = await world.client.post("/questionnaire", json=BASKET, headers=world.clinic)
    assert answer.status_code == 422
    assert helpers.diagnostics(answer) == "guid twice"


async def test_laboratory_non_json_response_rejected(world, helpers):
    world.lab.responses["/api/eta"] = httpx.Response(200, text="<html>")
    answer = await world.client.get("/eta?contract=C-100", headers=world.clinic)
    assert answer.status_code == 502
    assert "not JSON" in helpers.diagnostics(answer)


@pytest.mark.parametrize(
    ("call", "content"),
    [
        ("GET /nomenclature?contract=C-100", b"{}"),
        ("GET /eta?contract=C-100", b'"available"'),
        ("POST /questionnaire", b'{"resourceType": "Questionnaire", "status": "draft"}'),
        ("POST /questionnaire", b"[]"),
        ("POST /preanalytics", b'{"specimens": {}}'),
    ],
)
async def test_laboratory_answer_of_other_shape_rejected(world, helpers, call, content):
    method, path = call.split()
    world.lab.responses[f"/api{path.partition('?')[0]}"] = httpx.Response(200, content=content)
    answer = await world.client.request(method, path, json=BASKET if method == "POST" else None, headers=world.clinic)
    assert answer.status_code == 502
    assert "must be" in helpers.diagnostics(answer)


@pytest.mark.parametrize(
    ("media_type", "status"), [("application/json; charset=utf-8", 200), ("application/fhir+json", 415), ("", 415), (None, 415)]
)
@pytest.mark.parametrize("name", ["questionnaire", "preanalytics"])
async def test_basket_needs_json_content_type(world, name, media_type, status):
    world.lab.responses[f"/api/{name}"] = httpx.Response(200, content=ANSWERS[name])
    headers = world.clinic | ({} if media_type is None else {"Content-Type": media_type})
    answer = await world.client.post(f"/{name}", content=json.dumps(BASKET), headers=headers)
    assert answer.status_code == status


async def test_contract_update_by_client_rejected(world, helpers):
    contract = (await world.client.get("/fhir/contract/contract-100", headers=world.clinic)).json()
    answer = await world.client.put("/fhir/contract/contract-100", json=contract, headers=world.clinic | {"If-Match": 'W/"1"'})
    assert answer.status_code == 405
    assert "Contract" in helpers.diagnostics(answer)


async def test_create_patient(world):
    answer = await world.client.post("/fhir/Patient", json=patient_of(world), headers=world.clinic)
    body = answer.json()
    assert answer.status_code == 200
    assert answer.headers["etag"] == 'W/"1"'
    assert body["resourceType"] == "Patient"
    assert body["meta"]["versionId"] == "1"
    assert {"system": "http://exchange.test/security/read", "code": "guid-laboratory"} in body["meta"]["security"]
    assert {"system": "http://exchange.test/security/owner", "code": "guid-clinic"} in body["meta"]["security"]
    read = await world.client.get(f"/fhir/patient/{body['id']}", headers=world.clinic)
    assert read.json() == body


def patient_of(world):
    return {
        "resourceType": "Patient",
        "name": [{"family": "1234567890", "given": ["-", "-"]}],
        "gender": "male",
        "birthDate": "1970-01-01",
        "meta": {"security": [{"system": "read", "code": guid} for guid in ("guid-laboratory", "guid-clinic")]},
    }


@pytest.mark.parametrize(
    "spelling", ["/fhir/$CreateDiagnosticRequest", "/fhir/%24CreateDiagnosticRequest", "/$creatediagnosticrequest"]
)
async def test_create_order_from_bundle(world, helpers, spelling):
    bundle = helpers.order_bundle(await world.patient())
    answer = await world.client.post(spelling, json=bundle, headers=world.clinic)
    assert answer.status_code == 200, answer.text
    created = answer.json()
    assert created["resourceType"] == "Bundle"
    assert all(entry["resource"]["id"] for entry in created["entry"])
    assert "urn:uuid:" not in answer.text
    assert len(created["entry"]) == len(bundle["entry"])


async def test_find_contract(world):
    answer = await world.client.get(
        "/fhir/Contract", params={"identifier": "http://codes.lab.example/contract|C-100"}, headers=world.laboratory
    )
    found = answer.json()["entry"]
    assert [entry["resource"]["id"] for entry in found] == ["contract-100"]
    other = await world.client.get(
        "/fhir/contract", params={"identifier": "http://codes.lab.example/contract|C-900"}, headers=world.clinic
    )
    assert other.json()["entry"] == []


async def test_laboratory_finds_new_order_tasks(world):
    created = await world.created_order()
    answer = await world.client.get("/fhir/task?status=requested&code=OrderProcessingTask", headers=world.laboratory)
    found = [entry["resource"] for entry in answer.json()["entry"]]
    assert [one["id"] for one in found] == [created["Task"][0]["id"]]
    nothing = await world.client.get("/fhir/task?status=completed&code=OrderProcessingTask", headers=world.laboratory)
    assert nothing.json()["entry"] == []
    assert (await world.client.get("/fhir/task?status=requested", headers=world.stranger)).json()["entry"] == []


@pytest.mark.parametrize("value", ["task/{}", "Task/{}", "{}", "http://exchange.test/fhir/Task/{}"])
async def test_laboratory_finds_line_tasks_of_order(world, value):
    await world.created_order(1)
    created = await world.created_order(3)
    order, *lines = created["Task"]
    answer = await world.client.get("/fhir/task", params={"part-of": value.format(order["id"])}, headers=world.laboratory)
    assert {entry["resource"]["id"] for entry in answer.json()["entry"]} == {one["id"] for one in lines}


@pytest.mark.parametrize(
    "spelling",
    [
        "/fhir/procedurerequest/{}",
        "/fhir/ProcedureRequest/{}",
        "/ProcedureRequest/{}",
        "/procedurerequest/{}",
        "//fhir//procedurerequest/{}",
    ],
)
async def test_read_in_any_case_with_or_without_fhir(world, spelling):
    """Paths are accepted in any case, with and without the fhir prefix."""
    line = (await world.created_order())["ProcedureRequest"][0]
    answer = await world.client.get(spelling.format(line["id"]), headers=world.laboratory)
    assert answer.status_code == 200
    assert answer.headers["etag"] == 'W/"1"'
    assert answer.json() == line


@pytest.mark.parametrize("kind", ["ProcedureRequest", "Specimen", "QuestionnaireResponse", "Task"])
async def test_read_resources_of_order(world, kind):
    resource = (await world.created_order())[kind][0]
    answer = await world.client.get(f"/fhir/{kind.lower()}/{resource['id']}", headers=world.laboratory)
    assert (answer.status_code, answer.headers["etag"], answer.json()) == (200, 'W/"1"', resource)


async def test_laboratory_reads_patient_of_order(world):
    patient = (await world.created_order())["ProcedureRequest"][0]["subject"]["reference"]
    answer = await world.client.get(f"/fhir/{patient}", headers=world.laboratory)
    assert (answer.status_code, answer.headers["etag"], answer.json()["gender"]) == (200, 'W/"1"', "female")


async def test_update_whole_resource(world):
    task = (await world.created_order())["Task"][0]
    changed = {key: value for key, value in task.items() if key != "input"} | {"status": "completed"}
    answer = await world.client.put(f"/Task/{task['id']}", json=changed, headers=world.laboratory | {"If-Match": 'W/"1"'})
    assert answer.status_code == 200
    assert answer.headers["etag"] == 'W/"2"'
    read = (await world.client.get(f"/fhir/task/{task['id']}", headers=world.clinic)).json()
    assert read["status"] == "completed"
    assert read["meta"]["versionId"] == "2"
    assert "input" not in read


async def test_download_result_document(world, helpers):
    pdf = b"%PDF-1.4 sample"
    binary = {
        "resourceType": "Binary",
        "meta": helpers.grant("read", guid=helpers.CLINIC),
        "contentType": "application/pdf",
        "content": base64.b64encode(pdf).decode(),
    }
    created = await world.upload(binary)
    assert created.status_code == 201
    answer = await world.client.get(f"/fhir/Binary/{created.json()['id']}", headers=world.clinic | {"Accept": "application/pdf"})
    assert answer.status_code == 200
    assert answer.content == pdf
    assert answer.headers["content-type"] == "application/pdf"
    assert answer.headers["content-length"] == str(len(pdf))


async def test_questionnaire_responses_found_by_subject(world):
    created = await world.created_order()
    line = created["ProcedureRequest"][0]["id"]
    answer = await world.client.get(f"/fhir/questionnaireresponse?subject=procedurerequest/{line}", headers=world.laboratory)
    assert [one["resource"]["id"] for one in answer.json()["entry"]] == [created["QuestionnaireResponse"][0]["id"]]


async def test_questionnaire_unsupported_search_rejected(world_factory, helpers):
    world = world_factory(rules={"questionnaire_search": False})
    answer = await world.client.get("/fhir/questionnaireresponse?subject=procedurerequest/1", headers=world.laboratory)
    assert answer.status_code == 501
    assert "QuestionnaireResponse" in helpers.diagnostics(answer)


async def test_unknown_endpoint_gives_operation_outcome(world, helpers):
    for method, path in (("GET", "/fhir/Medication/1"), ("GET", "/nothing"), ("DELETE", "/fhir/Task/1"), ("GET", "/")):
        answer = await world.client.request(method, path, headers=world.clinic)
        assert answer.status_code in {404, 405}
        assert helpers.diagnostics(answer)


async def test_path_prefix_accepted(helpers):
    config = helpers.make_config(tokens={"allow_basic": True}).model_copy(
        update={"base_url": "http://exchange.test/exchange/api/", "auth_url": "http://exchange.test/auth"}
    )
    app = create_app(config)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://exchange.test") as client:
        basic = {"Authorization": httpx.BasicAuth("clinic", "pw-clinic")._auth_header}
        found = await client.get("/exchange/api/fhir/contract?_count=1", headers=basic)
        assert found.json()["link"][1]["url"].startswith("http://exchange.test/exchange/api/fhir/Contract?")
        assert (await client.post("/auth/connect/token", data={"grant_type": "password"})).status_code == 401
    app.state.service.store.close()
