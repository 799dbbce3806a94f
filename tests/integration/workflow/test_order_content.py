"""What an order says, over HTTP: it reaches the laboratory, its own faults reject it, and what may be ours holds it (law 10).

Each rule is tried in `tests/unit/rules`, each field of an order in `tests/unit/fhir`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.shared.state_machines import OrderState
from lab_sandbox.config import SandboxConfig
from lab_sandbox.partner.order_generator import FOLLOW_UP_STUDY, OrderPlan
from tests.harness.orders import BASE, find_template, procedure_requests
from tests.integration.workflow.conftest import (
    Change,
    MakeScenario,
    Scenario,
    alter,
    parametrize_first,
    place_plan,
)

TOLERANCE_STUDY, SECOND_LABEL_STUDY = "006.001", "042.036"


def resources(bundle: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == kind]


def place_study(study: str, change: Change = lambda _: None) -> Scenario:
    """A world with an order of one study alone, its bundle changed before it is placed."""
    off = ("two-barcodes", "follow-up-number")
    return place_plan(lambda plan: {item.id for item in plan.basket.items} == {study}, change, rules={"off": off})


def place_again(scenario: Scenario, **patient: str) -> str:
    """The same order with new barcodes, but the second ones, of somebody in whom `patient` differs."""
    at = scenario.world.clock.now().replace(minute=0, second=0)
    again = find_template(at, lambda plan: {item.id for item in plan.basket.items} == {SECOND_LABEL_STUDY})
    return scenario.world.place_order(replace(again, patient={**again.patient, **patient}), relabel=True)


# --- what reaches the laboratory


# --- faults


def put(*path: Any, to: Any) -> Change:
    def change(body: dict[str, Any]) -> None:
        found: Any = body
        for name in path[:-1]:
            found = found[name]
        found[path[-1]] = to

    return change


def move(field: str, host: str) -> Change:
    """The reference becomes an absolute address on this host."""

    def change(body: dict[str, Any]) -> None:
        links = body.get(field) or []
        for link in links if isinstance(links, list) else [links]:
            link["reference"] = host + "/".join(link["reference"].rsplit("/", 2)[-2:])

    return change


def number_again(body: dict[str, Any]) -> None:
    second = {"system": "http://codes.lab.example/labels", "value": "99999999"}
    body["container"][0]["identifier"].insert(0, second)


TWO_CONTRACTS = {
    "reference": f"contract/{SandboxConfig().contracts[0].resource_id()}",
    "identifier": {"system": "http://codes.lab.example/contract", "value": "C-200"},
}
OTHER_AGREEMENT = {"identifier": {"system": "https://other.example/agreements", "value": "C-100"}}
ELSEWHERE = "https://elsewhere.example/fhir/"
FAULTS = [
    ("Task", move("basedOn", ELSEWHERE), "order.address"),
    ("ProcedureRequest", put("supportingInfo", to=[OTHER_AGREEMENT]), "lab_codes_url"),
    ("Specimen", number_again, "tube.label-several"),
    ("ProcedureRequest", put("supportingInfo", to=[TWO_CONTRACTS]), {"order.one-contract"}),
    ("ProcedureRequest", lambda body: body.pop("supportingInfo", None), {"order.contract"}),
    ("Patient", put("birthDate", to="1980-02-30"), {"patient.birth-date"}),
    ("Patient", put("birthDate", to="9999-12-31"), {"patient.birth-possible"}),
    ("ProcedureRequest", move("specimen", "http://localhost:8480/"), "order.address"),
    ("Specimen", move("subject", "https://service.test:8480/"), "order.address"),
    ("QuestionnaireResponse", move("source", ELSEWHERE), "order.address"),
]


@parametrize_first("kind, change, said", FAULTS, quick=3)
async def test_fault_of_the_order_rejects_and_ours_holds(
    make_scenario: MakeScenario, kind: str, change: Change, said: str | set[str]
) -> None:
    """Where an order leads to another host, or names what no setting knows, a setting of ours may be wrong."""
    scenario = make_scenario(4)
    alter(scenario, kind, change)
    await scenario.process_all()
    record = await scenario.order_record()
    if isinstance(said, str):
        assert (record.state, {*scenario.statuses(), scenario.status()}) == (OrderState.HELD, {"requested"})
        assert said in f"{record.hold_cause}: {record.reason}"
        assert said != "order.address" or BASE.split("/")[2] in str(record.reason)
    else:
        assert (scenario.reported_rules(), set(scenario.statuses())) == (said, {"cancelled"})
    assert scenario.handed_over == []


async def test_order_without_contract_is_held_where_a_laboratory_lets_it_pass(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    scenario.restart("rules", severities={"order.contract": "warn"})
    alter(scenario, "ProcedureRequest", lambda body: body.pop("supportingInfo", None))
    await scenario.process_all()
    record = await scenario.order_record()
    assert (record.state, "no contract is known" in str(record.reason)) == (OrderState.HELD, True)


@parametrize_first("alone, beside_others", [(True, False), (False, True), (False, False), (True, True)], quick=2)
async def test_old_order_number_is_asked_of_a_follow_up_study_alone(alone: bool, beside_others: bool) -> None:
    """Order rule 4: only where nothing else is ordered, or as the laboratory has set. The clinic leaves the number out."""

    def fits(plan: OrderPlan) -> bool:
        tests = {item.id for item in plan.basket.items}
        return FOLLOW_UP_STUDY in tests and (len(tests) == 1) is alone

    def without_number(bundle: dict[str, Any]) -> None:
        for request in procedure_requests(bundle):
            request.pop("basedOn", None)

    scenario = place_plan(fits, without_number, rules={"off": ("follow-up-number",)})
    scenario.restart("rules", old_order_beside_others=beside_others)
    await scenario.process_all()
    assert ("cancelled" in scenario.statuses()) is (alone or beside_others)
    assert ("requested" in scenario.statuses()) is not alone
    assert scenario.reported_rules() == ({"line.old-order"} if alone or beside_others else set())


def set_system(kind: str, field: str, suffix: str, system: str | None) -> Change:
    """Every identifier below `field` whose system ends so gets another one."""

    def change(value: Any) -> None:
        for each in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
            change(each)
        if isinstance(value, dict) and str(value.get("system")).endswith(suffix):
            value["system"] = system

    return lambda bundle: [change(one.get(field)) for one in resources(bundle, kind)] and None


@parametrize_first("system", ["http://codes.lab.example/x/mis", "https://clinic.example/mis", "http://codes.lab.example/labels"])
async def test_old_order_number_of_another_system_rejects(system: str) -> None:
    scenario = place_study(FOLLOW_UP_STUDY, set_system("ProcedureRequest", "basedOn", "/mis", system))
    await scenario.process_all()
    assert (scenario.statuses(), scenario.reported_rules()) == (["cancelled"], {"line.old-order"})


@pytest.mark.parametrize("given", [True, False])
async def test_second_barcode_is_asked_for_without_its_system(given: bool) -> None:
    def without_second_labels(bundle: dict[str, Any]) -> None:
        for specimen in resources(bundle, "Specimen"):
            for container in specimen["container"]:
                container["identifier"] = [one for one in container["identifier"] if one["system"].endswith("/labels")]

    scenario = place_study(SECOND_LABEL_STUDY, (lambda _: None) if given else without_second_labels)
    scenario.restart("exchange", second_labels_system=None)
    await scenario.process_all()
    assert scenario.statuses() == (["requested"] if given else ["cancelled"])
    assert scenario.reported_rules() == (set() if given else {"tube.second-label"})
    assert (await scenario.order_record()).hold_cause == ("tube.second-label-unset" if given else None)
    assert scenario.handed_over == []


@parametrize_first("system", ["http://codes.lab.example/mis", "https://clinic.example/second-labels", None])
async def test_second_barcode_of_another_system_holds(system: str | None) -> None:
    scenario = place_study(SECOND_LABEL_STUDY, set_system("Specimen", "container", "/second-labels", system))
    await scenario.process_all()
    record = await scenario.order_record()
    assert (record.state, record.hold_cause) == (OrderState.HELD, "tube.second-label-system")
    assert ("second_labels_system" in str(record.reason), scenario.handed_over) == (True, [])


async def test_second_barcode_in_use_by_another_holds() -> None:
    scenario = place_study(SECOND_LABEL_STUDY)
    await scenario.process_all()
    scenario.task = place_again(scenario, birthDate="1950-01-01")
    await scenario.process_all()
    record = await scenario.order_record()
    assert (record.state, "is in use" in str(record.reason)) == (OrderState.HELD, True)


# --- times


def set_collected(at: str) -> Change:
    return put("collection", "collectedDateTime", to=at)


def set_period(at: str) -> Change:
    def change(body: dict[str, Any]) -> None:
        del body["collection"]["collectedDateTime"]
        body["collection"]["collectedPeriod"] = {"start": at, "end": at}

    return change


NO_TIMES = ["0001-01-01T00:00:00+14:00", "0000-00-00T00:00:00Z", "9999-12-31T23:59:59-14:00", "10000-01-01T00:00:00Z"]
PLACES: dict[str, tuple[str, Callable[[str], Change], OrderState, set[str]]] = {
    "ordered": ("ProcedureRequest", lambda at: put("occurrenceDateTime", to=at), OrderState.HANDED_OVER, {"line.time"}),
    "period": ("Specimen", set_period, OrderState.HANDED_OVER, {"specimen.collected-period"}),
    "collected": ("Specimen", set_collected, OrderState.CLOSED, {"specimen.collected"}),
    "tolerance": ("Specimen", set_collected, OrderState.CLOSED, {"specimen.collected"}),
}


@parametrize_first("at, place", [(at, place) for at in NO_TIMES for place in PLACES], quick=len(PLACES))
async def test_time_that_nobody_can_calculate_with_is_a_finding(make_scenario: MakeScenario, at: str, place: str) -> None:
    """The clinic hears of it, and there is no internal error. The rules of a tolerance test move times by minutes."""
    kind, change, state, rules = PLACES[place]
    scenario = place_study(TOLERANCE_STUDY) if place == "tolerance" else make_scenario(2)
    alter(scenario, kind, change(at))
    await scenario.process_all()
    assert await scenario.state() is state
    is_passed = state is OrderState.HANDED_OVER
    assert rules <= scenario.reported_rules("warn" if is_passed else "refuse")
    assert set(scenario.statuses()) == {"requested" if is_passed else "cancelled"}
    assert is_passed or all(at in text for task in scenario.line_tasks for text in scenario.outputs(task)[:1])


async def test_collection_six_minutes_ahead_holds_until_then(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    at = scenario.world.clock.now() + timedelta(minutes=6, seconds=30)
    alter(scenario, "Specimen", set_collected(at.isoformat()))
    await scenario.process_all()
    record = await scenario.order_record()
    assert (record.state, "ahead of the laboratory's clock" in str(record.reason)) == (OrderState.HELD, True)
    await scenario.drain(420)
    assert await scenario.state() is OrderState.HANDED_OVER
