"""The story holds when the laboratory does its work, and each kind of fault makes exactly the check about it fail."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from lab_sandbox.partner.errors import Json

HAEMOGLOBIN = "718-7"


async def test_whole_scenario_passes(world):
    ledger, orders = await world.run_story()
    assert [check for check in ledger.checks if not check.ok] == []
    assert set(orders) == {"shared", "bad-line", "anonymous", "growing", "special", "haemolysed"}
    assert orders["bad-line"]["lines"]["999.999"] == "cancelled"
    assert orders["bad-line"]["status"] == "completed"
    assert len(ledger.checks) > 50


def _digits(resource: Json) -> Json:
    """A trailing zero is lost, as a float would lose it."""
    coding = resource.get("code", {}).get("coding", [{}])[0]
    if coding.get("code") != HAEMOGLOBIN:
        return resource
    quantity = resource["valueQuantity"]
    return {**resource, "valueQuantity": {**quantity, "value": Decimal(f"{quantity['value']}0")}}


def _unit(resource: Json) -> Json:
    if "valueQuantity" not in resource:
        return resource
    return {**resource, "valueQuantity": {name: one for name, one in resource["valueQuantity"].items() if name != "unit"}}


def _document(resource: Json) -> Json:
    return {**resource, "content": "JVBERi0xLjQK"} if resource["resourceType"] == "Binary" else resource


def _mute(resource: Json) -> Json:
    return {name: one for name, one in resource.items() if name != "output"} if resource["resourceType"] == "Task" else resource


def _unreadable(resource: Json) -> Json:
    if resource["resourceType"] != "DiagnosticReport":
        return resource
    return {name: one for name, one in resource.items() if name != "result"}


def _never_final(resource: Json) -> Json:
    return {**resource, "status": "partial"} if resource["resourceType"] == "DiagnosticReport" else resource


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_digits, "shared: values are those of the laboratory, digit for digit"),
        (_unit, "shared: values are those of the laboratory, digit for digit"),
        (_document, "anonymous: the PDFs are the laboratory's, byte for byte"),
        (_mute, "bad-line: the clinic reads which code is not known"),
        (_unreadable, "shared: each line that was served has a report, the others have none"),
        (_never_final, "shared: every report is final"),
    ],
)
async def test_fault_fails_its_check(world, spoil: Callable[[Json], Json], words: str):
    ledger, _ = await world.run_story(spoil, timeout=2.0)
    assert not ledger.ok
    assert words in {check.name for check in ledger.checks if not check.ok}
