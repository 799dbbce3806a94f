"""Faults of a service that nobody here wrote: ignored criteria, poison, links elsewhere, maintenance, and edits by others."""

import json

import pytest

from lab_sandbox.faults.plan import parse_plan


def activate(world, *faults):
    world.app.state.service.faults.activate(parse_plan({"faults": list(faults)}, "test"))


async def search(world, query):
    return await world.client.get(f"/fhir/Task?{query}", headers=world.laboratory)


def ids(answer):
    return {entry["resource"]["id"] for entry in answer.json()["entry"]}


@pytest.mark.parametrize("strict", [False, True])
async def test_ignored_search_parameters_give_all_resources(world_factory, helpers, strict):
    world = world_factory(rules={"off": ["stu3-type-name"]}, strict=strict)
    first, second = await world.created_order(1), await world.created_order(1)
    order = next(task["id"] for task in first["Task"] if "partOf" not in task)
    everything = {task["id"] for tasks in (first, second) for task in tasks["Task"]}
    activate(world, {"kind": "ignore_search_parameters", "parameters": ["part-of"], "route": "GET /fhir/Task?*part-of*"})
    assert ids(await search(world, f"part-of=Task/{order}")) == everything
    assert len(ids(await search(world, f"part-of=Task/{order}&code=OrderProcessingTask"))) == 2
    activate(world, {"kind": "ignore_search_parameters"})
    page = await search(world, "status=cancelled&_count=1")
    assert len(page.json()["entry"]) == 1, "paging is no criterion"
    activate(world)
    assert len(ids(await search(world, f"part-of=Task/{order}"))) == 1


@pytest.mark.parametrize(
    ("poison", "raw"),
    [
        ("lone_surrogate", b"\\ud83d"),
        ("nan", b":NaN"),
        ("long_number", b"9" * 100_000),
        ("deep_nesting", b"[" * 10_000),
        ("control_character", b"a\x01b"),
    ],
)
async def test_poison_in_one_resource_beside_others(world, poison, raw):
    first, second = await world.created_order(1), await world.created_order(1)
    victim = second["Task"][0]["id"]
    activate(world, {"kind": "poison_task", "poison": poison, "route": "GET /fhir/Task*", "ids": [victim]})
    page = (await search(world, "status=requested")).content
    assert page.count(raw) == 1
    assert page.index(first["Task"][0]["id"].encode()) < page.index(victim.encode()) < page.index(raw)
    read = await world.client.get(f"/fhir/Task/{victim}", headers=world.laboratory)
    assert raw in read.content
    other = await world.client.get(f"/fhir/Task/{first['Task'][0]['id']}", headers=world.laboratory)
    assert other.json()["resourceType"] == "Task"


async def test_poison_in_first_resource_of_page(world):
    await world.created_order()
    activate(world, {"kind": "poison_task", "poison": "nan"})
    entries = json.loads((await search(world, "status=requested")).content)["entry"]
    assert ["description" in entry["resource"] for entry in entries] == [True, False, False]


async def test_own_links_have_another_origin(world):
    await world.created_order()
    activate(world, {"kind": "own_next_links", "origin": "http://inside.example:81"})
    links = (await search(world, "_count=2")).json()["link"]
    assert [one["relation"] for one in links] == ["self", "next"]
    assert all(one["url"].startswith("http://inside.example:81/fhir/Task?") for one in links)
    last = (await search(world, "_count=50")).json()["link"]
    assert [one["relation"] for one in last] == ["self"], "no next link where there is no next page"


async def test_maintenance_page_redirects_elsewhere(world, helpers):
    activate(world, {"kind": "maintenance_page", "origin": "http://maintenance.example", "count": 1})
    answer = await search(world, "status=requested")
    assert answer.status_code == 302
    assert answer.headers["location"] == "http://maintenance.example/maintenance"
    assert (await search(world, "status=requested")).status_code == 200
    activate(world, {"kind": "maintenance_page", "after_work": True, "count": 1})
    assert (await world.upload(helpers.observation())).status_code == 302
    assert world.app.state.service.store.counts()["Observation"] == 1


async def test_admin_edits_and_deletes_resources_of_others(world_factory, helpers):
    world = world_factory(fault_admin=True)
    task = (await world.created_order())["Task"][1]
    path = f"/sandbox/resources/task/{task['id']}"
    for status in ("on-hold", "completed", "requested"):
        changed = await world.client.patch(path, json={"status": status, "partOf": None})
        assert changed.json()["status"] == status
        assert "partOf" not in changed.json()
    read = await world.client.get(f"/fhir/Task/{task['id']}", headers=world.laboratory)
    assert read.headers["etag"] == 'W/"4"'
    assert (await world.client.delete(path)).status_code == 204
    assert (await world.client.get(f"/fhir/Task/{task['id']}", headers=world.laboratory)).status_code == 410
    assert (await world.client.patch(path, json={})).status_code == 404


async def test_admin_is_off_by_default(world):
    task = (await world.created_order())["Task"][1]
    answer = await world.client.patch(f"/sandbox/resources/Task/{task['id']}", json={"status": "on-hold"})
    assert answer.status_code in {404, 405}
