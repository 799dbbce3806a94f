"""Alerts about what waits for an operator, and about what has failed for long: open as long as it does (law 11).

One is for the results, one for the jobs that are set aside, and one for each cause of which jobs fail that are tried again.

They follow from what the store holds, not from what set something aside: so a worker that restarts, a second worker, and whatever
an operator decides all lead to the same alerts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

import structlog

from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.records import Alert, FailingJobs, Job, ReportRecord
from lab_agent.domain.state_machines import ReportState
from lab_agent.ports.clock import Clock
from lab_agent.ports.repositories import Store, UnitOfWork

log = structlog.get_logger(__name__)

RESULTS_ALERT = "waiting.results"
JOBS_ALERT = "waiting.jobs"
ADAPTERS_ALERT = "lis.not_loaded"
_STATE_REASONS = {
    ReportState.UNMATCHED: "it fits no order, or no line of its order",
    ReportState.UNMAPPED: "the mapping tables lack a code or a unit of it",
    ReportState.HELD: "it is held, and its reason says what to do",
}
"""Nothing of the message is quoted: it may name the patient (law 7)."""
_CAUSE_TEXTS = {
    FailureCause.SIGN_IN: "the sign-in is not accepted; run `lab-agent login`, or correct [exchange.oauth]",
    FailureCause.SERVICE_UNAVAILABLE: "the exchange service does not answer, or with an error of its own; run `lab-agent check`",
    FailureCause.SERVICE_ASKS_TO_WAIT: "the exchange service asks to wait again and again; set `exchange.max_concurrency` lower",
    FailureCause.OUTCOME_UNKNOWN: "the exchange service can be read and does not confirm what is written to it; ask its operator",
    FailureCause.INVALID_RESPONSE: "the exchange service answers with other JSON than the interface's; ask its operator",
    FailureCause.READ_REJECTED: "the exchange service rejects reads or searches; check our rights and `exchange.paths`",
    FailureCause.FOREIGN_LINK: "the exchange service leads to another address; set `exchange.base_url` to its own",
    FailureCause.LIS_UNAVAILABLE: "the laboratory system is unavailable, or asks to come again; run `lab-agent check`",
    FailureCause.LIS_OUTCOME_UNKNOWN: "the laboratory system does not confirm what it is sent; check it",
    FailureCause.OTHER: "see its reason",
}


@dataclass(frozen=True, slots=True)
class AttentionAlerts:
    """Opens and closes the alerts; each is logged once at its start and once at its end."""

    store: Store
    clock: Clock
    alert_after: timedelta
    """How long a job has to fail before an alert says so."""
    adapters: Mapping[str, str | None] | None = None
    """The adapters of the settings by name, each with why it is not loaded, None for one that is; if not given, not looked at."""

    async def run(self) -> None:
        """Check once."""
        await self.store.run(lambda uow: self._refresh(uow, self.clock.now()))

    def _refresh(self, uow: UnitOfWork, now: datetime) -> None:
        _update_alert(uow, RESULTS_ALERT, _results_text(uow.reports.needing_operator()), now)
        _update_alert(uow, JOBS_ALERT, _jobs_text(uow.jobs.needing_operator()), now)
        if self.adapters is not None:
            _update_alert(uow, ADAPTERS_ALERT, _adapters_text(self.adapters, uow.orders.waiting_lines()), now)
        failing = uow.jobs.failing(since=now - self.alert_after)
        for cause in FailureCause:
            _update_alert(
                uow, failing_jobs_alert_key(cause), _failing_text([each for each in failing if each.cause is cause]), now
            )
        uow.commit()


def failing_jobs_alert_key(cause: FailureCause) -> str:
    """Key of the alert about jobs that have failed of one cause for long."""
    return f"failing.{cause.value}"


def cause_text(cause: FailureCause) -> str:
    """What fails, and what to do about it."""
    return _CAUSE_TEXTS[cause]


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


def find_removed_adapters(adapters: Collection[str], waiting_lines: Mapping[str, int]) -> dict[str, str]:
    """Laboratory systems that still have lines of ours and are not in the settings any more, each with what is wrong."""
    return {
        name: f"there is no table [lis.{name}], and lines there wait for results: {number}"
        for name, number in sorted(waiting_lines.items())
        if name not in adapters
    }


def _adapters_text(adapters: Mapping[str, str | None], waiting_lines: Mapping[str, int]) -> str | None:
    broken = {name: reason for name, reason in adapters.items() if reason is not None}
    unusable = {**broken, **find_removed_adapters(adapters, waiting_lines)}
    if not unusable:
        return None
    reasons = "; ".join(f"{name}: {reason}" for name, reason in unusable.items())
    return f"nothing is sent to, or read from, these laboratory systems: {reasons}. `lab-agent check`"


def _failing_text(failing: Sequence[FailingJobs]) -> str | None:
    if not failing:
        return None
    how_many = ", ".join(f"{each.count} {each.kind.value}" for each in failing)
    oldest = min(failing, key=lambda each: each.since)
    return (
        f"jobs have failed since {oldest.since:%Y-%m-%d %H:%M} UTC and are tried again ({how_many}): {cause_text(oldest.cause)}. "
        f"`lab-agent outbox show {oldest.first}`"
    )


def _count_text(words: Sequence[StrEnum]) -> str:
    return ", ".join(f"{number} {word.value}" for word, number in Counter(words).items())
