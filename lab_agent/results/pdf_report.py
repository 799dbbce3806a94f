"""A PDF of a report's observations, for laboratory systems that make no document of their own.

It names nobody: the requisition is enough to find the patient. The same report gives the same bytes, so that a repeated
delivery finds its document instead of uploading another one. Letterhead and font are checked by `lab-agent check` already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from textwrap import wrap
from typing import Any
from xml.sax.saxutils import escape

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.lib.utils import ImageReader
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.platypus import Flowable, Image, Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

from lab_agent.lis.document_formats import detect_media_type
from lab_agent.lis.lab_messages import LabReport, ReportedObservation
from lab_agent.lis.value_text import display_name, format_date_or_time, format_reference_ranges, format_value
from lab_agent.results.documents import PrintError
from lab_agent.shared.errors import Problem, SettingsError

_DEJAVU_FONT = Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")
_FALLBACK_FONT = "Vera.ttf"
_LOGO_MEDIA_TYPES = frozenset({"image/png", "image/jpeg"})
_MAX_LETTERHEAD_LENGTH, _MAX_LETTERHEAD_LINES = 1000, 20
_MISSING_LETTERS_HINT = "remove them, or name a .ttf file in `results.print_font` that has them"
_MARGIN = 18 * mm
_COLUMN_WIDTHS = (58 * mm, 46 * mm, 14 * mm, 56 * mm)
_CODE_FONT_SIZE = 6.5
_LOGO_HEIGHT = 16 * mm
_ACCENT_HEX = "#2c4a5e"
_ACCENT = colors.HexColor(_ACCENT_HEX)
_FONT_SIZE, _LEADING, _CELL_PADDING = 9, 12, 6
_MAX_CELL_LINES = 12
_MAX_NAME_LENGTH = 150
_MAX_PARAGRAPH_LENGTH = 10_000
"""Characters of a paragraph: the time of its layout grows with the square of its length."""
_LINE_LENGTH = 60
MAX_PRINT_LENGTH = 200_000
"""The most characters of a report that are printed, some seventy pages; a line break counts as a line of 60."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letterhead:
    """The laboratory's name, line by line, its logo, and the font of the whole page."""

    name: str = ""
    logo: Path | None = None
    font: Path | None = None


def letterhead_problems(letterhead: Letterhead) -> tuple[Problem, ...]:
    """What is wrong with a letterhead, by setting; nothing if reports can be printed."""
    found = [*_collect_problems(lambda: load_font(letterhead.font)), *_collect_problems(lambda: load_logo(letterhead.logo))]
    if not found and not has_glyphs(load_font(letterhead.font), letterhead.name):
        found.append(Problem("results.print_name", "has characters that the font lacks", _MISSING_LETTERS_HINT))
    if len(letterhead.name) > _MAX_LETTERHEAD_LENGTH or len(letterhead.name.splitlines()) > _MAX_LETTERHEAD_LINES:
        what = f"has more than {_MAX_LETTERHEAD_LENGTH} characters or {_MAX_LETTERHEAD_LINES} lines"
        found.append(Problem("results.print_name", what, "shorten it, so that it has room at the head of a page"))
    return tuple(found)


def has_glyphs(font: TTFont, text: str) -> bool:
    """Whether the font has a glyph for every character of a text."""
    return all(ord(sign) in font.face.charToGlyph for sign in text if not sign.isspace())


def load_font(path: Path | None) -> TTFont:
    """The registered font; DejaVu Sans if none is named. Raises `SettingsError` for one that cannot be read."""
    try:
        return _register_font(path or (_DEJAVU_FONT if _DEJAVU_FONT.is_file() else None))
    except Exception as exc:  # a file that is not a font makes its reader fail in any way
        what = "is not a readable TrueType font"
        raise SettingsError((Problem("results.print_font", what, "name a .ttf file, or leave it out"),)) from exc


def load_logo(path: Path | None) -> BytesIO | None:
    """The bytes of the logo; None if none is named. Raises `SettingsError` for one that cannot be read."""
    if path is None:
        return None
    try:
        content = path.read_bytes()
        if detect_media_type(content) in _LOGO_MEDIA_TYPES:
            ImageReader(BytesIO(content)).getRGBData()  # type: ignore[no-untyped-call]
            return BytesIO(content)
    except FileNotFoundError as exc:
        raise SettingsError((Problem("results.print_logo", "does not exist", "put the file there, or leave it out"),)) from exc
    except Exception as exc:  # a truncated picture makes its reader fail in any way
        raise _invalid_logo_error() from exc
    raise _invalid_logo_error()


