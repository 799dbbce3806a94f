"""The service's clock seems a day ahead: an order is held, not rejected, and goes on by itself once the clocks agree."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from lab_sandbox.config import load_config
from lab_sandbox.demo.runner import build_account
from lab_sandbox.demo.toml_edit import set_values
from lab_sandbox.partner.client import open_partner_client
from lab_sandbox.partner.clinic import Clinic
from lab_sandbox.partner.order_bundle import LabelSequence
from tests.harness.clock import wait_until
from tests.harness.installation import ProcessHarness
from tests.harness.recording_proxy import recording_proxy

AHEAD = timedelta(minutes=10, seconds=20)
"""How far the clinic's clock is ahead of ours. Its specimens are ten minutes old by then; the rules tolerate a second."""


@pytest.mark.proof
@pytest.mark.timeout(240)
async def test_order_is_held_until_the_clocks_agree(harness: ProcessHarness) -> None:
    settings = harness.workspace.agent_settings
    set_values(settings, "rules", {"future_tolerance": 1.0})
    set_values(settings, "monitoring", {"interval": 0.5})
    set_values(settings, "worker", {"hold_retry": 1.0})
    async with recording_proxy(harness.workspace.service_url) as proxy:
        await lead_through(harness, proxy.url)
        proxy.clock_ahead = timedelta(days=1)
        agent = await harness.start_agent()
        await wait_until(lambda: bool(harness.log_lines("alert=clock.differs")), "the alert about the clocks")
        (found,) = harness.log_lines("alert=clock.differs")
        assert "ours " in found
        assert "the service's " in found

        async with open_partner_client(build_account(harness.workspace)) as client:
            harness.client = client
            harness.clinic = Clinic(client, LabelSequence(first=7_000_001), lambda: datetime.now().astimezone() + AHEAD, "clocks")
            await harness.place_order("clocks")
        await wait_until(lambda: bool(harness.log_lines("action=order_held")), "the order held")
        assert "order.clocks-differ" in harness.log_lines("action=order_held")[0]
        assert harness.lis.received_counts() == {}

        proxy.clock_ahead = timedelta()
        await wait_until(lambda: bool(harness.lis.received_counts()), "the order at the laboratory")
        assert list(harness.lis.received_counts().values()) == [1]
        await wait_until(lambda: ended(harness, "clock.differs"), "the end of the alert")
        assert await agent.stop() == 0


async def lead_through(harness: ProcessHarness, url: str) -> None:
    """Let everybody reach the service at the address of the proxy before it."""
    await harness.stop_service()
    for file in (harness.workspace.agent_settings, harness.workspace.service_settings):
        own = f'base_url = "{harness.workspace.service_url}"'
        text = file.read_text()
        assert own in text
        file.write_text(text.replace(own, f'base_url = "{url}"'))
    harness.workspace = replace(harness.workspace, service_config=load_config(harness.workspace.service_settings))
    await harness.start_service()


def ended(harness: ProcessHarness, condition: str) -> bool:
    return any(f"alert={condition}" in line for line in harness.log_lines("action=condition_ended"))
