"""Versions, If-Match, If-None-Exist, statuses and notifications; the errors table row by row."""

import json

import pytest


async def put(world, resource, version, headers, **changes):
    path = f"/fhir/{resource['resourceType'].lower()}/{resource['id']}"
    return await world.client.put(path, json=resource | changes, headers=headers | {"If-Match": f'W/"{version}"'})


async def test_stale_if_match_rejected(world, helpers):
    task = (await world.created_order())["Task"][1]
    assert (await put(world, task, 1, world.laboratory, status="in-progress")).status_code == 200
    stale = await put(world, task, 1, world.laboratory, status="completed")
    assert stale.status_code == 412
    assert stale.headers["etag"] == 'W/"2"'
    assert "If-Match" in helpers.diagnostics(stale)


async def test_stale_version_status_is_configurable(world_factory):
    world = world_factory(rules={"stale_code": 409})
    task = (await world.created_order())["Task"][1]
    assert (await put(world, task, 7, world.laboratory, status="completed")).status_code == 409


@pytest.mark.parametrize(("header", "status"), [(None, 428), ("1", 400), ('W/"x"', 400), ('"1"', 400), ('W/"1"', 200)])
async def test_if_match_required_in_documented_form(world, header, status):
    task = (await world.created_order())["Task"][1]
    headers = world.laboratory | ({"If-Match": header} if header else {})
    answer = await world.client.put(f"/fhir/task/{task['id']}", json=task, headers=headers)
    assert answer.status_code == status


async def test_created_patient_etag_allows_update_without_read(world, helpers):
    made = await world.client.post("/fhir/Patient", json=helpers.patient(), headers=world.clinic)
    answer = await world.client.put(
        f"/fhir/Patient/{made.json()['id']}",
        json=helpers.patient(gender="other"),
        headers=world.clinic | {"If-Match": made.headers["etag"]},
    )
    assert answer.status_code == 200
    assert answer.json()["gender"] == "other"


async def test_identifiers_omitted_in_update_are_removed(world, helpers):
    made = (await world.upload(helpers.observation())).json()
    system, value = made["identifier"][0]["system"], made["identifier"][0]["value"]
    await put(world, {key: one for key, one in made.items() if key != "identifier"}, 1, world.laboratory, status="amended")
    found = await world.client.get("/fhir/Observation", params={"identifier": f"{system}|{value}"}, headers=world.laboratory)
    assert found.json()["entry"] == []


async def test_put_with_wrong_type_or_id_rejected(world, helpers):
    task = (await world.created_order())["Task"][1]
    other = await world.client.put(
        f"/fhir/task/{task['id']}", json={"resourceType": "Patient"}, headers=world.laboratory | {"If-Match": 'W/"1"'}
    )
    assert other.status_code == 400
    assert "resourceType" in helpers.diagnostics(other)
    wrong = await world.client.put(
        f"/fhir/task/{task['id']}", json=task | {"id": "x"}, headers=world.laboratory | {"If-Match": 'W/"1"'}
    )
    assert wrong.status_code == 400
    assert "Task.id" in helpers.diagnostics(wrong)
    none = await world.client.put("/fhir/task/none", json=task | {"id": "none"}, headers=world.laboratory | {"If-Match": 'W/"1"'})
    assert none.status_code == 404


async def test_read_with_current_etag_returns_304(world):
    task = (await world.created_order())["Task"][1]
    answer = await world.client.get(f"/fhir/task/{task['id']}", headers=world.laboratory | {"If-None-Match": 'W/"1"'})
    assert answer.status_code == 304
    assert answer.content == b""


@pytest.mark.parametrize("kind", ["Observation", "DiagnosticReport"])
async def test_conditional_create_none_one_or_several_matches(world, helpers, kind):
    line = (await world.created_order())["ProcedureRequest"][0]
    patient = line["subject"]["reference"].partition("/")[2]
    resource = helpers.observation() if kind == "Observation" else helpers.report(patient, line["id"])
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
    assert "If-None-Exist" in helpers.diagnostics(several)


