"""Rights in meta.security: none by default, none implies another, `$meta-add`, and 404 for documents without the right."""

import base64

import pytest

from tests.integration.lab_sandbox.world import (
    CLINIC,
    LABORATORY,
    STRANGER,
    diagnostics,
    grant,
    meta_add,
    observation,
    patient,
    report,
    shared,
)

READ = "http://exchange.test/security/read"


async def test_counterparty_has_no_access_by_default(world, world_factory):
    """Not even the partner who made it: it needs the right to read, and may change what it made without it."""
    made = (await world.client.post("/fhir/Patient", json=patient(meta={}), headers=world.clinic)).json()
    path = f"/fhir/patient/{made['id']}"
    assert await world.status(path, world.clinic) == 403
    changed = await world.put(patient(meta=grant("read", guid=CLINIC), id=made["id"]), world.clinic)
    assert changed.status_code == 200
    assert [await world.status(path, each) for each in (world.clinic, world.laboratory, world.stranger)] == [200, 403, 403]
    hiding = world_factory(rules={"no_right_code": 404})
    made = (await hiding.client.post("/fhir/Patient", json=patient(meta={}), headers=hiding.clinic)).json()
    assert await hiding.status(f"/fhir/Patient/{made['id']}", hiding.laboratory) == 404


async def test_read_does_not_imply_updatebody(world):
    line = (await world.created_order())["ProcedureRequest"][0]
    assert await world.status(f"/fhir/procedurerequest/{line['id']}", world.laboratory) == 200
    assert (await world.put(line)).status_code == 403
    assert (await world.put(line, world.clinic)).status_code == 200


async def test_updatebody_cannot_change_rights(world):
    task = (await world.created_order())["Task"][0]
    new_rights = {"security": grant("owner")["security"] + grant("read", guid=STRANGER)["security"]}
    answer = await world.put(task, meta=new_rights)
    assert answer.json()["meta"]["security"] == task["meta"]["security"]
    assert await world.status(f"/fhir/task/{task['id']}", world.stranger) == 403


@pytest.mark.parametrize("system", ["read", READ])
async def test_meta_add_grants_right_later(world, system):
    made = (await world.client.post("/fhir/Patient", json=patient(meta={}), headers=world.clinic)).json()
    path, body = f"/fhir/Patient/{made['id']}", meta_add(security=[{"system": system, "code": LABORATORY}])
    assert await world.status(f"{path}/$meta-add", world.laboratory, "POST", json=body) == 403
    answer = await world.client.post(f"{path}/$meta-add", json=body, headers=world.clinic)
    assert answer.status_code == 200
    assert {"system": READ, "code": LABORATORY} in answer.json()["parameter"][0]["valueMeta"]["security"]
    assert await world.status(path, world.laboratory) == 200
    empty = {"resourceType": "Parameters"}
    assert await world.status(f"{path}/%24meta-add", world.clinic, "POST", json=empty) == 422


async def test_unreadable_or_missing_result_document_returns_404(world):
    binary = {"resourceType": "Binary", "contentType": "application/pdf", "content": base64.b64encode(b"%PDF").decode()}
    made = (await world.upload(binary)).json()["id"]
    assert await world.status(f"/fhir/Binary/{made}", world.clinic) == 404
    assert await world.status("/fhir/Binary/none", world.clinic) == 404
    assert await world.status(f"/fhir/Binary/{made}", world.laboratory) == 200


async def test_laboratory_grants_counterparty_read_on_uploads(world):
    line = (await world.created_order())["ProcedureRequest"][0]
    value = (await world.upload(observation(specimen=line["specimen"][0]))).json()
    answer = await world.upload(report(line, result=[{"reference": f"observation/{value['id']}"}]))
    assert answer.status_code == 201, answer.text
    found = await world.found(f"/fhir/diagnosticreport?based-on=procedurerequest/{line['id']}", world.clinic)
    assert found == [answer.json()]


@pytest.fixture
def grudging(world_factory):
    """A service where who makes a resource has no rights by that."""
    return world_factory(rules={"creator_rights": False})


async def test_creator_without_entry_has_no_access(grudging):
    made = (await grudging.upload(observation())).json()
    path = f"/fhir/Observation/{made['id']}"
    assert await grudging.status(path, grudging.laboratory) == 403
    assert (await grudging.put(made)).status_code == 403
    assert await grudging.found("/fhir/Observation") == []
    assert await grudging.status(path, grudging.clinic) == 200


async def test_creator_grants_itself_access(grudging):
    made = (await grudging.upload(observation(meta=shared("read", "updatebody")))).json()
    path = f"/fhir/Observation/{made['id']}"
    assert await grudging.status(path, grudging.laboratory) == 200
    assert (await grudging.put(made)).status_code == 200
    assert await grudging.status(f"{path}/_history", grudging.laboratory) == 403
    more = meta_add(**grant("readhistory"))
    assert await grudging.status(f"{path}/$meta-add", grudging.laboratory, "POST", json=more) == 200
    assert await grudging.status(f"{path}/_history", grudging.laboratory) == 200


async def test_repeated_upload_without_access_not_doubled(grudging):
    """The creator finds its upload by If-None-Exist and may refer to it, but does not get its content."""
    value = observation()
    one = value["identifier"][0]
    condition = {"If-None-Exist": f"identifier={one['system']}|{one['value']}"}
    first, second = await grudging.upload(value, **condition), await grudging.upload(value, **condition)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.headers["location"] == first.headers["location"]
    assert second.headers["etag"] == 'W/"1"'
    assert second.json()["resourceType"] == "OperationOutcome"
    line = (await grudging.created_order())["ProcedureRequest"][0]
    result = [{"reference": f"observation/{first.json()['id']}"}]
    assert (await grudging.upload(report(line, result=result))).status_code == 201


async def test_contract_update_by_client_rejected(world):
    contract = (await world.get("/fhir/contract/contract-100", world.clinic)).json()
    answer = await world.put(contract, world.clinic)
    assert answer.status_code == 405
    assert "Contract" in diagnostics(answer)
