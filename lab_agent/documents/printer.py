"""A plain, tidy PDF of a report's observations, for clinics that want paper where the laboratory system makes none.

It names nobody: the requisition is enough to find the patient. The same report gives the same bytes, so that a repeated
delivery finds its document instead of making another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from io import BytesIO
from textwrap import wrap
from typing import Any
from xml.sax.saxutils import escape

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.platypus import Flowable, Image, Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

from lab_agent.documents.letterhead import Letterhead, font_of, has_letters, logo_of
from lab_agent.domain import value_words as words
from lab_agent.domain.results import LabReport, ReportedObservation
from lab_agent.errors import SettingsError
from lab_agent.ports.documents import PrintFault

_MARGIN = 18 * mm
_WIDTHS = (58 * mm, 46 * mm, 14 * mm, 56 * mm)
_SMALL = 6.5
_LOGO_HEIGHT = 16 * mm
_BLUE = "#2c4a5e"
_ACCENT = colors.HexColor(_BLUE)
_SIZE, _LEADING, _PADDING = 9, 12, 6
_MOST_LINES = 12
_LONGEST_NAME = 150
_PIECE = 10_000
"""Characters of a paragraph: the time that the printer takes for one grows with the square of its length."""
_LINE = 60
LONGEST_PRINT = 200_000
"""Characters of a report that are printed, at most, some seventy pages; a line break counts for a line of 60."""


def print_report(report: LabReport, heading: str, head: Letterhead, codes: Sequence[str] = ()) -> bytes | None:
    """The PDF; None where the font lacks a letter of the report. Raises `PrintFault` for whatever keeps it from being made.

    `codes` are the exchange's codes of the observations, in their order; each stands small below the laboratory's own name.
    """
    try:
        return _printed(report, heading, head, codes)
    except SettingsError as exc:
        raise PrintFault(f"The report cannot be printed: {exc.problems[0]}") from exc
    except PrintFault:
        raise
    except Exception as exc:  # noqa: BLE001 - the printer's errors quote what they could not place, which nobody may log
        raise PrintFault(f"The report cannot be printed: the printer ended with {type(exc).__name__}.") from None


def _printed(report: LabReport, heading: str, head: Letterhead, codes: Sequence[str]) -> bytes | None:
    font = font_of(head.font)
    written = "".join((heading, head.name, *codes, *_texts(report)))
    if (length := len(written) + _LINE * written.count("\n")) > LONGEST_PRINT:
        raise PrintFault(f"The report cannot be printed: it is {length} characters long, more than {LONGEST_PRINT}.")
    if not has_letters(font, written):
        return None
    page = BytesIO()
    template = SimpleDocTemplate(
        page, pagesize=A4, leftMargin=_MARGIN, rightMargin=_MARGIN, topMargin=_MARGIN, bottomMargin=_MARGIN,
        title=f"Laboratory report {heading}", author=head.name.partition("\n")[0], invariant=1,
    )  # fmt: skip
    template.build(
        list(_story(report, heading, head, font.fontName, codes)),
        onFirstPage=_foot(font, heading),
        onLaterPages=_foot(font, heading),
    )
    return page.getvalue()


def _story(report: LabReport, heading: str, head: Letterhead, font: str, codes: Sequence[str]) -> Iterator[Flowable]:
    plain = ParagraphStyle("plain", fontName=font, fontSize=_SIZE, leading=_LEADING)
    title = ParagraphStyle("title", parent=plain, fontSize=15, leading=20, textColor=_ACCENT)
    name = Paragraph("<br/>".join(map(escape, head.name.splitlines())), plain)
    logo: Any = ""
    if content := logo_of(head.logo):
        logo = Image(content, height=_LOGO_HEIGHT, width=3 * _LOGO_HEIGHT, kind="proportional", hAlign="RIGHT")
    yield Table([[name, logo]], colWidths=(sum(_WIDTHS) * 0.66, sum(_WIDTHS) * 0.34), style=_HEAD)
    yield Spacer(1, 6 * mm)
    yield Paragraph("Laboratory report", title)
    for label, value in (("Order", heading), ("Report", report.report_id), ("Status", report.status.value)):
        yield Paragraph(f"{label}: {escape(value)}", plain)
    yield Paragraph(f"Collected: {_moment(report.effective)}; issued: {_moment(report.issued)}", plain)
    yield Spacer(1, 5 * mm)
    small = codes or ("",) * len(report.observations)
    rows = [_row(one, code, plain) for one, code in zip(report.observations, small, strict=True)]
    yield Table([_HEADINGS, *rows], colWidths=_WIDTHS, repeatRows=1, style=_grid(font))
    for one in report.observations:
        yield from _below(one, plain)


_HEADINGS = ["Test", "Result", "Flag", "Reference"]
_HEAD = TableStyle([("VALIGN", (0, 0), (-1, -1), "TOP"), ("LINEBELOW", (0, 0), (-1, 0), 0.8, _ACCENT)])


def _grid(font: str) -> TableStyle:
    return TableStyle(
        [
            ("FONT", (0, 0), (-1, -1), font, _SIZE),
            ("TEXTCOLOR", (0, 0), (-1, 0), colors.white),
            ("BACKGROUND", (0, 0), (-1, 0), _ACCENT),
            ("LINEBELOW", (0, 1), (-1, -1), 0.3, colors.lightgrey),
            ("VALIGN", (0, 0), (-1, -1), "TOP"),
        ]
    )


def _row(one: ReportedObservation, code: str, style: ParagraphStyle) -> list[Flowable]:
    value, flags, ranges = ("see below" if long else text for _, text, long in _cells(one, style))
    cells = (value + (" (corrected)" if one.status.value == "amended" else ""), flags, ranges)
    name = words.name_of(one.code)
    small = f'<br/><font size="{_SMALL}">{escape(_short(code))}</font>' if code not in {"", name} else ""
    named = Paragraph(escape(_short(name)) + small, style)
    return [named, *(Paragraph(escape(cell).replace("\n", "<br/>"), style) for cell in cells)]


def _cells(one: ReportedObservation, style: ParagraphStyle) -> Iterator[tuple[str, str, bool]]:
    """The texts of an observation's row after its name: each with its heading, and whether it is too long for its cell."""
    texts = (words.value_of(one), " ".join(one.flags), words.normal(one.reference_ranges))
    for heading, text, width in zip(_HEADINGS[1:], texts, _WIDTHS[1:], strict=True):
        yield heading, text, _is_long(text, width, style)


