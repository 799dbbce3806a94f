"""The check of what the other tests send would see what is no deviation that we name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.stu3_schema import find_stu3_violations

CONCEPT = {"coding": [{"system": "http://loinc.org", "code": "718-7"}]}
OBSERVATION = {"resourceType": "Observation", "status": "final", "code": CONCEPT, "valueString": "x"}
TASK = {"resourceType": "Task", "status": "cancelled", "intent": "order"}


@pytest.mark.parametrize(
    "invalid",
    [
        {**TASK, "output": [{"valueString": "no type"}]},
        {**TASK, "basedOn": [{"reference": "order/8"}]},
        {**OBSERVATION, "subject": {"reference": "8"}},
        {**OBSERVATION, "code": {"coding": [{"system": "LOINC", "code": "718-7"}]}},
        {**OBSERVATION, "referenceRange": [{"low": {"value": 1, "code": "g"}}]},
        {key: value for key, value in OBSERVATION.items() if key != "status"},
        {"resourceType": "Binary", "contentType": "text/plain"},
        {"resourceType": "DiagnosticReport", "status": "final", "code": CONCEPT, "unknown": 1},
    ],
)
def test_no_other_violation_passes(invalid: Any) -> None:
    assert find_stu3_violations(invalid) != []
