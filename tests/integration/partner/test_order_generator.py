"""Generated orders are accepted by the service in every variant, varied and repeatable."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice

import httpx
import pytest

from lab_sandbox.app import create_app
from lab_sandbox.config import RuleSettings, SandboxConfig
from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.basket import orderable_items
from lab_sandbox.partner.client import PartnerClient, open_partner_client
from lab_sandbox.partner.clinic import Clinic
from lab_sandbox.partner.errors import Json
from lab_sandbox.partner.order_bundle import LabelSequence
from lab_sandbox.partner.order_generator import FOLLOW_UP_STUDY, OrderPlan, generate_plans
from lab_sandbox.partner.result_reader import read_order_status, read_reports


async def fetch_orderable(client: PartnerClient) -> list[Json]:
    return orderable_items(await client.nomenclature(), await client.eta())


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
async def test_orders_placed_and_read_in_every_variant(account: PartnerAccount, laboratory: httpx.ASGITransport, name: str):
    config = SERVICES[name].resolve_addresses()
    transport = httpx.ASGITransport(create_app(config, transport=laboratory))
    spelling = "fhir" if config.strict else "lower"
    partner = replace(account, base_url=config.base_url, auth_url=config.auth_url, spelling=spelling)
    async with open_partner_client(partner, grant="code", transport=transport) as client:
        clinic = Clinic(client, LabelSequence(), lambda: datetime.now(UTC), "run")
        items = orderable_items(await client.nomenclature(), await client.eta())
        for plan in islice(generate_plans("C-100", items, seed=7), 12):
            order = await clinic.place_order(plan)
            status = await read_order_status(client, order)
            assert status.order == "requested"
            assert list(status.lines.values()) == ["requested"] * len(order.lines)
            assert not status.has_ended()
            assert await read_reports(client, order) == []
            assert (await client.read(order.patient))["resourceType"] == "Patient"
