from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from lab_agent.fhir.content_digest import Digest, are_values_same, content_digest, split_digest
from lab_agent.fhir.content_meaning import clinical_meaning, content_meaning, is_same_statement

BASE = "https://exchange.example/api/"
OBSERVATION: dict[str, Any] = {
    "resourceType": "Observation",
    "status": "final",
    "code": {"coding": [{"system": "http://loinc.org", "code": "718-7", "display": "Hb"}]},
    "subject": {"reference": "patient/8"},
    "valueQuantity": {"value": Decimal("13.20"), "unit": "g/dL"},
    "referenceRange": [{"low": {"value": Decimal("12.0")}}],
    "effectiveDateTime": "2026-03-03T10:00:00+03:00",
}


def changed(**fields: Any) -> dict[str, Any]:
    return {**OBSERVATION, **fields}


@pytest.mark.parametrize(
    "fields",
    [
        {"subject": {"reference": "Patient/8"}},
        {"subject": {"reference": "https://exchange.example/api/fhir/Patient/8/_history/3", "display": "Anna"}},
        {"method": {}, "comment": "", "specimen": None, "interpretation": [{}]},
        {"effectiveDateTime": "2026-03-03T07:00:00Z"},
        {"extension": [{"url": "x"}], "_status": {"id": "1"}},
        {"referenceRange": [{"id": "r1", "low": {"value": Decimal("12.0"), "unit": ""}}, {}]},
    ],
)
def test_spelling_of_the_service_changes_no_content(fields: dict[str, Any]) -> None:
    assert content_meaning(changed(**fields), BASE) == content_meaning(OBSERVATION, BASE)


@pytest.mark.parametrize(
    "fields",
    [
        {"subject": {"reference": "Patient/9"}},
        {"valueQuantity": {"value": Decimal("13.2"), "unit": "g/dL"}},
        {"effectiveDateTime": "2026-03-03"},
        {"comment": "haemolytic"},
    ],
)
def test_other_content_differs(fields: dict[str, Any]) -> None:
    before, after = (split_digest(content_digest(body, BASE)) for body in (OBSERVATION, changed(**fields)))
    assert before.content != after.content


@pytest.mark.parametrize(
    "fields",
    [
        {"valueQuantity": {"value": Decimal("13.2"), "unit": "g/dL"}},
        {"valueQuantity": {"value": Decimal("1.32E+1"), "unit": "g/dL"}},
        {"code": {"coding": [{"system": "http://loinc.org", "code": "718-7"}], "text": "Haemoglobin"}},
        {"referenceRange": [{"low": {"value": 12}}]},
        {"status": "amended", "method": {"text": "SLS"}, "comment": "x", "specimen": {"reference": "specimen/1"}},
    ],
)
def test_same_statement_is_not_amended(fields: dict[str, Any]) -> None:
    assert clinical_meaning(changed(**fields), BASE) == clinical_meaning(OBSERVATION, BASE)


@pytest.mark.parametrize(
    "fields",
    [
        {"valueQuantity": {"value": Decimal("13.21"), "unit": "g/dL"}},
        {"valueQuantity": {"value": Decimal("-13.2"), "unit": "g/dL"}},
        {"valueQuantity": {"value": Decimal("13.2"), "unit": "g/dL", "comparator": "<"}},
        {"valueQuantity": {"value": Decimal("13.2"), "unit": "g/L"}},
        {"code": {"coding": [{"system": "http://loinc.org", "code": "718-8"}]}},
        {"referenceRange": [{"low": {"value": Decimal("12.5")}}]},
        {"valueQuantity": None, "valueString": "13.20"},
    ],
)
def test_value_unit_range_and_code_amend(fields: dict[str, Any]) -> None:
    assert clinical_meaning(changed(**fields), BASE) != clinical_meaning(OBSERVATION, BASE)


def test_huge_numbers_are_compared_by_every_digit() -> None:
    one, other = ({"valueQuantity": {"value": Decimal("1" * 40 + end)}} for end in ("1", "2"))
    assert clinical_meaning(one, BASE) != clinical_meaning(other, BASE)


def test_digest_is_taken_apart_again() -> None:
    digest = split_digest(content_digest(OBSERVATION, BASE))
    assert digest.status == "final"
    assert len(digest.values) == len(digest.content) == 64
    assert split_digest(str(Digest("final"))) == Digest("final")
    assert split_digest("") == Digest("")


LOINC_CODING = {"system": "http://loinc.org", "code": "718-7"}


@pytest.mark.parametrize(
    "fields",
    [
        {"code": {"coding": [{**LOINC_CODING, "version": "2.68", "display": "Hemoglobin"}]}},
        {"code": {"coding": [{"system": "urn:service", "code": "1"}, LOINC_CODING]}},
        {"code": {"coding": [{"system": "http://loinc.org/", "code": "718-7"}]}},
        {"valueQuantity": {"value": Decimal("13.2"), "unit": "g/dL", "system": "http://unitsofmeasure.org", "code": "g/dL"}},
        {"referenceRange": [{"low": {"value": Decimal(12)}, "text": "from 12"}]},
        {"comment": "added", "performer": [{"display": "x"}]},
    ],
)
def test_additions_of_the_service_amend_nothing(fields: dict[str, Any]) -> None:
    assert is_same_statement(changed(**fields), OBSERVATION, BASE)


@pytest.mark.parametrize(
    "fields",
    [
        {"valueQuantity": {"value": Decimal("13.20"), "unit": "g/dL", "comparator": "<"}},
        {"valueQuantity": {"value": Decimal("13.20")}},
        {"valueQuantity": {"value": Decimal("13.21"), "unit": "g/dL"}},
        {"referenceRange": [{"low": {"value": Decimal("12.0")}, "high": {"value": Decimal(16)}}]},
        {"referenceRange": [{"low": {"value": Decimal("12.0")}}, {"text": "children differ"}]},
        {"referenceRange": None},
        {"code": {"coding": [{"system": "urn:service", "code": "1"}]}},
        {"valueString": "13.20"},
    ],
)
def test_another_statement_on_the_service_is_amended(fields: dict[str, Any]) -> None:
    """What only looks like an addition (a comparator, a limit) was another statement."""
    assert not is_same_statement(changed(**fields), OBSERVATION, BASE)


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [("positive", "negative", False), ("positive", "positive", True), ("positive", None, True), (None, "negative", True)],
)
def test_renamed_answer_is_another_statement(before: str | None, after: str | None, same: bool) -> None:
    """The same code under another display: only where one side has none is there nothing to compare."""
    bodies = [
        changed(
            valueQuantity=None, valueCodeableConcept={"coding": [{"system": "http://lab/x", "code": "1", "display": display}]}
        )
        for display in (before, after)
    ]
    assert is_same_statement(*bodies, BASE) is same
    first, second = (split_digest(content_digest(body, BASE)) for body in bodies)
    assert are_values_same(first, second) is same
