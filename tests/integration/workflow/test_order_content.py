"""What an order says reaches the laboratory, from the service over HTTP to the adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lab_agent.domain.lab_order import LabOrder, format_answer_path
from lab_agent.domain.values import PartialDate
from lab_sandbox.partner.order_generator import FOLLOW_UP_STUDY, OrderPlan
from tests.harness.orders import find_template, procedure_requests
from tests.harness.world import World
from tests.integration.workflow.conftest import Scenario, alter, pick_template

MakeScenario = Callable[..., Scenario]


async def handed_over(scenario: Scenario) -> LabOrder:
    await scenario.process_all()
    return scenario.world.lis.submitted[-1]


async def test_two_orders_of_one_patient_have_one_identifier(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    first = (await handed_over(scenario)).patient.service_identifier
    assert first is not None
    scenario.task = scenario.world.place_order(pick_template(scenario.world, 2), relabel=True, patient=first.value)
    second = (await handed_over(scenario)).patient.service_identifier
    assert len(scenario.world.lis.submitted) == 2
    assert second == first


async def test_ended_name_is_passed_on_behind_the_current_one(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    names = [
        {"use": "old", "family": "Former", "given": ["A"], "period": {"end": "2001-01-01"}},
        {"use": "official", "family": "Present", "given": ["A", "B"]},
    ]
    alter(scenario, "Patient", lambda body: body.update(name=names))
    patient = (await handed_over(scenario)).patient
    assert (patient.family, [name.family for name in patient.other_names]) == ("Present", ["Former"])


@pytest.mark.parametrize("born", ["1980", "1980-02", "2026", "1900"])
async def test_birth_date_without_a_day_is_passed_on(make_scenario: MakeScenario, born: str) -> None:
    scenario = make_scenario(1)
    alter(scenario, "Patient", lambda body: body.update(birthDate=born))
    assert (await handed_over(scenario)).patient.birth_date == PartialDate(born)
    assert await scenario.reported_rules("warn") == {"patient.birth-date-whole"}
    await scenario.report_all()
    await scenario.world.drain(scenario.agent)
    assert scenario.status() == "completed"


@pytest.mark.parametrize("born", ["1980-13", "80", "1980-02-30", "2031", "1850", "17.05.1980"])
async def test_birth_date_that_cannot_be_is_rejected(make_scenario: MakeScenario, born: str) -> None:
    scenario = make_scenario(1)
    alter(scenario, "Patient", lambda body: body.update(birthDate=born))
    await scenario.process_all()
    assert await scenario.reported_rules() < {"patient.birth-date", "patient.birth-possible"}
    assert scenario.status() == "cancelled"


async def test_name_that_is_only_text_is_passed_on(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(1)
    alter(scenario, "Patient", lambda body: body.update(name=[{"text": "Present A B"}]))
    assert (await handed_over(scenario)).patient.family == "Present A B"


async def test_answers_and_periods_and_numbers_are_passed_on(make_scenario: MakeScenario) -> None:
    scenario = make_scenario(4)
    rack = {"system": "https://clinic.example/racks", "value": "R7"}
    period = {"start": "2026-03-01T08:00:00+00:00", "end": "2026-03-02T08:00:00+00:00"}

    def collected(body: dict[str, Any]) -> None:
        body["container"][0]["identifier"].append(rack)
        body["collection"]["collectedPeriod"] = period
        del body["collection"]["collectedDateTime"]

    def repeated(body: dict[str, Any]) -> None:
        drug = {"linkId": "drug", "item": [{"linkId": "dose", "answer": [{"valueInteger": 1}]}]}
        body["item"].append({"linkId": "more", "item": [drug, drug]})

    alter(scenario, "Specimen", collected)
    alter(scenario, "QuestionnaireResponse", repeated)
    order = await handed_over(scenario)
    paths = [format_answer_path(answer.path) for answer in order.answers]
    assert {"more/drug[1]/dose", "more/drug[2]/dose"} <= set(paths)
    assert {str(one.collected_until) for one in order.specimens} == {"2026-03-02 08:00:00+00:00"}
    assert {number.value for one in order.specimens for number in one.containers[0].other_identifiers} >= {"R7"}


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("beside_others", [True, False])
async def test_old_order_number_is_asked_of_a_follow_up_study_alone(alone: bool, beside_others: bool) -> None:
    """Order rule 4: only where nothing else is ordered, or as the laboratory has set. The clinic leaves the number out."""
    world = World("follow-up", rules={"off": ("follow-up-number",)})
    rules = world.settings.rules.model_copy(update={"old_order_beside_others": beside_others})
    world.settings = world.settings.model_copy(update={"rules": rules})

    def fits(plan: OrderPlan) -> bool:
        tests = {item.id for item in plan.basket.items}
        return FOLLOW_UP_STUDY in tests and (len(tests) == 1) is alone

    template = find_template(world.clock.now().replace(minute=0, second=0), fits)
    for request in procedure_requests(template.bundle):
        request.pop("basedOn", None)
    scenario = Scenario(world, world.agent(), world.place_order(template))
    await scenario.process_all()
    assert ("cancelled" in scenario.statuses()) is (alone or beside_others)
    assert ("requested" in scenario.statuses()) is not alone
    assert await scenario.reported_rules() == ({"line.old-order"} if alone or beside_others else set())


async def test_barcode_in_the_system_reaches_the_laboratory_before_any_other_number(make_scenario: MakeScenario) -> None:
    """The barcode of the tube is then one for the rules, the laboratory, and the matching of results."""
    scenario = make_scenario(1)
    clinic = {"system": "https://clinic.example/labels", "value": "CLINIC-77"}
    labels: list[str] = []

    def number(body: dict[str, Any]) -> None:
        labels.append(body["container"][0]["identifier"][0]["value"])
        body["container"][0]["identifier"][:0] = [{"value": "CLINIC-78"}, clinic]

    alter(scenario, "Specimen", number)
    order = await handed_over(scenario)
    assert {tube.barcode for specimen in order.specimens for tube in specimen.containers} == set(labels)