def _invalid_logo_error() -> SettingsError:
    hint = "name a PNG or JPEG file, or leave it out"
    return SettingsError((Problem("results.print_logo", "is not a readable picture", hint),))


def _collect_problems(read: Callable[[], object]) -> tuple[Problem, ...]:
    try:
        read()
    except SettingsError as exc:
        return exc.problems
    return ()


@lru_cache(maxsize=4)
def _register_font(path: Path | None) -> TTFont:
    """Register a font once: of two fonts under one name the library would keep the first."""
    font = TTFont(f"report-{path.stem if path else 'plain'}", str(path) if path else _FALLBACK_FONT)
    pdfmetrics.registerFont(font)
    return font


def print_report(report: LabReport, heading: str, letterhead: Letterhead, codes: Sequence[str] = ()) -> bytes | None:
    """The PDF; None if the font lacks a character of the report. Raises `PrintError` for anything else that prevents it.

    `codes` are the exchange's codes of the observations, in their order; each stands small below the laboratory's own name.
    """
    try:
        return _build_pdf(report, heading, letterhead, codes)
    except SettingsError as exc:
        raise PrintError(f"The report cannot be printed: {exc.problems[0]}") from exc
    except PrintError:
        raise
    except Exception as exc:  # noqa: BLE001 - the library's errors quote the text that they could not place, which must not be logged
        raise PrintError(f"The report cannot be printed: its layout failed with {type(exc).__name__}.") from None


def _build_pdf(report: LabReport, heading: str, letterhead: Letterhead, codes: Sequence[str]) -> bytes | None:
    font = load_font(letterhead.font)
    written = "".join((heading, letterhead.name, *codes, *_all_texts(report)))
    if (length := len(written) + _LINE_LENGTH * written.count("\n")) > MAX_PRINT_LENGTH:
        raise PrintError(f"The report cannot be printed: it is {length} characters long, more than {MAX_PRINT_LENGTH}.")
    if not has_glyphs(font, written):
        return None
    page = BytesIO()
    template = SimpleDocTemplate(
        page, pagesize=A4, leftMargin=_MARGIN, rightMargin=_MARGIN, topMargin=_MARGIN, bottomMargin=_MARGIN,
        title=f"Laboratory report {heading}", author=letterhead.name.partition("\n")[0], invariant=1,
    )  # fmt: skip
    template.build(
        list(_story(report, heading, letterhead, font.fontName, codes)),
        onFirstPage=_footer(font, heading),
        onLaterPages=_footer(font, heading),
    )
    return page.getvalue()


def _story(report: LabReport, heading: str, letterhead: Letterhead, font: str, codes: Sequence[str]) -> Iterator[Flowable]:
    plain = ParagraphStyle("plain", fontName=font, fontSize=_FONT_SIZE, leading=_LEADING)
    title = ParagraphStyle("title", parent=plain, fontSize=15, leading=20, textColor=_ACCENT)
    name = Paragraph("<br/>".join(map(escape, letterhead.name.splitlines())), plain)
    logo: Any = ""
    if content := load_logo(letterhead.logo):
        logo = Image(content, height=_LOGO_HEIGHT, width=3 * _LOGO_HEIGHT, kind="proportional", hAlign="RIGHT")
    yield Table([[name, logo]], colWidths=(sum(_COLUMN_WIDTHS) * 0.66, sum(_COLUMN_WIDTHS) * 0.34), style=_LETTERHEAD_STYLE)
    yield Spacer(1, 6 * mm)
    yield Paragraph("Laboratory report", title)
    for label, value in (("Order", heading), ("Report", report.report_id), ("Status", report.status.value)):
        yield Paragraph(f"{label}: {escape(value)}", plain)
    yield Paragraph(f"Collected: {format_date_or_time(report.effective)}; issued: {format_date_or_time(report.issued)}", plain)
    yield Spacer(1, 5 * mm)
    small = codes or ("",) * len(report.observations)
    rows = [_row(one, code, plain) for one, code in zip(report.observations, small, strict=True)]
    yield Table([_COLUMN_HEADINGS, *rows], colWidths=_COLUMN_WIDTHS, repeatRows=1, style=_grid_style(font))
    for one in report.observations:
        yield from _details_below_table(one, plain)


