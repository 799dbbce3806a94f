"""Laboratory systems that owe results: one that sends none at all any more, and orders that one has not reported in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from typing_extensions import override

from lab_agent.operations.monitor import Finding, Probe
from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import ConditionId
from lab_agent.store.queries import Queries
from lab_agent.store.read_models import OverdueResults


@dataclass(frozen=True, slots=True)
class OverdueResultsProbe(Probe):
    """Looks for results that should have come more than `after` ago, by the turnaround of the catalogue.

    A system is silent if something was due after its last result and has not come: what was due before that says nothing about
    it, since it has reported since. Its other overdue orders are told by themselves.
    """

    queries: Queries
    clock: Clock
    after: timedelta

    conditions: ClassVar[frozenset[ConditionId]] = frozenset({ConditionId.LIS_SILENT, ConditionId.ORDERS_OVERDUE})

    @override
    async def look(self) -> Sequence[Finding]:
        owed = await self.queries.overdue_results(before=self.clock.now() - self.after)
        return [_to_finding(each) for each in owed]


def _to_finding(owed: OverdueResults) -> Finding:
    if owed.since_last is None:
        return Finding(condition=ConditionId.ORDERS_OVERDUE, subject=owed.adapter, since=owed.since, count=owed.orders)
    last = "it has never sent one" if owed.last_result_at is None else f"its last came {owed.last_result_at:%Y-%m-%d %H:%M} UTC"
    lines = "1 line is" if owed.lines_since_last == 1 else f"{owed.lines_since_last} lines are"
    return Finding(
        condition=ConditionId.LIS_SILENT,
        subject=owed.adapter,
        detail=f"{lines} overdue; {last}",
        since=owed.since_last,
        count=owed.lines_since_last,
    )
