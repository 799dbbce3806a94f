"""The service's clock seems a day ahead: an order is held, not rejected, and goes on once the clocks agree."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from lab_sandbox.config import load_config
from lab_sandbox.demo.runner import build_account
from lab_sandbox.partner.client import open_partner_client
from lab_sandbox.partner.clinic import Clinic
from lab_sandbox.partner.order_bundle import LabelSequence
from tests.harness.clock import wait_until
from tests.harness.installation import ProcessHarness
from tests.harness.recording_proxy import recording_proxy

AHEAD = timedelta(seconds=45)
"""How far the order's times are ahead of our clock when it is placed; its tolerance is a second."""


@pytest.mark.proof
@pytest.mark.timeout(400)
async def test_order_is_held_until_the_clocks_agree(harness: ProcessHarness) -> None:
    settings = harness.workspace.agent_settings
    async with recording_proxy(harness.workspace.service_url) as proxy:
        await harness.stop_service()
        for file in (settings, harness.workspace.service_settings):
            file.write_text(file.read_text().replace(harness.workspace.service_url, proxy.url))
        text = settings.read_text()
        assert "[rules]" not in text
        settings.write_text(f"{text}\n[rules]\nfuture_tolerance = 1.0\n")
        harness.workspace = replace(harness.workspace, service_config=load_config(harness.workspace.service_settings))
        await harness.start_service()
        proxy.clock_ahead = timedelta(days=1)
        agent = await harness.start_agent()
        await wait_until(lambda: bool(harness.log_lines("alert=clock.differs")), "the alert about the clocks", timeout=120)
        (found,) = harness.log_lines("alert=clock.differs")
        assert "ours " in found
        assert "the service's " in found

        async with open_partner_client(build_account(harness.workspace)) as client:
            harness.client = client
            harness.clinic = Clinic(client, LabelSequence(first=7_000_001), lambda: datetime.now().astimezone() + AHEAD, "clocks")
            await harness.place_order("clocks")
        await wait_until(lambda: bool(harness.log_lines("action=order_held")), "the order held", timeout=120)
        assert "order.clocks-differ" in harness.log_lines("action=order_held")[0]
        assert harness.lis.received_counts() == {}

        proxy.clock_ahead = timedelta()
        await wait_until(lambda: bool(harness.log_lines("action=condition_ended")), "the end of the alert", timeout=120)
        await wait_until(lambda: bool(harness.lis.received_counts()), "the order at the laboratory", timeout=120)
        assert list(harness.lis.received_counts().values()) == [1]
        assert await agent.stop() == 0
