"""A plain, tidy PDF of a report's observations, for clinics that want paper where the laboratory system makes none.

It names nobody: the requisition is enough to find the patient. The same report gives the same bytes, so that a repeated
delivery finds its document instead of making another one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFError, TTFont
from reportlab.platypus import Flowable, Image, Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

from lab_agent.domain import value_words as words
from lab_agent.domain.results import LabReport, ReportedObservation
from lab_agent.errors import Problem, SettingsError

_DEJAVU = Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")
_SHIPPED = "Vera.ttf"
_MARGIN = 18 * mm
_WIDTHS = (58 * mm, 46 * mm, 14 * mm, 56 * mm)
_SMALL = 6.5
_LOGO_HEIGHT = 16 * mm
_ACCENT = colors.HexColor("#2c4a5e")


@dataclass(frozen=True, slots=True, kw_only=True)
class Letterhead:
    """What stands at the head of the page: the laboratory's name, line by line, and a picture; and the font of it all."""

    name: str = ""
    logo: Path | None = None
    font: Path | None = None


def print_report(report: LabReport, heading: str, head: Letterhead, codes: Sequence[str] = ()) -> bytes | None:
    """The PDF; None where the font lacks a letter of the report. Raises `SettingsError` for a font that cannot be read.

    `codes` are the exchange's codes of the observations, in their order; each stands small below the laboratory's own name.
    """
    font = _font(head.font)
    written = "".join((heading, head.name, *codes, *_texts(report)))
    if any(ord(sign) not in font.face.charToGlyph for sign in written if not sign.isspace()):
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
    plain = ParagraphStyle("plain", fontName=font, fontSize=9, leading=12)
    title = ParagraphStyle("title", parent=plain, fontSize=15, leading=20, textColor=_ACCENT)
    name = Paragraph("<br/>".join(map(escape, head.name.splitlines())), plain)
    logo: Any = ""
    if head.logo is not None and head.logo.is_file():
        logo = Image(str(head.logo), height=_LOGO_HEIGHT, width=3 * _LOGO_HEIGHT, kind="proportional", hAlign="RIGHT")
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
    notes = [one for one in report.observations if one.note]
    if notes:
        yield Spacer(1, 4 * mm)
    for one in notes:
        yield Paragraph(f"{escape(words.name_of(one.code))}: {escape(one.note or '')}", plain)


_HEADINGS = ["Test", "Result", "Flag", "Reference"]
_HEAD = TableStyle([("VALIGN", (0, 0), (-1, -1), "TOP"), ("LINEBELOW", (0, 0), (-1, 0), 0.8, _ACCENT)])


def _grid(font: str) -> TableStyle:
    return TableStyle(
        [
            ("FONT", (0, 0), (-1, -1), font, 9),
            ("TEXTCOLOR", (0, 0), (-1, 0), colors.white),
            ("BACKGROUND", (0, 0), (-1, 0), _ACCENT),
            ("LINEBELOW", (0, 1), (-1, -1), 0.3, colors.lightgrey),
            ("VALIGN", (0, 0), (-1, -1), "TOP"),
        ]
    )


def _row(one: ReportedObservation, code: str, style: ParagraphStyle) -> list[Flowable]:
    value = words.value_of(one) + (" (corrected)" if one.status.value == "amended" else "")
    name = words.name_of(one.code)
    cells = (value, " ".join(one.flags), words.normal(one.reference_ranges))
    small = f'<br/><font size="{_SMALL}">{escape(code)}</font>' if code not in {"", name} else ""
    return [Paragraph(escape(name) + small, style), *(Paragraph(escape(cell).replace("\n", "<br/>"), style) for cell in cells)]


def _texts(report: LabReport) -> Iterator[str]:
    yield report.report_id
    for one in report.observations:
        yield from (words.name_of(one.code), words.value_of(one), words.normal(one.reference_ranges), one.note or "", *one.flags)


def _foot(font: TTFont, heading: str) -> Any:
    def draw(canvas: Any, template: Any) -> None:
        canvas.setFont(font.fontName, 8)
        canvas.setFillColor(colors.grey)
        canvas.drawString(_MARGIN, 10 * mm, heading)
        canvas.drawRightString(A4[0] - _MARGIN, 10 * mm, f"page {template.page}")

    return draw


def _moment(moment: datetime) -> str:
    return moment.isoformat(" ", "minutes")


@lru_cache(maxsize=4)
def _font(path: Path | None) -> TTFont:
    """Register a font once; what registers twice under one name would be the first all the same."""
    chosen = path or (_DEJAVU if _DEJAVU.is_file() else None)
    try:
        font = TTFont(f"report-{chosen.stem if chosen else 'plain'}", str(chosen) if chosen else _SHIPPED)
    except (TTFError, OSError) as exc:
        raise SettingsError((Problem("results.print_font", "is no TrueType font that can be read", "name a .ttf file"),)) from exc
    pdfmetrics.registerFont(font)
    return font
