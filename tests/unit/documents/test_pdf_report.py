"""The plain PDF that the agent makes: all values on it, pages broken, the same bytes each time."""

from __future__ import annotations

from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdf import PdfReader

from lab_agent.lis.lab_messages import ReferenceRange, ReportedObservation
from lab_agent.results.document_service import DocumentService
from lab_agent.results.documents import PrintError
from lab_agent.results.pdf_report import Letterhead, print_report
from lab_agent.settings.groups import ResultsSettings
from lab_agent.shared.values import Coding, PartialDate, Quantity
from tests.harness.documents import PNG
from tests.harness.results import haemoglobin, make_report

DEJAVU = Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")
RANGES = (ReferenceRange(low=Quantity(value=Decimal("12.0"), unit="g/dL"), high=Quantity(value=Decimal("15.50"), unit="g/dL")),)


def pages_of(pdf: bytes | None) -> list[str]:
    return [page.extract_text() for page in PdfReader(BytesIO(pdf or b"")).pages]


def test_pdf_contains_values_flags_and_ranges() -> None:
    one = haemoglobin("13.20", flags=("H",), reference_ranges=RANGES, note="repeated")
    given = make_report(one, effective=PartialDate("2026-02-28"))
    (text,) = pages_of(print_report(given, "REQ-77", Letterhead(name="Laboratory <One> & Sons\nMain street")))
    for words in ("REQ-77", "13.20 g/dL", "12.0 – 15.50 g/dL", "H", "repeated", "Laboratory <One> & Sons", "2026-02-28;"):
        assert words in text


def test_exchange_code_printed_below_laboratory_name() -> None:
    own = haemoglobin("13.20", id="a", code=Coding(system="lab", code="HGB", display="Haemoglobin <a>"))
    (text,) = pages_of(print_report(make_report(own, haemoglobin("1", id="b")), "77", Letterhead(), ("718-7", "718-7")))
    assert "Haemoglobin <a>\n718-7" in text
    assert text.count("718-7") == 2, "a code that is the name stands there once"


def test_long_report_repeats_headings_on_every_page() -> None:
    many = (said(id=str(n), code=Coding(code=f"718-7 number {n}"), value_string=f"value {n}") for n in range(150))
    pages = pages_of(print_report(make_report(*many), "77", Letterhead()))
    assert len(pages) > 2
    assert all("Reference" in page for page in pages)
    assert "value 149" in pages[-1]


@pytest.mark.skipif(not DEJAVU.exists(), reason="DejaVu is not installed here")
def test_non_latin_text_needs_suitable_font() -> None:
    (text,) = pages_of(print_report(make_report(said(value_string="жёлтый")), "77", Letterhead(font=DEJAVU)))
    assert "жёлтый" in text


def test_missing_glyph_yields_no_document() -> None:
    assert print_report(make_report(said(value_string="\U0001f9ea")), "77", Letterhead()) is None


SENTENCE = "The quick brown fox jumps over the lazy dog. "
MANY_RANGES = tuple(ReferenceRange(text=f"age {n}: 1.2 to 3.4 mmol/L") for n in range(40))


def said(**parts: Any) -> ReportedObservation:
    return ReportedObservation(**{"id": "x", "code": Coding(code="718-7"), "value_string": "one", **parts})


@pytest.mark.parametrize(
    ("one", "pages", "last"),
    [
        (said(value_string=SENTENCE * 400 + "the end"), 4, "the end"),
        (said(value_string="W" * 2000 + "xyz"), 1, "Wxyz"),
        (said(value_string="a\n\n" * 100 + "the end"), 4, "the end"),
        (said(code=Coding(code="c" * 5000)), 2, "c"),
        (said(reference_ranges=MANY_RANGES), 1, "age 39: 1.2 to 3.4 mmol/L"),
        (said(flags=("H",) * 500), 1, "H H"),
        (said(note=SENTENCE * 400 + "the end"), 4, "the end"),
        (said(value_string="<b>&amp;" * 500 + "xyz"), 2, ";xyz"),
    ],
    ids=["long text", "one word", "many lines", "code", "ranges", "flags", "note", "marks"],
)
def test_oversized_cell_text_printed_below_table(one: ReportedObservation, pages: int, last: str) -> None:
    """What is too long for its cell is printed whole below the table."""
    given = make_report(haemoglobin("1", id="a"), one, haemoglobin("2", id="b"))
    found = pages_of(print_report(given, "77", Letterhead(name="Laboratory"), ("718-7",) * 3))
    assert len(found) in {pages, pages + 1}
    assert last in found[-1]
    text = "".join("".join(found).split())
    longest = max((one.value_string or "", one.code.display or one.code.code, one.note or ""), key=len)
    for word in longest.split()[-40:]:
        assert word[-30:] in text


PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126) | st.sampled_from("\n\n W"), max_size=80)
LONG = st.builds(lambda text, times: text * times, PRINTABLE, st.sampled_from([1, 2, 5, 20, 100]))


@pytest.mark.slow
@given(st.lists(st.tuples(LONG, LONG, LONG, LONG, st.lists(LONG, max_size=3)), min_size=1, max_size=6))
@settings(deadline=None, max_examples=60)
def test_arbitrary_text_is_printed(rows: list[tuple[str, str, str, str, list[str]]]) -> None:
    """Whatever its texts, a report is printed."""
    observations = (
        said(id=str(index), code=Coding(code=name or "c"), value_string=value, note=note, flags=tuple(flags),
             reference_ranges=(ReferenceRange(text=normal),))
        for index, (name, value, note, normal, flags) in enumerate(rows)
    )  # fmt: skip
    assert print_report(make_report(*observations), "77", Letterhead(), [row[0] for row in rows]) is not None


def test_excessive_text_raises_print_fault() -> None:
    """A report of excessive length is a print fault, and does not fill endless pages."""
    for text in ("x" * 200_000, "\n" * 5_000 + "x"):
        with pytest.raises(PrintError, match="characters long, more than 200000"):
            print_report(make_report(said(value_string=text)), "77", Letterhead())


NO_PICTURE = "results.print_logo: is not a readable picture"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", NO_PICTURE),
        (PNG[:40], NO_PICTURE),
        (b"\xff\xd8\xff\xe0 cut", NO_PICTURE),
        (None, "results.print_logo: does not exist"),
    ],
    ids=["svg", "cut png", "cut jpeg", "vanished"],
)
def test_invalid_logo_error_names_its_setting(tmp_path: Path, content: bytes | None, words: str) -> None:
    logo = tmp_path / "logo"
    if content is not None:
        logo.write_bytes(content)
    room = DocumentService(ResultsSettings(print_reports=True, print_logo=logo))
    assert [f"{each.where}: {each.what}" for each in room.problems()] == [words]
    with pytest.raises(PrintError, match=words):
        room.render_pdf(make_report(), "77")


def test_invalid_font_error_names_its_setting(tmp_path: Path) -> None:
    (tmp_path / "font.ttf").write_bytes(b"\0\1\0\0 no font")
    for font in (tmp_path / "font.ttf", tmp_path / "gone.ttf", tmp_path):
        room = DocumentService(ResultsSettings(print_reports=True, print_font=font))
        assert [each.where for each in room.problems()] == ["results.print_font"]
        with pytest.raises(PrintError, match=r"results\.print_font: is not a readable TrueType font"):
            room.render_pdf(make_report(), "77")


def test_logo_is_printed_deterministically(tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(PNG)
    room = DocumentService(ResultsSettings(print_reports=True, print_logo=tmp_path / "logo.png"))
    assert room.problems() == ()
    pdfs = {room.render_pdf(make_report(), "77") for _ in range(2)}
    assert len(pdfs) == 1, "the same report gives the same bytes"
    assert len(PdfReader(BytesIO(pdfs.pop() or b"")).pages[0].images) == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [("Laboratory \U0001f9ea", "has characters that the font lacks"), ("line\n" * 21, "more than 1000 characters or 20 lines")],
)
def test_unprintable_letterhead_name_detected(name: str, words: str) -> None:
    (problem,) = DocumentService(ResultsSettings(print_reports=True, print_name=name)).problems()
    assert problem.where == "results.print_name"
    assert words in problem.what
    assert DocumentService(ResultsSettings(print_name=name)).problems() == ()


def test_layout_error_does_not_quote_content() -> None:
    """What the printer could not place is not quoted."""
    with pytest.raises(PrintError, match="its layout failed with LayoutError") as caught:
        print_report(make_report(said(value_string="secret")), "77", Letterhead(name="line\n" * 100))
    assert caught.value.__cause__ is None
    assert "secret" not in str(caught.value)


def test_nothing_printed_unless_enabled() -> None:
    assert DocumentService(ResultsSettings()).render_pdf(make_report(), "77") is None
    assert DocumentService(ResultsSettings(print_reports=True)).render_pdf(make_report(), "77") is not None
