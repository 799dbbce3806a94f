"""The code of an Observation is LOINC (interface: Observation): nothing else leaves, with or without mapping tables."""

from __future__ import annotations

import pytest

from lab_agent.domain.state_machines import ReportState
from lab_agent.domain.values import Coding
from tests.harness.results import ResultsBench, haemoglobin, make_report


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (Coding(system="urn:lab", code="HGB"), "code 'HGB' is not mapped"),
        (Coding(system="http://snomed.info/sct", code="718-7"), "code '718-7' is not mapped"),
        (Coding(system="http://loinc.org", code="718-0"), "718-7 would be"),
    ],
)
async def test_code_of_other_system_is_held_without_tables(bench: ResultsBench, code: Coding, words: str) -> None:
    held = await bench.receive(make_report(haemoglobin("1", code=code)))
    assert held.state is ReportState.UNMAPPED
    assert words in (held.reason or "")
    assert await bench.clinic_reports() == []
