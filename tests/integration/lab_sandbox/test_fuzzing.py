"""No request causes a 500, an undocumented content type, a stack trace, or a bundle stored in part; no fault plan either."""

import asyncio
import copy
import json
from decimal import Decimal
from typing import get_args

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from lab_sandbox.faults.plan import FaultKind, FaultPlan, FaultRule
from tests.harness.proof import SHARE
from tests.integration.lab_sandbox.world import (
    BASE,
    JSON_TYPE,
    close,
    diagnostics,
    make_world,
    observation,
    order_bundle,
    patient,
)

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
MANY = max(100, int(10_000 * SHARE))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(max_size=12),
    st.sampled_from(["urn:uuid:x", "patient/1", "task/", "-", "2026-01-05"]),
    st.floats(allow_nan=False, allow_infinity=False),
)
KEYS = st.one_of(
    st.text(max_size=6),
    st.sampled_from(["resourceType", "meta", "security", "identifier", "coding", "reference", "entry", "id", "code"]),
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12)
ROUTES = "*|GET /fhir/*|PUT /fhir/Task/*|POST *|GET /fhir/Task?*part-of=*|/fhir/Observation|GET /nomenclature|/connect/*"
RULES = st.builds(
    FaultRule,
    kind=st.sampled_from(get_args(FaultKind)),
    route=st.sampled_from(ROUTES.split("|")),
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


class Runner:
    """One sandbox and one event loop for all examples."""

    def __init__(self, world):
        self.world = world
        self.runner = asyncio.Runner()
        schema = schemathesis.openapi.from_dict(json.loads(json.dumps(world.app.openapi())))
        self.operations = [found.ok() for found in schema.get_all_operations()]
        order = self(world.created_order())
        self.stored = [{"resource": kind, "id_": one["id"]} for kind, some in order.items() for one in some]

    def __call__(self, coroutine):
        return self.runner.run(coroutine)


def running(**changes):
    created = Runner(make_world(**changes))
    yield created
    created(close(created.world))
    created.runner.close()


@pytest.fixture(scope="module")
def runner():
    yield from running()


@pytest.fixture(scope="module")
def strict_runner():
    """A strict service that takes the document's spelling, so that an order gets past the first rule."""
    yield from running(strict=True, rules={"off": ["stu3-type-name"]})


@st.composite
def cases(draw, runner):
    """Requests of the OpenAPI description, valid or broken; often for resources that exist."""
    operation = draw(st.sampled_from(runner.operations))
    parts = any((operation.path_parameters, operation.query, operation.headers, operation.body))
    mode = draw(st.sampled_from(list(GenerationMode) if parts else [GenerationMode.POSITIVE]))
    case = draw(operation.as_strategy(generation_mode=mode))
    if "id_" in (case.path_parameters or {}) and draw(st.booleans()):
        case.path_parameters |= draw(st.sampled_from(runner.stored))
    return case


def check_outcome(answer):
    """Never a 500 or a stack trace; an error is an OperationOutcome with diagnostics."""
    assert answer.status_code < 500, answer.text
    assert "Traceback" not in answer.text
    if answer.status_code >= 400 and not answer.headers["content-type"].startswith("text/html"):
        assert diagnostics(answer)


def send_anything(runner, data):
    case = data.draw(cases(runner))
    caller = data.draw(st.sampled_from([runner.world.clinic, runner.world.laboratory, runner.world.stranger, {}]))
    request = requests.Request(**case.as_transport_kwargs(base_url="http://exchange.test")).prepare()
    headers = {name: value for name, value in request.headers.items() if name.lower() != "content-length"} | caller
    answer = runner(runner.world.client.request(request.method, request.url, content=request.body, headers=headers))
    check_outcome(answer)
    case.validate_response(answer, checks=CHECKS)


def paths(node, path=()):
    yield path
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield from paths(child, (*path, key))


def replaced(tree, path, value):
    if not path:
        return value
    tree = copy.copy(tree)
    tree[path[0]] = replaced(tree[path[0]], path[1:], value)
    return tree


def send_damaged_order(runner, data):
    world = runner.world
    bundle = order_bundle(runner(world.patient()), 2)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(paths(bundle))[1:]))
        bundle = replaced(bundle, path, data.draw(JSON))
        if not isinstance(bundle.get("entry"), list):
            break
    before = world.counts()
    answer = runner(world.client.post("/fhir/$CreateDiagnosticRequest", json=bundle, headers=world.clinic))
    check_outcome(answer)
    if answer.status_code >= 400:
        assert world.counts() == before
    else:
        stored = [one["resource"] for one in answer.json()["entry"]]
        assert sum(world.counts().values()) - sum(before.values()) == len(stored)
        assert {one["resourceType"] for one in stored} >= {"ProcedureRequest", "Task", "Specimen"}


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=200, **QUIET)
def test_any_request_gets_documented_response(runner, data):
    send_anything(runner, data)


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=60, **QUIET)
def test_damaged_order_stored_whole_or_not_at_all(runner, strict_runner, data):
    send_damaged_order(data.draw(st.sampled_from([runner, strict_runner])), data)


