"""Faults on demand: each kind, and each way of saying when."""

from email.utils import parsedate_to_datetime
from typing import get_args

import httpx
import pytest
from structlog.testing import capture_logs

from lab_sandbox.faults.plan import FaultPlan, FaultPlanError, FaultRule, FaultScheduler, load_plan, parse_plan
from lab_sandbox.rule_ids import SwitchableRule


def play(world, *faults, seed=0):
    world.app.state.service.faults.activate(parse_plan({"seed": seed, "faults": list(faults)}, "test"))


def course(rule, requests=10, method="GET", path="/fhir/Task", seed=0):
    desk = FaultScheduler(FaultPlan(seed=seed, faults=(FaultRule(**rule),)))
    return "".join("x" if desk.select_faults(method, path, "status=requested") else "." for _ in range(requests))


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
    assert course({"kind": "reset"} | rule) == expected


def test_fault_probability_reproducible_by_seed():
    rule = {"kind": "reset", "probability": 0.3}
    first = course(rule, 1000, seed=7)
    assert first == course(rule, 1000, seed=7)
    assert first != course(rule, 1000, seed=8)
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
    with pytest.raises(FaultPlanError, match="not TOML"):
        load_plan(path)
    with pytest.raises(FaultPlanError, match="cannot be read"):
        load_plan(tmp_path / "none.toml")


@pytest.mark.parametrize("status", [500, 502, 503, 429])
async def test_status_fault_retry_after_seconds(world, helpers, status):
    play(world, {"kind": "status", "status": status, "retry_after": 7})
    answer = await world.client.get("/fhir/task", headers=world.laboratory)
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "7")
    assert helpers.diagnostics(answer)


async def test_status_fault_retry_after_date(world):
    play(world, {"kind": "status", "status": 429, "retry_after": 90, "retry_after_form": "date"})
    answer = await world.client.get("/fhir/task", headers=world.laboratory)
    assert (parsedate_to_datetime(answer.headers["retry-after"]) - world.clock()).total_seconds() == 90


@pytest.mark.parametrize("after_work", [True, False])
async def test_status_fault_after_work_done(world, helpers, after_work):
    play(world, {"kind": "status", "status": 500, "after_work": after_work, "route": "POST /fhir/Observation"})
    assert (await world.upload(helpers.observation())).status_code == 500
    assert ("Observation" in world.app.state.service.store.counts()) == after_work


async def test_reply_lost_after_work_done(world, helpers):
    play(world, {"kind": "lost_reply", "route": "POST /fhir/Observation", "count": 1})
    resource = helpers.observation()
    one = resource["identifier"][0]
    header = {"If-None-Exist": f"identifier={one['system']}|{one['value']}"}
    lost = await world.upload(resource, **header)
    assert lost.status_code == 500  # in-process there is no line to cut; over a port it is a reset
    assert world.app.state.service.store.counts()["Observation"] == 1
    assert (await world.upload(resource, **header)).status_code == 200


async def test_connection_reset_before_work(world, helpers):
    play(world, {"kind": "reset"})
    await world.upload(helpers.observation())
    assert "Observation" not in world.app.state.service.store.counts()


async def test_html_instead_of_json(world):
    play(world, {"kind": "html"})
    answer = await world.client.get("/fhir/task", headers=world.laboratory)
    assert answer.headers["content-type"].startswith("text/html")


async def access(world):
    form = {"grant_type": "password", "username": "laboratory", "password": "pw-lab"}
    return (await world.client.post("/connect/token", data=form, auth=("lab-agent", "secret-lab"))).json()


async def test_expired_and_revoked_tokens_rejected(world):
    tokens = await access(world)
    bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
    play(world, {"kind": "expire_token", "route": "GET /fhir/*", "count": 1})
    assert (await world.client.get("/fhir/task", headers=bearer)).status_code == 401
    refresh = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
    renewed = (await world.client.post("/connect/token", data=refresh, auth=("lab-agent", "secret-lab"))).json()
    play(world, {"kind": "revoke_token", "route": "GET /fhir/*", "count": 1})
    answer = await world.client.get("/fhir/task", headers={"Authorization": f"Bearer {renewed['access_token']}"})
    assert answer.status_code == 401
    refresh["refresh_token"] = renewed["refresh_token"]
    assert (await world.client.post("/connect/token", data=refresh, auth=("lab-agent", "secret-lab"))).status_code == 400


