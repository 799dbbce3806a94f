"""Injected faults: each kind, and each way to schedule them."""

from email.utils import parsedate_to_datetime
from typing import get_args

import httpx
import pytest
from structlog.testing import capture_logs

from lab_sandbox.faults.plan import FaultPlan, FaultPlanError, FaultRule, FaultScheduler, load_plan, parse_plan
from lab_sandbox.rule_ids import SwitchableRule


def activate(world, *faults, seed=0):
    world.app.state.service.faults.activate(parse_plan({"seed": seed, "faults": list(faults)}, "test"))


def fired_pattern(rule, requests=10, method="GET", path="/fhir/Task", seed=0):
    scheduler = FaultScheduler(FaultPlan(seed=seed, faults=(FaultRule(**rule),)))
    return "".join("x" if scheduler.select_faults(method, path, "status=requested") else "." for _ in range(requests))


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
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
    ],
)
def test_fault_route_count_skip_and_script(rule, expected):
    assert fired_pattern({"kind": "reset"} | rule) == expected


def test_fault_probability_reproducible_by_seed():
    rule = {"kind": "reset", "probability": 0.3}
    first = fired_pattern(rule, 1000, seed=7)
    assert first == fired_pattern(rule, 1000, seed=7)
    assert first != fired_pattern(rule, 1000, seed=8)
    assert 200 < first.count("x") < 400


@pytest.mark.parametrize(
    "raw", [{"faults": [{"kind": "fire"}]}, {"faults": [{}]}, {"faults": [{"kind": "reset", "colour": 1}]}, {"x": 1}]
)
def test_invalid_fault_plan_rejected(raw):
    with pytest.raises(FaultPlanError, match=r"test: .*"):
        parse_plan(raw, "test")


def test_fault_plan_loaded_from_file(tmp_path):
    path = tmp_path / "faults.toml"
    path.write_text('seed = 3\n[[faults]]\nkind = "latency"\nseconds = 0.5\n')
    assert load_plan(path).faults[0].seconds == 0.5
    path.write_text("seed = ")
    with pytest.raises(FaultPlanError, match="not valid TOML"):
        load_plan(path)
    with pytest.raises(FaultPlanError, match="cannot be read"):
        load_plan(tmp_path / "none.toml")


@pytest.mark.parametrize("status", [500, 502, 503, 429])
async def test_status_fault_retry_after_seconds(world, helpers, status):
    activate(world, {"kind": "status", "status": status, "retry_after": 7})
    answer = await world.client.get("/fhir/task", headers=world.laboratory)
    assert answer.status_code == status
    assert answer.headers["retry-after"] == "7"
    assert helpers.diagnostics(answer)


async def test_status_fault_retry_after_date(world):
    activate(world, {"kind": "status", "status": 429, "retry_after": 90, "retry_after_form": "date"})
    answer = await world.client.get("/fhir/task", headers=world.laboratory)
    assert (parsedate_to_datetime(answer.headers["retry-after"]) - world.clock()).total_seconds() == 90


@pytest.mark.parametrize("after_work", [True, False])
async def test_status_fault_after_work_done(world, helpers, after_work):
    activate(world, {"kind": "status", "status": 500, "after_work": after_work, "route": "POST /fhir/Observation"})
    assert (await world.upload(helpers.observation())).status_code == 500
    assert ("Observation" in world.app.state.service.store.counts()) == after_work


async def test_reply_lost_after_work_done(world, helpers):
    activate(world, {"kind": "lost_reply", "route": "POST /fhir/Observation", "count": 1})
    resource = helpers.observation()
    one = resource["identifier"][0]
    header = {"If-None-Exist": f"identifier={one['system']}|{one['value']}"}
    lost = await world.upload(resource, **header)
    assert lost.status_code == 500  # a reset on a port; in-process there is no connection to reset
    assert world.app.state.service.store.counts()["Observation"] == 1
    assert (await world.upload(resource, **header)).status_code == 200


async def test_connection_reset_before_work(world, helpers):
    activate(world, {"kind": "reset"})
    await world.upload(helpers.observation())
    assert "Observation" not in world.app.state.service.store.counts()


async def test_html_instead_of_json(world):
    activate(world, {"kind": "html"})
    answer = await world.client.get("/fhir/task", headers=world.laboratory)
    assert answer.headers["content-type"].startswith("text/html")


async def fetch_tokens(world):
    form = {"grant_type": "password", "username": "laboratory", "password": "pw-lab"}
    return (await world.client.post("/connect/token", data=form, auth=("lab-agent", "secret-lab"))).json()


async def test_expired_and_revoked_tokens_rejected(world):
    tokens = await fetch_tokens(world)
    bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
    activate(world, {"kind": "expire_token", "route": "GET /fhir/*", "count": 1})
    assert (await world.client.get("/fhir/task", headers=bearer)).status_code == 401
    refresh = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
    renewed = (await world.client.post("/connect/token", data=refresh, auth=("lab-agent", "secret-lab"))).json()
    activate(world, {"kind": "revoke_token", "route": "GET /fhir/*", "count": 1})
    answer = await world.client.get("/fhir/task", headers={"Authorization": f"Bearer {renewed['access_token']}"})
    assert answer.status_code == 401
    refresh["refresh_token"] = renewed["refresh_token"]
    assert (await world.client.post("/connect/token", data=refresh, auth=("lab-agent", "secret-lab"))).status_code == 400