@pytest.mark.proof
@given(data=st.data())
@settings(max_examples=MANY, **QUIET)
def test_any_request_gets_documented_response_long_run(runner, data):
    send_anything(runner, data)


@pytest.mark.proof
@given(data=st.data())
@settings(max_examples=MANY, **QUIET)
def test_damaged_order_whole_or_nothing_long_run(runner, data):
    send_damaged_order(runner, data)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6) | st.decimals(allow_nan=False, allow_infinity=False))
@settings(max_examples=50, **QUIET)
def test_any_decimal_returned_unchanged(runner, number):
    world = runner.world
    body = json.dumps(observation()).replace("134", str(number))
    made = runner(world.client.post("/fhir/Observation", content=body, headers=world.laboratory | JSON_TYPE))
    assert made.status_code == 201, made.text
    read = runner(world.get(f"/fhir/observation/{made.json()['id']}", world.clinic))
    value = json.loads(read.text, parse_float=Decimal, parse_int=Decimal)["valueQuantity"]["value"]
    assert value.as_tuple() == number.as_tuple()


async def send_all_kinds(world):
    """Requests of all kinds by both sides; connection resets are expected."""
    transport = httpx.ASGITransport(world.app, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:

        async def send(method, path, headers, **more):
            try:
                return await client.request(method, path, headers=headers, **more)
            except ConnectionResetError:
                return None

        made = await send("POST", "/fhir/Patient", world.clinic, json=patient())
        if made is not None and made.status_code == 200 and made.headers["content-type"] == "application/json":
            await send("POST", "/fhir/$CreateDiagnosticRequest", world.clinic, json=order_bundle(made.json()["id"], 2))
        await send("GET", "/nomenclature?contract=C-100", world.clinic)
        found = await send("GET", "/fhir/task?status=requested&code=OrderProcessingTask", world.laboratory)
        for task in world.app.state.service.store.find("Task", [], lambda _: True, limit=3):
            await send("GET", f"/fhir/task?part-of=task/{task.ref.id}", world.laboratory)
            body = (await send("GET", f"/fhir/task/{task.ref.id}", world.laboratory)) or found
            content = body.content if body is not None else b"{}"
            await send(
                "PUT", f"/fhir/task/{task.ref.id}", world.laboratory | JSON_TYPE | {"If-Match": task.etag()}, content=content
            )
        await send("POST", "/fhir/Observation", world.laboratory, json=observation())
        await send("POST", "/connect/token", world.laboratory, data={"grant_type": "client_credentials"})


def assert_orders_complete(counts):
    """Each order has two lines, three Tasks, one Specimen and one QuestionnaireResponse."""
    orders = counts.get("Specimen", 0)
    kinds = {"ProcedureRequest": 2, "Task": 3, "QuestionnaireResponse": 1}
    assert {kind: counts.get(kind, 0) for kind in kinds} == {kind: number * orders for kind, number in kinds.items()}


@pytest.fixture(scope="module")
def faulty_runner():
    yield from running()


@pytest.mark.slow
@given(plan=PLANS)
@settings(max_examples=40, **QUIET)
def test_any_fault_plan_leaves_service_consistent(faulty_runner, plan):
    """Faults affect only the connection: nothing is stored in part, and orders work again afterwards."""
    world = faulty_runner.world
    world.app.state.service.faults.activate(plan)
    faulty_runner(send_all_kinds(world))
    assert_orders_complete(world.counts())
    world.activate()
    assert faulty_runner(world.order()).status_code == 200
    assert_orders_complete(world.counts())
