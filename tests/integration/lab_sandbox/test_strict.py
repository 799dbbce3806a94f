"""With `strict`: what an STU3 server refuses, and how it spells, pages, remembers and deletes."""

import base64
import json

import pytest

from tests.integration.lab_sandbox.world import BASE, diagnostics, observation, order_bundle, problems

PDF = b"%PDF-1.4\x00\xff sample"
FHIR_JSON = "application/fhir+json;charset=utf-8"


@pytest.fixture
def strict(world_factory):
    return world_factory(strict=True)


async def test_strict_path_needs_type_names_in_their_case(strict):
    for path in ("/fhir/task", "/Task", "/task/1", "/fhir/TASK/1", "/fhir/$creatediagnosticrequest"):
        assert await strict.status(path, strict.laboratory, "POST" if "$" in path else "GET") == 404, path
    assert await strict.status("/fhir/Task", strict.laboratory) == 200


async def test_strict_reference_in_other_spelling_refused(strict):
    patient, element = await strict.patient(), ("Observation.subject.reference", "stu3-type-name")
    for spelling in ("patient/{}", "fhir/Patient/{}", "http://exchange.test/Patient/{}", "http://exchange.test/fhir/patient/{}"):
        assert element in problems(await strict.upload(observation(subject={"reference": spelling.format(patient)})))
    bundle = order_bundle(patient)
    answer = await strict.client.post("/fhir/$CreateDiagnosticRequest", json=bundle, headers=strict.clinic)
    assert "stu3-type-name" in {rule for _, rule in problems(answer)}


async def test_strict_service_spells_references_its_own_way(strict):
    created = await strict.created_order()
    subject = created["ProcedureRequest"][0]["subject"]
    assert subject["reference"].startswith("Patient/")
    absolute = {"reference": f"{BASE}fhir/{subject['reference']}"}
    made = await strict.upload(observation(subject=absolute, note=[], comment=""))
    assert made.status_code == 201, made.text
    assert made.json()["subject"] == subject
    assert not {"note", "comment"} & made.json().keys(), "STU3 has no empty elements"
    assert created["Task"][1]["partOf"][0]["reference"].startswith("Task/")


async def test_strict_search_reference_in_lower_case_refused(strict):
    task = (await strict.created_order())["Task"][0]["id"]
    for value, status in ((f"task/{task}", 400), (f"Task/{task}", 200), (task, 200)):
        assert await strict.status(f"/fhir/Task?part-of={value}", strict.laboratory) == status
    for query in ("Task?partOf=a|b", "Task?Status=a|b", "Binary?identifier=a|b"):
        assert await strict.status(f"/fhir/{query}", strict.laboratory) == 400


async def test_strict_task_output_needs_type(strict):
    task = (await strict.created_order())["Task"][1]
    reason = {"valueString": "haemolysed"}
    assert "Task.output[0].type" in {path for path, _ in problems(await strict.put(task, status="cancelled", output=[reason]))}
    answer = await strict.put(task, status="cancelled", output=[{"type": {"text": "error"}} | reason])
    assert answer.status_code == 200, answer.text
    assert "intent" not in answer.json(), "the document leaves it out"


async def test_strict_element_missing_or_in_other_form_refused(strict, world):
    for changes, element in (
        ({"note": [{"time": "2026-01-05"}]}, "Observation.note[0].text"),
        ({"extension": [{"valueString": "x"}]}, "Observation.extension[0].url"),
        ({"component": [{"valueString": "x"}]}, "Observation.component[0].code"),
        ({"valueQuantity": {"value": 1, "extension": [{}]}}, "Observation.valueQuantity.extension[0].url"),
    ):
        assert f"{element}: required in STU3" in diagnostics(await strict.upload(observation(**changes)))
    date_only = observation(issued="2026-01-05")
    assert "stu3-instant" in {rule for _, rule in problems(await strict.upload(date_only))}
    assert (await world.upload(date_only)).status_code == 201


async def test_strict_responses_have_media_type_and_version_in_location(strict):
    made = await strict.upload(observation())
    assert made.headers["content-type"] == FHIR_JSON
    address = f"{BASE}fhir/Observation/{made.json()['id']}"
    assert made.headers["location"] == f"{address}/_history/1"
    changed = await strict.put(made.json(), status="amended")
    assert changed.headers["location"] == f"{address}/_history/2"
    assert (await strict.get("/fhir/Nothing")).headers["content-type"] == FHIR_JSON