async def test_unauthorized_fault_leaves_token_valid(world):
    bearer = {"Authorization": f"Bearer {(await fetch_tokens(world))['access_token']}"}
    activate(world, {"kind": "unauthorized", "script": "x."})
    assert (await world.client.get("/fhir/task", headers=bearer)).status_code == 401
    assert (await world.client.get("/fhir/task", headers=bearer)).status_code == 200


async def test_concurrent_partner_edit_between_read_and_write(world):
    task = (await world.created_order())["Task"][1]
    activate(world, {"kind": "partner_edit", "route": "PUT /fhir/Task/*", "count": 1, "change": {"priority": "urgent"}})
    done = task | {"status": "completed"}
    path = f"/fhir/task/{task['id']}"
    assert (await world.client.put(path, json=done, headers=world.laboratory | {"If-Match": 'W/"1"'})).status_code == 412
    again = await world.client.get(path, headers=world.laboratory)
    assert again.headers["etag"] == 'W/"2"'
    assert again.json()["priority"] == "urgent"
    assert (await world.client.put(path, json=done, headers=world.laboratory | {"If-Match": 'W/"2"'})).status_code == 200


async def test_stale_version_on_read(world):
    task = (await world.created_order())["Task"][1]
    path = f"/fhir/task/{task['id']}"
    await world.client.put(path, json=task | {"status": "completed"}, headers=world.laboratory | {"If-Match": 'W/"1"'})
    activate(world, {"kind": "stale_read", "count": 1})
    stale = await world.client.get(path, headers=world.laboratory)
    assert stale.headers["etag"] == 'W/"1"'
    assert stale.json()["status"] == "requested"
    assert stale.json()["meta"]["versionId"] == "1"
    assert (await world.client.get(path, headers=world.laboratory)).json()["status"] == "completed"


async def search(world, path="/fhir/task?status=requested&code=OrderProcessingTask"):
    return (await world.client.get(path, headers=world.laboratory)).json()


def next_link(bundle):
    return next((one["url"] for one in bundle["link"] if one["relation"] == "next"), None)


async def search_all_pages(world):
    rows, path = [], "/fhir/task?status=requested&code=OrderProcessingTask"
    while path:
        bundle = await search(world, path)
        rows += [one["resource"]["id"] for one in bundle["entry"]]
        path = next_link(bundle)
    return rows


async def test_small_pages(world):
    expected = [(await world.created_order(1))["Task"][0]["id"] for _ in range(5)]
    activate(world, {"kind": "small_pages", "size": 2})
    assert len((await search(world))["entry"]) == 2
    assert await search_all_pages(world) == expected


@pytest.mark.parametrize("size", [1, 2, 3])
async def test_repeated_rows_over_pages(world, size):
    expected = [(await world.created_order(1))["Task"][0]["id"] for _ in range(5)]
    activate(world, {"kind": "small_pages", "size": size}, {"kind": "repeated_rows"})
    rows = await search_all_pages(world)
    assert len(rows) > len(expected)
    assert list(dict.fromkeys(rows)) == expected


async def test_search_initially_incomplete(world):
    order = (await world.created_order(3))["Task"][0]["id"]
    activate(world, {"kind": "incomplete_search", "route": "GET /fhir/Task?*part-of=*", "count": 1, "drop": 2})
    counts = [len((await search(world, f"/fhir/task?part-of=task/{order}"))["entry"]) for _ in range(2)]
    assert counts == [1, 3]


async def test_empty_search_omits_bundle_entry(world):
    activate(world, {"kind": "missing_entry"})
    assert "entry" not in await search(world)
    await world.created_order(1)
    assert len((await search(world))["entry"]) == 1


async def test_foreign_next_links(world):
    await world.created_order(1)
    activate(world, {"kind": "foreign_next", "origin": "http://thief.example:81"})
    assert next_link(await search(world)).startswith("http://thief.example:81/")


@pytest.mark.parametrize(
    ("kind", "spelling"),
    [
        ("lower_case_references", "specimen/{}"),
        ("canonical_references", "Specimen/{}"),
        ("absolute_references", "http://127.0.0.1:8480/fhir/Specimen/{}"),
        ("foreign_references", "http://elsewhere.example/fhir/Specimen/{}"),
    ],
)
async def test_reference_spelling_variants(world, kind, spelling):
    line = (await world.created_order())["ProcedureRequest"][0]
    specimen = line["specimen"][0]["reference"].partition("/")[2]
    activate(world, {"kind": kind})
    read = (await world.client.get(f"/fhir/procedurerequest/{line['id']}", headers=world.laboratory)).json()
    assert read["specimen"] == [{"reference": spelling.format(specimen)}]


