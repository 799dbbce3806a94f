"""What is well said in a report and hardly meant: a question to a person, who may let it go all the same. Pure.

Nothing here refuses: a clock that is wrong, normal values that stand on their head and an empty final report are the laboratory's
to mend, and may be right for once. What has no legal form on the wire is not asked about here: nobody can let it go.

Which of two versions of a report is the older one. Sequence, not content: A → B → A are three versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cmp_to_key

from lab_agent.domain.lab_messages import LabReport, ReferenceRange, ReportStatus
from lab_agent.domain.records import ReportRecord
from lab_agent.domain.values import LOW_HIGH_HINT, is_inverted_range
from lab_agent.errors import Problem

_CLOCK_TOLERANCE = timedelta(hours=24)
"""More than any time zone that was mistaken for another, and less than a day that was mistyped by two."""
_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)


def implausible_values(report: LabReport, now: datetime) -> Iterator[Problem]:
    """Say what a person should look at before the report goes out."""
    yield from _implausible_times(report, now)
    for index, observation in enumerate(report.observations):
        for place, each in enumerate(observation.reference_ranges):
            yield from _implausible_reference_range(each, f"observations[{index}].reference_ranges[{place}]")
    if report.status is ReportStatus.FINAL and not (report.observations or report.documents or report.not_performed):
        mend = "send values, a document, or the lines that were not performed"
        yield Problem("observations", "are missing: the report is final and says nothing", mend)


def _implausible_times(report: LabReport, now: datetime) -> Iterator[Problem]:
    """A report that is registered only may speak of a collection to come; all others speak of what has been."""
    promised = report.status is ReportStatus.REGISTERED
    moments = [("effective", report.effective), ("issued", report.issued)]
    moments += [(f"observations[{n}].issued", one.issued) for n, one in enumerate(report.observations) if one.issued]
    for where, moment in moments:
        if moment < _EARLIEST:
            yield Problem(where, f"lies before {_EARLIEST.year}", "look at the date, and at the laboratory system's clock")
        elif moment > now + _CLOCK_TOLERANCE and not (promised and where == "effective"):
            mend = "look at the date, and at the clocks of the laboratory system and of this machine"
            yield Problem(where, "lies in the future", mend)
    if not promised and report.issued < report.effective - _CLOCK_TOLERANCE:
        yield Problem("issued", "lies more than a day before effective", "give effective as the time of collection")


def _implausible_reference_range(reference_range: ReferenceRange, where: str) -> Iterator[Problem]:
    if is_inverted_range(reference_range.low, reference_range.high):
        yield Problem(where, "is a reference range upside down", LOW_HIGH_HINT)
    if reference_range.age and any(
        end is not None and end.value < Decimal(0) for end in (reference_range.age.low, reference_range.age.high)
    ):
        yield Problem(f"{where}.age", "holds an age below nought", "give ages of nought or more")


def is_older(report: ReportRecord, other: ReportRecord) -> bool:
    """Whether `report` is an older version than `other`: by explicit version, else by issued time, else by arrival."""
    if report.version is not None and other.version is not None and report.version != other.version:
        return report.version < other.version
    if report.issued is not None and other.issued is not None and report.issued != other.issued:
        return report.issued < other.issued
    return report.sequence < other.sequence


def oldest_first(reports: Iterable[ReportRecord]) -> tuple[ReportRecord, ...]:
    """Versions of one report in their order."""
    return tuple(sorted(reports, key=cmp_to_key(_compare_versions)))


def _compare_versions(one: ReportRecord, other: ReportRecord) -> int:
    return -1 if is_older(one, other) else 1
