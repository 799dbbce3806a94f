"""A date of which no time is known goes through as it is: no time is made up, on the wire or for people."""

from __future__ import annotations

from io import BytesIO

from pypdf import PdfReader

from lab_agent.documents.pdf_report import Letterhead, print_report
from lab_agent.domain.state_machines import ReportState
from lab_agent.domain.value_text import format_value
from lab_agent.domain.values import PartialDate, Period
from lab_agent.status.formatting import format_timestamp
from tests.harness.results import NOW, ResultsBench, haemoglobin, make_report

DAY, MONTH, YEAR = PartialDate("2026-02-28"), PartialDate("2026-02"), PartialDate("2025")


async def test_dates_without_time_reach_the_clinic_as_they_are(bench: ResultsBench) -> None:
    onset = haemoglobin("1", id="onset", value_quantity=None, value_date_time=MONTH)
    span = haemoglobin("1", id="span", value_quantity=None, value_period=Period(start=YEAR, end=DAY))
    assert (await bench.receive(make_report(onset, span, effective=DAY))).state is ReportState.DELIVERED
    (found,) = await bench.clinic_reports()
    assert found.resource["effectiveDateTime"] == "2026-02-28"
    assert found.resource["issued"] == NOW.isoformat()
    values = [each.get("valueDateTime", each.get("valuePeriod")) for each in found.observations]
    assert values == ["2026-02", {"start": "2025", "end": "2026-02-28"}]
    assert all(each["issued"] == NOW.isoformat() for each in found.observations)


def test_dates_without_time_shown_to_people_as_they_are() -> None:
    onset = haemoglobin("1", id="onset", value_quantity=None, value_date_time=MONTH)
    span = haemoglobin("1", id="span", value_quantity=None, value_period=Period(start=YEAR))
    pdf = print_report(make_report(onset, span, effective=DAY), "77", Letterhead())
    text = "\n".join(page.extract_text() for page in PdfReader(BytesIO(pdf or b"")).pages)
    assert "Collected: 2026-02-28;" in text
    assert [format_value(onset), format_value(span)] == ["2026-02", "2025 –"]
    assert format_timestamp(DAY) == "2026-02-28"