def _is_long(text: str, width: float, style: ParagraphStyle) -> bool:
    """Whether a text would make a long narrow column of its cell; even doubled by its breaks, what is not has room on a page."""
    widths = (stringWidth(line, style.fontName, _SIZE) for line in text.split("\n"))
    return sum(1 + int(each / (width - 2 * _PADDING)) for each in widths) > _MOST_LINES


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]} ..."


def _below(one: ReportedObservation, style: ParagraphStyle) -> Iterator[Flowable]:
    """What has no room in the table, over the whole width: long names, results and reference values; and notes."""
    name = words.name_of(one.code)
    long = [(heading, text) for heading, text, is_long in _cells(one, style) if is_long]
    for heading, text in [("Test", name)] * (_short(name) != name) + long:
        yield Spacer(1, 4 * mm)
        head = escape(f"{_short(name)}: {heading.lower()}")
        yield from _paragraphs(text, style, f'<font color="{_BLUE}">{head}</font><br/>')
    if one.note:
        yield Spacer(1, 2 * mm)
        yield from _paragraphs(one.note, style, f"{escape(_short(name))}: ")


def _paragraphs(text: str, style: ParagraphStyle, before: str) -> Iterator[Flowable]:
    """A text of any length, with `before` (marked up already) at its beginning."""
    for line in text.split("\n"):
        for piece in wrap(line, _PIECE) or ("",):
            yield Paragraph(before + escape(piece) or "&nbsp;", style)
            before = ""


def _texts(report: LabReport) -> Iterator[str]:
    yield report.report_id
    for one in report.observations:
        yield from (words.name_of(one.code), words.value_of(one), words.normal(one.reference_ranges), one.note or "", *one.flags)


def _foot(font: TTFont, heading: str) -> Any:
    def draw(canvas: Any, template: Any) -> None:
        canvas.setFont(font.fontName, 8)
        canvas.setFillColor(colors.grey)
        canvas.drawString(_MARGIN, 10 * mm, heading[:_LINE])
        canvas.drawRightString(A4[0] - _MARGIN, 10 * mm, f"page {template.page}")

    return draw


def _moment(moment: datetime) -> str:
    return moment.isoformat(" ", "minutes")
