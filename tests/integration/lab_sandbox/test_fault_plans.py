"""No fault plan damages the service: no unexpected error, nothing stored in part, and normal service afterwards."""

import asyncio
from typing import get_args

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab_sandbox.faults.plan import FaultKind, FaultPlan, FaultRule

ROUTES = [
    "*",
    "GET /fhir/*",
    "PUT /fhir/Task/*",
    "POST *",
    "GET /fhir/Task?*part-of=*",
    "/fhir/Observation",
    "GET /nomenclature",
    "/connect/*",
]

RULES = st.builds(
    FaultRule,
    kind=st.sampled_from(get_args(FaultKind)),
    route=st.sampled_from(ROUTES),
    caller=st.sampled_from([None, "laboratory", "clinic"]),
    probability=st.sampled_from([0.2, 1.0]),
    count=st.sampled_from([None, 1]),
    seconds=st.just(0),
    status=st.sampled_from([429, 500, 503]),
    retry_after=st.sampled_from([None, 3]),
    retry_after_form=st.sampled_from(["seconds", "date"]),
    after_work=st.booleans(),
    size=st.integers(1, 3),
    drop=st.integers(1, 3),
    change=st.sampled_from([{}, {"priority": "urgent"}]),
)
PLANS = st.builds(FaultPlan, seed=st.integers(0, 1000), faults=st.lists(RULES, min_size=1, max_size=6).map(tuple))


async def send_all_kinds(world, helpers):
    """Requests of all kinds by both sides; connection resets are expected."""
    transport = httpx.ASGITransport(world.app, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url=helpers.BASE) as client:

        async def send(method, path, headers, **more):
            try:
                return await client.request(method, path, headers=headers, **more)
            except ConnectionResetError:
                return None

        patient = await send("POST", "/fhir/Patient", world.clinic, json=helpers.patient())
        if patient is not None and patient.status_code == 200 and patient.headers["content-type"] == "application/json":
            bundle = helpers.order_bundle(patient.json()["id"], 2)
            await send("POST", "/fhir/$CreateDiagnosticRequest", world.clinic, json=bundle)
        await send("GET", "/nomenclature?contract=C-100", world.clinic)
        found = await send("GET", "/fhir/task?status=requested&code=OrderProcessingTask", world.laboratory)
        tasks = world.app.state.service.store.find("Task", [], lambda _: True, limit=3)
        for task in tasks:
            await send("GET", f"/fhir/task?part-of=task/{task.ref.id}", world.laboratory)
            body = (await send("GET", f"/fhir/task/{task.ref.id}", world.laboratory)) or found
            content = body.content if body is not None else b"{}"
            headers = world.laboratory | {"If-Match": task.etag(), "Content-Type": "application/json"}
            await send("PUT", f"/fhir/task/{task.ref.id}", headers, content=content)
        await send("POST", "/fhir/Observation", world.laboratory, json=helpers.observation())
        await send("POST", "/connect/token", world.laboratory, data={"grant_type": "client_credentials"})


def assert_orders_complete(counts):
    """Each order has two lines, three Tasks, one Specimen and one QuestionnaireResponse."""
    orders = counts.get("Specimen", 0)
    assert counts.get("ProcedureRequest", 0) == 2 * orders
    assert counts.get("Task", 0) == 3 * orders
    assert counts.get("QuestionnaireResponse", 0) == orders


@pytest.fixture(scope="module")
def world_and_runner(request):
    module = request.config.pluginmanager.get_plugin(str(request.path.with_name("conftest.py")))
    world, runner = module.make_world(), asyncio.Runner()
    yield world, runner
    runner.run(module.close(world))
    runner.close()


@given(plan=PLANS)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_fault_plan_leaves_service_consistent(world_and_runner, helpers, plan):
    """Faults affect only the connection: nothing is stored in part, and orders work again afterwards."""
    world, runner = world_and_runner
    scheduler = world.app.state.service.faults
    scheduler.activate(plan)
    runner.run(send_all_kinds(world, helpers))
    assert_orders_complete(world.app.state.service.store.counts())
    scheduler.activate(FaultPlan())
    answer = runner.run(world.order())
    assert answer.status_code == 200
    assert_orders_complete(world.app.state.service.store.counts())
