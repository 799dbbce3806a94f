"""Injected faults: each kind, and each way to schedule them."""

from typing import get_args

import httpx
import pytest
from structlog.testing import capture_logs

from lab_sandbox.faults.plan import FaultPlan, FaultPlanError, FaultRule, FaultScheduler, load_plan
from lab_sandbox.rule_ids import SwitchableRule
from tests.integration.lab_sandbox.world import diagnostics, observation

ORDERS = "/fhir/Task?status=requested&code=OrderProcessingTask"


def fired_pattern(rule, requests=10, seed=0):
    scheduler = FaultScheduler(FaultPlan(seed=seed, faults=(FaultRule(**rule),)))
    fired = (scheduler.select_faults("GET", "/fhir/Task", "status=requested") for _ in range(requests))
    return "".join("x" if each else "." for each in fired)


def test_fault_route_count_skip_and_script():
    for rule, expected in (
        ({}, "xxxxxxxxxx"),
        ({"count": 2}, "xx........"),
        ({"skip": 3, "count": 1}, "...x......"),
        ({"script": "x..x"}, "x..x......"),
        ({"script": ".x", "skip": 2}, "...x......"),
        ({"probability": 0}, ".........."),
        ({"route": "GET /fhir/task"}, "xxxxxxxxxx"),
        ({"route": "/FHIR/*"}, "xxxxxxxxxx"),
        ({"route": "PUT /fhir/task"}, ".........."),
        ({"route": "GET /fhir/task?*status=*"}, "xxxxxxxxxx"),
        ({"route": "GET /fhir/task?*part-of=*"}, ".........."),
    ):
        assert fired_pattern({"kind": "reset"} | rule) == expected, rule


def test_fault_probability_reproducible_by_seed():
    rule = {"kind": "reset", "probability": 0.3}
    first = fired_pattern(rule, 1000, seed=7)
    assert first == fired_pattern(rule, 1000, seed=7)
    assert first != fired_pattern(rule, 1000, seed=8)
    assert 200 < first.count("x") < 400


def test_fault_plan_loaded_from_file(tmp_path, request):
    path = tmp_path / "faults.toml"
    for text, error in (
        ('[[faults]]\nkind = "fire"', "faults.0.kind"),
        ('[[faults]]\nkind = "reset"\ncolour = 1', "colour"),
        ("x = 1", "x"),
        ("seed = ", "not valid TOML"),
        (None, "cannot be read"),
    ):
        path.unlink(missing_ok=True) if text is None else path.write_text(text)
        with pytest.raises(FaultPlanError, match=error):
            load_plan(path)
    shipped = load_plan(request.config.rootpath / "config" / "sandbox-faults.toml")
    assert len({rule.kind for rule in shipped.faults}) > 10


def test_every_kind_field_and_rule_documented(request):
    text = (request.config.rootpath / "docs" / "sandbox.md").read_text()
    names = {*get_args(FaultRule.model_fields["kind"].annotation), *FaultRule.model_fields, *get_args(SwitchableRule)}
    assert [each for each in names if f"`{each}`" not in text] == []


async def test_status_fault_with_retry_after(world):
    """For one caller alone, where it is named."""
    for form, wait in (("seconds", "7"), ("date", "Mon, 05 Jan 2026 08:00:07 GMT")):
        world.activate({"kind": "status", "status": 429, "retry_after": 7, "retry_after_form": form, "caller": "laboratory"})
        answer = await world.get("/fhir/task")
        assert (answer.status_code, answer.headers["retry-after"]) == (429, wait)
        assert diagnostics(answer)
        assert [await world.status("/fhir/task", each) for each in (world.clinic, {})] == [200, 401]


@pytest.mark.parametrize(
    ("fault", "status", "stored"),
    [
        ({"kind": "status", "status": 500, "after_work": True}, 500, 1),
        ({"kind": "status", "status": 500}, 500, 0),
        ({"kind": "lost_reply"}, 500, 1),
        ({"kind": "reset"}, 500, 0),
        ({"kind": "maintenance_page", "after_work": True}, 302, 1),
    ],
)
async def test_fault_before_or_after_work(world, fault, status, stored):
    """A reset is one on a port; in-process there is no connection to reset."""
    world.activate(fault | {"route": "POST /fhir/Observation", "count": 1})
    value = observation()
    header = {"If-None-Exist": "identifier={system}|{value}".format(**value["identifier"][0])}
    assert (await world.upload(value, **header)).status_code == status
    assert world.counts().get("Observation", 0) == stored
    assert (await world.upload(value, **header)).status_code == (200 if stored else 201)


async def test_concurrent_partner_edit_between_read_and_write(world):
    task = (await world.created_order())["Task"][1]
    world.activate({"kind": "partner_edit", "route": "PUT /fhir/Task/*", "count": 1, "change": {"priority": "urgent"}})
    assert (await world.put(task, status="completed")).status_code == 412
    again = await world.get(f"/fhir/task/{task['id']}")
    assert (again.headers["etag"], again.json()["priority"]) == ('W/"2"', "urgent")
    assert (await world.put(task, version=2, status="completed")).status_code == 200


