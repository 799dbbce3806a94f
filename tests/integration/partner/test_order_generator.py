"""Generated orders are accepted by the service in every variant, varied and repeatable."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice

import httpx
import pytest

from lab_sandbox.app import create_app
from lab_sandbox.config import RuleSettings, SandboxConfig
from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.basket import answer_questionnaire, orderable_items
from lab_sandbox.partner.client import PartnerClient, open_partner_client
from lab_sandbox.partner.clinic import Clinic
from lab_sandbox.partner.errors import Json, ServiceRefusedError
from lab_sandbox.partner.order_bundle import LabelSequence
from lab_sandbox.partner.order_generator import FOLLOW_UP_STUDY, OrderPlan, OrderVariety, generate_plans
from lab_sandbox.partner.random_source import seeded_random
from lab_sandbox.partner.result_reader import read_order_status, read_reports


async def fetch_orderable(client: PartnerClient) -> list[Json]:
    return orderable_items(await client.nomenclature(), await client.eta())


async def test_generated_orders_are_accepted(client: PartnerClient, clinic: Clinic):
    items = await fetch_orderable(client)
    for plan in islice(generate_plans("C-100", items, seed=1), 30):
        order = await clinic.place_order(plan)
        status = await read_order_status(client, order)
        assert status.order == "requested", plan
        assert set(status.lines.values()) == {"requested"}
        assert not status.has_ended()
        assert await read_reports(client, order) == []


async def test_generated_orders_are_varied_and_valid(client: PartnerClient):
    items = {item["id"]: item for item in await fetch_orderable(client)}
    plans = list(islice(generate_plans("C-100", list(items.values()), seed=2), 300))
    ordered = Counter(one.id for plan in plans for one in plan.basket.items)
    assert set(ordered) == set(items), "every test is ordered at least once"
    assert {plan.patient for plan in plans} == {"named", "anonymous", "reused"}
    assert {plan.contract_link for plan in plans} == {"reference", "absolute", "identifier"}
    with_follow_up = [{one.id for one in plan.basket.items} for plan in plans if _has_follow_up(plan)]
    assert {len(tests) == 1 for tests in with_follow_up} == {True, False}, "the follow-up study comes alone and beside others"
    for plan in plans:
        assert_valid(plan, items)


def _has_follow_up(plan: OrderPlan) -> bool:
    return FOLLOW_UP_STUDY in {one.id for one in plan.basket.items}


def assert_valid(plan: OrderPlan, items: dict[str, Json]) -> None:
    counts = Counter(one.id for one in plan.basket.items)
    for one in plan.basket.items:
        item = items[one.id]
        specimen_codes = {str(option["specimen_code"]) for option in item["specimen"]}
        assert one.specimen_code in (specimen_codes or {None})
        if counts[one.id] > 1:
            assert item["allow_multiple_items"] or item["multiple_specimen"]
    if set(counts) == {FOLLOW_UP_STUDY}:
        assert re.fullmatch(r"\d{5}-[A-Z]{5}-\d{8}", plan.old_order_number or "")
    else:
        assert plan.old_order_number is None
    assert len({one.guid for one in plan.basket.items}) == len(plan.basket.items)


async def test_plans_follow_seed_and_bounds(client: PartnerClient):
    items = await fetch_orderable(client)
    first, again = (list(islice(generate_plans("C-100", items, seed=3), 20)) for _ in range(2))
    assert first == again
    assert first != list(islice(generate_plans("C-100", items, seed=4), 20))
    few = OrderVariety(max_tests=2, anonymous_share=1.0)
    for plan in islice(generate_plans("C-100", items, 5, few), 100):
        assert len({one.id for one in plan.basket.items}) <= 2
        assert plan.patient == "anonymous"


async def test_damaged_bundle_rejected_with_service_message(client: PartnerClient, clinic: Clinic):
    def without_tasks(bundle: Json) -> Json:
        return {**bundle, "entry": [one for one in bundle["entry"] if one["resource"]["resourceType"] != "Task"]}

    plan = next(generate_plans("C-100", await fetch_orderable(client), seed=6))
    with pytest.raises(ServiceRefusedError, match="Task"):
        await clinic.place_order(plan, without_tasks)


def test_unavailable_tests_not_ordered():
    nomenclature = [{"id": "1"}, {"id": "2"}, {"id": "3"}]
    for status, with_delayed in (("stopped", 2), ("delayed", 3)):
        eta = [{"id": "1", "status": "available"}, {"id": "2", "status": status}]
        assert [one["id"] for one in orderable_items(nomenclature, eta)] == ["1", "3"]
        assert len(orderable_items(nomenclature, eta, include_delayed=True)) == with_delayed


def question(link: str, kind: str, **more: object) -> Json:
    return {"linkId": link, "text": f"{link}?", "type": kind, "required": True, "repeats": False, **more}


def test_required_questions_answered_in_their_group():
    options = [{"system": "s", "code": code} for code in "abc"]
    root = question("root", "group", item=[question("words", "string"), question("pick", "choice", option=options)])
    for seed in range(40):
        (group,) = answer_questionnaire({"item": root}, seeded_random(seed))
        words, pick = group["item"]
        (scalar,) = words["answer"]
        assert next(iter(scalar)) in {"valueString", "valueInteger", "valueBoolean"}
        (choice,) = pick["answer"]
        assert choice["valueCoding"]["code"] in "abc"


def test_optional_questions_some_skipped_empty_groups_omitted():
    root = question("root", "group", required=False, item=[question("q", "string", required=False)])
    lengths = {len(answer_questionnaire({"item": root}, seeded_random(seed))) for seed in range(40)}
    assert lengths == {0, 1}
    assert answer_questionnaire({"resourceType": "Questionnaire", "status": "active"}, seeded_random(1)) == []


def test_answers_vary_and_repeated_choices_are_distinct():
    asked = {"item": question("q", "string")}
    answers = [answer_questionnaire(asked, seeded_random(seed))[0]["answer"][0] for seed in range(200)]
    assert {"valueInteger": 0} in answers
    assert {"valueBoolean": False} in answers
    options = [{"system": "s", "code": code} for code in "abc"]
    for seed in range(40):
        (item,) = answer_questionnaire({"item": question("q", "choice", option=options, repeats=True)}, seeded_random(seed))
        codes = [one["valueCoding"]["code"] for one in item["answer"]]
        assert len(codes) == len(set(codes)) in {1, 2}


SERVICES = {
    "below a path": SandboxConfig(base_url="http://service.test/exchange/v1/", auth_url="http://service.test/auth"),
    "canonical references": SandboxConfig(base_url="http://service.test/", rules=RuleSettings(reference_style="canonical")),
    "one result on a page": SandboxConfig(base_url="http://service.test/", rules=RuleSettings(page_size=1)),
    "an STU3 server": SandboxConfig(base_url="http://service.test/", strict=True, rules=RuleSettings(page_size=1)),
    "authorization on another host": SandboxConfig(base_url="http://service.test/", auth_url="http://sign-in.test"),
}


@pytest.mark.parametrize(
    "name", [next(iter(SERVICES)), *(pytest.param(each, marks=pytest.mark.slow) for each in list(SERVICES)[1:])]
)
async def test_orders_placed_and_read_in_every_variant(
    account: PartnerAccount, laboratory: Callable[[], httpx.AsyncBaseTransport], name: str
):
    config = SERVICES[name].resolve_addresses()
    transport = httpx.ASGITransport(create_app(config, transport=laboratory()))
    spelling = "fhir" if config.strict else "lower"
    partner = replace(account, base_url=config.base_url, auth_url=config.auth_url, spelling=spelling)
    async with open_partner_client(partner, grant="code", transport=transport) as client:
        clinic = Clinic(client, LabelSequence(), lambda: datetime.now(UTC), "run")
        items = orderable_items(await client.nomenclature(), await client.eta())
        for plan in islice(generate_plans("C-100", items, seed=7), 12):
            order = await clinic.place_order(plan)
            status = await read_order_status(client, order)
            assert status.order == "requested"
            assert len(status.lines) == len(order.lines)
            assert (await client.read(order.patient))["resourceType"] == "Patient"