@pytest.mark.parametrize("strictly", [False, True])
async def test_prefer_chooses_the_body_of_a_write(world_factory, strictly):
    world = world_factory(strict=strictly)
    for prefer, kind in (
        ("return=minimal", None),
        ("return=representation", "Observation"),
        ("respond-async, return=OperationOutcome", "OperationOutcome"),
    ):
        made = await world.upload(observation(), Prefer=prefer)
        assert (made.status_code, made.headers["etag"]) == (201, 'W/"1"')
        assert (made.json()["resourceType"] if made.content else None) == kind
        id_ = made.headers["location"].removeprefix(f"{BASE}fhir/Observation/").partition("/")[0]
        current = (await world.get(f"/fhir/Observation/{id_}")).json()
        changed = await world.put(current, world.laboratory | {"Prefer": prefer})
        assert changed.headers["etag"] == 'W/"2"'
        assert (changed.json()["resourceType"] if changed.content else None) == kind
    world = world_factory(strict=strictly, rules={"write_response": "OperationOutcome"})
    made = (await world.upload(observation())).json()
    assert (made["resourceType"], made["issue"][0]["severity"]) == ("OperationOutcome", "information")
    assert (await world.upload(observation(), Prefer="return=representation")).json()["resourceType"] == "Observation"


async def post_binary(world, media_type):
    content = base64.b64encode(PDF).decode()
    body = json.dumps({"resourceType": "Binary", "contentType": "application/pdf", "content": content})
    made = await world.client.post("/fhir/Binary", content=body, headers=world.laboratory | {"Content-Type": media_type})
    assert made.status_code == 201, made.text
    return f"/fhir/Binary/{made.json()['id']}"


async def test_strict_binary_resource_stores_its_content(strict):
    for media_type in ("application/fhir+json", "application/fhir+json; charset=utf-8", "application/json+fhir"):
        path = await post_binary(strict, media_type)
        for accept in ("*/*", "application/pdf", "application/json, */*;q=0.1"):
            answer = await strict.get(path, strict.laboratory | {"Accept": accept})
            assert (answer.content, answer.headers["content-type"]) == (PDF, "application/pdf")
        answer = await strict.get(path, strict.laboratory | {"Accept": "application/fhir+json"})
        assert base64.b64decode(answer.json()["content"]) == PDF
        assert answer.headers["content-type"] == FHIR_JSON
        for accept in ("text/html", "application/json"):
            assert await strict.status(path, strict.laboratory | {"Accept": accept}) == 406


async def test_binary_as_plain_json_is_the_document_itself(world, strict, world_factory):
    """As a real server had it: 19 of 19 documents came back as JSON, and were called delivered. A setting takes it as one."""
    for service in (world, strict):
        answer = await service.get(await post_binary(service, "application/json"))
        assert answer.json()["resourceType"] == "Binary"
        assert answer.headers["content-type"] == "application/json"
    lenient = world_factory(rules={"json_binary": "resource"})
    assert (await lenient.get(await post_binary(lenient, "application/json"))).content == PDF


async def test_strict_deleted_resource_is_gone(strict, world):
    made = (await strict.upload(observation())).json()
    path = f"/fhir/Observation/{made['id']}"
    assert await strict.status(path, strict.clinic, "DELETE") == 403
    assert await strict.status(path, strict.laboratory, "DELETE") == 204
    answer = await strict.get(path, strict.clinic)
    assert answer.status_code == 410
    assert "deleted" in diagnostics(answer)
    assert (await strict.put(made)).status_code == 410
    assert await strict.found("/fhir/Observation") == []
    kept = (await world.upload(observation())).json()
    assert await world.status(f"/fhir/Observation/{kept['id']}", world.laboratory, "DELETE") == 405, "not in the document"


async def observations(world, path="/fhir/Observation", **headers):
    return (await world.get(path, world.laboratory | headers)).json()


def next_link(page):
    return next((one["url"] for one in page["link"] if one["relation"] == "next"), None)


async def test_strict_pages_name_a_remembered_search(strict):
    made = [(await strict.upload(observation())).json()["id"] for _ in range(5)]
    page, found = await observations(strict, "/fhir/Observation?_count=2"), []
    assert page["total"] == 5
    assert page["entry"][0]["search"] == {"mode": "match"}
    while True:
        found += [entry["resource"]["id"] for entry in page["entry"]]
        link = next_link(page)
        if link is None:
            break
        assert "_getpages=" in link
        page = await observations(strict, link)
    assert found == made
    for gone in (page["link"][0]["url"], "/fhir?_getpages=gone&_getpagesoffset=0&_count=2"):
        assert await strict.status(gone, strict.clinic) == 410, "of another caller, or of nobody"


async def test_strict_search_is_up_to_a_minute_old(strict):
    assert (await observations(strict))["total"] == 0
    first = (await strict.upload(observation())).json()
    assert (await observations(strict))["total"] == 0, "as remembered"
    assert (await observations(strict, **{"Cache-Control": "no-cache"}))["total"] == 1
    await strict.put(first, status="amended")
    assert (await observations(strict))["entry"][0]["resource"]["status"] == "amended", "each resource as it is now"
    await strict.upload(observation())
    strict.clock.advance(61)
    assert (await observations(strict))["total"] == 2


async def test_strict_conditional_create_is_never_out_of_date(strict):
    value = observation()
    one = value["identifier"][0]
    query = f"identifier={one['system']}|{one['value']}"
    assert (await observations(strict, f"/fhir/Observation?{query}"))["total"] == 0
    assert [(await strict.upload(value, **{"If-None-Exist": query})).status_code for _ in range(2)] == [201, 200]
