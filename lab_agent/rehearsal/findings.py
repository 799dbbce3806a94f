"""What a rehearsal has found: what would go wrong, by cause, and what it could not try."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from lab_agent.operations.cause_groups import CauseGroup, read_groups
from lab_agent.orders.held_group_actions import ResultGroup
from lab_agent.queue.job_records import Job
from lab_agent.rehearsal.made_orders import MadeOrder
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.state_machines import OrderState
from lab_agent.store.unit_of_work import UnitOfWork

_MOST_REASONS = 3


class FindingKind(StrEnum):
    """What kind of trouble a finding is."""

    SETTINGS = "settings"
    NOT_ORDERABLE = "not_orderable"
    REJECTED = "rejected"
    WAITS = "waits"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that would go wrong with `count` orders, lines, results or settings.

    `condition` is the id of the condition that the agent would tell of, or of the rule; empty for neither. `items` are the codes
    of the tests that it happened to.
    """

    kind: FindingKind
    text: str
    count: int
    reasons: tuple[str, ...] = ()
    mend: str = ""
    condition: str = ""
    items: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DayNumbers:
    """How much was done. By adapter: the orders `handed_over`, and the `messages` that it would have sent for them (files, or
    sets of rows; None for one that cannot show them).
    """

    orders: int
    completed: int
    handed_over: Mapping[str, int]
    messages: Mapping[str, int | None]
    results: int
    uploads: Mapping[str, int]
    """By resource type."""
    labels: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedDay:
    """A day as it went. `catalogue` says which one was taken; `notes` what was not tried, and what to look at."""

    catalogue: str
    numbers: DayNumbers
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """That a rule rejects a line: what the clinic reads, and the code of the line's test."""

    rule: str
    message: str
    item: str


@dataclass(frozen=True, slots=True)
class OrderReview:
    """What became of made-up orders; `orders` by their keys."""

    orders: Mapping[OrderKey, MadeOrder]
    rejections: Sequence[Rejection]
    jobs: Sequence[Job]
    """All jobs that failed and have not ended."""
    now: datetime
    _explained: set[OrderKey] = field(default_factory=set)

    def find(self, uow: UnitOfWork) -> tuple[Finding, ...]:
        """Everything that did not go to its end."""
        found = [*self._rejected(), *(self._of_group(each, uow) for each in read_groups(uow, self.now))]
        return (*found, *self._unfinished(uow))

    def _rejected(self) -> Iterator[Finding]:
        """What rules reject. An order that follows our own answers is rejected for a fault of ours."""
        for rule in dict.fromkeys(each.rule for each in self.rejections):
            mine = [each for each in self.rejections if each.rule == rule]
            yield Finding(
                kind=FindingKind.REJECTED,
                text=f"Lines rejected by the rule {rule}, though they follow the answers of lab-api",
                count=len(mine),
                reasons=tuple(dict.fromkeys(each.message for each in mine))[:_MOST_REASONS],
                mend="Correct the catalogue or the settings: what lab-api answers, and what the rule expects, do not agree.",
                condition=rule,
                items=tuple(dict.fromkeys(each.item for each in mine)),
            )

    def _of_group(self, group: CauseGroup, uow: UnitOfWork) -> Finding:
        keys, reasons = self._members(group, uow)
        self._explained.update(keys)
        items = dict.fromkeys(item for key in keys if key in self.orders for item in self.orders[key].items)
        return Finding(
            kind=FindingKind.WAITS,
            text=group.told.title,
            count=group.count,
            reasons=tuple(dict.fromkeys(reasons))[:_MOST_REASONS],
            mend=group.told.mend,
            condition=str(group.key),
            items=tuple(items),
        )

    def _members(self, group: CauseGroup, uow: UnitOfWork) -> tuple[list[OrderKey], list[str]]:
        if group.is_of_jobs:
            failed = [each for each in self.jobs if each.failure_cause and each.failure_cause.alert_key(each.system) == group.key]
            return [each.order for each in failed if each.order], [each.reason for each in failed if each.reason]
        if group.is_of_results:
            mine = ResultGroup.of_alert(group.key)
            waiting = [
                each
                for each in uow.reports.needing_operator()
                if each.state is mine.state and each.hold_reason is mine.hold_reason
            ]
            return [OrderKey(each.order) for each in waiting if each.order], [each.reason for each in waiting if each.reason]
        held = [order for key in self.orders if (order := uow.orders.get(key)).hold_cause == group.code]
        return [each.key for each in held], [each.reason for each in held if each.reason]

    def _unfinished(self, uow: UnitOfWork) -> Iterator[Finding]:
        """What has not ended, and nobody would be told of: a fault of this program."""
        open_ones = [key for key in self.orders if uow.orders.get(key).state is not OrderState.CLOSED]
        left = [key for key in open_ones if key not in self._explained]
        if left:
            items = dict.fromkeys(item for key in left for item in self.orders[key].items)
            states = dict.fromkeys(uow.orders.get(key).state.value for key in left)
            yield Finding(
                kind=FindingKind.UNFINISHED,
                text=f"Not finished, for no reason that the agent would tell ({', '.join(states)})",
                count=len(left),
                items=tuple(items),
                mend="Please report it.",
            )
