"""Ids that FHIR does not allow are the service's own: its orders are taken where the ids can be addressed, else held (law 10)."""

from __future__ import annotations

from itertools import count
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from lab_agent.conditions.ids import ConditionId
from lab_agent.domain.state_machines import OrderState
from lab_sandbox import order_creation, resources
from tests.integration.workflow.conftest import MakeScenario, alter, parametrize_first
from tests.integration.workflow.service_answers import change_answers

ODD_IDS = [
    *(
        "a%2Fb",
        "заказ",
        "x" * 65,
        "a:b",
        "a+b",
        "a~b",
        "a|b",
        "a&b",
        "a%b",
        "50%25",
        "a b",
        "a,b$c",
        "a\\b",
        "a'b\"c",
        "a=b;c@d!",
    ),
    *("a[b]{c}", "a_b", "ä€😀", "a\N{NO-BREAK SPACE}b", "ж" * 300),
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


def odd(ids: list[str], quick: int) -> Any:
    return pytest.mark.parametrize(
        "odd_ids",
        [pytest.param(each, marks=() if number < quick else pytest.mark.slow) for number, each in enumerate(ids)],
        indirect=True,
    )


def encode_references(node: object) -> object:
    """As addresses: percent-encoded."""
    if isinstance(node, list):
        return [encode_references(each) for each in node]
    if not isinstance(node, dict):
        return node
    text = node.get("reference")
    encoded = {"reference": f"{text.rpartition('/')[0]}/{quote(text.rpartition('/')[2], safe='')}"} if text else {}
    return {**{key: encode_references(value) for key, value in node.items()}, **encoded}


@odd(ODD_IDS, quick=1)
async def test_order_with_odd_ids_is_done(odd_ids: str, make_scenario: MakeScenario) -> None:
    """Also where the service percent-encodes the ids in its references."""
    scenario = make_scenario(4)
    await scenario.process_all()
    (order,) = scenario.world.lis.submitted
    assert odd_ids in scenario.task
    assert (len(order.lines), bool(order.specimens), bool(order.answers)) == (4, True, True)
    await scenario.finish()
    assert {scenario.status(), *scenario.statuses()} == {"completed"}
    if len(quote(odd_ids)) > 500:  # longer than an id may be, before it is decoded
        return

    def encode(_: httpx.Request, response: httpx.Response) -> httpx.Response:
        kept = {name: value for name, value in response.headers.items() if name in {"etag", "content-type"}}
        return httpx.Response(response.status_code, headers=kept, json=encode_references(response.json()))

    scenario.task = scenario.order_anew(relabel=True)
    change_answers(scenario, lambda request: request.method == "GET", encode)
    await scenario.process_all()
    again = scenario.world.lis.submitted[-1]
    assert (again is order, len(again.lines), bool(again.specimens), bool(again.answers)) == (False, 4, True, True)


@odd(UNADDRESSABLE, quick=1)
async def test_order_of_unaddressable_ids_is_held(odd_ids: str, make_scenario: MakeScenario) -> None:
    scenario = make_scenario(2)
    assert odd_ids in scenario.task
    await scenario.process_all()
    await scenario.drain(*[scenario.world.settings.worker.unreadable_after + 1] * 2)
    assert (await scenario.state(), scenario.handed_over) == (OrderState.HELD, [])
    assert {task["status"] for task in scenario.world.all_tasks()} == {"requested"}
    assert await scenario.is_told(ConditionId.ORDERS_HELD)


@parametrize_first(
    "kind, odd_id",
    [
        (kind, odd_id)
        for odd_id in (*(each for each in UNADDRESSABLE if each != "a#b"), "#b")
        for kind in ("ProcedureRequest", "Specimen", "Patient")
    ],
)
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
    await scenario.drain(scenario.world.settings.worker.unreadable_after + 1)
    assert ((await scenario.order_record()).hold_cause, set(scenario.statuses())) == ("order.readable", {"requested"})
