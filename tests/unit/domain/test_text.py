"""Foreign words in our own sentences, ages, and values as text, digit for digit."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest

from lab_agent.lis.lab_messages import Document, ReferenceRange, ReportedObservation
from lab_agent.lis.susceptibility import SUSCEPTIBILITY_CODES, susceptibility_coding, susceptibility_flags
from lab_agent.lis.value_text import format_reference_ranges, format_value
from lab_agent.shared.text import MAX_LENGTH, address_origin, escape_unprintable, format_age, join_limited, shorten
from lab_agent.shared.values import CodeableConcept, Coding, PartialDate, Period, Quantity, Range, Ratio


def test_long_text_shortened_to_one_line() -> None:
    assert (shorten("Анализ 7"), shorten("a\nb")) == ("Анализ 7", "a?b")
    assert shorten("x" * MAX_LENGTH) == "x" * MAX_LENGTH
    assert shorten("abc", 2) == "ab…"
    assert MAX_LENGTH == 80
    assert shorten("x" * 100_000) == "x" * MAX_LENGTH + "…"


def test_long_list_shows_first_few() -> None:
    assert join_limited("abc") == "a, b, c"
    assert join_limited("abcde") == "a, b, c, d, e"
    assert join_limited("abcdef") == "a, b, c, d, e, and 1 more"
    assert join_limited("abcdefg", "; ") == "a; b; c; d; e; and 2 more"
    assert join_limited(()) == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ё 😀\n\t", "plain ё 😀\n\t"),
        ("\x1b]0;x\x07", "\\u001b]0;x\\u0007"),
        ("\x9b2J\r", "\\u009b2J\\u000d"),
        ("\u202eabc\u2069\u200f", "\\u202eabc\\u2069\\u200f"),
        ("\ud83d", "\\ud83d"),
        ("\U000e0041", "\\udb40\\udc41"),
        ("می\u200cخواهم", "می\u200cخواهم"),
    ],
)
def test_unprintable_characters_become_escapes(text: str, shown: str) -> None:
    assert escape_unprintable(text) == shown


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("https://user@x.example:8443/path?query#end", "https://x.example:8443"),
        (" http://x.example/path ", "http://x.example"),
        ("//x.example/path", "http://x.example"),
        ("path", "http://"),
        ("https://x.example:port/", "an address that cannot be read"),
    ],
)
def test_origin_of_an_address_names_nobody(address: str, origin: str) -> None:
    assert address_origin(address) == origin


NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59, "59 s"),
        (60, "1 min"),
        (3_600, "1 h"),
        (3_660, "1 h 1 min"),
        (86_399, "23 h 59 min"),
        (86_400, "1 d"),
        (90_000, "1 d 1 h"),
        (-1, "in 1 s"),
    ],
)
def test_age_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_age(NOW - timedelta(seconds=seconds), NOW) == text
    assert format_age(None, NOW) == "never"


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


def test_codes_are_those_of_microbiology_with_their_displays() -> None:
    assert ", ".join(f"{code} {display}" for code, display in SUSCEPTIBILITY_CODES.items()) == (
        "S Susceptible, I Intermediate, R Resistant, SDD Susceptible-dose dependent, NS Non-susceptible, "
        "MS Moderately susceptible, VS Very susceptible, IE Insufficient evidence, WT Wild type, NWT Non-wild type, "
        "SYN-R Synergy - resistant, SYN-S Synergy - susceptible"
    )


@pytest.mark.parametrize(("flags", "found", "code"), [((), (), None), (("H", "A"), (), None), (("H", "R", "S"), ("R", "S"), "R")])
def test_first_susceptibility_is_the_coding(flags: tuple[str, ...], found: tuple[str, ...], code: str | None) -> None:
    assert susceptibility_flags(flags) == found
    expected = code and Coding(system="http://hl7.org/fhir/v2/0078", code=code, display=SUSCEPTIBILITY_CODES[code])
    assert susceptibility_coding(flags) == expected
