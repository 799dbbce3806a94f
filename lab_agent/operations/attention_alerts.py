"""Alerts about what waits for an operator, and about what keeps failing: open as long as it does (law 11).

One is for all that waits or fails of the same cause: held orders, late lines, parts, results, and jobs, whether they are tried
again or set aside. However many there are, the store counts them.

They follow from what the store holds, not from what set something aside: so a worker that restarts, a second worker, and whatever
an operator decides all lead to the same alerts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lab_agent.orders.group_alerts import describe_oldest
from lab_agent.queue.failure_causes import FailureCause
from lab_agent.queue.job_records import FailureGroup
from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.store.alert_log import close_alert, open_alert
from lab_agent.store.event_records import Alert, WaitingGroup
from lab_agent.store.unit_of_work import Store, UnitOfWork

ATTENTION_CONDITIONS = frozenset(cause.condition for cause in FailureCause) | {
    ConditionId.ORDERS_HELD,
    ConditionId.ORDERS_PART_WAITS,
    ConditionId.ORDERS_TASK_UNREADABLE,
    ConditionId.LINES_HELD,
    ConditionId.LINES_TASK_UNREADABLE,
    ConditionId.RESULTS_UNMATCHED,
    ConditionId.RESULTS_UNMAPPED,
    ConditionId.RESULTS_HELD,
}
"""What is decided here alone."""
_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class AttentionAlerts:
    """Opens and closes the alerts; each is logged once at its start and once at its end."""

    store: Store
    clock: Clock
    alert_after: timedelta
    """How long a job has to fail before an alert says so."""
    adapters: Mapping[str, str | None] | None = None
    """The adapters of the settings by name, each with why it is not loaded, None for one that is; if not given, not looked at."""
    alert_after_attempts: int = _ATTEMPTS
    """How often in a row a job has to fail before an alert says so, even if it has failed for less than `alert_after`."""

    async def run(self) -> None:
        """Check once."""
        await self.store.transact(lambda uow: self._refresh(uow, self.clock.now()))

    def _refresh(self, uow: UnitOfWork, now: datetime) -> None:
        if self.adapters is not None:
            self._tell_unusable_systems(uow, self.adapters, now)
        found = self.find(uow, now)
        for key in sorted(uow.alerts.open_of(ATTENTION_CONDITIONS) - {each.key for each in found}):
            close_alert(uow, key, now)
        for each in found:
            open_alert(uow, each, follow_oldest=True)

    def find(self, uow: UnitOfWork, now: datetime) -> list[Alert]:
        """Give what waits or fails now; nothing is written."""
        groups = (each for each in uow.waiting_groups() if each.key.condition in ATTENTION_CONDITIONS)
        waiting = (_to_alert(each, now) for each in groups)
        return [*waiting, *self._failure_alerts(uow, now)]

    def _failure_alerts(self, uow: UnitOfWork, now: datetime) -> Iterator[Alert]:
        for key, groups in group_failures(uow.jobs.failure_groups()).items():
            if any(self._is_told(each, now) for each in groups):
                yield Alert(
                    condition=key.condition,
                    subject=key.subject,
                    detail=_count_kinds(groups),
                    since=min(each.since for each in groups),
                    opened_at=now,
                    count=sum(each.count for each in groups),
                )

    def _is_told(self, group: FailureGroup, now: datetime) -> bool:
        """Whether one of them waits for a person, or has failed for long or often enough."""
        is_old = group.failing_since is not None and group.failing_since <= now - self.alert_after
        return group.set_aside > 0 or is_old or group.failures >= self.alert_after_attempts

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


def group_failures(groups: Iterable[FailureGroup]) -> dict[AlertKey, list[FailureGroup]]:
    """Put what fails of the same cause together: one alert says it, whatever kinds of jobs these are."""
    by_key: dict[AlertKey, list[FailureGroup]] = {}
    for each in groups:
        by_key.setdefault(each.key, []).append(each)
    return by_key


def _count_kinds(groups: Sequence[FailureGroup]) -> str:
    kinds: Counter[str] = Counter()
    for each in groups:
        kinds[each.kind.value] += each.count
    return ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))


def _to_alert(group: WaitingGroup, now: datetime) -> Alert:
    condition, subject = group.key
    detail = describe_oldest(group.order)
    return Alert(condition=condition, subject=subject, detail=detail, since=group.since, opened_at=now, count=group.count)


def _update_alert(uow: UnitOfWork, key: AlertKey, detail: str | None, now: datetime, *, count: int | None = None) -> None:
    """Open the alert, or close it where `detail` is None."""
    if detail is None:
        close_alert(uow, key, now)
    else:
        open_alert(uow, Alert(condition=key.condition, subject=key.subject, detail=detail, since=now, opened_at=now, count=count))