async def test_unknown_fields_and_extensions(world):
    await world.created_order(1)
    activate(world, {"kind": "unknown_fields"})
    resource = (await search(world))["entry"][0]["resource"]
    assert "unknownField" in resource
    answer = await world.client.put(
        f"/fhir/task/{resource['id']}", json=resource, headers=world.laboratory | {"If-Match": 'W/"1"'}
    )
    activate(world)
    assert answer.status_code == 200
    assert "unknownField" in (await search(world))["entry"][0]["resource"]


async def test_decimals_with_trailing_zeros(world, helpers):
    created = (await world.upload(helpers.observation())).json()
    activate(world, {"kind": "trailing_zeros"})
    text = (await world.client.get(f"/fhir/observation/{created['id']}", headers=world.clinic)).text
    assert '"value":134.0,' in text
    assert '"value":120.0' in text


async def test_response_variants_ignore_non_objects(world):
    world.lab.responses["/api/nomenclature"] = httpx.Response(200, json=[{"id": "1"}])
    activate(
        world,
        {"kind": "unknown_fields"},
        {"kind": "lower_case_references"},
        {"kind": "trailing_zeros"},
        {"kind": "missing_entry"},
    )
    answer = await world.client.get("/nomenclature?contract=C-100", headers=world.clinic)
    assert answer.json() == [{"id": "1"}]
    assert (await world.client.get("/connect/authorize")).status_code == 400


async def test_faults_apply_to_token_endpoint(world):
    activate(world, {"kind": "status", "route": "POST /connect/token", "count": 1})
    answer = await world.client.post(
        "/connect/token", data={"grant_type": "client_credentials"}, auth=("lab-agent", "secret-lab")
    )
    assert answer.status_code == 503


@pytest.mark.parametrize("caller", ["laboratory", "guid-laboratory"])
async def test_fault_limited_to_one_caller(world, caller):
    activate(world, {"kind": "status", "caller": caller})
    assert (await world.client.get("/fhir/task", headers=world.laboratory)).status_code == 503
    assert (await world.client.get("/fhir/task", headers=world.clinic)).status_code == 200
    assert (await world.client.get("/fhir/task")).status_code == 401


async def test_admin_endpoint_disabled_by_default(world):
    assert (await world.client.get("/sandbox/faults")).status_code == 404


async def test_admin_endpoint_sets_faults(world_factory, helpers):
    world = world_factory(fault_admin=True)
    plan = {"seed": 1, "faults": [{"kind": "status", "status": 502, "route": "GET /fhir/*", "probability": 1.0}]}
    assert (await world.client.put("/sandbox/faults", json=plan)).status_code == 200
    assert (await world.client.get("/fhir/task", headers=world.clinic)).status_code == 502
    state = (await world.client.get("/sandbox/faults")).json()
    assert state["faults"][0]["seen"] == 1
    assert state["faults"][0]["fired"] == 1
    wrong = await world.client.put("/sandbox/faults", json={"faults": [{"kind": "fire"}]})
    assert wrong.status_code == 400
    assert "faults.0.kind" in helpers.diagnostics(wrong)
    assert (await world.client.delete("/sandbox/faults")).json() == {"seed": 0, "faults": []}
    assert (await world.client.get("/fhir/task", headers=world.clinic)).status_code == 200


async def test_truncated_body_promises_more_than_sent(world, helpers):
    created = (await world.upload(helpers.observation())).json()
    activate(world, {"kind": "truncate"})
    transport = httpx.ASGITransport(world.app, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url=helpers.BASE) as client:
        with pytest.raises(ConnectionResetError):
            await client.get(f"/fhir/observation/{created['id']}", headers=world.clinic)


def test_example_fault_plan_loads(request):
    plan = load_plan(request.config.rootpath / "config" / "sandbox-faults.toml")
    assert len({rule.kind for rule in plan.faults}) > 10


async def test_request_log_shows_outcome_without_query(world_factory):
    world = world_factory(log_requests=True)
    activate(world, {"kind": "status", "status": 503, "route": "GET /fhir/task"})
    with capture_logs() as lines:
        await world.client.get("/FHIR/task?identifier=secret|1", headers=world.clinic)
        await world.client.get("/fhir/contract", headers=world.clinic)
    logged = [(one["method"], one["path"], one["status"], one["faults"]) for one in lines]
    assert logged == [("GET", "/fhir/Task", 503, ["status"]), ("GET", "/fhir/Contract", 200, [])]
    assert "secret" not in str(lines)


def test_every_fault_kind_documented(request):
    text = (request.config.rootpath / "docs" / "sandbox.md").read_text()
    for kind in FaultRule.model_fields["kind"].annotation.__args__:
        assert f"`{kind}`" in text, kind
    for field in FaultRule.model_fields:
        assert f"`{field}`" in text, field


def test_every_rule_documented(request):
    text = (request.config.rootpath / "docs" / "sandbox.md").read_text()
    for rule in get_args(SwitchableRule):
        assert f"`{rule}`" in text, rule


async def test_sign_in_gives_token_no_header_holds(world):
    activate(world, {"kind": "bad_token", "route": "POST /connect/token", "token": "n\u00f6"})
    assert (await fetch_tokens(world))["access_token"] == "n\u00f6"