@pytest.mark.parametrize("header", ["", "identifier=novalue", "colour=red", "identifier=", "identifier=urn:x|", "%"])
async def test_empty_create_condition_rejected(world, helpers, header):
    answer = await world.upload(helpers.observation(), **{"If-None-Exist": header})
    assert answer.status_code == 400
    assert helpers.diagnostics(answer)


async def test_create_with_client_chosen_id(world, helpers):
    rejected = await world.client.post("/fhir/Patient", json=helpers.patient(id="mine"), headers=world.clinic)
    assert rejected.status_code == 400
    assert "Patient.id" in helpers.diagnostics(rejected)
    made = await world.client.post("/fhir/patient/mine", json=helpers.patient(id="mine"), headers=world.clinic)
    assert made.status_code == 200
    assert made.json()["id"] == "mine"
    assert (await world.client.post("/fhir/patient/mine", json=helpers.patient(), headers=world.clinic)).status_code == 409


async def test_order_resources_need_bundle_to_create(world, helpers):
    answer = await world.client.post("/fhir/Task", json={"resourceType": "Task"}, headers=world.clinic)
    assert answer.status_code == 405
    assert "bundle" in helpers.diagnostics(answer)


async def test_decimals_keep_digits_both_ways(world, helpers):
    text = json.dumps(helpers.observation()).replace("134", "1.20").replace("160", "123456789012345678901234567890.10")
    made = await world.client.post(
        "/fhir/Observation", content=text, headers=world.laboratory | {"Content-Type": "application/fhir+json"}
    )
    assert made.status_code == 201, made.text
    read = (await world.client.get(f"/fhir/observation/{made.json()['id']}", headers=world.clinic)).text
    assert '"value":1.20,' in read
    assert '"value":123456789012345678901234567890.10' in read


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"status": "cancelled"}, "Observation.status"),
        ({"code": {"coding": [{"system": "urn:local", "code": "x"}]}}, "Observation.code"),
        ({"valueString": "two values"}, "Observation.value[x]"),
        ({"valueQuantity": 1, "valueBoolean": True}, "Observation.value[x]"),
        ({"issued": "today"}, "Observation.issued"),
        ({"referenceRange": ["120-160"]}, "Observation.referenceRange[0]"),
        ({"specimen": {"reference": "specimen/404"}}, "Observation.specimen.reference"),
        ({"specimen": {"reference": "urn:uuid:00000000-0000-0000-0000-000000000000"}}, "local-reference"),
    ],
)
async def test_observation_required_fields_checked(world, helpers, changes, name):
    answer = await world.upload(helpers.observation(**changes))
    assert answer.status_code == 422
    assert name in helpers.diagnostics(answer)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"status": "amended"}, "DiagnosticReport.status"),
        ({"code": {}}, "DiagnosticReport.code"),
        ({"subject": None}, "DiagnosticReport.subject"),
        ({"effectiveDateTime": None}, "DiagnosticReport.effectiveDateTime"),
        ({"issued": "x"}, "DiagnosticReport.issued"),
        ({"result": [{}]}, "DiagnosticReport.result[0]"),
        ({"basedOn": {"reference": "x"}}, "DiagnosticReport.basedOn"),
        ({"presentedForm": [{}]}, "DiagnosticReport.presentedForm[0].url"),
    ],
)
async def test_report_required_fields_checked(world, helpers, changes, name):
    line = (await world.created_order())["ProcedureRequest"][0]
    answer = await world.upload(helpers.report(line["subject"]["reference"].partition("/")[2], line["id"], **changes))
    assert answer.status_code == 422
    assert name in helpers.diagnostics(answer)


async def test_cancelled_task_keeps_error_text_in_output(world):
    task = (await world.created_order())["Task"][1]
    output = [{"valueString": "unknown item"}]
    assert (await put(world, task, 1, world.laboratory, status="cancelled", output=output)).status_code == 200
    read = (await world.client.get(f"/fhir/task/{task['id']}", headers=world.clinic)).json()
    assert read["status"] == "cancelled"
    assert read["output"] == output


