"""Searches: pages without gaps or repeats, every parameter, and clear errors for unsupported ones."""

import pytest


async def all_pages(world, path, headers):
    """The ids of all results of a search, following `next`, and the number of pages."""
    rows, count = [], 0
    while path:
        answer = await world.client.get(path, headers=headers)
        assert answer.status_code == 200, answer.text
        body, count = answer.json(), count + 1
        assert body["type"] == "searchset"
        rows += [one["resource"]["id"] for one in body["entry"]]
        path = next((one["url"] for one in body["link"] if one["relation"] == "next"), None)
    return rows, count


@pytest.mark.parametrize(("size", "expected"), [(1, 7), (3, 3), (7, 1), (50, 1)])
async def test_pages_return_every_row_once(world, size, expected):
    expected_ids = [(await world.created_order(1))["Task"][0]["id"] for _ in range(7)]
    rows, count = await all_pages(world, f"/fhir/task?status=requested&code=OrderProcessingTask&_count={size}", world.laboratory)
    assert rows == expected_ids
    assert count == expected


async def test_unreadable_rows_leave_no_gap(world, helpers):
    expected_ids = []
    for number in range(9):
        meta = helpers.grant("read", guid=helpers.CLINIC) if number % 3 == 0 else {}
        made = await world.upload(helpers.observation(meta=meta))
        expected_ids += [made.json()["id"]] if meta else []
    rows, _ = await all_pages(world, "/fhir/Observation?_count=1", world.clinic)
    assert rows == expected_ids


async def test_row_leaving_between_pages_skips_no_other(world):
    """A result that leaves the search between two pages does not make the next page skip another."""
    orders = [(await world.created_order(1))["Task"][0] for _ in range(4)]
    first = await world.client.get("/fhir/task?status=requested&code=OrderProcessingTask&_count=2", headers=world.laboratory)
    done = orders[0] | {"status": "completed"}
    await world.client.put(f"/Task/{done['id']}", json=done, headers=world.laboratory | {"If-Match": 'W/"1"'})
    next_url = next(one["url"] for one in first.json()["link"] if one["relation"] == "next")
    second = await world.client.get(next_url, headers=world.laboratory)
    assert [one["resource"]["id"] for one in second.json()["entry"]] == [one["id"] for one in orders[2:]]


@pytest.mark.parametrize(
    ("path", "kind", "number"),
    [
        ("/fhir/task?based-on=procedurerequest/{line}", "Task", 1),
        ("/fhir/Task?code=http://exchange.test/terminology/task_type|OrderProcessingTask", "Task", 0),
        ("/fhir/Task?status=requested&status=requested&part-of=task/{order}&_format=json", "Task", 1),
        ("/fhir/procedurerequest?requisition=urn:clinic:orders|{requisition}", "ProcedureRequest", 0),
        ("/fhir/procedurerequest?specimen=specimen/{specimen}", "ProcedureRequest", 0),
        ("/fhir/specimen?container-id=http://codes.lab.example/labels|1000000017", "Specimen", 0),
        ("/fhir/specimen?patient={patient}", "Specimen", 0),
        ("/fhir/questionnaireresponse?subject={line}", "QuestionnaireResponse", 0),
    ],
)
async def test_supported_search_parameters_find_resources(world, path, kind, number):
    created = await world.created_order(1)
    line = created["ProcedureRequest"][0]
    ids = {
        "line": line["id"],
        "order": created["Task"][0]["id"],
        "requisition": line["requisition"]["value"],
        "specimen": created["Specimen"][0]["id"],
        "patient": line["subject"]["reference"],
    }
    rows, _ = await all_pages(world, path.format(**ids), world.laboratory)
    assert rows == [created[kind][number]["id"]]


async def test_absolute_references_found_like_relative(world, helpers):
    line = (await world.created_order())["ProcedureRequest"][0]
    patient = line["subject"]["reference"].partition("/")[2]
    based_on = [{"reference": f"http://exchange.test/fhir/ProcedureRequest/{line['id']}"}]
    made = await world.upload(helpers.report(patient, line["id"], basedOn=based_on))
    rows, _ = await all_pages(world, f"/fhir/diagnosticreport?based-on=procedurerequest/{line['id']}", world.clinic)
    assert rows == [made.json()["id"]]


async def test_escaped_comma_in_identifier_accepted(world, helpers):
    made = await world.upload(helpers.observation(identifier=[{"system": "urn:s", "value": "a,b"}]))
    rows, _ = await all_pages(world, "/fhir/Observation?identifier=urn:s|a\\,b", world.clinic)
    assert rows == [made.json()["id"]]


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("colour=red", "colour"),
        ("identifier=plain", "identifier"),
        ("part-of=patient-1/2/3", "part-of"),
        ("status=", "status"),
        ("_count=many", "_count"),
        ("_after=-1", "_after"),
        ("status%2Bcode=x", "status+code"),
    ],
)
async def test_invalid_search_rejected(world, helpers, query, name):
    answer = await world.client.get(f"/fhir/Task?{query}", headers=world.laboratory)
    assert answer.status_code == 400
    assert name in helpers.diagnostics(answer)
