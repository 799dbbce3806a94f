"""In which order the versions of a report stand, and what in a version is implausible. Pure.

Versions are told apart by their sequence, not by content: A → B → A are three versions. An implausible value (a clock that is
wrong, an inverted reference range) is a question to an operator, who may release it: it may be right for once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from lab_agent.lis.lab_messages import LabReport, ReferenceRange, ReportStatus
from lab_agent.results.records import ReportRecord
from lab_agent.shared.errors import Problem
from lab_agent.shared.values import LOW_HIGH_HINT, DateOrTime, earliest_moment, is_inverted_range, latest_moment

_CLOCK_TOLERANCE = timedelta(hours=24)
"""More than any time zone that was mistaken for another, and less than a day that was mistyped by two."""
_EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)


def implausible_values(report: LabReport, now: datetime) -> Iterator[Problem]:
    """What an operator should look at before the report is delivered."""
    yield from _implausible_times(report, now)
    for index, observation in enumerate(report.observations):
        for place, each in enumerate(observation.reference_ranges):
            yield from _implausible_reference_range(each, f"observations[{index}].reference_ranges[{place}]")
    if report.status is ReportStatus.FINAL and not (report.observations or report.documents or report.not_performed):
        hint = "send values, a document, or the lines that were not performed"
        yield Problem("observations", "are missing: the report is final and says nothing", hint)


def _implausible_times(report: LabReport, now: datetime) -> Iterator[Problem]:
    """Only a registered report may have a collection time in the future."""
    promised = report.status is ReportStatus.REGISTERED
    moments: list[tuple[str, DateOrTime]] = [("effective", report.effective), ("issued", report.issued)]
    moments += [(f"observations[{n}].issued", one.issued) for n, one in enumerate(report.observations) if one.issued]
    for where, moment in moments:
        if latest_moment(moment) < _EARLIEST:
            yield Problem(where, f"lies before {_EARLIEST.year}", "check the date, and the clock of the laboratory system")
        elif earliest_moment(moment) > now + _CLOCK_TOLERANCE and not (promised and where == "effective"):
            hint = "check the date, and the clocks of the laboratory system and of this machine"
            yield Problem(where, "lies in the future", hint)
    if not promised and earliest_moment(report.effective) - report.issued > _CLOCK_TOLERANCE:
        yield Problem("issued", "lies more than a day before effective", "give effective as the time of collection")


def _implausible_reference_range(reference_range: ReferenceRange, where: str) -> Iterator[Problem]:
    if is_inverted_range(reference_range.low, reference_range.high):
        yield Problem(where, "is an inverted reference range", LOW_HIGH_HINT)
    if reference_range.age and any(
        end is not None and end.value < Decimal(0) for end in (reference_range.age.low, reference_range.age.high)
    ):
        yield Problem(f"{where}.age", "has a negative age", "give ages of zero or more")


def exists_twice(moment: datetime) -> bool:
    """True for a local time that its zone has twice (or never), where the clocks are changed: nothing says which is meant."""
    return moment.replace(fold=0).utcoffset() != moment.replace(fold=1).utcoffset()


def is_repeat(message: LabReport, before: LabReport, earlier: ReportRecord, newest: ReportRecord) -> bool:
    """Decide whether a message of the same name and content as an `earlier` one, which said `before`, is that one sent again.

    It is if nothing else about its report has arrived since (`newest` is what did last). Otherwise only its own number or time
    can say so: where they are those of the earlier one, and before those of the newest.
    """
    if newest.sequence <= earlier.sequence:
        return True
    if message.version is not None and newest.version is not None:
        return message.version == before.version and message.version < newest.version
    return newest.issued is not None and message.issued == before.issued and message.issued < newest.issued


@dataclass(frozen=True, slots=True)
class VersionOrder:
    """The one order of all versions of a report: by `version` if every one carries it, else by `issued`, else by arrival.

    It is a function of the whole set. Compared two by two, with whatever both of them carry, A could be older than B, B than C
    and C than A.
    """

    has_versions: bool
    has_issued: bool

    @classmethod
    def of(cls, versions: Iterable[ReportRecord]) -> VersionOrder:
        """Give the order of these versions of one report."""
        known = tuple(versions)
        numbered, issued = (each.version is not None for each in known), (each.issued is not None for each in known)
        return cls(has_versions=all(numbered), has_issued=all(issued))

    def is_older(self, report: ReportRecord, other: ReportRecord) -> bool:
        """Whether `report` stands before `other`."""
        return self._place(report) < self._place(other)

    def oldest_first(self, reports: Iterable[ReportRecord]) -> tuple[ReportRecord, ...]:
        """Put versions of the report in their order."""
        return tuple(sorted(reports, key=self._place))

    def _place(self, report: ReportRecord) -> tuple[int, datetime, int]:
        version = report.version if self.has_versions else None
        issued = report.issued if self.has_issued else None
        return (version or 0, issued or _EARLIEST, report.sequence)
