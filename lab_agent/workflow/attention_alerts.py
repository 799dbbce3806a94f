"""Alerts about what waits for an operator: one for the results, one for the jobs, open as long as anything waits (law 11).

They follow from what the store holds, not from what set something aside: so a worker that restarts, a second worker, and whatever
an operator decides all lead to the same alerts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import structlog

from lab_agent.domain.records import Alert, Job, ReportRecord
from lab_agent.domain.state_machines import ReportState
from lab_agent.ports.clock import Clock
from lab_agent.ports.repositories import Store, UnitOfWork

log = structlog.get_logger(__name__)

RESULTS_ALERT = "waiting.results"
JOBS_ALERT = "waiting.jobs"
_STATE_REASONS = {
    ReportState.UNMATCHED: "it fits no order, or no line of its order",
    ReportState.UNMAPPED: "the mapping tables lack a code or a unit of it",
    ReportState.HELD: "it is held, and its reason says what to do",
}
"""Nothing of the message is quoted: it may name the patient (law 7)."""


@dataclass(frozen=True, slots=True)
class AttentionAlerts:
    """Opens and closes the alerts; each is logged once at its start and once at its end."""

    store: Store
    clock: Clock

    async def run(self) -> None:
        """Check once."""
        await self.store.run(lambda uow: self._refresh(uow, self.clock.now()))

    def _refresh(self, uow: UnitOfWork, now: datetime) -> None:
        _update_alert(uow, RESULTS_ALERT, _results_text(uow.reports.needing_operator()), now)
        _update_alert(uow, JOBS_ALERT, _jobs_text(uow.jobs.needing_operator()), now)
        uow.commit()


def _update_alert(uow: UnitOfWork, key: str, text: str | None, now: datetime) -> None:
    if text is None:
        if uow.alerts.close(key, now=now):
            log.info("nothing waits for an operator", action="waiting_ends", alert=key)
    elif uow.alerts.open(Alert(key=key, text=text, opened_at=now)):
        log.warning("something waits for an operator", action="waiting_begins", alert=key)


def _results_text(reports: Sequence[ReportRecord]) -> str | None:
    if not reports:
        return None
    how_many = _count_text([report.state for report in reports])
    first = _STATE_REASONS[reports[0].state]
    return f"results wait for an operator ({how_many}); the first: {first}. `lab-agent results list --waiting`"


def _jobs_text(jobs: Sequence[Job]) -> str | None:
    if not jobs:
        return None
    how_many = _count_text([job.kind for job in jobs])
    return f"jobs wait for an operator ({how_many}); the first is {jobs[0].state.value}. `lab-agent outbox list`"


def _count_text(words: Sequence[StrEnum]) -> str:
    return ", ".join(f"{number} {word.value}" for word, number in Counter(words).items())
