"""Which of two versions of a report is the older one. Sequence, not content: A → B → A are three versions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cmp_to_key

from lab_agent.domain.journal import ReportRecord


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
