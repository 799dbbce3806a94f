"""No request causes a 500, an undocumented content type, a stack trace, or a bundle stored in part."""

import asyncio
import copy
import json

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

from tests.harness.proof import SHARE
from tests.integration.lab_sandbox.world import (
    close,
    diagnostics,
    make_world,
    order_bundle,
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


EXAMPLES = pytest.mark.parametrize(
    "examples", [pytest.param(60, marks=pytest.mark.slow), pytest.param(MANY, marks=pytest.mark.proof)], ids=["few", "many"]
)


@EXAMPLES
def test_any_request_gets_documented_response(runner, examples):
    @given(data=st.data())
    @settings(max_examples=3 * examples, **QUIET)
    def send(data):
        send_anything(runner, data)

    send()


@EXAMPLES
def test_damaged_order_stored_whole_or_not_at_all(runner, strict_runner, examples):
    @given(data=st.data())
    @settings(max_examples=examples, **QUIET)
    def send(data):
        send_damaged_order(data.draw(st.sampled_from([runner, strict_runner])), data)

    send()