async def test_both_task_levels_go_from_requested_to_completed(world):
    tasks = (await world.created_order())["Task"]
    assert {task["status"] for task in tasks} == {"requested"}
    for task in tasks:
        assert (await put(world, task, 1, world.laboratory, status="completed")).status_code == 200
    left = await world.client.get("/fhir/task?status=requested", headers=world.laboratory)
    assert left.json()["entry"] == []
    done = await world.client.get("/fhir/task?status=completed,cancelled&code=OrderProcessingTask", headers=world.laboratory)
    assert [one["resource"]["id"] for one in done.json()["entry"]] == [tasks[0]["id"]]


async def test_unknown_task_status_rejected(world, helpers):
    task = (await world.created_order())["Task"][1]
    answer = await put(world, task, 1, world.laboratory, status="done")
    assert answer.status_code == 422
    assert "Task.status" in helpers.diagnostics(answer)


async def test_partner_notified_of_own_status_changes_only(world):
    order, line, *_ = (await world.created_order())["Task"]
    await put(world, line, 1, world.laboratory, note="no change of status")
    await put(world, line, 2, world.laboratory, status="completed")
    await put(world, order, 1, world.laboratory, status="completed")
    notifications = (await world.client.get("/notifications", headers=world.clinic)).json()["notifications"]
    assert [(one["task"], one["level"], one["previous"], one["status"]) for one in notifications] == [
        (f"task/{line['id']}", "line", "requested", "completed"),
        (f"task/{order['id']}", "order", "requested", "completed"),
    ]
    assert {one["order_task"] for one in notifications} == {f"task/{order['id']}"}
    later = await world.client.get(f"/notifications?since={notifications[0]['number']}", headers=world.clinic)
    assert later.json()["notifications"] == notifications[1:]
    assert (await world.client.get("/notifications", headers=world.stranger)).json()["notifications"] == []
    assert (await world.client.get("/notifications?since=x", headers=world.clinic)).status_code == 400


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"\xff", "application/json", 400),
        (b'{"a":NaN}', "application/json", 400),
        (b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", "application/json", 400),
        (b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}", "application/json", 400),
        (b"<a/>", "application/xml", 415),
    ],
)
async def test_invalid_json_body_rejected(world, helpers, content, kind, status):
    answer = await world.client.post("/fhir/Patient", content=content, headers=world.clinic | {"Content-Type": kind})
    assert answer.status_code == status
    assert helpers.diagnostics(answer)


async def test_oversized_body_rejected(world_factory, helpers):
    world = world_factory(rules={"max_body_bytes": 100})
    answer = await world.client.post("/fhir/Patient", json=helpers.patient(), headers=world.clinic)
    assert answer.status_code == 413
    assert "body" in helpers.diagnostics(answer)


async def test_history_is_bounded(world_factory, helpers):
    world = world_factory(rules={"history_limit": 2})
    task = (await world.created_order())["Task"][1]
    for version in range(1, 8):
        assert (await put(world, task, version, world.laboratory, number=version)).status_code == 200
    entries = (await world.client.get(f"/fhir/task/{task['id']}/_history", headers=world.clinic)).json()["entry"]
    assert [one["resource"]["meta"]["versionId"] for one in entries] == ["8", "7", "6"]


@pytest.mark.parametrize("header", ["Basic é".encode(), b"Basic \xff\xff", b"Bearer \xe9"])
async def test_undecodable_header_bytes_return_401(world, header):
    answer = await world.client.get("/fhir/Contract", headers={"Authorization": header})
    assert answer.status_code == 401


@pytest.mark.parametrize("id_", ["_search", "a" * 65, "ä", "a b"])
async def test_client_chosen_id_must_be_valid(world, helpers, id_):
    answer = await world.client.post(f"/fhir/patient/{id_}", json=helpers.patient(), headers=world.clinic)
    assert answer.status_code == 400
    assert "Patient.id" in helpers.diagnostics(answer)


@pytest.mark.parametrize("query", ["&".join(["status=a"] * 70), "status=" + ",".join("abc" * 200)])
async def test_expensive_search_rejected(world, helpers, query):
    answer = await world.client.get(f"/fhir/task?{query}", headers=world.laboratory)
    assert answer.status_code == 400
    assert "search" in helpers.diagnostics(answer)
