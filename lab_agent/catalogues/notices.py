"""Stopping and delaying tests at once, and lifting that again (interface: Turnaround item)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from lab_agent.catalogue.cells import did_you_mean
from lab_agent.catalogues.fallback import ReadableVersion, load_newest_readable
from lab_agent.catalogues.keeping import mark_changed
from lab_agent.domain.offer import TurnaroundNotice
from lab_agent.errors import CatalogueError, DataInvalidError, Problem
from lab_agent.ports.store import Store, UnitOfWork

NO_READABLE_CATALOGUE = (
    "No stored catalogue can be read: code and contract were not checked, and what its sheet notices says is not known. "
    "Import it again: lab-agent catalogue import."
)
"""Why notices may be others than it seems where no catalogue can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What staff say: which test is stopped (`delay_hours` None) or delayed, from when until when, for which contract."""

    item: str
    start: datetime
    end: datetime
    contract: str | None = None
    delay_hours: Decimal | None = None
    caption: str = ""


async def announce(store: Store, announcement: Announcement, *, by: str | None, now: datetime) -> TurnaroundNotice:
    """Put a notice in force. Raises `DataInvalidError` with every problem, `CatalogueError` if there is no catalogue.

    Names are those of the newest catalogue that can be read; where none can, they are taken as they are (`doubt` says so).
    """
    problems = (*_check_times(announcement, now), *await _check_names(store, announcement))
    if problems:
        raise DataInvalidError(problems)
    notice = TurnaroundNotice(
        key=uuid.uuid4().hex[:12],
        item=announcement.item,
        contract=announcement.contract,
        start=announcement.start,
        end=announcement.end,
        delay_hours=announcement.delay_hours,
        caption=announcement.caption,
        made_at=now,
        by=by,
    )

    def work(uow: UnitOfWork) -> None:
        uow.turnaround_notices.add(notice)
        mark_changed(uow)
        uow.commit()

    await store.run(work)
    return notice


async def lift_notices(store: Store, item: str, contract: str | None, *, now: datetime) -> int:
    """Lift the notices of a test, of one contract or of all; their number."""

    def work(uow: UnitOfWork) -> int:
        cleared = uow.turnaround_notices.lift(item, contract, now=now)
        mark_changed(uow)
        uow.commit()
        return cleared

    return await store.run(work)


async def load_notices(store: Store, now: datetime) -> tuple[TurnaroundNotice, ...]:
    """What was announced and is in force or to come; the sheet of the catalogue has its own (see `Board`)."""
    return await store.run(lambda uow: uow.turnaround_notices.active_since(now))


async def load_staleness_warning(store: Store) -> str | None:
    """Why the names of a notice may not be those of the catalogue in force; None if they are."""
    try:
        found = await load_newest_readable(store)
    except CatalogueError:
        return NO_READABLE_CATALOGUE
    return None if found is None else staleness_warning(found)


def staleness_warning(found: ReadableVersion) -> str | None:
    """Why the names and the sheet of what was found may not be those of the catalogue in force; None if they are."""
    if found.read_error is None:
        return None
    looked_up = f"code, contract and sheet notices were looked up in the one before it, version {found.stored.version}"
    return f"The catalogue in force cannot be read: {looked_up}."


def _check_times(announcement: Announcement, now: datetime) -> tuple[Problem, ...]:
    problems = []
    if announcement.end <= max(announcement.start, now):
        problems.append(Problem("until", "is not in the future, or not after the start", "name a later moment"))
    if announcement.delay_hours is not None and announcement.delay_hours <= 0:
        problems.append(Problem("hours", "is not above 0", "name the hours of the delay"))
    return tuple(problems)


async def _check_names(store: Store, announcement: Announcement) -> tuple[Problem, ...]:
    try:
        found = await load_newest_readable(store)
    except CatalogueError:
        return ()  # a test must be stopped also while no catalogue can be read
    if found is None:
        raise CatalogueError((Problem("store", "holds no catalogue yet", "import one: lab-agent catalogue import"),))
    contracts = found.catalogue.contracts
    if announcement.contract is not None and announcement.contract not in contracts:
        return (
            Problem(
                "contract", f"{announcement.contract!r} is not in the catalogue", did_you_mean(announcement.contract, contracts)
            ),
        )
    offering = [code for code, each in contracts.items() if announcement.item in each.items]
    if announcement.contract in offering or (offering and announcement.contract is None):
        return ()
    if offering:
        what = f"{announcement.item!r} is not offered in contract {announcement.contract}"
        return (Problem("item", what, f"name a contract that offers it: {', '.join(offering)}"),)
    offered = {code for key, each in contracts.items() if announcement.contract in (None, key) for code in each.items}
    return (
        Problem(
            "item",
            f"{announcement.item!r} is not in the catalogue",
            did_you_mean(announcement.item, offered) or "look for its code",
        ),
    )
