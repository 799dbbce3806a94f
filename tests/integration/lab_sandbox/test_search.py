"""Searches: pages without gaps or repeats, every parameter, and clear errors for unsupported ones."""

from tests.integration.lab_sandbox.world import CLINIC, LAB, diagnostics, grant, observation

NEW_ORDERS = "/fhir/task?status=requested&code=OrderProcessingTask"


async def all_pages(world, path, headers=None):
    """The ids of all results of a search, following `next`, and the number of pages."""
    rows, count = [], 0
    while path:
        answer = await world.get(path, headers)
        assert answer.status_code == 200, answer.text
        body, count = answer.json(), count + 1
        assert body["type"] == "searchset"
        rows += [one["resource"]["id"] for one in body["entry"]]
        path = next((one["url"] for one in body["link"] if one["relation"] == "next"), None)
    return rows, count


async def test_pages_return_every_row_once(world):
    expected = [(await world.created_order(1))["Task"][0]["id"] for _ in range(7)]
    for size, pages in ((1, 7), (3, 3), (7, 1), (50, 1)):
        assert await all_pages(world, f"{NEW_ORDERS}&_count={size}") == (expected, pages)


async def test_unreadable_rows_leave_no_gap(world):
    expected = []
    for number in range(9):
        meta = grant("read", guid=CLINIC) if number % 3 == 0 else {}
        made = await world.upload(observation(meta=meta))
        expected += [made.json()["id"]] if meta else []
    rows, _ = await all_pages(world, "/fhir/Observation?_count=1", world.clinic)
    assert rows == expected


async def test_row_leaving_between_pages_skips_no_other(world):
    orders = [(await world.created_order(1))["Task"][0] for _ in range(4)]
    first = (await world.get(f"{NEW_ORDERS}&_count=2")).json()
    await world.put(orders[0], status="completed")
    next_url = next(one["url"] for one in first["link"] if one["relation"] == "next")
    assert await world.found(next_url) == orders[2:]


async def test_supported_search_parameters_find_resources(world):
    created = await world.created_order(1)
    line = created["ProcedureRequest"][0]
    ids = {
        "line": line["id"],
        "order": created["Task"][0]["id"],
        "requisition": line["requisition"]["value"],
        "specimen": created["Specimen"][0]["id"],
        "patient": line["subject"]["reference"],
        "lab": LAB,
    }
    for path, kind, number in (
        ("task?based-on=procedurerequest/{line}", "Task", 1),
        ("Task?code=http://exchange.test/terminology/task_type|OrderProcessingTask", "Task", 0),
        ("Task?status=requested&status=requested&part-of=task/{order}&_format=json", "Task", 1),
        ("Task?status=completed,requested&part-of=task/{order}", "Task", 1),
        ("procedurerequest?requisition=urn:clinic:orders|{requisition}", "ProcedureRequest", 0),
        ("procedurerequest?specimen=specimen/{specimen}", "ProcedureRequest", 0),
        ("specimen?container-id={lab}/labels|1000000017", "Specimen", 0),
        ("specimen?patient={patient}", "Specimen", 0),
        ("questionnaireresponse?subject={line}", "QuestionnaireResponse", 0),
    ):
        assert await world.found(f"/fhir/{path.format(**ids)}") == [created[kind][number]], path


async def test_invalid_or_expensive_search_rejected(world):
    for query, name in (
        ("colour=red", "colour"),
        ("identifier=plain", "identifier"),
        ("part-of=patient-1/2/3", "part-of"),
        ("status=", "status"),
        ("_count=many", "_count"),
        ("_after=-1", "_after"),
        ("status%2Bcode=x", "status+code"),
        ("&".join(["status=a"] * 70), "search"),
        ("status=" + ",".join("abc" * 200), "search"),
    ):
        answer = await world.get(f"/fhir/Task?{query}")
        assert answer.status_code == 400, name
        assert name in diagnostics(answer)
