"""Retention: purge what has been kept long enough. Unfinished work is never purged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from lab_agent.operations.audit_log import record
from lab_agent.results.refused_messages import purge_contents
from lab_agent.settings.groups import RetentionSettings
from lab_agent.shared.clock import Clock
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.retention import PurgeTimes
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

MIN_KEPT_CATALOGUES = 10
"""So many of the newest catalogue versions stay, however old, so that one can go back to them."""


def purge_times(settings: RetentionSettings, now: datetime) -> PurgeTimes:
    """Give the times by the settings."""

    def ago(days: int) -> datetime:
        return now - timedelta(days=days)

    return PurgeTimes(
        identities=ago(settings.identity_days),
        documents=ago(settings.document_days),
        refused_contents=ago(settings.refused_days),
        refused_messages=ago(settings.failure_days),
        orders=ago(max(settings.journal_days, settings.failure_days)),
        baskets=ago(settings.label_days),
        catalogues=ago(settings.catalogue_days),
        audit=ago(settings.audit_days),
    )


@dataclass(frozen=True, slots=True)
class RetentionPurger:
    """Purges identification data, documents, closed orders, baskets and catalogues in small batches, so that work goes on."""

    store: Store
    clock: Clock
    settings: RetentionSettings
    catalogues_needed_since: Callable[[UnitOfWork, datetime], datetime]
    """The time since which every catalogue version is needed, whatever its age."""

    async def run(self) -> int:
        """Purge everything that is old enough; how many things were removed."""
        return sum((await self.purge()).values())

    async def purge(self) -> Mapping[str, int]:
        """Purge everything that is old enough; how many things of each class were removed."""
        now = self.clock.now()
        times = purge_times(self.settings, now)
        removed = {
            "identities": await self._purge_in_batches(lambda uow: uow.purge.identities(before=times.identities)),
            "documents": await self._purge_in_batches(lambda uow: uow.purge.documents(before=times.documents)),
            "refused_contents": await self._purge_in_batches(lambda uow: purge_contents(uow, self.settings.refused_days, now)),
            "refused_messages": await self._purge_in_batches(
                lambda uow: uow.refused_messages.purge_finished(before=times.refused_messages)
            ),
            "orders": await self._purge_in_batches(lambda uow: uow.purge.closed_orders(before=times.orders)),
            "baskets": await self._purge_in_batches(lambda uow: uow.purge.baskets(before=times.baskets)),
            "catalogues": await self._purge_in_batches(lambda uow: self._purge_catalogues(uow, times.catalogues, now)),
            "audit": await self._purge_in_batches(lambda uow: uow.audit.purge(before=times.audit)),
        }
        if any(removed.values()):
            details = {name: count for name, count in removed.items() if count}
            await record(self.store, AuditEntry(at=now, action=AuditAction.DATA_PURGED, details=details))
            await self.store.reclaim_space()
            log.info("purged", action="purged", items=[f"{count} {name}" for name, count in removed.items() if count])
        return removed

    def _purge_catalogues(self, uow: UnitOfWork, old: datetime, now: datetime) -> int:
        return uow.purge.catalogues(before=min(old, self.catalogues_needed_since(uow, now)), keep=MIN_KEPT_CATALOGUES)

    async def _purge_in_batches(self, purge: Callable[[UnitOfWork], int]) -> int:
        def purge_batch(uow: UnitOfWork) -> int:
            return purge(uow)

        total = 0
        while removed := await self.store.transact(purge_batch):
            total += removed
        return total
