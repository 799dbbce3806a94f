"""What an order says wrongly, over HTTP: its own faults reject it, and what may be ours holds it (law 10)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from lab_agent.domain.state_machines import OrderState
from lab_agent.rules.engine import RULES
from tests.harness.orders import BASE
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
