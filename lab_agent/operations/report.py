"""The conditions that hold now, as page, commands, `/readyz`, notifications and metrics tell them: worst first, oldest first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from lab_agent.operations import page_lists
from lab_agent.shared.conditions.model import Affected, AffectedCount, ConditionId, OpenCondition, Severity
from lab_agent.shared.conditions.table import CONDITIONS
from lab_agent.store.event_records import Alert
from lab_agent.store.read_models import AffectedNumbers

_NOUNS = {
    "orders": "order",
    "lines": "line",
    "results": "result",
    "jobs": "job",
    "rule": "order",
    "lis": "message",
    "api": "request",
}
_RANKS = {severity: rank for rank, severity in enumerate(Severity)}


def list_conditions(
    alerts: Iterable[Alert], numbers: AffectedNumbers | None, observed: Iterable[OpenCondition] = ()
) -> tuple[OpenCondition, ...]:
    """Give what holds now: open alerts, and what was `observed` without the store. What another one covers is left out.

    `numbers` is None where the store cannot be read: then nothing is counted.
    """
    found = {each.key: each for each in (*(to_open_condition(alert, numbers) for alert in alerts), *observed)}
    subjects: dict[ConditionId, set[str]] = defaultdict(set)
    for each in found.values():
        subjects[each.condition.id].add(each.subject)
    told = [each for each in found.values() if not _is_covered(each, subjects)]
    return tuple(sorted(told, key=lambda each: (_RANKS[each.condition.severity], each.since, each.key)))


def _is_covered(told: OpenCondition, subjects: Mapping[ConditionId, set[str]]) -> bool:
    """Whether another one says it more precisely, about the same subject where each of them has one.

    `subjects` are those of what holds, by condition: a look at each is too slow for the ten thousand alerts of a bad night.
    """
    others = [subjects[each] for each in told.condition.covered_by if each in subjects]
    return any(not told.subject or told.subject in each or "" in each for each in others)


def to_open_condition(alert: Alert, numbers: AffectedNumbers | None = None) -> OpenCondition:
    """Give an alert as the condition that it says, with what it affects now."""
    condition = CONDITIONS[alert.condition]
    return OpenCondition(
        condition=condition,
        subject=alert.subject,
        detail=alert.detail,
        since=alert.since,
        affected=_count_affected(condition.affected, alert, numbers),
    )


def _count_affected(affected: Affected, alert: Alert, numbers: AffectedNumbers | None) -> tuple[AffectedCount, ...]:
    if affected is Affected.AS_COUNTED:
        noun = _NOUNS.get(alert.condition.value.partition(".")[0], "item")
        page = page_lists.find_list(alert.key)
        return () if alert.count is None else (AffectedCount(number=alert.count, noun=noun, page=page),)
    counted = [] if numbers is None else _count_waiting(affected, alert.subject, numbers)
    return tuple(each for each in counted if each.number)


def _count_waiting(affected: Affected, subject: str, numbers: AffectedNumbers) -> list[AffectedCount]:
    match affected:
        case Affected.EVERYTHING:
            return [
                AffectedCount(number=numbers.unfinished_orders, noun="unfinished order", page=page_lists.UNFINISHED_ORDERS),
                AffectedCount(
                    number=numbers.unfinished_results,
                    noun="unfinished result",
                    page=page_lists.UNFINISHED_RESULTS,
                ),
            ]
        case Affected.EXCHANGE_JOBS:
            return [
                AffectedCount(number=numbers.orders_to_fetch, noun="order", rest=" to fetch", page=page_lists.ORDERS_TO_FETCH),
                AffectedCount(
                    number=numbers.results_to_deliver,
                    noun="result",
                    rest=" to deliver",
                    page=page_lists.RESULTS_TO_DELIVER,
                ),
                AffectedCount(number=numbers.tasks_to_update, noun="Task", rest=" to update"),
            ]
        case Affected.LIS_JOBS:
            number = numbers.orders_to_hand_over.get(subject, 0)
            return [AffectedCount(number=number, noun="order", rest=" to hand over", page=page_lists.ORDERS_TO_HAND_OVER)]
        case Affected.LIS_LINES:
            number = numbers.waiting_lines.get(subject, 0)
            return [AffectedCount(number=number, noun="line", rest=" without a result", page=page_lists.ORDERS_AT_THE_LABORATORY)]
        case _:
            return []
