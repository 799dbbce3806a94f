"""The partner works with every variant of the service that the interface document allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice

import httpx
import pytest

from lab_sandbox.app import create_app
from lab_sandbox.config import RuleSettings, SandboxConfig
from lab_sandbox.partner.account import PartnerAccount
from lab_sandbox.partner.basket import orderable_items
from lab_sandbox.partner.client import open_partner_client
from lab_sandbox.partner.clinic import Clinic
from lab_sandbox.partner.order_bundle import LabelSequence
from lab_sandbox.partner.order_generator import generate_plans
from lab_sandbox.partner.result_reader import read_order_status

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
