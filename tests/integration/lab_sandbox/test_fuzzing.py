"""No request causes a 500, an undocumented content type, or a stack trace."""

import asyncio
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
)

QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
MANY = max(100, int(10_000 * SHARE))


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


@pytest.fixture(scope="module")
def runner():
    created = Runner(make_world())
    yield created
    created(close(created.world))
    created.runner.close()


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
    assert answer.status_code < 500, answer.text
    assert "Traceback" not in answer.text
    if answer.status_code >= 400 and not answer.headers["content-type"].startswith("text/html"):
        assert diagnostics(answer)
    case.validate_response(answer, checks=CHECKS)


@pytest.mark.parametrize("examples", [pytest.param(200, marks=pytest.mark.slow), pytest.param(MANY, marks=pytest.mark.proof)])
def test_any_request_gets_documented_response(runner, examples):
    @given(data=st.data())
    @settings(max_examples=examples, **QUIET)
    def send(data):
        send_anything(runner, data)

    send()
