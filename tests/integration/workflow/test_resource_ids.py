"""Ids that FHIR does not allow are the service's own: its orders are taken where the ids can be addressed, else held (law 10).

Each id is tried in `tests/unit/fhir/test_references.py`.
"""

from __future__ import annotations

from itertools import count
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from lab_agent.shared.conditions.model import ConditionId
from lab_agent.shared.state_machines import OrderState
from lab_sandbox import order_creation, resources
from tests.integration.workflow.conftest import MakeScenario, alter, parametrize_first
from tests.integration.workflow.service_answers import change_answers

ODD_IDS = ["a%2Fb", "заказ 50%25 a|b&c+d~e,f$g", "a\\b'c\"d=e;f@g!h[i]{j}:😀\N{NO-BREAK SPACE}k", "x" * 65, "ж" * 300]


@pytest.fixture(autouse=True)
def sent_bodies_are_valid_stu3() -> None:
    """They are not: what goes back has the ids that the service gave (law 4)."""


def give_ids(monkeypatch: pytest.MonkeyPatch, odd: str, *modules: Any) -> None:
    """The service gives resources ids with this in them, and writes references with the ids as they are."""
    numbers = count(1)
    for module in modules:
        monkeypatch.setattr(module, "uuid4", lambda: f"{next(numbers)}{odd}{next(numbers)}")


def encode_references(node: object) -> object:
    """As addresses: percent-encoded."""
    if isinstance(node, list):
        return [encode_references(each) for each in node]
    if not isinstance(node, dict):
        return node
    text = node.get("reference")
    encoded = {"reference": f"{text.rpartition('/')[0]}/{quote(text.rpartition('/')[2], safe='')}"} if text else {}
    return {**{key: encode_references(value) for key, value in node.items()}, **encoded}


@parametrize_first("odd", ODD_IDS)
async def test_order_with_odd_ids_is_done(make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    """Also where the service percent-encodes the ids in its references."""
    give_ids(monkeypatch, odd, order_creation, resources)
    scenario = make_scenario(4)
    await scenario.process_all()
    (order,) = scenario.world.lis.submitted
    assert odd in scenario.task
    assert (len(order.lines), bool(order.specimens), bool(order.answers)) == (4, True, True)
    await scenario.finish()
    assert {scenario.status(), *scenario.statuses()} == {"completed"}
    if len(quote(odd)) > 500:  # longer than an id may be, before it is decoded
        return

    def encode(_: httpx.Request, response: httpx.Response) -> httpx.Response:
        kept = {name: value for name, value in response.headers.items() if name in {"etag", "content-type"}}
        return httpx.Response(response.status_code, headers=kept, json=encode_references(response.json()))

    scenario.task = scenario.order_anew(relabel=True)
    change_answers(scenario, lambda request: request.method == "GET", encode)
    await scenario.process_all()
    again = scenario.world.lis.submitted[-1]
    assert (again is order, len(again.lines), bool(again.specimens), bool(again.answers)) == (False, 4, True, True)


@parametrize_first("odd", ["a/b", "a?b", "x" * 501])
async def test_order_of_unaddressable_ids_is_held(make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    give_ids(monkeypatch, odd, order_creation)
    scenario = make_scenario(2)
    await scenario.process_all()
    await scenario.drain(*[scenario.world.settings.worker.unreadable_after + 1] * 2)
    assert (await scenario.state(), scenario.handed_over) == (OrderState.HELD, [])
    assert {task["status"] for task in scenario.world.all_tasks()} == {"requested"}
    assert await scenario.is_told(ConditionId.ORDERS_HELD)


@parametrize_first("kind, odd", [("ProcedureRequest", "a/b"), ("Specimen", "#b"), ("Patient", "a?b"), ("Patient", "x" * 501)])
async def test_order_with_one_unaddressable_reference_is_held(make_scenario: MakeScenario, kind: str, odd: str) -> None:
    """One reference of the order names such an id; the other ids are as FHIR wants them."""
    scenario = make_scenario(4)

    def rename(node: Any) -> None:
        for each in node if isinstance(node, list) else node.values() if isinstance(node, dict) else ():
            rename(each)
        if isinstance(node, dict) and str(node.get("reference")).lower().startswith(f"{kind}/".lower()):
            node["reference"] = f"{kind.lower()}/{odd}"

    for resource_type in ("Task", "ProcedureRequest", "Specimen"):
        alter(scenario, resource_type, rename)
    await scenario.process_all()
    await scenario.drain(scenario.world.settings.worker.unreadable_after + 1)
    assert ((await scenario.order_record()).hold_cause, set(scenario.statuses())) == ("order.readable", {"requested"})
