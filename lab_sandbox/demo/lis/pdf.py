"""PDF reports with the results as a table. They name no patient: the requisition identifies the order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO
from itertools import pairwise

from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Flowable, Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

from lab_sandbox.partner.errors import Json

_GRID = TableStyle([("GRID", (0, 0), (-1, -1), 0.4, colors.grey), ("BACKGROUND", (0, 0), (-1, 0), colors.whitesmoke)])


def build_report_pdf(title: str, requisition: str, observations: Iterable[Json]) -> bytes:
    """A PDF with one row for each observation."""
    styles = getSampleStyleSheet()
    rows: list[tuple[str, str, str]] = [("Observation", "Result", "Reference")]
    rows += [(one["code"]["display"][:52], format_value(one), _format_range(one)) for one in observations]
    story: list[Flowable] = [
        Paragraph(title, styles["Title"]),
        Paragraph(f"Requisition {requisition}", styles["Normal"]),
        Spacer(1, 12),
        Table(rows, style=_GRID, repeatRows=1),
    ]
    page = BytesIO()
    SimpleDocTemplate(page, pagesize=A4, title=title, invariant=1).build(story)
    return page.getvalue()


def build_curve_pdf(title: str, heights: Sequence[float]) -> bytes:
    """A PDF with one curve, as a device draws it; heights are between 0 and 1."""
    page = BytesIO()
    drawing = Canvas(page, pagesize=(300, 120), invariant=1)
    drawing.drawString(10, 104, title)
    for position, (left, right) in enumerate(pairwise(heights)):
        step = 280 / (len(heights) - 1)
        drawing.line(10 + position * step, 10 + left * 80, 10 + (position + 1) * step, 10 + right * 80)
    drawing.save()
    return page.getvalue()


def format_value(observation: Json) -> str:
    """The value as a person reads it; forms that do not fit a table cell are not printed."""
    if "value_quantity" in observation:
        return _format_quantity(observation["value_quantity"])
    if "value_codeable_concept" in observation:
        return str(observation["value_codeable_concept"]["text"])
    if "value_range" in observation:
        return f"{observation['value_range']['low']['value']}-{_format_quantity(observation['value_range']['high'])}"
    if "value_ratio" in observation:
        ratio = observation["value_ratio"]
        return f"{_format_quantity(ratio['numerator'])} / {_format_quantity(ratio['denominator'])}"
    plain = (observation.get(f"value_{form}") for form in ("string", "time", "date_time"))
    return next((str(value) for value in plain if value is not None), "see the electronic report")


def _format_quantity(quantity: Json) -> str:
    return f"{quantity.get('comparator', '')}{quantity['value']} {quantity.get('unit', '')}".strip()


def _format_range(observation: Json) -> str:
    ranges = observation.get("reference_ranges", ())
    if not ranges:
        return ""
    ends = (ranges[0].get("low"), ranges[0].get("high"))
    return " - ".join(str(end["value"]) if end else "" for end in ends)