async def test_unauthorized_fault_leaves_token_valid(world):
    bearer = {"Authorization": f"Bearer {(await access(world))['access_token']}"}
    play(world, {"kind": "unauthorized", "script": "x."})
    assert (await world.client.get("/fhir/task", headers=bearer)).status_code == 401
    assert (await world.client.get("/fhir/task", headers=bearer)).status_code == 200


async def test_concurrent_partner_edit_between_read_and_write(world):
    task = (await world.created_order())["Task"][1]
    play(world, {"kind": "partner_edit", "route": "PUT /fhir/Task/*", "count": 1, "change": {"priority": "urgent"}})
    done = task | {"status": "completed"}
    path = f"/fhir/task/{task['id']}"
    assert (await world.client.put(path, json=done, headers=world.laboratory | {"If-Match": 'W/"1"'})).status_code == 412
    again = await world.client.get(path, headers=world.laboratory)
    assert (again.headers["etag"], again.json()["priority"]) == ('W/"2"', "urgent")
    assert (await world.client.put(path, json=done, headers=world.laboratory | {"If-Match": 'W/"2"'})).status_code == 200


async def test_stale_version_on_read(world):
    task = (await world.created_order())["Task"][1]
    path = f"/fhir/task/{task['id']}"
    await world.client.put(path, json=task | {"status": "completed"}, headers=world.laboratory | {"If-Match": 'W/"1"'})
    play(world, {"kind": "stale_read", "count": 1})
    stale = await world.client.get(path, headers=world.laboratory)
    assert (stale.headers["etag"], stale.json()["status"], stale.json()["meta"]["versionId"]) == ('W/"1"', "requested", "1")
    assert (await world.client.get(path, headers=world.laboratory)).json()["status"] == "completed"


async def search(world, path="/fhir/task?status=requested&code=OrderProcessingTask"):
    return (await world.client.get(path, headers=world.laboratory)).json()


def next_of(bundle):
    return next((one["url"] for one in bundle["link"] if one["relation"] == "next"), None)


async def walk(world):
    rows, path = [], "/fhir/task?status=requested&code=OrderProcessingTask"
    while path:
        bundle = await search(world, path)
        rows += [one["resource"]["id"] for one in bundle["entry"]]
        path = next_of(bundle)
    return rows


async def test_small_pages(world):
    wanted = [(await world.created_order(1))["Task"][0]["id"] for _ in range(5)]
    play(world, {"kind": "small_pages", "size": 2})
    assert len((await search(world))["entry"]) == 2
    assert await walk(world) == wanted


@pytest.mark.parametrize("size", [1, 2, 3])
async def test_repeated_rows_over_pages(world, size):
    wanted = [(await world.created_order(1))["Task"][0]["id"] for _ in range(5)]
    play(world, {"kind": "small_pages", "size": size}, {"kind": "repeated_rows"})
    rows = await walk(world)
    assert len(rows) > len(wanted)
    assert list(dict.fromkeys(rows)) == wanted


async def test_search_initially_incomplete(world):
    order = (await world.created_order(3))["Task"][0]["id"]
    play(world, {"kind": "incomplete_search", "route": "GET /fhir/Task?*part-of=*", "count": 1, "drop": 2})
    counts = [len((await search(world, f"/fhir/task?part-of=task/{order}"))["entry"]) for _ in range(2)]
    assert counts == [1, 3]


async def test_empty_search_omits_bundle_entry(world):
    play(world, {"kind": "missing_entry"})
    assert "entry" not in await search(world)
    await world.created_order(1)
    assert len((await search(world))["entry"]) == 1


