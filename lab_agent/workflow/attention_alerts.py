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

import structlog

from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.failure_causes import FailureCause
from lab_agent.domain.records import Alert, FailingJobs, Job, ReportRecord
from lab_agent.domain.state_machines import ReportState
from lab_agent.ports.clock import Clock
from lab_agent.ports.repositories import Store, UnitOfWork

log = structlog.get_logger(__name__)

_RESULT_CONDITIONS = {
    ReportState.UNMATCHED: ConditionId.RESULTS_UNMATCHED,
    ReportState.UNMAPPED: ConditionId.RESULTS_UNMAPPED,
    ReportState.HELD: ConditionId.RESULTS_HELD,
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
        waiting = uow.reports.needing_operator()
        for state, condition in _RESULT_CONDITIONS.items():
            _update_results_alert(uow, condition, [each for each in waiting if each.state is state], now)
        if self.adapters is not None:
            self._tell_unusable_systems(uow, self.adapters, now)
        failing, set_aside = uow.jobs.failing(since=now - self.alert_after), uow.jobs.needing_operator()
        for cause in FailureCause:
            _update_jobs_alert(
                uow,
                cause,
                [each for each in failing if each.cause is cause],
                [each for each in set_aside if (each.failure_cause or FailureCause.OTHER) is cause],
                now,
            )
        uow.commit()

    def _tell_unusable_systems(self, uow: UnitOfWork, adapters: Mapping[str, str | None], now: datetime) -> None:
        broken = {AlertKey(ConditionId.LIS_NOT_LOADED, name): reason for name, reason in adapters.items() if reason is not None}
        removed = {
            AlertKey(ConditionId.LIS_REMOVED, name): number
            for name, number in find_removed_adapters(adapters, uow.orders.waiting_lines()).items()
        }
        known = uow.alerts.open_of({ConditionId.LIS_NOT_LOADED, ConditionId.LIS_REMOVED})
        for key in known - broken.keys() - removed.keys():
            _update_alert(uow, key, None, now)
        for key, reason in broken.items():
            _update_alert(uow, key, reason, now)
        for key, number in removed.items():
            _update_alert(uow, key, "", now, count=number)


def find_removed_adapters(adapters: Collection[str], waiting_lines: Mapping[str, int]) -> dict[str, int]:
    """Laboratory systems that are not in the settings any more, each with how many lines of ours wait there for results."""
    return {name: number for name, number in sorted(waiting_lines.items()) if name not in adapters}


def _update_alert(
    uow: UnitOfWork, key: AlertKey, detail: str | None, now: datetime, *, since: datetime | None = None, count: int | None = None
) -> None:
    """Open the alert, or close it where `detail` is None; each is logged once at its start and once at its end."""
    if detail is None:
        if uow.alerts.close(key, now=now):
            log.info("condition ended", action="condition_ended", alert=str(key))
        return
    alert = Alert(condition=key.condition, subject=key.subject, detail=detail, since=since or now, opened_at=now, count=count)
    if uow.alerts.open(alert):
        log.warning("condition found", action="condition_found", alert=str(key), count=count)


def _update_results_alert(uow: UnitOfWork, condition: ConditionId, reports: Sequence[ReportRecord], now: datetime) -> None:
    """Nothing of the messages is quoted: it may name the patient (law 7)."""
    since = min((each.received_at for each in reports), default=None)
    _update_alert(uow, AlertKey(condition), "" if reports else None, now, since=since, count=len(reports))


def _update_jobs_alert(
    uow: UnitOfWork, cause: FailureCause, failing: Sequence[FailingJobs], set_aside: Sequence[Job], now: datetime
) -> None:
    kinds = Counter({each.kind: each.count for each in failing}) + Counter(each.kind for each in set_aside)
    since = min([each.since for each in failing] + [each.created_at for each in set_aside], default=None)
    detail = ", ".join(f"{number} {kind.value}" for kind, number in sorted(kinds.items())) if kinds else None
    _update_alert(uow, AlertKey(cause.condition), detail, now, since=since, count=kinds.total())
