"""Rights in meta.security: none by default, none implies another, `$meta-add`, and 404 for documents without the right."""

import base64

import pytest


async def status_of(world, method, path, headers, **more):
    return (await world.client.request(method, path, headers=headers, **more)).status_code


async def test_counterparty_has_no_access_by_default(world, helpers):
    """Not even the partner who made it: it needs the right to read, and may change what it made without it."""
    answer = await world.client.post("/fhir/Patient", json=helpers.patient(meta={}), headers=world.clinic)
    path = f"/fhir/patient/{answer.json()['id']}"
    assert await status_of(world, "GET", path, world.clinic) == 403
    changed = helpers.patient(meta=helpers.grant("read", guid=helpers.CLINIC))
    put = world.clinic | {"If-Match": answer.headers["etag"]}
    assert await status_of(world, "PUT", path, put, json=changed) == 200
    assert await status_of(world, "GET", path, world.clinic) == 200
    assert await status_of(world, "GET", path, world.laboratory) == 403
    assert await status_of(world, "GET", path, world.stranger) == 403


async def test_missing_right_status_is_configurable(world_factory, helpers):
    world = world_factory(rules={"no_right_code": 404})
    answer = await world.client.post("/fhir/Patient", json=helpers.patient(meta={}), headers=world.clinic)
    assert await status_of(world, "GET", f"/fhir/patient/{answer.json()['id']}", world.laboratory) == 404


async def test_read_does_not_imply_updatebody(world):
    line = (await world.created_order())["ProcedureRequest"][0]
    path = f"/fhir/procedurerequest/{line['id']}"
    assert await status_of(world, "GET", path, world.laboratory) == 200
    assert await status_of(world, "PUT", path, world.laboratory | {"If-Match": 'W/"1"'}, json=line) == 403
    assert await status_of(world, "PUT", path, world.clinic | {"If-Match": 'W/"1"'}, json=line) == 200


async def test_updatebody_cannot_change_rights(world):
    task = (await world.created_order())["Task"][0]
    path = f"/fhir/task/{task['id']}"
    new_rights = {"security": [{"system": "owner", "code": "guid-laboratory"}, {"system": "read", "code": "guid-stranger"}]}
    answer = await world.client.put(path, json=task | {"meta": new_rights}, headers=world.laboratory | {"If-Match": 'W/"1"'})
    assert answer.json()["meta"]["security"] == task["meta"]["security"]
    assert await status_of(world, "GET", path, world.stranger) == 403


@pytest.mark.parametrize("system", ["read", "http://exchange.test/security/read"])
async def test_meta_add_grants_right_later(world, helpers, system):
    made = await world.client.post("/fhir/Patient", json=helpers.patient(meta={}), headers=world.clinic)
    path = f"/fhir/Patient/{made.json()['id']}"
    body = {
        "resourceType": "Parameters",
        "parameter": [{"name": "meta", "valueMeta": {"security": [{"system": system, "code": "guid-laboratory"}]}}],
    }
    assert await status_of(world, "POST", f"{path}/$meta-add", world.laboratory, json=body) == 403
    answer = await world.client.post(f"{path}/$meta-add", json=body, headers=world.clinic)
    assert answer.status_code == 200
    assert {"system": "http://exchange.test/security/read", "code": "guid-laboratory"} in answer.json()["parameter"][0][
        "valueMeta"
    ]["security"]
    assert await status_of(world, "GET", path, world.laboratory) == 200
    empty = await world.client.post(f"{path}/%24meta-add", json={"resourceType": "Parameters"}, headers=world.clinic)
    assert empty.status_code == 422


async def test_history_needs_readhistory(world, helpers):
    made = await world.client.post("/fhir/Patient", json=helpers.patient(), headers=world.clinic)
    path = f"/fhir/patient/{made.json()['id']}"
    await world.client.put(path, json=helpers.patient(gender="male"), headers=world.clinic | {"If-Match": made.headers["etag"]})
    assert await status_of(world, "GET", f"{path}/_history", world.laboratory) == 403
    entries = (await world.client.get(f"{path}/_history", headers=world.clinic)).json()["entry"]
    assert [one["resource"]["gender"] for one in entries] == ["male", "female"]
    old = await world.client.get(f"{path}/_history/1", headers=world.clinic)
    assert old.json()["gender"] == "female"
    assert old.headers["etag"] == 'W/"1"'
    assert await status_of(world, "GET", f"{path}/_history/9", world.clinic) == 404


async def test_unreadable_or_missing_result_document_returns_404(world, helpers):
    binary = {"resourceType": "Binary", "contentType": "application/pdf", "content": base64.b64encode(b"%PDF").decode()}
    made = (await world.upload(binary)).json()["id"]
    assert await status_of(world, "GET", f"/fhir/Binary/{made}", world.clinic) == 404
    assert await status_of(world, "GET", "/fhir/Binary/none", world.clinic) == 404
    assert await status_of(world, "GET", f"/fhir/Binary/{made}", world.laboratory) == 200


async def test_search_shows_only_readable_resources(world, helpers):
    created = await world.created_order()
    patient = created["ProcedureRequest"][0]["subject"]["reference"]
    others = helpers.grant("read", guid=helpers.STRANGER)
    hidden = await world.upload(helpers.observation(meta=others, subject={"reference": patient}))
    visible = await world.upload(helpers.observation(subject={"reference": patient}))
    found = await world.client.get("/fhir/Observation", params={"subject": patient}, headers=world.clinic)
    assert [one["resource"]["id"] for one in found.json()["entry"]] == [visible.json()["id"]]
    assert hidden.status_code == 201


async def test_laboratory_grants_counterparty_read_on_uploads(world, helpers):
    created = await world.created_order()
    line = created["ProcedureRequest"][0]
    patient = line["subject"]["reference"].partition("/")[2]
    observation = await world.upload(helpers.observation(specimen={"reference": line["specimen"][0]["reference"]}))
    answer = await world.upload(
        helpers.report(patient, line["id"], result=[{"reference": f"observation/{observation.json()['id']}"}])
    )
    assert answer.status_code == 201, answer.text
    found = await world.client.get(f"/fhir/diagnosticreport?based-on=procedurerequest/{line['id']}", headers=world.clinic)
    assert found.json()["entry"][0]["resource"] == answer.json()
