from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from lab_agent.fhir.json_reader import parse_date_time
from lab_agent.fhir.order_parser import parse_order
from lab_agent.fhir.received_order import AccessRight, MalformedField, ResourceRef
from lab_agent.shared.values import Coding, Identifier
from tests.unit.fhir.sample import answers, graph_of, order_wire, parsed, patient, pr1, put, s1


def test_order_parsed_as_received() -> None:
    order = parsed()
    first, second = order.lines
    assert order.malformed_fields == ()
    assert order.counterparty == "clinic-guid"
    assert order.patient_reference == "patient/p1"
    assert first.request is not None
    assert second.request is not None
    assert first.request.requisition == Identifier(system="https://clinic.example/orders", value="4711")
    assert first.request.identifiers == (Identifier(system="https://clinic.example/lines", value="4711-1"),)
    assert first.request.notes == ("fasting",)
    assert first.request.occurrence is not None
    assert first.request.occurrence.at == datetime(2026, 3, 2, 9, 0, 0, 123456, tzinfo=timezone(timedelta(hours=3)))
    assert second.request.rights[0] == AccessRight("owner", "clinic-guid")
    assert [right.name for right in first.request.rights] == ["owner", "read"]
    assert order.specimens[0].containers[0].quantity == Decimal("0.80")
    assert str(order.specimens[0].containers[0].quantity) == "0.80"
    assert order.specimens[1].containers[0].where == "Specimen[1].container[0]"
    assert order.specimens_of(second.request) == (order.specimens[1],)
    assert order.lines_of(order.specimens[0]) == (first,)
    assert order.patient is not None
    assert order.patient.birth_date == date(1990, 12, 10)
    assert not order.patient.names[0].is_anonymous


def test_questionnaire_answers_flattened_and_zero_kept() -> None:
    responses = parsed().responses
    assert responses is not None
    values = {answer.link_id: answer.values for answer in responses[0].answers}
    assert values["anticoagulant"] == (Coding(system="https://lab.example/codes/anticoagulant", code="none"),)
    assert values["cycle-day"] == (0,)


def answered(*questions: dict[str, Any]) -> Any:
    responses = parsed(put(answers, "item", to=list(questions))).responses
    assert responses is not None
    return responses[0].answers


@pytest.mark.parametrize(
    ("answer", "values"),
    [
        ({"valueBoolean": False}, (False,)),
        ({"valueInteger": 0}, (0,)),
        ({"valueDecimal": Decimal("1.50")}, (Decimal("1.50"),)),
        ({"valueString": "x"}, ("x",)),
        ({"valueDate": "2026-01-01"}, ("2026-01-01",)),
        ({"valueCoding": {"display": "no code"}}, ("no code",)),
        ({"valueCoding": {"system": "urn:x"}}, ()),
        ({"valueQuantity": {"value": 5}}, (Decimal(5),)),
        ({"valueQuantity": {"value": Decimal("1.50"), "comparator": "<"}}, ("<1.50",)),
        ({"valueQuantity": {"unit": "L"}}, ()),
        ({}, ()),
    ],
)
def test_any_scalar_answer_accepted(answer: Any, values: Any) -> None:
    (found,) = answered({"linkId": "x", "answer": [answer]})
    assert found.values == values
    assert [type(value) for value in found.values] == [type(value) for value in values]


def test_units_of_answers_kept() -> None:
    amounts = [{"value": 5, "unit": "L"}, {"value": 6}, {"value": 7, "code": "mL"}, {"unit": "L"}]
    given = [{"valueQuantity": amount} for amount in amounts]
    found = answered({"linkId": "x", "answer": given}, {"linkId": "y", "answer": [{"valueInteger": 1}]})
    assert [(answer.values, answer.units) for answer in found] == [((5, 6, 7), ("L", "", "mL")), ((1,), ())]


def test_value_of_wrong_type_dropped_and_recorded() -> None:
    order = parsed(
        put(s1, "container", 0, "specimenQuantity", "value", to="0.8"),
        put(patient, "birthDate", to=19901210),
        put(pr1, "note", to="fasting"),
    )
    assert set(order.malformed_fields) == {
        MalformedField("Specimen[0].container[0].specimenQuantity.value", "is not a number"),
        MalformedField("Patient.birthDate", "is not a string"),
        MalformedField("ProcedureRequest[0].note", "is not an array"),
    }
    assert order.specimens[0].containers[0].quantity is None


def test_unknown_responses_stay_unknown_and_duplicates_count_once() -> None:
    wire = order_wire()
    found = graph_of(wire).with_resource(ResourceRef("QuestionnaireResponse", "q1"), answers(wire))
    assert len(parse_order(found).responses or ()) == 1
    assert parsed(lambda wire: wire.update(questionnaire_responses=None)).responses is None


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("2026-03-02T09:00+03:00", True),
        ("2026-03-02T09:00:00.1-00:00", True),
        ("2026-03-02T09:00:00", False),
        ("2026-03-02", False),
        ("2026-13-02T09:00:00Z", False),
        ("2026-W01-1T09:00:00Z", False),
        ("", False),
    ],
)
def test_time_requires_utc_offset(text: str, good: bool) -> None:
    assert (parse_date_time(text) is not None) is good
