"""All checks of the daily flow pass when the laboratory works correctly, and each kind of fault makes its check fail."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from lab_sandbox.partner.errors import Json

HAEMOGLOBIN = "718-7"


async def test_daily_flow_passes(world):
    check_list, orders = await world.run_flow()
    assert [check for check in check_list.checks if not check.ok] == []
    assert set(orders) == {"shared-tubes", "unknown-code", "anonymous", "culture", "special-studies", "rejected-sample"}
    assert orders["unknown-code"]["lines"]["999.999"] == "cancelled"
    assert orders["unknown-code"]["status"] == "completed"
    assert len(check_list.checks) > 50


def _changed_digits(resource: Json) -> Json:
    """One more trailing zero, as a careless conversion would add."""
    coding = resource.get("code", {}).get("coding", [{}])[0]
    if coding.get("code") != HAEMOGLOBIN:
        return resource
    quantity = resource["valueQuantity"]
    return {**resource, "valueQuantity": {**quantity, "value": Decimal(f"{quantity['value']}0")}}


def _missing_unit(resource: Json) -> Json:
    if "valueQuantity" not in resource:
        return resource
    return {**resource, "valueQuantity": {name: one for name, one in resource["valueQuantity"].items() if name != "unit"}}


def _other_document(resource: Json) -> Json:
    return {**resource, "content": "JVBERi0xLjQK"} if resource["resourceType"] == "Binary" else resource


def _missing_reason(resource: Json) -> Json:
    return {name: one for name, one in resource.items() if name != "output"} if resource["resourceType"] == "Task" else resource


def _missing_results(resource: Json) -> Json:
    if resource["resourceType"] != "DiagnosticReport":
        return resource
    return {name: one for name, one in resource.items() if name != "result"}


def _never_final(resource: Json) -> Json:
    return {**resource, "status": "partial"} if resource["resourceType"] == "DiagnosticReport" else resource


@pytest.mark.parametrize(
    ("corrupt", "check"),
    [
        (_changed_digits, "shared-tubes: values equal those of the laboratory, digit by digit"),
        (_missing_unit, "shared-tubes: values equal those of the laboratory, digit by digit"),
        (_other_document, "anonymous: the PDFs equal those of the laboratory, byte by byte"),
        (_missing_reason, "unknown-code: the clinic reads which code is unknown"),
        (_missing_results, "shared-tubes: each performed line has a report, the others have none"),
        (_never_final, "shared-tubes: every report is final"),
    ],
)
async def test_fault_fails_its_check(world, corrupt: Callable[[Json], Json], check: str):
    check_list, _ = await world.run_flow(corrupt, timeout=2.0)
    assert not check_list.ok
    assert check in {one.name for one in check_list.checks if not one.ok}
