"""What laboratory systems have reported, in memory."""

from __future__ import annotations

from dataclasses import replace

from lab_agent.domain.ids import OrderKey, ReportKey
from lab_agent.domain.journal import ReportRecord
from lab_agent.domain.lifecycle import REPORTS_NEEDING_OPERATOR
from lab_agent.errors import StoreError
from lab_agent.store.memory_shelf import MemoryData


class MemoryReportRepository:
    """Reports; kept in the order of arrival."""

    def __init__(self, data: MemoryData) -> None:
        self._data = data

    def add(self, report: ReportRecord) -> bool:
        """Write a message, giving it the next sequence. False if its key is there already."""
        if report.key in self._data.reports:
            return False
        self._data.last_report_sequence += 1
        self._data.reports[report.key] = replace(report, sequence=self._data.last_report_sequence)
        return True

    def get_for_update(self, key: ReportKey) -> ReportRecord:
        """Read a report. Raises `StoreError` if unknown."""
        if key not in self._data.reports:
            raise StoreError(f"No report {key} is in the journal.")
        return self._data.reports[key]

    def exists(self, source: str, message: str) -> bool:
        """Whether a message of that adapter was kept."""
        return any(report.source == source and report.message == message for report in self._data.reports.values())

    def save(self, report: ReportRecord) -> None:
        """Write a changed report; its sequence stays. Raises `StoreError` if unknown."""
        self._data.reports[report.key] = replace(report, sequence=self.get_for_update(report.key).sequence)

    def versions(self, order: OrderKey, report_id: str) -> tuple[ReportRecord, ...]:
        """All messages of one report of one order, by sequence."""
        return tuple(each for each in self._data.reports.values() if each.order == order and each.report_id == report_id)

    def needing_operator(self) -> tuple[ReportRecord, ...]:
        """Reports that are unmatched, unmapped or held, by sequence."""
        return tuple(report for report in self._data.reports.values() if report.state in REPORTS_NEEDING_OPERATOR)
