"""What laboratory systems have reported, in memory."""

from __future__ import annotations

from dataclasses import replace

from lab_agent.domain.ids import OrderKey, ReportKey
from lab_agent.domain.journal import ReportRecord
from lab_agent.domain.lifecycle import WAITING_REPORTS
from lab_agent.errors import StoreError
from lab_agent.store.memory_shelf import Shelf


class MemoryReports:
    """Reports; kept in the order of arrival."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def add(self, report: ReportRecord) -> bool:
        """Write a message, giving it the next sequence. False if its key is there already."""
        if report.key in self._shelf.reports:
            return False
        self._shelf.last_report += 1
        self._shelf.reports[report.key] = replace(report, sequence=self._shelf.last_report)
        return True

    def take(self, key: ReportKey) -> ReportRecord:
        """Read a report. Raises `StoreError` if unknown."""
        if key not in self._shelf.reports:
            raise StoreError(f"No report {key} is in the journal.")
        return self._shelf.reports[key]

    def known(self, source: str, message: str) -> bool:
        """Whether a message of that adapter was kept."""
        return any(report.source == source and report.message == message for report in self._shelf.reports.values())

    def save(self, report: ReportRecord) -> None:
        """Write a changed report; its sequence stays. Raises `StoreError` if unknown."""
        self._shelf.reports[report.key] = replace(report, sequence=self.take(report.key).sequence)

    def versions(self, order: OrderKey, report_id: str) -> tuple[ReportRecord, ...]:
        """All messages of one report of one order, by sequence."""
        return tuple(each for each in self._shelf.reports.values() if each.order == order and each.report_id == report_id)

    def waiting(self) -> tuple[ReportRecord, ...]:
        """Reports that are unmatched, unmapped or held, by sequence."""
        return tuple(report for report in self._shelf.reports.values() if report.state in WAITING_REPORTS)
