"""Ids that FHIR does not allow are the service's own: its orders are taken where the ids can be addressed, else held (law 10)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.state_machines import OrderState
from lab_sandbox import order_creation, resources
from tests.integration.workflow.conftest import Scenario, alter
from tests.integration.workflow.service_answers import change_answers
from tests.integration.workflow.test_held_orders import later

MakeScenario = Callable[..., Scenario]
ODD_IDS = [
    *("a:b", "a+b", "a~b", "a|b", "a&b", "a%b", "50%25", "a%2Fb", "a b", "a,b$c", "a\\b", "a'b\"c", "a=b;c@d!", "a[b]{c}", "a_b"),
    *("заказ", "ä€😀", "a\N{NO-BREAK SPACE}b", "x" * 65, "ж" * 300),
]
UNADDRESSABLE = ["a/b", "a?b", "a#b", "a\tb", "x" * 501]


@pytest.fixture(autouse=True)
def sent_bodies_are_valid_stu3() -> None:
    """They are not: what goes back has the ids that the service gave (law 4)."""


@pytest.fixture
def odd_ids(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The service gives resources ids with this in them, and writes references with the ids as they are."""
    numbers = count(1)
    for module in (order_creation, resources) if request.param in ODD_IDS else (order_creation,):
        monkeypatch.setattr(module, "uuid4", lambda: f"{next(numbers)}{request.param}{next(numbers)}")
    return str(request.param)


@pytest.mark.parametrize("odd_ids", ODD_IDS, indirect=True)
async def test_order_with_odd_ids_is_done(odd_ids: str, make_scenario: MakeScenario) -> None:
    scenario = make_scenario(4)
    await scenario.process_all()
    expect_whole_order(scenario, odd_ids)
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    assert [scenario.status(), *scenario.statuses()] == ["completed"] * 5


@pytest.mark.parametrize("odd_ids", ["a b", "a%b", "a%2Fb", "заказ", "a|b"], indirect=True)
async def test_order_with_encoded_references_is_done(odd_ids: str, make_scenario: MakeScenario) -> None:
    """The service gives references as addresses: percent-encoded."""
    scenario = make_scenario(4)

    def encode(request: httpx.Request, response: httpx.Response) -> httpx.Response:
        kept = {name: value for name, value in response.headers.items() if name in {"etag", "content-type"}}
        return httpx.Response(response.status_code, headers=kept, json=encode_references(response.json()))

    change_answers(scenario, lambda request: request.method == "GET", encode)
    await scenario.process_all()
    expect_whole_order(scenario, odd_ids)


def expect_whole_order(scenario: Scenario, odd_ids: str) -> None:
    (order,) = scenario.world.lis.submitted
    assert odd_ids in scenario.task
    assert (len(order.lines), bool(order.specimens), bool(order.answers)) == (4, True, True)


def encode_id(reference: str) -> str:
    address, _, resource_id = reference.rpartition("/")
    return f"{address}/{quote(resource_id, safe='')}"


def encode_references(node: object) -> object:
    if isinstance(node, list):
        return [encode_references(each) for each in node]
    if not isinstance(node, dict):
        return node
    return {key: encode_id(value) if key == "reference" else encode_references(value) for key, value in node.items()}


@pytest.mark.parametrize("odd_ids", UNADDRESSABLE, indirect=True)
async def test_order_of_unaddressable_ids_is_held(odd_ids: str, make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    assert odd_ids in scenario.task
    await scenario.process_all()
    for _ in range(2):
        await later(scenario, scenario.world.settings.worker.unreadable_after + 1)
    assert (await scenario.order_record()).state is OrderState.HELD
    assert scenario.world.lis.submitted == []
    assert {task["status"] for task in scenario.world.all_tasks()} == {"requested"}
    assert await scenario.is_told(ConditionId.ORDERS_HELD)


@pytest.mark.parametrize("kind", ["ProcedureRequest", "Specimen", "Patient"])
@pytest.mark.parametrize("odd_id", ["a/b", "a?b", "#b", "a\tb", "x" * 501])
async def test_order_with_one_unaddressable_reference_is_held(make_scenario: MakeScenario, kind: str, odd_id: str) -> None:
    """One reference of the order names such an id; the other ids are as FHIR wants them."""
    scenario = make_scenario(4)

    def rename(node: Any) -> None:
        for each in node if isinstance(node, list) else node.values() if isinstance(node, dict) else ():
            rename(each)
        if isinstance(node, dict) and str(node.get("reference")).lower().startswith(f"{kind}/".lower()):
            node["reference"] = f"{kind.lower()}/{odd_id}"

    for resource_type in ("Task", "ProcedureRequest", "Specimen"):
        alter(scenario, resource_type, rename)
    await scenario.process_all()
    await later(scenario, scenario.world.settings.worker.unreadable_after + 1)
    assert ((await scenario.order_record()).hold_cause, set(scenario.statuses())) == ("order.readable", {"requested"})
