"""What the store says of the offer now, read in one unit of work, and only if its stamp has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from lab_agent.catalogue.turnaround import Delayed, Notice, Period, Stopped
from lab_agent.domain.offer import OFFER_STAMP, ApiToken, CatalogueVersion, EtaNotice
from lab_agent.ports.store import Store, UnitOfWork

UNREAD = "unread"
"""The stamp of somebody who has read nothing yet."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Catalogue versions (newest first), notices and API tokens, as of a stamp."""

    stamp: str | None
    versions: tuple[CatalogueVersion, ...]
    notices: tuple[Notice, ...]
    tokens: tuple[ApiToken, ...]


async def read_offer(store: Store, known: str | None, since: Callable[[UnitOfWork], datetime]) -> Offer | None:
    """Read what was in force at `since` or later; None if nothing has changed since the stamp that is known."""

    def work(uow: UnitOfWork) -> Offer | None:
        stamp = uow.book.noted(OFFER_STAMP)
        if stamp == known:
            return None
        moment = since(uow)
        notices = tuple(as_notices(uow.eta_notices.since(moment)))
        return Offer(stamp, uow.catalogues.in_force_since(moment), notices, uow.api_tokens.all())

    return await store.run(work)


def as_notices(kept: Iterable[EtaNotice]) -> Iterator[Notice]:
    """Give the notices as the turnaround reads them; one that was cleared ends there."""
    for each in kept:
        period = Period(each.start, min(each.end, each.cleared_at or each.end))
        if period.start < period.end:
            status = Stopped(period) if each.delay_hours is None else Delayed(period, each.delay_hours)
            yield Notice(each.item, status, each.contract, each.caption)