async def test_foreign_next_links(world):
    await world.created_order(1)
    play(world, {"kind": "foreign_next", "origin": "http://thief.example:81"})
    assert next_of(await search(world)).startswith("http://thief.example:81/")


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ("lower_case_references", "specimen/{}"),
        ("canonical_references", "Specimen/{}"),
        ("absolute_references", "http://127.0.0.1:8480/fhir/Specimen/{}"),
        ("foreign_references", "http://elsewhere.example/fhir/Specimen/{}"),
    ],
)
async def test_reference_spelling_variants(world, kind, written):
    line = (await world.created_order())["ProcedureRequest"][0]
    specimen = line["specimen"][0]["reference"].partition("/")[2]
    play(world, {"kind": kind})
    read = (await world.client.get(f"/fhir/procedurerequest/{line['id']}", headers=world.laboratory)).json()
    assert read["specimen"] == [{"reference": written.format(specimen)}]


async def test_unknown_fields_and_extensions(world):
    await world.created_order(1)
    play(world, {"kind": "unknown_fields"})
    resource = (await search(world))["entry"][0]["resource"]
    assert "unheardOf" in resource
    answer = await world.client.put(
        f"/fhir/task/{resource['id']}", json=resource, headers=world.laboratory | {"If-Match": 'W/"1"'}
    )
    play(world)
    assert answer.status_code == 200
    assert "unheardOf" in (await search(world))["entry"][0]["resource"]


async def test_decimals_with_trailing_zeros(world, helpers):
    made = (await world.upload(helpers.observation())).json()
    play(world, {"kind": "trailing_zeros"})
    text = (await world.client.get(f"/fhir/observation/{made['id']}", headers=world.clinic)).text
    assert '"value":134.0,' in text
    assert '"value":120.0' in text


async def test_response_variants_ignore_non_objects(world):
    world.lab.responses["/api/nomenclature"] = httpx.Response(200, json=[{"id": "1"}])
    play(
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
    play(world, {"kind": "status", "route": "POST /connect/token", "count": 1})
    answer = await world.client.post(
        "/connect/token", data={"grant_type": "client_credentials"}, auth=("lab-agent", "secret-lab")
    )
    assert answer.status_code == 503


@pytest.mark.parametrize("caller", ["laboratory", "guid-laboratory"])
async def test_fault_limited_to_one_caller(world, caller):
    play(world, {"kind": "status", "caller": caller})
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
    assert (state["faults"][0]["seen"], state["faults"][0]["fired"]) == (1, 1)
    wrong = await world.client.put("/sandbox/faults", json={"faults": [{"kind": "fire"}]})
    assert (wrong.status_code, "faults.0.kind" in helpers.diagnostics(wrong)) == (400, True)
    assert (await world.client.delete("/sandbox/faults")).json() == {"seed": 0, "faults": []}
    assert (await world.client.get("/fhir/task", headers=world.clinic)).status_code == 200


async def test_truncated_body_promises_more_than_sent(world, helpers):
    made = (await world.upload(helpers.observation())).json()
    play(world, {"kind": "truncate"})
    transport = httpx.ASGITransport(world.app, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url=helpers.BASE) as client:
        with pytest.raises(ConnectionResetError):
            await client.get(f"/fhir/observation/{made['id']}", headers=world.clinic)


def test_example_fault_plan_loads(request):
    plan = load_plan(request.config.rootpath / "config" / "sandbox-faults.toml")
    assert len({rule.kind for rule in plan.faults}) > 10


async def test_request_log_shows_outcome_without_query(world_factory):
    world = world_factory(log_requests=True)
    play(world, {"kind": "status", "status": 503, "route": "GET /fhir/task"})
    with capture_logs() as lines:
        await world.client.get("/FHIR/task?identifier=secret|1", headers=world.clinic)
        await world.client.get("/fhir/contract", headers=world.clinic)
    told = [(one["method"], one["path"], one["status"], one["faults"]) for one in lines]
    assert told == [("GET", "/fhir/Task", 503, ["status"]), ("GET", "/fhir/Contract", 200, [])]
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
