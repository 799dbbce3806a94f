"""What past results use and the tables lack: how often, and in which report it was seen last. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lab_agent.domain.ids import ReportKey
from lab_agent.domain.results import LabReport
from lab_agent.mappings.apply import MissingMapping, missing_mappings
from lab_agent.mappings.tables import MappingTables


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingGap:
    """Something that no table translates: in how many `reports` it came, and one of them (the first that was given)."""

    missing: MissingMapping
    reports: int
    example: ReportKey


def find_gaps(reports: Iterable[tuple[ReportKey, LabReport]], tables: MappingTables) -> tuple[MappingGap, ...]:
    """Everything that the reports use and the tables lack, the most frequent first."""
    counted: dict[MissingMapping, tuple[int, ReportKey]] = {}
    for key, report in reports:
        for each in missing_mappings(report, tables):
            number, example = counted.get(each, (0, key))
            counted[each] = (number + 1, example)
    found = [MappingGap(missing=each, reports=number, example=key) for each, (number, key) in counted.items()]
    return tuple(sorted(found, key=lambda gap: (-gap.reports, gap.missing)))
