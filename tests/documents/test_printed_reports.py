"""The plain PDF that the agent makes: all values on it, pages broken, the same bytes each time."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from io import BytesIO
from pathlib import Path

import pytest
from pypdf import PdfReader

from lab_agent.documents.printer import Letterhead, print_report
from lab_agent.documents.room import DocumentRoom
from lab_agent.domain.results import ReferenceRange, ReportedObservation
from lab_agent.domain.values import Coding, Quantity
from lab_agent.settings.results import ResultsSettings
from tests.results.bench import hb, report

DEJAVU = Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")
RANGES = (ReferenceRange(low=Quantity(value=Decimal("12.0"), unit="g/dL"), high=Quantity(value=Decimal("15.50"), unit="g/dL")),)


def text_of(pdf: bytes) -> str:
    return "\n".join(page.extract_text() for page in PdfReader(BytesIO(pdf)).pages)


def test_values_flags_and_ranges_are_on_it() -> None:
    one = hb("13.20", flags=("H",), reference_ranges=RANGES, note="repeated")
    pdf = print_report(report(one), "REQ-77", Letterhead(name="Laboratory <One> & Sons\nMain street"))
    assert pdf is not None
    text = text_of(pdf)
    for words in ("REQ-77", "13.20 g/dL", "12.0 – 15.50 g/dL", "H", "repeated", "Laboratory <One> & Sons"):
        assert words in text


def test_the_exchanges_code_stands_below_the_laboratorys_name() -> None:
    own = hb("13.20", id="a", code=Coding(system="lab", code="HGB", display="Haemoglobin <a>"))
    pdf = print_report(report(own, hb("1", id="b")), "77", Letterhead(), ("718-7", "718-7"))
    assert pdf is not None
    assert "Haemoglobin <a>\n718-7" in text_of(pdf)
    assert text_of(pdf).count("718-7") == 2, "a code that is the name stands there once"


def test_the_same_report_gives_the_same_bytes() -> None:
    pdfs = {print_report(report(), "77", Letterhead()) for _ in range(2)}
    assert len(pdfs) == 1


def test_a_long_report_has_its_headings_on_every_page() -> None:
    many = tuple(
        ReportedObservation(id=str(n), code=Coding(code=f"718-7 number {n}"), value_string=f"value {n}") for n in range(150)
    )
    pdf = print_report(report(*many), "77", Letterhead())
    assert pdf is not None
    pages = [page.extract_text() for page in PdfReader(BytesIO(pdf)).pages]
    assert len(pages) > 2
    assert all("Reference" in page for page in pages)
    assert "value 149" in pages[-1]


@pytest.mark.skipif(not DEJAVU.exists(), reason="DejaVu is not installed here")
def test_letters_beyond_latin_need_a_font_that_has_them() -> None:
    cyrillic = report(replace(hb("1"), value_quantity=None, value_string="жёлтый"))
    pdf = print_report(cyrillic, "77", Letterhead(font=DEJAVU))
    assert pdf is not None
    assert "жёлтый" in text_of(pdf)


def test_a_letter_without_a_form_makes_no_document() -> None:
    odd = report(replace(hb("1"), value_quantity=None, value_string="\U0001f9ea"))
    assert print_report(odd, "77", Letterhead()) is None


def test_nothing_is_printed_unless_it_is_wanted() -> None:
    assert DocumentRoom(ResultsSettings()).printed(report(), "77") is None
    assert DocumentRoom(ResultsSettings(print_reports=True)).printed(report(), "77") is not None
