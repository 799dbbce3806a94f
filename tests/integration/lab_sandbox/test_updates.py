"""Versions, If-Match, If-None-Exist, statuses and notifications; the errors table row by row."""

import pytest

from tests.integration.lab_sandbox.world import diagnostics, observation, patient, problems, report

REASON = [{"valueString": "haemolysed"}]


async def test_stale_if_match_rejected(world, world_factory):
    for sandbox, code in ((world, 412), (world_factory(rules={"stale_code": 409}), 409)):
        task = (await sandbox.created_order())["Task"][1]
        assert (await sandbox.put(task, status="in-progress")).status_code == 200
        stale = await sandbox.put(task, status="completed")
        assert (stale.status_code, stale.headers["etag"]) == (code, 'W/"2"')
        assert "If-Match" in diagnostics(stale)


async def test_created_patient_etag_allows_update_without_read(world):
    made = await world.client.post("/fhir/Patient", json=patient(), headers=world.clinic)
    answer = await world.put(made.json(), world.clinic, made.headers["etag"], gender="other")
    assert answer.status_code == 200
    assert answer.json()["gender"] == "other"


async def test_update_replaces_the_whole_resource(world):
    task = (await world.created_order())["Task"][0]
    body = {key: value for key, value in task.items() if key != "input"}
    answer = await world.put(body, status="completed")
    assert (answer.status_code, answer.headers["etag"]) == (200, 'W/"2"')
    read = (await world.get(f"/fhir/task/{task['id']}", world.clinic)).json()
    assert (read["status"], read["meta"]["versionId"], "input" in read) == ("completed", "2", False)
    unchanged = await world.get(f"/fhir/task/{task['id']}", world.laboratory | {"If-None-Match": 'W/"2"'})
    assert (unchanged.status_code, unchanged.content) == (304, b"")


async def test_put_with_wrong_type_or_id_rejected(world):
    task = (await world.created_order())["Task"][1]
    for path, body, status, element in (
        (task["id"], {"resourceType": "Patient"}, 400, "resourceType"),
        (task["id"], task | {"id": "x"}, 400, "Task.id"),
        ("none", task | {"id": "none"}, 404, ""),
    ):
        headers = world.laboratory | {"If-Match": 'W/"1"'}
        answer = await world.client.put(f"/fhir/task/{path}", json=body, headers=headers)
        assert answer.status_code == status
        assert element in diagnostics(answer)


@pytest.mark.parametrize("kind", ["Observation", "DiagnosticReport"])
async def test_conditional_create_none_one_or_several_matches(world, kind):
    line = (await world.created_order())["ProcedureRequest"][0]
    resource = observation() if kind == "Observation" else report(line)
    one = resource["identifier"][0]
    header = {"If-None-Exist": f"identifier={one['system']}|{one['value']}"}
    created = await world.upload(resource, **header)
    assert created.status_code == 201
    assert created.headers["etag"] == 'W/"1"'
    assert created.headers["location"].endswith(f"/fhir/{kind}/{created.json()['id']}")
    again = await world.upload(resource, **header)
    assert again.status_code == 200
    assert again.content == created.content
    assert (await world.upload(resource)).status_code == 201
    several = await world.upload(resource, **header)
    assert several.status_code == 412
    assert "If-None-Exist" in diagnostics(several)


async def test_empty_create_condition_rejected(world):
    for header in ("", "identifier=novalue", "colour=red", "identifier=", "identifier=urn:x|", "%"):
        answer = await world.upload(observation(), **{"If-None-Exist": header})
        assert answer.status_code == 400, header
        assert diagnostics(answer)


