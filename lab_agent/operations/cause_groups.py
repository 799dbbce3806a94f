"""What fails or waits for a person, grouped by its cause, as the status page and `lab-agent status` list it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from lab_agent.operations.report import to_open_condition
from lab_agent.orders.group_actions import GroupAction
from lab_agent.orders.held_group_actions import ResultGroup, can_release_orders, why_results_stay
from lab_agent.queue.job_records import FailureGroup
from lab_agent.shared.conditions.model import AlertKey, ConditionId, OpenCondition
from lab_agent.shared.ids import OrderKey
from lab_agent.store.event_records import Alert, WaitingGroup
from lab_agent.store.unit_of_work import UnitOfWork

_TOLD_AS_CONDITION = frozenset(
    {ConditionId.ORDERS_PART_WAITS, ConditionId.ORDERS_TASK_UNREADABLE, ConditionId.LINES_TASK_UNREADABLE}
)
"""Nobody can do anything about these here: the conditions tell them."""
_RESULTS = frozenset({ConditionId.RESULTS_HELD, ConditionId.RESULTS_UNMATCHED, ConditionId.RESULTS_UNMAPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseGroup:
    """All that fails or waits for one cause. `waiting` of the `count` wait for a person; the others are tried again.

    `order` is that of the one that has waited for longest, if it has one, and `reason` why that one waits.
    """

    told: OpenCondition
    count: int
    waiting: int
    order: OrderKey | None = None
    reason: str | None = None
    actions: tuple[GroupAction, ...] = ()

    @property
    def key(self) -> AlertKey:
        """The alert of its cause."""
        return self.told.key

    @property
    def code(self) -> str:
        """The cause as commands take it."""
        by_subject = self.key.condition in {ConditionId.ORDERS_HELD, ConditionId.RESULTS_HELD}
        return self.key.subject if by_subject else self.key.condition.value.partition(".")[2]

    @property
    def system(self) -> str:
        """The laboratory system that it is about; empty for none."""
        return self.key.subject if self.is_of_jobs or self.is_of_refused_messages else ""

    @property
    def is_of_jobs(self) -> bool:
        """Whether its members are jobs."""
        return self.key.condition.value.startswith("jobs.")

    @property
    def is_of_refused_messages(self) -> bool:
        """Whether its members are messages that could not be read; they are decided about in a list of their own."""
        return self.key.condition is ConditionId.LIS_REFUSED_MESSAGES

    @property
    def is_of_results(self) -> bool:
        """Whether its members wait at the match desk."""
        return self.key.condition in _RESULTS


def read_groups(uow: UnitOfWork, now: datetime) -> tuple[CauseGroup, ...]:
    """Everything that fails or waits, by cause: the longest waiting first."""
    failing, waiting = uow.all_groups()
    groups = [
        *_of_jobs(failing, now),
        *(_of_waiting(each, now) for each in waiting if each.key.condition not in _TOLD_AS_CONDITION),
    ]
    return tuple(sorted(groups, key=lambda each: (each.told.since, each.key)))


def count_waiting(groups: Iterable[CauseGroup]) -> int:
    """How much waits for a person."""
    return sum(each.waiting for each in groups)


def _of_jobs(found: Sequence[FailureGroup], now: datetime) -> Iterator[CauseGroup]:
    for key in dict.fromkeys(each.key for each in found):
        mine = [each for each in found if each.key == key]
        count, waiting = sum(each.count for each in mine), sum(each.set_aside for each in mine)
        actions = (GroupAction.RETRY, GroupAction.DISMISS) if waiting else (GroupAction.RETRY,)
        told = _tell(key, count, min(each.since for each in mine), now)
        yield CauseGroup(told=told, count=count, waiting=waiting, actions=actions)


def _of_waiting(found: WaitingGroup, now: datetime) -> CauseGroup:
    return CauseGroup(
        told=_tell(found.key, found.count, found.since, now),
        count=found.count,
        waiting=found.count,
        order=found.order,
        reason=found.reason,
        actions=_actions_on(found.key),
    )


def _actions_on(key: AlertKey) -> tuple[GroupAction, ...]:
    if key.condition is ConditionId.ORDERS_HELD:
        return (GroupAction.RETRY, GroupAction.RELEASE) if can_release_orders(key.subject) else (GroupAction.RETRY,)
    if key.condition not in _RESULTS:
        return ()
    group = ResultGroup.of_alert(key)
    wanted = (GroupAction.RELEASE, GroupAction.DISMISS) if group.hold_reason is not None else (GroupAction.DISMISS,)
    return tuple(each for each in wanted if why_results_stay(group, each) is None)


def _tell(key: AlertKey, count: int, since: datetime, now: datetime) -> OpenCondition:
    return to_open_condition(Alert(condition=key.condition, subject=key.subject, since=since, opened_at=now, count=count))
