"""Each deviation of what we send from FHIR STU3 is real, and the check of the other tests would see it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness.stu3_schema import DEVIATIONS, find_stu3_violations

CONCEPT = {"coding": [{"system": "http://loinc.org", "code": "718-7"}]}
OBSERVATION = {"resourceType": "Observation", "status": "final", "code": CONCEPT, "valueString": "x"}
TASK = {"resourceType": "Task", "status": "cancelled", "intent": "order"}
EXAMPLES: dict[str, Any] = {
    "Observation.referenceRange.meaning": {**OBSERVATION, "referenceRange": [{"meaning": {"text": "normal"}, "text": "1"}]},
    "Observation.referenceRange": {**OBSERVATION, "referenceRange": [{"age": {"low": {"value": 18}}}]},
    "Resource.meta.security.system": {**OBSERVATION, "meta": {"security": [{"system": "read", "code": "guid"}]}},
    "Reference.reference": {**OBSERVATION, "subject": {"reference": "patient/8"}},
    "Task.intent": {"resourceType": "Task", "status": "cancelled"},
}


@pytest.mark.parametrize("name", sorted(DEVIATIONS))
def test_each_deviation_is_real_and_seen(name: str) -> None:
    others = tuple(each for each in DEVIATIONS if each != name)
    assert find_stu3_violations(EXAMPLES[name]) == []
    assert find_stu3_violations(EXAMPLES[name], tolerated=others) != []


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
