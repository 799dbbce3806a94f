"""Alerts about searches that the service does not filter: what it ignores, and what an operator can do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from lab_agent.exchange.service import UNFILTERED_HINTS, Exchange, SearchKind
from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import AlertKey, ConditionId
from lab_agent.store.alert_log import close_alert
from lab_agent.store.event_records import Alert
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

_CONSEQUENCES = {
    SearchKind.ORDER_TASKS: "only requested OrderProcessingTasks are taken",
    SearchKind.LINE_TASKS: (
        "only the Tasks that name the order as their partOf are taken for its lines, and new orders are held where others come"
    ),
    SearchKind.QUESTIONNAIRES: (
        "only answers about the order's ProcedureRequests are taken, and new orders are held where others come"
    ),
    SearchKind.BY_IDENTIFIER: "only resources with the identifier that was asked for are taken",
}


@dataclass(frozen=True, slots=True)
class SearchAlerts:
    """Opens an alert for each kind of search that was answered with what was not asked for, until its answers are right."""

    exchange: Exchange
    store: Store
    clock: Clock

    async def run(self) -> None:
        """Write what was found out since the last run. Raises `StoreUnreachableError`."""
        if findings := self.exchange.take_search_findings():
            await self.store.transact(lambda uow: self._write(uow, findings))

    def _write(self, uow: UnitOfWork, findings: Mapping[SearchKind, bool]) -> None:
        now = self.clock.now()
        for kind, filtered in findings.items():
            key = search_alert_key(kind)
            if filtered:
                close_alert(uow, key, now)
            elif uow.alerts.open(
                Alert(condition=key.condition, subject=key.subject, detail=_describe(kind), since=now, opened_at=now)
            ):
                log.warning("search not filtered", action="search_not_filtered", alert=str(key), search=kind.value)


def search_alert_key(kind: SearchKind) -> AlertKey:
    """The alert of a search that the service does not filter."""
    return AlertKey(ConditionId.EXCHANGE_SEARCH_NOT_FILTERED, kind.value)


def _describe(kind: SearchKind) -> str:
    return f"{_CONSEQUENCES[kind]}{UNFILTERED_HINTS.get(kind, '')}"
