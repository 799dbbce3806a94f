"""What an order says wrongly, over HTTP: its own faults reject it, and what may be ours holds it (law 10)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from lab_agent.domain.state_machines import OrderState
from lab_agent.rules.engine import RULES
from lab_sandbox.config import SandboxConfig
from lab_sandbox.partner.order_generator import FOLLOW_UP_STUDY
from tests.harness.orders import BASE, find_template
from tests.harness.world import World
from tests.integration.workflow.conftest import Scenario, alter

Change = Callable[[dict[str, Any]], None]
MakeScenario = Callable[..., Scenario]


def set_reference(field: str, prefix: str) -> Change:
    """The reference becomes an absolute address with this prefix."""

    def change(body: dict[str, Any]) -> None:
        links = body.get(field) or []
        for link in links if isinstance(links, list) else [links]:
            link["reference"] = prefix + "/".join(link["reference"].rsplit("/", 2)[-2:])

    return change


async def hold_reason(scenario: Scenario) -> str:
    record = await scenario.order_record()
    assert (record.state, set(scenario.statuses())) == (OrderState.HELD, {"requested"})
    return str(record.reason)


@pytest.mark.parametrize("prefix", ["https://service.test:8480/", "http://localhost:8480/", "https://elsewhere.example/fhir/"])
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        ("Task", "basedOn"),
        ("ProcedureRequest", "subject"),
        ("ProcedureRequest", "specimen"),
        ("Specimen", "subject"),
        ("QuestionnaireResponse", "source"),
    ],
)
async def test_reference_on_another_host_holds(make_scenario: MakeScenario, kind: str, field: str, prefix: str) -> None:
    scenario = make_scenario(4)
    alter(scenario, kind, set_reference(field, prefix))
    await scenario.process_all()
    assert prefix.split("/")[2].partition(":")[0] in await hold_reason(scenario)
    assert BASE.split("/")[2] in await hold_reason(scenario)


async def test_contract_on_another_host_holds(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    links = [{"reference": "http://localhost/fhir/Contract/c-1"}]
    alter(scenario, "ProcedureRequest", lambda body: body.update(supportingInfo=links))
    await scenario.process_all()
    assert "localhost" in await hold_reason(scenario)


async def test_order_without_contract_is_rejected_with_its_reason(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    alter(scenario, "ProcedureRequest", lambda body: body.pop("supportingInfo", None))
    await scenario.process_all()
    assert scenario.statuses() == ["cancelled"]
    assert await scenario.reported_rules() == {"order.contract"}


async def test_order_without_contract_is_held_where_a_laboratory_lets_it_pass(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    rules = scenario.world.settings.rules.model_copy(update={"severities": {"order.contract": "warn"}})
    scenario.world.settings = scenario.world.settings.model_copy(update={"rules": rules})
    scenario.agent = scenario.world.agent("lenient")
    alter(scenario, "ProcedureRequest", lambda body: body.pop("supportingInfo", None))
    await scenario.process_all()
    assert "no contract is known" in await hold_reason(scenario)


async def test_contract_in_unknown_system_holds(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    links = [{"identifier": {"system": "https://other.example/agreements", "value": "C-100"}}]
    alter(scenario, "ProcedureRequest", lambda body: body.update(supportingInfo=links))
    await scenario.process_all()
    assert "lab_codes_url" in await hold_reason(scenario)


async def test_collection_six_minutes_ahead_holds_until_then(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    at = scenario.world.clock.now() + timedelta(minutes=6, seconds=30)
    alter(scenario, "Specimen", lambda body: body["collection"].update(collectedDateTime=at.isoformat()))
    await scenario.process_all()
    assert "ahead of the laboratory's clock" in await hold_reason(scenario)
    scenario.world.clock.advance(420)
    await scenario.world.drain(scenario.agent)
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER


@pytest.mark.parametrize(("ahead", "state"), [(0, OrderState.CLOSED), (3600, OrderState.HELD)])
async def test_collection_days_ahead_is_rejected_where_the_service_confirms_our_clock(
    make_scenario: MakeScenario, ahead: int, state: OrderState
) -> None:
    scenario = make_scenario(1)
    at = scenario.world.clock.now() + timedelta(days=3)
    alter(scenario, "Specimen", lambda body: body["collection"].update(collectedDateTime=at.isoformat()))
    transport = scenario.agent._http._transport  # type: ignore[attr-defined]
    handle = transport.handle_async_request

    async def dated(request: httpx.Request) -> httpx.Response:
        answer: httpx.Response = await handle(request)
        answer.headers["date"] = format_datetime(scenario.world.clock.now() + timedelta(seconds=ahead), usegmt=True)
        return answer

    transport.handle_async_request = dated
    await scenario.process_all()
    record = await scenario.order_record()
    assert record.state is state
    assert scenario.statuses() == (["cancelled"] if state is OrderState.CLOSED else ["requested"])
    assert state is OrderState.CLOSED or "differ by 1 hour" in str(record.reason)


async def test_shared_tube_of_two_specimens_is_handed_over(make_scenario: MakeScenario) -> None:
    """Two Specimens that say the same, with the barcode of their one tube (many tests may share one tube)."""
    scenario = make_scenario(2)
    seen: list[dict[str, Any]] = []

    def share(body: dict[str, Any]) -> None:
        seen.append(dict(body))
        body.update({name: seen[0][name] for name in ("type", "collection", "container", "extension")})

    rules = {rule.id: "off" for rule in RULES if rule.id in {"specimen.type-offered", "specimen.one-type", "tube.type-fits"}}
    settings = scenario.world.settings.rules.model_copy(update={"severities": rules})
    scenario.world.settings = scenario.world.settings.model_copy(update={"rules": settings})
    scenario.agent = scenario.world.agent("strict")
    alter(scenario, "Specimen", share)
    await scenario.process_all()
    assert (await scenario.order_record()).state is OrderState.HANDED_OVER
    assert "tube.label-shared" in await scenario.reported_rules("warn")


async def test_link_that_names_two_contracts_is_rejected(make_scenario: MakeScenario) -> None:
    """The reference names one contract, and the identifier beside it another."""
    scenario = make_scenario(1)
    reference = f"contract/{SandboxConfig().contracts[0].resource_id()}"
    other = {"system": "http://codes.lab.example/contract", "value": "C-200"}
    links = [{"reference": reference, "identifier": other}]
    alter(scenario, "ProcedureRequest", lambda body: body.update(supportingInfo=links))
    await scenario.process_all()
    assert scenario.statuses() == ["cancelled"]
    assert await scenario.reported_rules() == {"order.one-contract"}


def scenario_of(study: str, change: Callable[[dict[str, Any]], None] = lambda _: None) -> Scenario:
    """A world with an order of one study alone, its bundle changed before it is placed."""
    world = World(study, rules={"off": ("two-barcodes", "follow-up-number")})
    at = world.clock.now().replace(minute=0, second=0)
    template = find_template(at, lambda plan: {item.id for item in plan.basket.items} == {study})
    bundle = copy.deepcopy(template.bundle)
    change(bundle)
    return Scenario(world, world.agent(), world.place_order(replace(template, bundle=bundle)))


def without_second_labels(bundle: dict[str, Any]) -> None:
    for specimen in resources(bundle, "Specimen"):
        for container in specimen["container"]:
            container["identifier"] = [one for one in container["identifier"] if one["system"].endswith("/labels")]


def resources(bundle: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [one["resource"] for one in bundle["entry"] if one["resource"]["resourceType"] == kind]


@pytest.mark.parametrize("given", [True, False])
async def test_second_barcode_is_asked_for_without_its_system(given: bool) -> None:
    scenario = scenario_of("042.036", (lambda _: None) if given else without_second_labels)
    exchange = scenario.world.settings.exchange.model_copy(update={"second_labels_system": None})
    scenario.world.settings = scenario.world.settings.model_copy(update={"exchange": exchange})
    scenario.agent = scenario.world.agent("without the system")
    await scenario.process_all()
    assert scenario.statuses() == (["requested"] if given else ["cancelled"])
    assert await scenario.reported_rules() == (set() if given else {"tube.second-label"})
    assert (await scenario.order_record()).hold_cause == ("tube.second-label-unset" if given else None)
    assert scenario.world.lis.submitted == []


def set_system(kind: str, field: str, suffix: str, system: str | None) -> Callable[[dict[str, Any]], None]:
    """Every identifier below `field` whose system ends so gets another one."""

    def change(value: Any) -> None:
        for each in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
            change(each)
        if isinstance(value, dict) and str(value.get("system")).endswith(suffix):
            value["system"] = system

    return lambda bundle: [change(one.get(field)) for one in resources(bundle, kind)] and None


@pytest.mark.parametrize("system", ["https://clinic.example/second-labels", "http://codes.lab.example/mis", "urn:clinic", None])
async def test_second_barcode_of_another_system_holds(system: str | None) -> None:
    scenario = scenario_of("042.036", set_system("Specimen", "container", "/second-labels", system))
    await scenario.process_all()
    assert "second_labels_system" in await hold_reason(scenario)
    assert (await scenario.order_record()).hold_cause == "tube.second-label-system"
    assert scenario.world.lis.submitted == []


@pytest.mark.parametrize(
    "system", ["https://clinic.example/mis", "http://codes.lab.example/labels", "http://codes.lab.example/x/mis", "urn:clinic"]
)
async def test_old_order_number_of_another_system_rejects(system: str) -> None:
    scenario = scenario_of(FOLLOW_UP_STUDY, set_system("ProcedureRequest", "basedOn", "/mis", system))
    await scenario.process_all()
    assert (scenario.statuses(), await scenario.reported_rules()) == (["cancelled"], {"line.old-order"})


async def test_two_barcodes_of_the_laboratory_on_one_tube_hold(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    more = {"system": "http://codes.lab.example/labels", "value": "99999999"}
    alter(scenario, "Specimen", lambda body: body["container"][0]["identifier"].insert(0, more))
    await scenario.process_all()
    assert "99999999" in await hold_reason(scenario)
    assert (await scenario.order_record()).hold_cause == "tube.label-several"


async def test_second_barcode_in_use_by_another_holds() -> None:
    scenario = scenario_of("042.036")
    await scenario.process_all()
    at = scenario.world.clock.now().replace(minute=0, second=0)
    again = find_template(at, lambda plan: {item.id for item in plan.basket.items} == {"042.036"})
    other = replace(again, patient={**again.patient, "birthDate": "1950-01-01"})
    scenario.task = scenario.world.place_order(other, relabel=True)
    await scenario.process_all()
    assert "is in use" in await hold_reason(scenario)


def four_samples_of_one_minute(bundle: dict[str, Any]) -> None:
    """A tolerance test with a fourth sample, none of which says its time point, all taken at once."""
    specimens = resources(bundle, "Specimen")
    fourth = copy.deepcopy(specimens[0])
    fourth["container"][0]["identifier"][0]["value"] = "7777777777"
    bundle["entry"].append({"fullUrl": "urn:uuid:00000000-0000-4000-8000-000000000004", "resource": fourth})
    resources(bundle, "ProcedureRequest")[0]["specimen"].append({"reference": "urn:uuid:00000000-0000-4000-8000-000000000004"})
    for specimen in (*specimens, fourth):
        specimen["collection"]["collectedDateTime"] = specimens[0]["collection"]["collectedDateTime"]
        specimen["extension"][0]["valueString"] = "specimen=13"


async def test_fourth_sample_does_not_switch_the_alignment_check_off() -> None:
    scenario = scenario_of("006.001", four_samples_of_one_minute)
    await scenario.process_all()
    assert scenario.statuses() == ["cancelled"]
    assert await scenario.reported_rules() == {"specimen.tolerance-sequence"}
