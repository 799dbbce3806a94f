"""No request causes a 500, an undocumented content type, a stack trace, or a bundle stored in part."""

import asyncio
import copy
import json
from decimal import Decimal

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from tests.harness.proof import SHARE

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}

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


def running(request, **changes):
    module = request.config.pluginmanager.get_plugin(str(request.path.with_name("conftest.py")))
    created = Runner(module.make_world(**changes))
    yield created
    created(module.close(created.world))
    created.runner.close()


@pytest.fixture(scope="module")
def runner(request):
    yield from running(request)


@pytest.fixture(scope="module")
def strict_runner(request):
    """A strict service that takes the document's spelling, so that an order gets past the first rule."""
    yield from running(request, strict=True, rules={"off": ["stu3-type-name"]})


CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def check_outcome(answer):
    """Never a 500 or a stack trace; an error is an OperationOutcome with diagnostics."""
    assert answer.status_code < 500, answer.text
    assert "Traceback" not in answer.text
    if answer.status_code >= 400 and not answer.headers["content-type"].startswith("text/html"):
        body = json.loads(answer.content)
        assert body["resourceType"] == "OperationOutcome"
        assert all(issue["diagnostics"] for issue in body["issue"])


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


def changed(tree, path, value):
    if not path:
        return value
    tree = copy.copy(tree)
    tree[path[0]] = changed(tree[path[0]], path[1:], value)
    return tree


def send_damaged_order(runner, helpers, data):
    world = runner.world
    bundle = helpers.order_bundle(runner(world.patient()), 2)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(paths(bundle))[1:]))
        bundle = changed(bundle, path, data.draw(JSON))
        if not isinstance(bundle.get("entry"), list):
            break
    before = world.app.state.service.store.counts()
    answer = runner(world.client.post("/fhir/$CreateDiagnosticRequest", json=bundle, headers=world.clinic))
    check_outcome(answer)
    after = world.app.state.service.store.counts()
    if answer.status_code >= 400:
        assert after == before
    else:
        stored = [one["resource"] for one in answer.json()["entry"]]
        assert sum(after.values()) - sum(before.values()) == len(stored)
        assert {one["resourceType"] for one in stored} >= {"ProcedureRequest", "Task", "Specimen"}


@given(data=st.data())
@settings(max_examples=200, **QUIET)
def test_any_request_gets_documented_response(runner, data):
    send_anything(runner, data)


@given(data=st.data())
@settings(max_examples=60, **QUIET)
def test_damaged_order_stored_whole_or_not_at_all(runner, helpers, data):
    send_damaged_order(runner, helpers, data)


@given(data=st.data())
@settings(max_examples=30, **QUIET)
def test_damaged_order_at_strict_service(strict_runner, helpers, data):
    send_damaged_order(strict_runner, helpers, data)


@pytest.mark.proof
@given(data=st.data())
@settings(max_examples=max(100, int(10_000 * SHARE)), **QUIET)
def test_any_request_gets_documented_response_long_run(runner, data):
    send_anything(runner, data)


@pytest.mark.proof
@given(data=st.data())
@settings(max_examples=max(100, int(10_000 * SHARE)), **QUIET)
def test_damaged_order_whole_or_nothing_long_run(runner, helpers, data):
    send_damaged_order(runner, helpers, data)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6) | st.decimals(allow_nan=False, allow_infinity=False))
@settings(max_examples=50, **QUIET)
def test_any_decimal_returned_unchanged(runner, helpers, number):
    world = runner.world
    body = json.dumps(helpers.observation()).replace("134", str(number))
    made = runner(
        world.client.post("/fhir/Observation", content=body, headers=world.laboratory | {"Content-Type": "application/json"})
    )
    assert made.status_code == 201, made.text
    read = runner(world.client.get(f"/fhir/observation/{made.json()['id']}", headers=world.clinic))
    value = json.loads(read.text, parse_float=Decimal, parse_int=Decimal)["valueQuantity"]["value"]
    assert value.as_tuple() == number.as_tuple()