async def test_stale_version_on_read(world):
    task = (await world.created_order())["Task"][1]
    await world.put(task, status="completed")
    world.activate({"kind": "stale_read", "count": 1})
    stale, fresh = [await world.get(f"/fhir/task/{task['id']}") for _ in range(2)]
    assert (stale.headers["etag"], stale.json()["meta"]["versionId"]) == ('W/"1"', "1")
    assert (stale.json()["status"], fresh.json()["status"]) == ("requested", "completed")


async def test_links_and_references_elsewhere_and_repeated_rows(world):
    """What no incident and no result would miss."""
    line = (await world.created_order())["ProcedureRequest"][0]
    world.activate({"kind": "repeated_rows"})
    onward = (await world.get("/fhir/Task?_count=2")).json()["link"][1]["url"]
    assert len(await world.found(onward)) > 1, "of three Tasks two on the first page"
    world.activate({"kind": "own_next_links", "origin": "http://inside.example:81"}, {"kind": "foreign_references"})
    links = (await world.get("/fhir/Task?_count=2")).json()["link"]
    assert [one["url"].startswith("http://inside.example:81/fhir/Task?") for one in links] == [True, True]
    (specimen,) = (await world.get(f"/fhir/procedurerequest/{line['id']}")).json()["specimen"]
    assert specimen["reference"].startswith("http://elsewhere.example/fhir/Specimen/")


async def test_answers_of_another_form(world):
    """What is no resource stays as it is."""
    await world.created_order(1)
    created = (await world.upload(observation())).json()
    world.activate(*({"kind": kind} for kind in ("trailing_zeros", "unknown_fields")))
    text = (await world.get(f"/fhir/observation/{created['id']}", world.clinic)).text
    assert ('"value":134.0,' in text, '"value":120.0' in text) == (True, True)
    (resource,) = await world.found(ORDERS)
    assert "unknownField" in resource
    world.lab.responses["/api/nomenclature"] = httpx.Response(200, json=[{"id": 1}])
    assert (await world.get("/nomenclature?contract=C-100", world.clinic)).json() == [{"id": 1}]
    world.activate({"kind": "missing_entry"})
    assert "entry" not in (await world.get("/fhir/task?status=completed")).json()
    world.activate({"kind": "html"})
    assert (await world.get("/fhir/task")).headers["content-type"].startswith("text/html")
    world.activate({"kind": "maintenance_page", "origin": "http://maintenance.example"})
    assert (await world.get(ORDERS)).headers["location"] == "http://maintenance.example/maintenance"


async def test_admin_endpoint_sets_faults(world, world_factory):
    assert (await world.client.get("/sandbox/faults")).status_code == 404, "off by default"
    world = world_factory(fault_admin=True)
    plan = {"seed": 1, "faults": [{"kind": "status", "status": 502, "route": "GET /fhir/*", "probability": 1.0}]}
    assert (await world.client.put("/sandbox/faults", json=plan)).status_code == 200
    assert await world.status("/fhir/task", world.clinic) == 502
    (state,) = (await world.client.get("/sandbox/faults")).json()["faults"]
    assert (state["seen"], state["fired"]) == (1, 1)
    wrong = await world.client.put("/sandbox/faults", json={"faults": [{"kind": "fire"}]})
    assert wrong.status_code == 400
    assert "faults.0.kind" in diagnostics(wrong)
    assert (await world.client.delete("/sandbox/faults")).json() == {"seed": 0, "faults": []}
    assert await world.status("/fhir/task", world.clinic) == 200


async def test_admin_edits_and_deletes_resources_of_others(world, world_factory):
    assert await world.status("/sandbox/resources/Task/1", {}, "PATCH", json={"status": "on-hold"}) in {404, 405}
    world = world_factory(fault_admin=True)
    task = (await world.created_order())["Task"][1]
    path = f"/sandbox/resources/task/{task['id']}"
    for status in ("completed", "requested"):
        changed = (await world.client.patch(path, json={"status": status, "partOf": None})).json()
        assert (changed["status"], "partOf" in changed, changed["meta"]["versionId"] > "1") == (status, False, True)
    assert (await world.client.delete(path)).status_code == 204
    assert (await world.get(f"/fhir/Task/{task['id']}")).status_code == 410
    assert (await world.client.patch(path, json={})).status_code == 404


async def test_request_log_shows_outcome_without_query(world_factory):
    world = world_factory(log_requests=True)
    world.activate({"kind": "status", "status": 503, "route": "GET /fhir/task"})
    with capture_logs() as lines:
        await world.get("/FHIR/task?identifier=secret|1", world.clinic)
        await world.get("/fhir/contract", world.clinic)
    logged = [(one["method"], one["path"], one["status"], one["faults"]) for one in lines]
    assert logged == [("GET", "/fhir/Task", 503, ["status"]), ("GET", "/fhir/Contract", 200, [])]
    assert "secret" not in str(lines)
