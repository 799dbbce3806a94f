"""With `strict`: what an STU3 server refuses, and how it spells, pages, remembers and deletes."""

import base64
import json

import pytest

PDF = b"%PDF-1.4\x00\xff sample"
FHIR_JSON = "application/fhir+json;charset=utf-8"


def in_fhir_spelling(node):
    """The same body with STU3's type names in every reference."""
    text = json.dumps(node).replace('"patient/', '"Patient/').replace('"procedurerequest/', '"ProcedureRequest/')
    return json.loads(text.replace('"observation/', '"Observation/'))


@pytest.fixture
def strict(world_factory):
    return world_factory(strict=True)


@pytest.fixture
async def created(strict, helpers):
    answer = await strict.client.post(
        "/fhir/$CreateDiagnosticRequest",
        json=in_fhir_spelling(helpers.order_bundle(await strict.patient())),
        headers=strict.clinic,
    )
    assert answer.status_code == 200, answer.text
    found = {}
    for entry in answer.json()["entry"]:
        found.setdefault(entry["resource"]["resourceType"], []).append(entry["resource"])
    return found


@pytest.mark.parametrize("path", ["/fhir/task", "/Task", "/task/1", "/fhir/TASK/1", "/fhir/$creatediagnosticrequest"])
async def test_strict_path_needs_type_names_in_their_case(strict, path):
    method = "POST" if "$" in path else "GET"
    assert (await strict.client.request(method, path, headers=strict.laboratory)).status_code == 404
    assert (await strict.client.get("/fhir/Task", headers=strict.laboratory)).status_code == 200


@pytest.mark.parametrize(
    "spelling", ["patient/{}", "fhir/Patient/{}", "http://exchange.test/Patient/{}", "http://exchange.test/fhir/patient/{}"]
)
async def test_strict_reference_in_other_spelling_refused(strict, helpers, created, spelling):
    patient = created["ProcedureRequest"][0]["subject"]["reference"].partition("/")[2]
    answer = await strict.upload(helpers.observation(subject={"reference": spelling.format(patient)}))
    assert answer.status_code == 422
    assert "Observation.subject.reference" in helpers.diagnostics(answer)
    assert "stu3-type-name" in helpers.diagnostics(answer)


async def test_strict_order_in_document_spelling_refused(strict, helpers):
    bundle = helpers.order_bundle(await strict.patient())
    answer = await strict.client.post("/fhir/$CreateDiagnosticRequest", json=bundle, headers=strict.clinic)
    assert answer.status_code == 422
    assert "stu3-type-name" in helpers.diagnostics(answer)


async def test_strict_service_spells_references_its_own_way(strict, helpers, created):
    subject = created["ProcedureRequest"][0]["subject"]
    assert subject["reference"].startswith("Patient/")
    absolute = {"reference": f"{helpers.BASE}fhir/{subject['reference']}"}
    made = await strict.upload(helpers.observation(subject=absolute, note=[], comment=""))
    assert made.status_code == 201, made.text
    assert made.json()["subject"] == subject
    assert not {"note", "comment"} & made.json().keys(), "STU3 has no empty elements"
    assert created["Task"][1]["partOf"][0]["reference"].startswith("Task/")


async def test_strict_search_reference_in_lower_case_refused(strict, created):
    task = created["Task"][0]["id"]
    for value, status in ((f"task/{task}", 400), (f"Task/{task}", 200), (task, 200)):
        answer = await strict.client.get("/fhir/Task", params={"part-of": value}, headers=strict.laboratory)
        assert answer.status_code == status
    for kind, name in (("Task", "partOf"), ("Task", "Status"), ("Binary", "identifier")):
        answer = await strict.client.get(f"/fhir/{kind}", params={name: "a|b"}, headers=strict.laboratory)
        assert answer.status_code == 400


async def put(world, resource, version=1, **headers):
    path = f"/fhir/{resource['resourceType']}/{resource['id']}"
    return await world.client.put(path, json=resource, headers=world.laboratory | {"If-Match": f'W/"{version}"'} | headers)


