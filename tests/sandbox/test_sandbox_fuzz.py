"""Whatever is sent: no 500, no undocumented content type, no stack trace, no half-saved bundle."""

import asyncio
import copy
import json
import os
from decimal import Decimal
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SHARE = float(os.environ.get("LAB_PROOF_SHARE", "1"))
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
HEADER = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=30)
WORD = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["task", "Patient", "Contract", "binary", "$meta-add", "_history", "1", "%24CreateDiagnosticRequest", "contract-100"]
    ),
)


class Runner:
    """One world and one loop for all examples; the world's checks hold after each."""

    def __init__(self, world):
        self.world = world
        self.runner = asyncio.Runner()
        self.paths = world.app.openapi()["paths"]

    def __call__(self, coroutine):
        return self.runner.run(coroutine)


@pytest.fixture(scope="module")
def runner(request):
    module = request.config.pluginmanager.get_plugin(str(request.path.with_name("conftest.py")))
    made = Runner(module.make_world())
    yield made
    made(module.close(made.world))
    made.runner.close()


def check_answer(answer, documented):
    """Never a 500, and what comes is what the OpenAPI says."""
    assert answer.status_code < 500 or answer.status_code in {501, 502}, answer.text
    assert "Traceback" not in answer.text
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if answer.status_code >= 400 and kind != "text/html":
        body = json.loads(answer.content)
        assert body["resourceType"] == "OperationOutcome"
        assert all(issue["diagnostics"] for issue in body["issue"])
    stated = documented.get(str(answer.status_code)) or documented.get(f"{answer.status_code // 100}XX") or {}
    kinds = set(stated.get("content", {}))
    assert not kind or kind in kinds or "*/*" in kinds, (kind, answer.status_code, documented)


@st.composite
def requests(draw, paths):
    path = draw(st.sampled_from(sorted(paths)))
    method = draw(st.sampled_from(sorted(paths[path])))
    filled = path
    for name in ("resource", "id_", "version"):
        word = quote(draw(WORD).encode("utf-8", "ignore").decode() or "x", safe="%")
        filled = filled.replace("{" + name + "}", word)
    names = st.one_of(
        KEYS, st.sampled_from(["contract", "status", "part-of", "_count", "_after", "subject", "client_id", "since"])
    )
    return {
        "path": path,
        "method": method,
        "url": filled,
        "params": draw(st.lists(st.tuples(names, st.text(max_size=10)), max_size=3)),
        "body": draw(st.none() | st.binary(max_size=20) | JSON.map(lambda one: json.dumps(one).encode())),
        "headers": draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "If-Match": HEADER,
                    "If-None-Exist": HEADER,
                    "Accept": HEADER,
                    "Content-Type": st.sampled_from(
                        ["application/json", "application/x-www-form-urlencoded", "application/pdf", "x"]
                    ),
                },
            )
        ),
        "who": draw(st.sampled_from(["clinic", "laboratory", "stranger", None])),
    }


def send_anything(runner, data):
    request = data.draw(requests(runner.paths))
    who = getattr(runner.world, request["who"]) if request["who"] else {}

    async def send():
        return await runner.world.client.request(
            request["method"].upper(),
            request["url"],
            params=request["params"],
            content=request["body"],
            headers=request["headers"] | who,
        )

    answer = runner(send())
    # A word may turn one path into another row of the table; the documented types of the fallback hold then.
    documented = runner.paths[request["path"]][request["method"]]["responses"]
    check_answer(
        answer, documented if answer.status_code < 400 else {"4XX": {"content": {"application/json": {}, "text/html": {}}}}
    )


def places(node, path=()):
    yield path
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


def changed(tree, path, value):
    if not path:
        return value
    tree = copy.copy(tree)
    tree[path[0]] = changed(tree[path[0]], path[1:], value)
    return tree


def send_damaged_order(runner, kit, data):
    world = runner.world
    bundle = kit.order_bundle(runner(world.patient()), 2)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(list(places(bundle))[1:]))
        bundle = changed(bundle, path, data.draw(JSON))
        if not isinstance(bundle.get("entry"), list):
            break
    before = world.app.state.service.shelf.counts()
    answer = runner(world.client.post("/fhir/$CreateDiagnosticRequest", json=bundle, headers=world.clinic))
    check_answer(answer, {"200": {"content": {"application/json": {}}}, "4XX": {"content": {"application/json": {}}}})
    after = world.app.state.service.shelf.counts()
    if answer.status_code >= 400:
        assert after == before
    else:
        kept = [one["resource"] for one in answer.json()["entry"]]
        assert sum(after.values()) - sum(before.values()) == len(kept)
        assert {one["resourceType"] for one in kept} >= {"ProcedureRequest", "Task", "Specimen"}


@given(data=st.data())
@settings(max_examples=60, **QUIET)
def test_any_request_gets_a_documented_answer(runner, data):
    send_anything(runner, data)


@given(data=st.data())
@settings(max_examples=60, **QUIET)
def test_a_damaged_order_is_kept_whole_or_not_at_all(runner, kit, data):
    send_damaged_order(runner, kit, data)


@pytest.mark.proof
@given(data=st.data())
@settings(max_examples=max(100, int(20_000 * SHARE)), **QUIET)
def test_any_request_gets_a_documented_answer_at_length(runner, data):
    send_anything(runner, data)


@pytest.mark.proof
@given(data=st.data())
@settings(max_examples=max(100, int(10_000 * SHARE)), **QUIET)
def test_a_damaged_order_is_kept_whole_or_not_at_all_at_length(runner, kit, data):
    send_damaged_order(runner, kit, data)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6) | st.decimals(allow_nan=False, allow_infinity=False))
@settings(max_examples=50, **QUIET)
def test_any_decimal_comes_back_as_it_went_in(runner, kit, number):
    world = runner.world
    body = json.dumps(kit.observation()).replace("134", str(number))
    made = runner(
        world.client.post("/fhir/Observation", content=body, headers=world.laboratory | {"Content-Type": "application/json"})
    )
    assert made.status_code == 201, made.text
    read = runner(world.client.get(f"/fhir/observation/{made.json()['id']}", headers=world.clinic))
    value = json.loads(read.text, parse_float=Decimal, parse_int=Decimal)["valueQuantity"]["value"]
    assert value.as_tuple() == number.as_tuple()
