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


async def test_strict_spelling_of_types(strict):
    """In their case in paths, references and searches."""
    for path in ("/fhir/task", "/Task", "/task/1", "/fhir/TASK/1", "/fhir/$creatediagnosticrequest"):
        assert await strict.status(path, strict.laboratory, "POST" if "$" in path else "GET") == 404, path
    patient, element = await strict.patient(), ("Observation.subject.reference", "stu3-type-name")
    for spelling in ("patient/{}", "fhir/Patient/{}", "http://exchange.test/Patient/{}", "http://exchange.test/fhir/patient/{}"):
        assert element in problems(await strict.upload(observation(subject={"reference": spelling.format(patient)})))
    answer = await strict.client.post("/fhir/$CreateDiagnosticRequest", json=order_bundle(patient), headers=strict.clinic)
    assert "stu3-type-name" in {rule for _, rule in problems(answer)}
    for query, status in (("part-of=task/1", 400), ("part-of=Task/1", 200), ("part-of=1", 200), ("partOf=a|b", 400)):
        assert await strict.status(f"/fhir/Task?{query}", strict.laboratory) == status


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


async def post_binary(world, media_type):
    content = base64.b64encode(PDF).decode()
    body = json.dumps({"resourceType": "Binary", "contentType": "application/pdf", "content": content})
    made = await world.client.post("/fhir/Binary", content=body, headers=world.laboratory | {"Content-Type": media_type})
    assert made.status_code == 201, made.text
    return f"/fhir/Binary/{made.json()['id']}"


async def test_strict_binary_resource_stores_its_content(strict):
    for media_type in ("application/fhir+json", "application/fhir+json; charset=utf-8", "application/json+fhir"):
        path = await post_binary(strict, media_type)
        assert (await strict.get(path)).content == PDF
        answer = await strict.get(path, strict.laboratory | {"Accept": "application/fhir+json"})
        assert (base64.b64decode(answer.json()["content"]), answer.headers["content-type"]) == (PDF, FHIR_JSON)


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
    assert [await strict.status(path, each, "DELETE") for each in (strict.clinic, strict.laboratory)] == [403, 204]
    answer = await strict.get(path, strict.clinic)
    assert answer.status_code == 410
    assert "deleted" in diagnostics(answer)
    assert (await strict.put(made)).status_code == 410
    assert await strict.found("/fhir/Observation") == []
    assert await world.status("/fhir/Observation/1", world.laboratory, "DELETE") == 405, "not in the document"


async def test_strict_pages_name_a_remembered_search(strict):
    made = [(await strict.upload(observation())).json()["id"] for _ in range(3)]
    page = (await strict.get("/fhir/Observation?_count=2")).json()
    assert (page["total"], page["entry"][0]["search"]) == (3, {"mode": "match"})
    link = next(one["url"] for one in page["link"] if one["relation"] == "next")
    assert "_getpages=" in link
    assert [one["resource"]["id"] for one in page["entry"]] + [one["id"] for one in await strict.found(link)] == made
    for gone in (page["link"][0]["url"], "/fhir?_getpages=gone&_getpagesoffset=0&_count=2"):
        assert await strict.status(gone, strict.clinic) == 410, "of another caller, or of nobody"


async def test_strict_search_is_up_to_a_minute_old(strict):
    """A conditional create never is."""

    async def found(**headers):
        return [each["status"] for each in await strict.found("/fhir/Observation", strict.laboratory | headers)]

    value = observation()
    assert await found() == []
    query = {"If-None-Exist": "identifier={system}|{value}".format(**value["identifier"][0])}
    first, again = [await strict.upload(value, **query) for _ in range(2)]
    assert (first.status_code, again.status_code) == (201, 200)
    assert await found() == [], "as remembered"
    assert await found(**{"Cache-Control": "no-cache"}) == ["final"]
    await strict.put(first.json(), status="amended")
    await strict.upload(observation())
    assert await found() == ["amended"], "each resource as it is now"
    strict.clock.advance(61)
    assert await found() == ["amended", "final"]
