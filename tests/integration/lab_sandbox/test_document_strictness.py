"""What the document asks of partners and laboratories is refused when it is missing; what it leaves open is a switch."""

import pytest


def drop(kind, *names):
    def change(bundle):
        for entry in bundle["entry"]:
            if entry["resource"]["resourceType"] == kind:
                for name in names:
                    del entry["resource"][name]

    return change


def replace(kind, **fields):
    def change(bundle):
        for entry in bundle["entry"]:
            if entry["resource"]["resourceType"] == kind:
                entry["resource"].update(fields)

    return change


@pytest.mark.parametrize(
    ("change", "element", "rule"),
    [
        (drop("ProcedureRequest", "specimen"), "entry[2].resource.specimen", "line-specimen"),
        (replace("ProcedureRequest", specimen=[]), "entry[2].resource.specimen", "line-specimen"),
        (drop("Specimen", "container"), "entry[1].resource.container", "specimen-container"),
        (replace("Specimen", container=[]), "entry[1].resource.container", "specimen-container"),
        (drop("Specimen", "collection"), "entry[1].resource.collection", "specimen-collection"),
        (replace("Specimen", collection={}), "entry[1].resource.collection", "specimen-collection"),
    ],
)
async def test_order_without_required_part_refused(world, helpers, change, element, rule):
    answer = await world.order(change=change)
    assert answer.status_code == 422
    problems = helpers.diagnostics(answer).splitlines()
    assert any(one.startswith(f"Bundle.{element}: ") and one.endswith(f"(rule {rule})") for one in problems), problems


async def test_specimen_without_collection_time_accepted(world, helpers):
    """Only tolerance tests need the time, which the service cannot know."""
    method = {"method": helpers.concept(f"{helpers.BASE}terminology/treatment_protocol", "fasting")}
    assert (await world.order(change=replace("Specimen", collection=method))).status_code == 200


async def set_status(world, task, status, headers):
    path = f"/fhir/task/{task['id']}"
    current = await world.client.get(path, headers=headers)
    body = current.json() | {"status": status, "output": [{"valueString": "haemolysed"}]}
    return await world.client.put(path, json=body, headers=headers | {"If-Match": current.headers["etag"]})


@pytest.mark.parametrize(
    ("first", "second"), [("completed", "cancelled"), ("cancelled", "completed"), ("completed", "requested")]
)
async def test_laboratory_cannot_change_ended_task(world, helpers, first, second):
    task = (await world.created_order())["Task"][1]
    assert (await set_status(world, task, first, world.laboratory)).status_code == 200
    answer = await set_status(world, task, second, world.laboratory)
    assert answer.status_code == 422
    assert "task-transition" in helpers.diagnostics(answer)
    assert (await set_status(world, task, first, world.laboratory)).status_code == 200, "an update without a new status"


@pytest.mark.parametrize("output", [[], [{"valueString": " "}]])
async def test_laboratory_cannot_cancel_test_without_reason(world, helpers, output):
    order, line = (await world.created_order())["Task"][:2]
    put = world.laboratory | {"If-Match": 'W/"1"'}
    body = line | {"status": "cancelled", "output": output}
    refused = await world.client.put(f"/fhir/task/{line['id']}", json=body, headers=put)
    assert refused.status_code == 422
    assert "task-reason" in helpers.diagnostics(refused)
    body = order | {"status": "cancelled"}
    assert (await world.client.put(f"/fhir/task/{order['id']}", json=body, headers=put)).status_code == 200


async def test_laboratory_may_acknowledge_before_the_end(world):
    task = (await world.created_order())["Task"][1]
    for status in ("accepted", "in-progress", "completed"):
        assert (await set_status(world, task, status, world.laboratory)).status_code == 200


async def test_owner_may_offer_ended_task_again(world):
    task = (await world.created_order())["Task"][1]
    for status, expected in (("cancelled", 200), ("completed", 422), ("requested", 200), ("entered-in-error", 200)):
        assert (await set_status(world, task, status, world.clinic)).status_code == expected


@pytest.mark.parametrize("kind", ["Observation", "DiagnosticReport", "Binary"])
async def test_partner_cannot_upload_results(world, helpers, kind):
    line = (await world.created_order())["ProcedureRequest"][0]
    bodies = {
        "Observation": helpers.observation(),
        "DiagnosticReport": helpers.report(line["subject"]["reference"].partition("/")[2], line["id"]),
        "Binary": {"resourceType": "Binary", "contentType": "application/pdf", "content": "AAAA"},
    }
    answer = await world.client.post(f"/fhir/{kind}", json=bodies[kind], headers=world.clinic)
    assert answer.status_code == 403
    assert "laboratory" in helpers.diagnostics(answer)


async def test_laboratory_cannot_create_patient(world, helpers):
    assert (await world.client.post("/fhir/Patient", json=helpers.patient(), headers=world.laboratory)).status_code == 403


async def upload_without_own_right(world, helpers, **headers):
    made = await world.upload(helpers.observation(), **headers)
    assert made.status_code in {200, 201}
    return made


async def test_creator_without_entry_has_no_access(world_factory, helpers):
    world = world_factory(rules={"creator_rights": False})
    made = (await upload_without_own_right(world, helpers)).json()
    path = f"/fhir/Observation/{made['id']}"
    put = world.laboratory | {"If-Match": 'W/"1"'}
    assert (await world.client.get(path, headers=world.laboratory)).status_code == 403
    assert (await world.client.put(path, json=made, headers=put)).status_code == 403
    assert (await world.client.get("/fhir/Observation", headers=world.laboratory)).json()["entry"] == []
    assert (await world.client.get(path, headers=world.clinic)).status_code == 200


async def test_creator_grants_itself_access(world_factory, helpers):
    world = world_factory(rules={"creator_rights": False})
    own = helpers.shared("read", "updatebody")
    made = (await world.upload(helpers.observation(meta=own))).json()
    path = f"/fhir/Observation/{made['id']}"
    assert (await world.client.get(path, headers=world.laboratory)).status_code == 200
    put = world.laboratory | {"If-Match": 'W/"1"'}
    assert (await world.client.put(path, json=made, headers=put)).status_code == 200
    assert (await world.client.get(f"{path}/_history", headers=world.laboratory)).status_code == 403
    more = {"resourceType": "Parameters", "parameter": [{"name": "meta", "valueMeta": helpers.grant("readhistory")}]}
    assert (await world.client.post(f"{path}/$meta-add", json=more, headers=world.laboratory)).status_code == 200
    assert (await world.client.get(f"{path}/_history", headers=world.laboratory)).status_code == 200


async def test_repeated_upload_without_access_not_doubled(world_factory, helpers):
    """The creator finds its upload by If-None-Exist and may refer to it, but does not get its content."""
    world = world_factory(rules={"creator_rights": False})
    observation = helpers.observation()
    one = observation["identifier"][0]
    condition = {"If-None-Exist": f"identifier={one['system']}|{one['value']}"}
    first = await world.upload(observation, **condition)
    second = await world.upload(observation, **condition)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.headers["location"] == first.headers["location"]
    assert second.headers["etag"] == 'W/"1"'
    assert second.json()["resourceType"] == "OperationOutcome"
    line = (await world.created_order())["ProcedureRequest"][0]
    result = [{"reference": f"observation/{first.json()['id']}"}]
    report = helpers.report(line["subject"]["reference"].partition("/")[2], line["id"], result=result)
    assert (await world.upload(report)).status_code == 201