_COLUMN_HEADINGS = ["Test", "Result", "Flag", "Reference"]
_LETTERHEAD_STYLE = TableStyle([("VALIGN", (0, 0), (-1, -1), "TOP"), ("LINEBELOW", (0, 0), (-1, 0), 0.8, _ACCENT)])


def _grid_style(font: str) -> TableStyle:
    return TableStyle(
        [
            ("FONT", (0, 0), (-1, -1), font, _FONT_SIZE),
            ("TEXTCOLOR", (0, 0), (-1, 0), colors.white),
            ("BACKGROUND", (0, 0), (-1, 0), _ACCENT),
            ("LINEBELOW", (0, 1), (-1, -1), 0.3, colors.lightgrey),
            ("VALIGN", (0, 0), (-1, -1), "TOP"),
        ]
    )


def _row(observation: ReportedObservation, code: str, style: ParagraphStyle) -> list[Flowable]:
    value, flags, ranges = ("see below" if long else text for _, text, long in _cells(observation, style))
    cells = (value + (" (corrected)" if observation.status.value == "amended" else ""), flags, ranges)
    name = display_name(observation.code)
    small = f'<br/><font size="{_CODE_FONT_SIZE}">{escape(_shorten_name(code))}</font>' if code not in {"", name} else ""
    named = Paragraph(escape(_shorten_name(name)) + small, style)
    return [named, *(Paragraph(escape(cell).replace("\n", "<br/>"), style) for cell in cells)]


def _cells(observation: ReportedObservation, style: ParagraphStyle) -> Iterator[tuple[str, str, bool]]:
    """The texts of an observation's row after its name: each with its heading, and whether it is too long for its cell."""
    texts = (
        format_value(observation),
        " ".join(observation.flags),
        format_reference_ranges(observation.reference_ranges),
    )
    for heading, text, width in zip(_COLUMN_HEADINGS[1:], texts, _COLUMN_WIDTHS[1:], strict=True):
        yield heading, text, _is_long(text, width, style)


def _is_long(text: str, width: float, style: ParagraphStyle) -> bool:
    """Whether a text is too long for its cell; a shorter one has room on a page even if its line breaks double it."""
    widths = (stringWidth(line, style.fontName, _FONT_SIZE) for line in text.split("\n"))
    return sum(1 + int(each / (width - 2 * _CELL_PADDING)) for each in widths) > _MAX_CELL_LINES


def _shorten_name(name: str) -> str:
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]} ..."


def _details_below_table(observation: ReportedObservation, style: ParagraphStyle) -> Iterator[Flowable]:
    """What is too long for the table, over the whole width: names, results and reference ranges; and notes."""
    name = display_name(observation.code)
    long = [(heading, text) for heading, text, is_long in _cells(observation, style) if is_long]
    for heading, text in [("Test", name)] * (_shorten_name(name) != name) + long:
        yield Spacer(1, 4 * mm)
        head = escape(f"{_shorten_name(name)}: {heading.lower()}")
        yield from _paragraphs(text, style, f'<font color="{_ACCENT_HEX}">{head}</font><br/>')
    if observation.note:
        yield Spacer(1, 2 * mm)
        yield from _paragraphs(observation.note, style, f"{escape(_shorten_name(name))}: ")


def _paragraphs(text: str, style: ParagraphStyle, before: str) -> Iterator[Flowable]:
    """A text of any length, with `before` (marked up already) at its beginning."""
    for line in text.split("\n"):
        for piece in wrap(line, _MAX_PARAGRAPH_LENGTH) or ("",):
            yield Paragraph(before + escape(piece) or "&nbsp;", style)
            before = ""


def _all_texts(report: LabReport) -> Iterator[str]:
    yield report.report_id
    for one in report.observations:
        yield from (
            display_name(one.code),
            format_value(one),
            format_reference_ranges(one.reference_ranges),
            one.note or "",
            *one.flags,
        )


def _footer(font: TTFont, heading: str) -> Any:
    def draw(canvas: Any, template: Any) -> None:
        canvas.setFont(font.fontName, 8)
        canvas.setFillColor(colors.grey)
        canvas.drawString(_MARGIN, 10 * mm, heading[:_LINE_LENGTH])
        canvas.drawRightString(A4[0] - _MARGIN, 10 * mm, f"page {template.page}")

    return draw