async def test_strict_task_output_needs_type(strict, helpers, created):
    task = created["Task"][1]
    refused = await put(strict, task | {"status": "cancelled", "output": [{"valueString": "haemolysed"}]})
    assert refused.status_code == 422
    assert "Task.output[0].type" in helpers.diagnostics(refused)
    output = {"type": {"text": "error"}, "valueString": "haemolysed"}
    answer = await put(strict, task | {"status": "cancelled", "output": [output]})
    assert answer.status_code == 200, answer.text
    assert "intent" not in answer.json(), "the document leaves it out"


async def test_strict_issued_must_be_an_instant(strict, helpers, world):
    date_only = helpers.observation(issued="2026-01-05")
    answer = await strict.upload(date_only)
    assert "stu3-instant" in helpers.diagnostics(answer)
    assert (await world.upload(date_only)).status_code == 201


@pytest.mark.parametrize(
    ("changes", "element"),
    [
        ({"note": [{"time": "2026-01-05"}]}, "Observation.note[0].text"),
        ({"extension": [{"valueString": "x"}]}, "Observation.extension[0].url"),
        ({"component": [{"valueString": "x"}]}, "Observation.component[0].code"),
        ({"valueQuantity": {"value": 1, "extension": [{}]}}, "Observation.valueQuantity.extension[0].url"),
    ],
)
async def test_strict_required_element_missing_refused(strict, helpers, changes, element):
    answer = await strict.upload(helpers.observation(**changes))
    assert answer.status_code == 422
    assert f"{element}: required in STU3" in helpers.diagnostics(answer)


async def test_strict_responses_have_media_type_and_version_in_location(strict, helpers):
    made = await strict.upload(helpers.observation())
    assert made.headers["content-type"] == FHIR_JSON
    address = f"{helpers.BASE}fhir/Observation/{made.json()['id']}"
    assert made.headers["location"] == f"{address}/_history/1"
    changed = await put(strict, made.json() | {"status": "amended"})
    assert changed.headers["location"] == f"{address}/_history/2"
    assert (await strict.client.get("/fhir/Nothing", headers=strict.clinic)).headers["content-type"] == FHIR_JSON


@pytest.mark.parametrize("strictly", [False, True])
@pytest.mark.parametrize(
    ("prefer", "kind"),
    [
        ("return=minimal", None),
        ("return=representation", "Observation"),
        ("respond-async, return=OperationOutcome", "OperationOutcome"),
    ],
)
async def test_prefer_chooses_the_body_of_a_write(world_factory, helpers, strictly, prefer, kind):
    world = world_factory(strict=strictly)
    made = await world.upload(helpers.observation(), Prefer=prefer)
    assert made.status_code == 201
    assert made.headers["etag"] == 'W/"1"'
    assert (made.json()["resourceType"] if made.content else None) == kind
    id_ = made.headers["location"].removeprefix(f"{helpers.BASE}fhir/Observation/").partition("/")[0]
    current = (await world.client.get(f"/fhir/Observation/{id_}", headers=world.laboratory)).json()
    changed = await put(world, current, Prefer=prefer)
    assert changed.headers["etag"] == 'W/"2"'
    assert (changed.json()["resourceType"] if changed.content else None) == kind


async def test_response_to_writes_is_configurable(world_factory, helpers):
    world = world_factory(rules={"write_response": "OperationOutcome"})
    made = await world.upload(helpers.observation())
    assert made.json()["resourceType"] == "OperationOutcome"
    assert made.json()["issue"][0]["severity"] == "information"
    assert (await world.upload(helpers.observation(), Prefer="return=representation")).json()["resourceType"] == "Observation"


async def post_binary(world, content, media_type):
    made = await world.client.post("/fhir/Binary", content=content, headers=world.laboratory | {"Content-Type": media_type})
    assert made.status_code == 201, made.text
    return f"/fhir/Binary/{made.json()['id']}"


def binary_resource():
    return json.dumps({"resourceType": "Binary", "contentType": "application/pdf", "content": base64.b64encode(PDF).decode()})


@pytest.mark.parametrize("media_type", ["application/fhir+json", "application/fhir+json; charset=utf-8", "application/json+fhir"])
async def test_strict_binary_resource_stores_its_content(strict, media_type):
    path = await post_binary(strict, binary_resource(), media_type)
    for accept in ("*/*", "application/pdf", "application/json, */*;q=0.1"):
        answer = await strict.client.get(path, headers=strict.laboratory | {"Accept": accept})
        assert answer.content == PDF
        assert answer.headers["content-type"] == "application/pdf"
    answer = await strict.client.get(path, headers=strict.laboratory | {"Accept": "application/fhir+json"})
    assert base64.b64decode(answer.json()["content"]) == PDF
    assert answer.headers["content-type"] == FHIR_JSON
    for accept in ("text/html", "application/json"):
        assert (await strict.client.get(path, headers=strict.laboratory | {"Accept": accept})).status_code == 406


