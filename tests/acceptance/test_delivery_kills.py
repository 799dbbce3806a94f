"""The agent is killed while it delivers, with replies lost on top: each report version is there once, and in order."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from lab_sandbox.demo.lis.drop import drop
from lab_sandbox.demo.performance import account
from lab_sandbox.partner.client import partner_client
from lab_sandbox.partner.plain_json import Json, decode
from tests.acceptance.house import House, until
from tests.acceptance.test_kill_moments import ended, place

FULL, SHORT = 200, 3
SHARE = float(os.environ.get("LAB_PROOF_SHARE", "1"))
MOMENTS = [
    "before update Observation",
    "after update Observation",
    "after commit upload Observation",
    "before update DiagnosticReport",
    "after update DiagnosticReport",
    "after commit upload DiagnosticReport",
    "before commit deliver:done",
    "after commit deliver:done",
    "before commit deliver:begun",
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


@pytest.mark.timeout(200)
async def test_versions_survive_a_few_kills(house: House) -> None:
    await killed_while_delivering(house, SHORT)


@pytest.mark.proof
@pytest.mark.timeout(3600)
async def test_versions_survive_many_kills(house: House) -> None:
    await killed_while_delivering(house, max(SHORT, int(FULL * SHARE)))


async def killed_while_delivering(house: House, kills: int) -> None:
    """One order; after its first results, one new version for each kill, dropped while the agent walks into its trap."""
    await with_faults(house)
    async with partner_client(account(house.place)) as client:
        house.signed_in(client)
        agent = await house.agent()
        order = await place(house, "kills")
        await ended(house, order)
        await agent.stop()
        (taken,) = house.lis.taken
        line = taken["lines"][0]["key"]
        for number in range(kills):
            doomed = await house.agent(MOMENTS[number % len(MOMENTS)])
            correct(house, taken["key"], line, number + 2)
            await doomed.killed()
        await house.agent()
        wanted = ["1.20", *(value_of(version) for version in range(2, kills + 2))]

        async def all_there() -> bool:
            return (await issued(house, line))[-1] == issued_of(kills + 1) and not await waiting(house)

        await until(all_there, "the last version on the service", within=120)
        assert await values(house, line) == wanted
        assert (await issued(house, line))[1:] == [issued_of(version) for version in range(2, kills + 2)]


def value_of(version: int) -> str:
    return f"{version}.50"


def issued_of(version: int) -> str:
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=version)).isoformat()


def correct(house: House, order: str, line: str, version: int) -> None:
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
    drop(house.place.results, f"{line}-{version:04}.json", json.dumps(body).encode())


async def waiting(house: House) -> bool:
    """Whether result files lie there that nobody has taken."""
    return any(house.place.results.glob("*.json"))


async def values(house: House, line: str) -> list[str]:
    return [str(each["valueQuantity"]["value"]) for each in await history(house, "Observation", f"rep-{line}")]


async def issued(house: House, line: str) -> list[str]:
    """Of the report, which is the commit point: it comes after its values."""
    return [str(each["issued"]) for each in await history(house, "DiagnosticReport", f"rep-{line}")]


async def history(house: House, kind: str, report: str) -> list[Json]:
    """Every version of the one resource of a report, oldest first, as its owner may read it."""
    found = [each for each in await house.client.search(kind, {}) if report in each["identifier"][0]["value"]]
    assert len(found) == 1, f"{len(found)} {kind} resources of {report}"
    address = f"{house.place.service_url}fhir/{kind}/{found[0]['id']}/_history"
    async with httpx.AsyncClient(auth=("laboratory", "demo-laboratory-password"), trust_env=False) as owner:
        answer: dict[str, Any] = decode((await owner.get(address)).raise_for_status().content)
    entries = [entry.get("resource", entry) for entry in answer["entry"]]
    return sorted(entries, key=lambda each: int(each["meta"]["versionId"]))


async def with_faults(house: House) -> None:
    """Start the service anew, with lost replies and a long memory."""
    settings = house.place.service_settings
    plan = settings.with_name("kills.toml")
    plan.write_text(FAULTS)
    text = settings.read_text()
    assert "log_requests" in text
    text = text.replace("log_requests", f'faults = "{plan}"\nlog_requests', 1).replace(
        "[rules]", "[rules]\nhistory_limit = 1000", 1
    )
    settings.write_text(text)
    await house.service_down()
    await house.service_up()