async def test_create_with_client_chosen_id(world):
    async def post(path, body):
        return await world.client.post(f"/fhir/{path}", json=body, headers=world.clinic)

    rejected = await post("Patient", patient(id="mine"))
    assert rejected.status_code == 400
    assert "Patient.id" in diagnostics(rejected)
    made = await post("patient/mine", patient(id="mine"))
    assert (made.status_code, made.json()["id"]) == (200, "mine")
    assert (await post("patient/mine", patient())).status_code == 409
    for invalid in ("_search", "a" * 65, "ä", "a b"):
        answer = await post(f"patient/{invalid}", patient())
        assert answer.status_code == 400
        assert "Patient.id" in diagnostics(answer)


async def test_order_resources_need_bundle_to_create(world):
    answer = await world.client.post("/fhir/Task", json={"resourceType": "Task"}, headers=world.clinic)
    assert answer.status_code == 405
    assert "bundle" in diagnostics(answer)


@pytest.mark.parametrize(
    ("caller", "steps"),
    [
        ("laboratory", "accepted in-progress completed -cancelled -requested completed"),
        ("laboratory", "cancelled -completed cancelled"),
        ("laboratory", "-done"),
        ("clinic", "cancelled -completed requested entered-in-error"),
    ],
)
async def test_task_goes_on_as_its_table_says(world, caller, steps):
    """Those with a minus are refused: a laboratory cannot change what has ended, and the owner may offer it again."""
    task, version = (await world.created_order())["Task"][1], 1
    for step in steps.split():
        status = step.removeprefix("-")
        answer = await world.put(task, getattr(world, caller), version, status=status, output=REASON)
        assert answer.status_code == (200 if step == status else 422), step
        version += step == status
        if step != status:
            assert problems(answer) & {("Task.status", "task-transition"), ("Task.status", "task-status")}


async def test_laboratory_cannot_cancel_test_without_reason(world):
    order, line = (await world.created_order())["Task"][:2]
    for output in ([], [{"valueString": " "}]):
        assert "task-reason" in {rule for _, rule in problems(await world.put(line, status="cancelled", output=output))}
    for output in ([{"type": {"text": "error"}}], [{"valueString": ""}], {"valueString": "x"}, "x"):
        found = problems(await world.put(line, status="cancelled", output=output))
        assert any(path.startswith("Task.output") for path, _ in found)
    assert (await world.put(order, status="cancelled")).status_code == 200


async def test_partner_notified_of_own_status_changes_only(world):
    order, line, *_ = (await world.created_order())["Task"]
    await world.put(line, note="no change of status")
    await world.put(line, version=2, status="completed")
    await world.put(order, status="completed")
    notifications = (await world.get("/notifications", world.clinic)).json()["notifications"]
    assert [(one["task"], one["level"], one["previous"], one["status"]) for one in notifications] == [
        (f"task/{line['id']}", "line", "requested", "completed"),
        (f"task/{order['id']}", "order", "requested", "completed"),
    ]
    assert {one["order_task"] for one in notifications} == {f"task/{order['id']}"}
    later = await world.get(f"/notifications?since={notifications[0]['number']}", world.clinic)
    assert later.json()["notifications"] == notifications[1:]
    assert (await world.get("/notifications", world.stranger)).json()["notifications"] == []
    assert await world.status("/notifications?since=x", world.clinic) == 400


async def test_invalid_body_rejected(world, world_factory):
    deep = [b'{"a":' + b"[" * depth + b"]" * depth + b"}" for depth in (100, 100_000)]
    for content in (b"{", b"", b"[]", b"\xff", b'{"a":NaN}', *deep, b"<a/>"):
        kind = "application/xml" if content == b"<a/>" else "application/json"
        answer = await world.client.post("/fhir/Patient", content=content, headers=world.clinic | {"Content-Type": kind})
        assert answer.status_code == (415 if content == b"<a/>" else 400), content[:20]
        assert diagnostics(answer)
    small = world_factory(rules={"max_body_bytes": 100})
    answer = await small.client.post("/fhir/Patient", json=patient(), headers=small.clinic)
    assert answer.status_code == 413
    assert "body" in diagnostics(answer)
