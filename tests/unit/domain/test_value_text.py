"""Values as text, digit for digit."""

from __future__ import annotations

from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any

import pytest

from lab_agent.domain.lab_messages import Document, ReferenceRange, ReportedObservation
from lab_agent.domain.value_text import format_reference_ranges, format_value
from lab_agent.domain.values import CodeableConcept, Coding, PartialDate, Period, Quantity, Range, Ratio

MMOL = Quantity(value=Decimal("1.20"), unit="mmol/L", code="mmol/L")
MOMENT = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)


def amount(value: str, unit: str | None = "g/L", comparator: str | None = None, code: str | None = None) -> Quantity:
    return Quantity(value=Decimal(value), unit=unit, comparator=comparator, code=code)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"value_quantity": MMOL}, "1.20 mmol/L"),
        ({"value_quantity": amount("1E+3", comparator=">=")}, ">=1000 g/L"),
        ({"value_quantity": amount("5", unit=None)}, "5"),
        ({"value_quantity": amount("5", unit=None, code="[pH]")}, "5 [pH]"),
        ({"value_quantity": amount("5", code="other")}, "5 g/L"),
        ({"value_codeable_concept": CodeableConcept(text="found", coding=(Coding(code="F"),))}, "found"),
        ({"value_codeable_concept": CodeableConcept(coding=(Coding(code="a", display="A"), Coding(code="b")))}, "A, b"),
        ({"value_range": Range(low=amount("1.0"), high=amount("2.50"))}, "1.0 – 2.50 g/L"),
        ({"value_range": Range(low=amount("1", "mg"), high=amount("2", "g"))}, "1 mg – 2 g"),
        ({"value_range": Range(low=amount("1"))}, "1 g/L –"),
        ({"value_range": Range(high=amount("2"))}, "– 2 g/L"),
        ({"value_ratio": Ratio(numerator=amount("1", None), denominator=amount("128", None))}, "1 : 128"),
        ({"value_period": Period(start=PartialDate("2024"), end=MOMENT)}, "2024 – 2026-03-02 08:30+00:00"),
        ({"value_period": Period(end=PartialDate("2024-05"))}, "– 2024-05"),
        ({"value_date_time": PartialDate("2024-05-17")}, "2024-05-17"),
        ({"value_date_time": MOMENT}, "2026-03-02 08:30+00:00"),
        ({"value_time": time(8, 30)}, "08:30:00"),
        ({"value_string": "plain"}, "plain"),
        ({"value_string": ""}, ""),
    ],
)
def test_value_is_shown_with_its_digits(value: dict[str, Any], text: str) -> None:
    assert format_value(ReportedObservation(code=Coding(code="c"), **value)) == text


def test_attachment_is_not_shown_in_a_cell() -> None:
    shown = format_value(ReportedObservation(code=Coding(code="c"), value_attachment=Document(url="https://x.example/1")))
    assert shown
    assert "x.example" not in shown


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        ((), ""),
        ((ReferenceRange(),), ""),
        ((ReferenceRange(low=amount("1"), high=amount("2")),), "1 – 2 g/L"),
        ((ReferenceRange(low=amount("1")),), "1 g/L –"),
        ((ReferenceRange(high=amount("2"), text="after meals"),), "– 2 g/L after meals"),
        (
            (
                ReferenceRange(
                    meaning=CodeableConcept(text="normal"),
                    age=Range(low=amount("1", "a"), high=amount("9", "a")),
                    high=amount("2"),
                ),
                ReferenceRange(),
                ReferenceRange(text="none"),
            ),
            "normal age 1 – 9 a: – 2 g/L\nnone",
        ),
    ],
)
def test_reference_ranges_are_one_line_each(ranges: tuple[ReferenceRange, ...], text: str) -> None:
    assert format_reference_ranges(ranges) == text
