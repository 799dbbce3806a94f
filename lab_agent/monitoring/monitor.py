"""Probes that look at regular intervals, and the alerts that follow from what they find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import structlog

from lab_agent.alert_log import close_alert, open_alert
from lab_agent.conditions.ids import ConditionId
from lab_agent.conditions.model import AlertKey
from lab_agent.domain.records import Alert
from lab_agent.errors import LabAgentError
from lab_agent.ports.clock import Clock
from lab_agent.ports.repositories import Store, UnitOfWork

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """That a condition holds: `detail` identifies no patient; `since` is when it began, None for when it is first found."""

    condition: ConditionId
    subject: str = ""
    detail: str = ""
    since: datetime | None = None
    count: int | None = None

    @property
    def key(self) -> AlertKey:
        """The alert that says so."""
        return AlertKey(self.condition, self.subject)


class Probe(Protocol):
    """Looks at one part of operation. It decides alone about its `conditions`: what it does not find of them has ended."""

    @property
    def conditions(self) -> frozenset[ConditionId]:
        """The conditions that it decides about."""
        ...

    async def look(self) -> Sequence[Finding]:
        """Give what holds now. Raises `LabAgentError` if it cannot tell: then nothing is opened or closed."""
        ...


@dataclass(frozen=True, slots=True)
class Monitor:
    """Runs probes, and opens and closes the alerts of what they decide about; each is logged at its start and at its end."""

    store: Store
    clock: Clock
    probes: Sequence[Probe]

    async def run(self) -> None:
        """Look once with all probes. Raises `StoreUnreachableError`."""
        for probe in self.probes:
            try:
                found = await probe.look()
            except (LabAgentError, OSError) as exc:
                log.debug("probe failed", action="probe_failed", task=type(probe).__name__, reason=str(exc))
            else:
                await self._apply(probe.conditions, found)

    async def _apply(self, conditions: frozenset[ConditionId], found: Sequence[Finding]) -> None:
        known = await self.store.run_read_only(lambda uow: uow.alerts.open_of(conditions))
        if found or known:
            await self.store.run(lambda uow: update_alerts(uow, conditions, found, self.clock.now()))


def update_alerts(uow: UnitOfWork, conditions: frozenset[ConditionId], found: Sequence[Finding], now: datetime) -> None:
    """Open what was found, close what is open of the same conditions and was not found, and commit."""
    for key in uow.alerts.open_of(conditions) - {each.key for each in found}:
        close_alert(uow, key, now)
    for each in found:
        alert = Alert(
            condition=each.condition,
            subject=each.subject,
            detail=each.detail,
            since=each.since or now,
            opened_at=now,
            count=each.count,
        )
        open_alert(uow, alert)
    uow.commit()
