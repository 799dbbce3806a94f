"""The agent is killed while it delivers, with replies lost on top: each report version is there once, and in order."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from lab_sandbox.demo.lis.transport_files import write_atomically
from lab_sandbox.demo.runner import build_account
from lab_sandbox.partner.client import open_partner_client
from lab_sandbox.partner.errors import Json, decode
from tests.harness.clock import DEADLINE, wait_until_ended
from tests.harness.installation import ProcessHarness
from tests.harness.proof import FIGURES, SHARE, in_full

FULL, SHORT = 200, 3
_STALLED = 60.0
"""Seconds without a newer version after which those that are missing are lost."""
LABORATORY = {
    "grant_type": "password",
    "username": "laboratory",
    "password": "demo-laboratory-password",
    "client_id": "lab-agent",
    "client_secret": "demo-laboratory-secret",
}
CRASH_POINTS = [
    "before update Observation",
    "after update Observation",
    "after commit upload Observation",
    "before update DiagnosticReport",
    "after update DiagnosticReport",
    "after commit upload DiagnosticReport",
    "before commit deliver_report:done",
    "after commit deliver_report:done",
    "before commit deliver_report:started",
    "after commit report",
]
FAULTS = """
seed = 7
[[faults]]
kind = "lost_reply"
route = "PUT /fhir/Observation/*"
caller = "laboratory"
probability = 0.3
[[faults]]
kind = "lost_reply"
route = "PUT /fhir/DiagnosticReport/*"
caller = "laboratory"
probability = 0.3
[[faults]]
kind = "lost_reply"
route = "POST /fhir/Observation"
probability = 0.3
"""


@pytest.mark.slow
@pytest.mark.timeout(200)
async def test_report_versions_survive_a_few_crashes(harness: ProcessHarness) -> None:
    await killed_while_delivering(harness, SHORT)


@in_full
@pytest.mark.proof
@pytest.mark.timeout(3600)
async def test_report_versions_survive_many_crashes(harness: ProcessHarness) -> None:
    await killed_while_delivering(harness, max(SHORT, int(FULL * SHARE)))


async def killed_while_delivering(harness: ProcessHarness, kills: int) -> None:
    """One order; after its first results, one new version for each kill, dropped while the agent runs into its crash point."""
    await with_faults(harness)
    async with open_partner_client(build_account(harness.workspace)) as client:
        harness.use_client(client)
        agent = await harness.start_agent()
        order = await harness.place_order("kills")
        await harness.wait_until_ended(order)
        await agent.stop()
        (order_file,) = harness.lis.received
        line = order_file["lines"][0]["key"]
        for number in range(kills):
            doomed = await harness.start_agent(CRASH_POINTS[number % len(CRASH_POINTS)])
            correct(harness, order_file["key"], line, number + 2)
            await doomed.wait_killed()
        await harness.start_agent()
        wanted = ["1.20", *(value_of(version) for version in range(2, kills + 2))]

        async def unfinished() -> str:
            last = (await issued(harness, line))[-1]
            is_there = last == issued_of(kills + 1) and not await waiting(harness)
            return "" if is_there else f"the newest version on the service is that of {last}"

        await wait_until_ended(unfinished, _STALLED, interval=1)
        assert await values(harness, line) == wanted
        FIGURES.add(kills_while_delivering=kills, versions=len(wanted))
        assert (await issued(harness, line))[1:] == [issued_of(version) for version in range(2, kills + 2)]


def value_of(version: int) -> str:
    return f"{version}.50"


def issued_of(version: int) -> str:
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=version)).isoformat()


def correct(harness: ProcessHarness, order: str, line: str, version: int) -> None:
    code = {"system": "http://loinc.org", "code": "718-7"}
    body = {
        "report_id": f"rep-{line}",
        "version": version,
        "status": "final",
        "order": order,
        "lines": [line],
        "effective": issued_of(version),
        "issued": issued_of(version),
        "observations": [{"id": "x", "code": code, "value_quantity": {"value": value_of(version), "unit": "g/L"}}],
    }
    write_atomically(harness.workspace.results, f"{line}-{version:04}.json", json.dumps(body).encode())


async def waiting(harness: ProcessHarness) -> bool:
    return any(harness.workspace.results.glob("*.json"))


async def values(harness: ProcessHarness, line: str) -> list[str]:
    return [str(each["valueQuantity"]["value"]) for each in await history(harness, "Observation", f"rep-{line}")]


async def issued(harness: ProcessHarness, line: str) -> list[str]:
    """Of the report, which is the commit point: it comes after its values."""
    return [str(each["issued"]) for each in await history(harness, "DiagnosticReport", f"rep-{line}")]


async def history(harness: ProcessHarness, kind: str, report: str) -> list[Json]:
    """Every version of the one resource of a report, oldest first, as its owner may read it."""
    found = [each for each in await harness.client.search(kind, {}) if report in each["identifier"][0]["value"]]
    assert len(found) == 1, f"{len(found)} {kind} resources of {report}"
    address = f"{harness.workspace.service_url}fhir/{kind}/{found[0]['id']}/_history"
    async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE) as owner:
        signed_in = (await owner.post(f"{harness.workspace.service_url}connect/token", data=LABORATORY)).raise_for_status()
        bearer = {"Authorization": f"Bearer {signed_in.json()['access_token']}"}
        answer: dict[str, Any] = decode((await owner.get(address, headers=bearer)).raise_for_status().content)
    entries = [entry.get("resource", entry) for entry in answer["entry"]]
    return sorted(entries, key=lambda each: int(each["meta"]["versionId"]))


async def with_faults(harness: ProcessHarness) -> None:
    """Start the service anew, with lost replies and a long memory."""
    settings = harness.workspace.service_settings
    plan = settings.with_name("kills.toml")
    plan.write_text(FAULTS)
    text = settings.read_text()
    assert "log_requests" in text
    text = text.replace("log_requests", f'faults = "{plan}"\nlog_requests', 1).replace(
        "[rules]", "[rules]\nhistory_limit = 1000", 1
    )
    settings.write_text(text)
    await harness.stop_service()
    await harness.start_service()
