"""What past results use and the tables lack: how often, and in which report it was seen last. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lab_agent.domain.ids import ReportKey
from lab_agent.domain.results import LabReport
from lab_agent.mappings.apply import Missing, missing
from lab_agent.mappings.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Something that no table translates: in how many `reports` it came, and one of them (the first that was given)."""

    missing: Missing
    reports: int
    example: ReportKey


def gaps(reports: Iterable[tuple[ReportKey, LabReport]], tables: Tables) -> tuple[Gap, ...]:
    """Everything that the reports use and the tables lack, the most frequent first."""
    counted: dict[Missing, tuple[int, ReportKey]] = {}
    for key, report in reports:
        for each in missing(report, tables):
            number, example = counted.get(each, (0, key))
            counted[each] = (number + 1, example)
    found = [Gap(missing=each, reports=number, example=key) for each, (number, key) in counted.items()]
    return tuple(sorted(found, key=lambda gap: (-gap.reports, gap.missing)))