@pytest.mark.parametrize("strictly", [False, True])
async def test_binary_as_plain_json_is_the_document_itself(world_factory, strictly):
    """As a real server had it: 19 of 19 documents came back as JSON, and were called delivered."""
    world = world_factory(strict=strictly)
    path = await post_binary(world, binary_resource(), "application/json")
    answer = await world.client.get(path, headers=world.laboratory)
    assert answer.json()["resourceType"] == "Binary"
    assert answer.headers["content-type"] == "application/json"


async def test_plain_json_may_be_taken_as_binary_resource(world_factory):
    world = world_factory(rules={"json_binary": "resource"})
    path = await post_binary(world, binary_resource(), "application/json")
    assert (await world.client.get(path, headers=world.laboratory)).content == PDF


async def test_strict_deleted_resource_is_gone(strict, helpers):
    made = (await strict.upload(helpers.observation())).json()
    path = f"/fhir/Observation/{made['id']}"
    assert (await strict.client.delete(path, headers=strict.clinic)).status_code == 403
    assert (await strict.client.delete(path, headers=strict.laboratory)).status_code == 204
    answer = await strict.client.get(path, headers=strict.clinic)
    assert answer.status_code == 410
    assert "deleted" in helpers.diagnostics(answer)
    assert (await put(strict, made)).status_code == 410
    found = await strict.client.get("/fhir/Observation", headers=strict.laboratory)
    assert found.json()["entry"] == []


async def test_delete_not_in_the_document(world, helpers):
    made = (await world.upload(helpers.observation())).json()
    assert (await world.client.delete(f"/fhir/Observation/{made['id']}", headers=world.laboratory)).status_code == 405


async def observations(world, path="/fhir/Observation", **headers):
    return (await world.client.get(path, headers=world.laboratory | headers)).json()


def next_link(page):
    return next((one["url"] for one in page["link"] if one["relation"] == "next"), None)


async def test_strict_pages_name_a_remembered_search(strict, helpers):
    made = [(await strict.upload(helpers.observation())).json()["id"] for _ in range(5)]
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
    other = await strict.client.get(page["link"][0]["url"], headers=strict.clinic)
    assert other.status_code == 410
    assert (await strict.client.get("/fhir?_getpages=gone&_getpagesoffset=0&_count=2", headers=strict.clinic)).status_code == 410


async def test_strict_search_is_up_to_a_minute_old(strict, helpers):
    assert (await observations(strict))["total"] == 0
    first = (await strict.upload(helpers.observation())).json()
    assert (await observations(strict))["total"] == 0, "as remembered"
    assert (await observations(strict, **{"Cache-Control": "no-cache"}))["total"] == 1
    await put(strict, first | {"status": "amended"})
    assert (await observations(strict))["entry"][0]["resource"]["status"] == "amended", "each resource as it is now"
    await strict.upload(helpers.observation())
    strict.clock.advance(61)
    assert (await observations(strict))["total"] == 2


async def test_strict_conditional_create_is_never_out_of_date(strict, helpers):
    observation = helpers.observation()
    one = observation["identifier"][0]
    query = f"identifier={one['system']}|{one['value']}"
    assert (await observations(strict, f"/fhir/Observation?{query}"))["total"] == 0
    assert (await strict.upload(observation, **{"If-None-Exist": query})).status_code == 201
    assert (await strict.upload(observation, **{"If-None-Exist": query})).status_code == 200


async def test_search_age_is_repeatable_and_a_setting(world_factory, helpers):
    async def moments(**rules):
        world = world_factory(rules={"search_age_seconds": 10, **rules})
        await observations(world)
        await world.upload(helpers.observation())
        for second in range(12):
            if (await observations(world))["entry"]:
                return second
            world.clock.advance(1)
        raise AssertionError("never found")

    assert await moments(seed=3) == await moments(seed=3)
    assert len({await moments(seed=seed) for seed in range(5)}) > 1
    assert await moments(search_age_seconds=0) == 0
