"""Values of HL7 v2 messages from the adapter's port to the clinic: no unit is lost, and every text can be read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest

from lab_agent.workflow.result_inbox import StoreInbox
from tests.harness.hl7_results import Hl7Results, results_over_mllp
from tests.harness.results import ResultsBench

OBR = "OBR|1||A-1|001.001|||20260303080000+0000|||||||||||||||20260303093000+0000|||F"
LEUKOCYTES, CULTURE = "6690-2", "630-4"


@pytest.fixture
async def results(bench: ResultsBench, tmp_path: Path) -> AsyncIterator[Hl7Results]:
    async with results_over_mllp(bench, tmp_path) as opened:
        yield opened


@pytest.mark.parametrize(
    ("kind", "text", "unit", "value", "shown"),
    [
        ("NM", "7.20", "10^9/L", "7.20", "10^9/L"),
        ("NM", "7.20", "10\\S\\9/L", "7.20", "10^9/L"),
        ("ST", "5.1", "mmol/l", "5.1", "mmol/l"),
        ("TX", "<0.50", "mg/L", "0.50", "mg/L"),
    ],
)
async def test_quantity_reaches_clinic_with_its_unit(
    results: Hl7Results, kind: str, text: str, unit: str, value: str, shown: str
) -> None:
    assert await results.send(OBR, f"OBX|1|{kind}|{LEUKOCYTES}^WBC^LN||{text}|{unit}|4.0-10.0||||F") == "AA"
    [one] = await results.values(LEUKOCYTES)
    assert (one["valueQuantity"]["value"], one["valueQuantity"]["unit"]) == (Decimal(value), shown)
    assert one["referenceRange"][0]["high"]["unit"] == shown


async def test_text_range_and_escapes_reach_clinic_readable(results: Hl7Results) -> None:
    first = f"OBX|1|ST|{LEUKOCYTES}^WBC^LN||5-10|/HPF|^^10.0||||F"
    second = f"OBX|2|FT|{CULTURE}^Culture^LN||\\H\\caf\\X00E9\\\\N\\\\.br\\a\\X07\\b||||||F"
    assert await results.send(OBR, first, second) == "AA"
    [counted], [text] = await results.values(LEUKOCYTES), await results.values(CULTURE)
    assert counted["valueString"] == "5-10 /HPF"
    assert [counted["referenceRange"][0]["text"], str(counted["referenceRange"][0]["high"]["value"])] == ["10.0", "10.0"]
    assert text["valueString"] == "café\nab"


async def test_day_of_collection_reaches_clinic_as_a_day(results: Hl7Results) -> None:
    assert await results.send(OBR.replace("20260303080000+0000", "20260303"), f"OBX|1|NM|{LEUKOCYTES}^WBC^LN||7|||||F") == "AA"
    [report] = await results.bench.clinic_reports()
    assert report.resource["effectiveDateTime"] == "2026-03-03"


async def test_values_that_are_no_numbers_reach_clinic_beside_the_others(results: Hl7Results) -> None:
    first = f"OBX|1|NM|{LEUKOCYTES}^WBC^LN||7.20|10*9/L|||||F"
    second = f"OBX|2|NM|{CULTURE}^Culture^LN||****||||||F"
    assert await results.send(OBR, first, second) == "AA"
    [number], [text] = await results.values(LEUKOCYTES), await results.values(CULTURE)
    assert (number["valueQuantity"]["value"], text["valueString"]) == (Decimal("7.20"), "****")


async def test_inbox_seals_what_an_adapter_keeps(bench: ResultsBench) -> None:
    inbox = StoreInbox(bench.store, bench.clock, "lis")
    sealed = await inbox.seal(b"PID|1||X")
    assert b"PID" not in sealed
    assert await inbox.unseal(sealed) == b"PID|1||X"
    assert await inbox.unseal(b"altered" + sealed) is None
