"""The service is unavailable: one log line about it, no crash, few requests, and one more line when it is back."""

from __future__ import annotations

import time

import httpx
import pytest

from lab_sandbox.demo.runner import build_account
from lab_sandbox.demo.toml_edit import set_values
from lab_sandbox.partner.client import open_partner_client
from tests.harness.clock import DEADLINE, wait_until
from tests.harness.installation import ProcessHarness


@pytest.mark.slow
async def test_outage_logs_one_line_and_recovery_another(harness: ProcessHarness) -> None:
    await harness.stop_service()
    agent = await harness.start_agent()

    async def logged() -> bool:
        return bool(harness.log_lines("outage_started"))

    await wait_until(logged, "the line about the outage")
    before = harness.poll_count()

    async def polled_on() -> bool:
        return harness.poll_count() >= before + 5

    await wait_until(polled_on, "five more polls")
    assert len(harness.log_lines("outage_started")) == 1
    assert [line for line in harness.log_lines("") if "Traceback" in line] == []
    assert agent.process.poll() is None

    await harness.start_service()
    async with open_partner_client(build_account(harness.workspace)) as client:
        harness.use_client(client)
        order = await harness.place_order("outage")
        await harness.wait_until_ended(order)
        await harness.check_everything_once(order)
    assert len(harness.log_lines("outage_started")) == 1
    assert len(harness.log_lines("outage_ended")) == 1
    warnings = [line for line in harness.log_lines("") if "[warning" in line or "[error" in line]
    assert len(warnings) == 1, warnings
    await check_call_metrics(harness)
    assert await agent.stop() == 0


LONGEST = 2.0
"""Seconds between two requests to a service that answers nothing."""


@pytest.mark.slow
async def test_service_that_fails_gets_one_request_at_a_time_whatever_waits_for_it(harness: ProcessHarness) -> None:
    await harness.stop_service()
    set_values(harness.workspace.service_settings, "", {"fault_admin": True})
    set_values(harness.workspace.agent_settings, "worker", {"probe_longest": LONGEST, "backoff_longest": 3})
    await harness.start_service()
    agent = await harness.start_agent()
    async with open_partner_client(build_account(harness.workspace)) as client:
        harness.use_client(client)
        orders = [await harness.place_order(f"waits {number}") for number in range(4)]
        await wait_until(lambda: harness.count_reached("after commit order") > 0, "the orders to be seen")
        await harness.set_faults({"kind": "status", "status": 503, "route": "/fhir/*", "caller": "laboratory"})
        await wait_until(lambda: harness.count_reached("before answers") >= 4, "longer and longer waits")
        asked, failed, since = harness.count_reached("before answers"), await harness.count_faults(), time.monotonic()
        await wait_until(lambda: harness.count_reached("before answers") >= asked + 5, "five more requests")
        passed, sent = time.monotonic() - since, await harness.count_faults() - failed
        assert sent <= passed / LONGEST + 2, f"{sent} requests in {passed:.1f} s"
        assert 4 <= sent <= 6, "something beside the requests that ask is sent"

        await harness.set_faults()
        back = time.monotonic()
        await wait_until(lambda: bool(harness.log_lines("outage_ended")), "the end of the outage", interval=0.02)
        assert time.monotonic() - back <= 3 * LONGEST, "the outage lasts on"
        for order in orders:
            await harness.wait_until_ended(order)
            await harness.check_everything_once(order)
    assert len(harness.log_lines("outage_started")) == 1
    assert await agent.stop() == 0


async def check_call_metrics(harness: ProcessHarness) -> None:
    """How long the calls to both neighbours took, and how they ended, is among the numbers."""
    async with httpx.AsyncClient(base_url=harness.workspace.status_url, timeout=DEADLINE) as client:
        numbers = (await client.get("/metrics")).text
    for each in (
        'exchange_call_seconds_count{operation="searching Task",outcome="unavailable"}',
        'exchange_call_seconds_count{operation="searching Task",outcome="ok"}',
        'lis_call_seconds_count{adapter="folder",operation="submit",outcome="ok"}',
    ):
        assert f"lab_agent_{each}" in numbers
