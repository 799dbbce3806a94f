"""What the store says of the offer now, read in one unit of work, and only if its stamp has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from lab_agent.catalogue.turnaround import Delayed, Notice, NoticePeriod, Stopped
from lab_agent.domain.offer import CATALOGUE_CHANGE_STAMP, ApiToken, CatalogueVersion, TurnaroundNotice
from lab_agent.ports.store import Store, UnitOfWork

UNREAD_STAMP = "unread"
"""The stamp of somebody who has read nothing yet."""


@dataclass(frozen=True, slots=True)
class CatalogueSnapshot:
    """Catalogue versions (newest first), notices and API tokens, as of a stamp."""

    stamp: str | None
    versions: tuple[CatalogueVersion, ...]
    notices: tuple[Notice, ...]
    tokens: tuple[ApiToken, ...]


async def load_snapshot(
    store: Store, known_stamp: str | None, since: Callable[[UnitOfWork], datetime]
) -> CatalogueSnapshot | None:
    """Read what was in force at `since` or later; None if nothing has changed since the stamp that is known."""

    def work(uow: UnitOfWork) -> CatalogueSnapshot | None:
        stamp = uow.key_values.get(CATALOGUE_CHANGE_STAMP)
        if stamp == known_stamp:
            return None
        moment = since(uow)
        notices = tuple(to_notices(uow.turnaround_notices.active_since(moment)))
        return CatalogueSnapshot(stamp, uow.catalogues.active_since(moment), notices, uow.api_tokens.all())

    return await store.run(work)


def to_notices(records: Iterable[TurnaroundNotice]) -> Iterator[Notice]:
    """Give the notices as the turnaround reads them; one that was cleared ends there."""
    for each in records:
        period = NoticePeriod(each.start, min(each.end, each.lifted_at or each.end))
        if period.start < period.end:
            status = Stopped(period) if each.delay_hours is None else Delayed(period, each.delay_hours)
            yield Notice(each.item, status, each.contract, each.caption)
