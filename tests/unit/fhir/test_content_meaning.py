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
    ("fields", "same"),
    [
        ({"subject": {"reference": f"{BASE}fhir/Patient/8/_history/3", "display": "Anna"}}, True),
        ({"method": {}, "comment": "", "specimen": None, "interpretation": [{}]}, True),
        ({"effectiveDateTime": "2026-03-03T07:00:00Z"}, True),
        ({"extension": [{"url": "x"}], "_status": {"id": "1"}}, True),
        ({"referenceRange": [{"id": "r1", "low": {"value": Decimal("12.0"), "unit": ""}}, {}]}, True),
        ({"subject": {"reference": "Patient/9"}}, False),
        ({"valueQuantity": {"value": Decimal("13.2"), "unit": "g/dL"}}, False),
        ({"effectiveDateTime": "2026-03-03"}, False),
        ({"comment": "haemolytic"}, False),
    ],
)
def test_spelling_of_the_service_changes_no_content(fields: dict[str, Any], same: bool) -> None:
    assert not same or content_meaning(changed(**fields), BASE) == content_meaning(OBSERVATION, BASE)
    before, after = (split_digest(content_digest(body, BASE)) for body in (OBSERVATION, changed(**fields)))
    assert (before.content == after.content) is same


def grams(value: str, **more: Any) -> dict[str, Any]:
    return {"valueQuantity": {"value": Decimal(value), "unit": "g/dL", **more}}


def coded(*codings: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"code": {"coding": list(codings), **more}}


LOINC_CODING = {"system": "http://loinc.org", "code": "718-7"}


@pytest.mark.parametrize(
    ("fields", "same"),
    [
        (grams("13.2"), True),
        (grams("1.32E+1"), True),
        (coded(LOINC_CODING, text="Haemoglobin"), True),
        ({"referenceRange": [{"low": {"value": 12}}]}, True),
        ({"status": "amended", "method": {"text": "SLS"}, "comment": "x", "specimen": {"reference": "specimen/1"}}, True),
        (grams("13.21"), False),
        (grams("13.2", comparator="<"), False),
        (grams("13.2", unit="g/L"), False),
        (coded({"system": "http://loinc.org", "code": "718-8"}), False),
        ({"referenceRange": [{"low": {"value": Decimal("12.5")}}]}, False),
        ({"valueQuantity": None, "valueString": "13.20"}, False),
    ],
)
def test_value_unit_range_and_code_amend(fields: dict[str, Any], same: bool) -> None:
    assert (clinical_meaning(changed(**fields), BASE) == clinical_meaning(OBSERVATION, BASE)) is same


def test_huge_numbers_are_compared_by_every_digit() -> None:
    one, other = ({"valueQuantity": {"value": Decimal("1" * 40 + end)}} for end in ("1", "2"))
    assert clinical_meaning(one, BASE) != clinical_meaning(other, BASE)


def test_digest_is_taken_apart_again() -> None:
    digest = split_digest(content_digest(OBSERVATION, BASE))
    assert digest.status == "final"
    assert len(digest.values) == len(digest.content) == 64
    assert split_digest(str(Digest("final"))) == Digest("final")
    assert split_digest("") == Digest("")
    assert content_digest(changed(id="1", meta={"versionId": "2"}), BASE) == content_digest(OBSERVATION, BASE)


@pytest.mark.parametrize(
    "fields",
    [
        coded({**LOINC_CODING, "version": "2.68", "display": "Hemoglobin"}),
        coded({"system": "urn:service", "code": "1"}, LOINC_CODING),
        coded({"system": "http://loinc.org/", "code": "718-7"}),
        grams("13.2", system="http://unitsofmeasure.org", code="g/dL"),
        {"referenceRange": [{"low": {"value": Decimal(12)}, "text": "from 12"}]},
        {"comment": "added", "performer": [{"display": "x"}]},
    ],
)
def test_additions_of_the_service_amend_nothing(fields: dict[str, Any]) -> None:
    assert is_same_statement(changed(**fields), OBSERVATION, BASE)


@pytest.mark.parametrize(
    "fields",
    [
        grams("13.20", comparator="<"),
        {"valueQuantity": {"value": Decimal("13.20")}},
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
    codings = [[{"system": "http://lab/x", "code": "1", "display": display}] for display in (before, after)]
    bodies = [changed(valueQuantity=None, valueCodeableConcept={"coding": each}) for each in codings]
    assert is_same_statement(*bodies, BASE) is same
    first, second = (split_digest(content_digest(body, BASE)) for body in bodies)
    assert are_values_same(first, second) is same
