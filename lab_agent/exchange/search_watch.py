"""Remembers which searches the service answered with what was not asked for."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from lab_agent.exchange.search_criteria import SearchAnswer
from lab_agent.exchange.service import SearchKind

INDEX_LAG = timedelta(minutes=2)
"""How long an index may be behind the resources: until then, a row that differs by its status alone says nothing."""


class SearchWatch:
    """What was found out about each kind of search since the findings were last taken."""

    def __init__(self) -> None:
        self._findings: dict[SearchKind, bool] = {}
        self._outdated_since: dict[SearchKind, dict[str, datetime]] = {}

    def record(self, kind: SearchKind, answer: SearchAnswer, now: datetime) -> bool:
        """Record an answer; whether the service filtered it as it was asked to."""
        known = self._outdated_since.get(kind, {})
        self._outdated_since[kind] = {row: known.get(row, now) for row in answer.outdated}
        only_asked_for = not answer.foreign and not answer.other_types
        filtered = only_asked_for and all(now - since < INDEX_LAG for since in self._outdated_since[kind].values())
        self._findings[kind] = filtered and self._findings.get(kind, True)
        return filtered

    def take(self) -> Mapping[SearchKind, bool]:
        """Give the findings and forget them: one bad answer among good ones counts."""
        findings, self._findings = self._findings, {}
        return findings
