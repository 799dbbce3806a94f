"""What is well said in a report and hardly meant: a question to a person, who may let it go all the same. Pure.

Nothing here refuses: a clock that is wrong, a range that stands on its head and an empty final report are the laboratory's to
mend, and may be right for once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from lab_agent.domain.results import LabReport, ReferenceRange, ReportedObservation, ReportStatus
from lab_agent.domain.values import Quantity
from lab_agent.errors import Problem

_TOLERANCE = timedelta(hours=24)
"""More than any time zone that was mistaken for another, and less than a day that was mistyped by two."""
_FIRST = datetime(1900, 1, 1, tzinfo=UTC)
_UPRIGHT = "give low and high so that low is the smaller one"


def oddities(report: LabReport, now: datetime) -> Iterator[Problem]:
    """Say what a person should look at before the report goes out."""
    yield from _times(report, now)
    for index, observation in enumerate(report.observations):
        yield from _spans(observation, f"observations[{index}]")
    if report.status is ReportStatus.FINAL and not (report.observations or report.documents or report.not_performed):
        mend = "send values, a document, or the lines that were not performed"
        yield Problem("observations", "are missing: the report is final and says nothing", mend)


def _times(report: LabReport, now: datetime) -> Iterator[Problem]:
    """A report that is registered only may speak of a collection to come; all others speak of what has been."""
    promised = report.status is ReportStatus.REGISTERED
    moments = [("effective", report.effective), ("issued", report.issued)]
    moments += [(f"observations[{n}].issued", one.issued) for n, one in enumerate(report.observations) if one.issued]
    for where, moment in moments:
        if moment < _FIRST:
            yield Problem(where, f"lies before {_FIRST.year}", "look at the date, and at the laboratory system's clock")
        elif moment > now + _TOLERANCE and not (promised and where == "effective"):
            mend = "look at the date, and at the clocks of the laboratory system and of this machine"
            yield Problem(where, "lies in the future", mend)
    if not promised and report.issued < report.effective - _TOLERANCE:
        yield Problem("issued", "lies more than a day before effective", "give effective as the time of collection")


def _spans(observation: ReportedObservation, where: str) -> Iterator[Problem]:
    if (value := observation.value_range) and _reversed(value.low, value.high):
        yield Problem(f"{where}.value_range", "is a range upside down", _UPRIGHT)
    for index, each in enumerate(observation.reference_ranges):
        yield from _normal(each, f"{where}.reference_ranges[{index}]")


def _normal(each: ReferenceRange, where: str) -> Iterator[Problem]:
    if _reversed(each.low, each.high):
        yield Problem(where, "is a reference range upside down", _UPRIGHT)
    if each.age is None:
        return
    if _reversed(each.age.low, each.age.high):
        yield Problem(f"{where}.age", "is an age range upside down", _UPRIGHT)
    if any(end is not None and end.value < Decimal(0) for end in (each.age.low, each.age.high)):
        yield Problem(f"{where}.age", "holds an age below nought", "give ages of nought or more")


def _reversed(low: Quantity | None, high: Quantity | None) -> bool:
    """Whether low is the larger one; amounts in different units are not compared."""
    return low is not None and high is not None and (low.code, low.unit) == (high.code, high.unit) and low.value > high.value
