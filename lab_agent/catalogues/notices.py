"""Stopping and delaying tests at once, and lifting that again (interface: Turnaround item)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from lab_agent.catalogue.cells import did_you_mean
from lab_agent.catalogues.fallback import Readable, newest_readable
from lab_agent.catalogues.keeping import touch
from lab_agent.domain.offer import EtaNotice
from lab_agent.errors import CatalogueError, DataInvalidError, Problem
from lab_agent.ports.store import Store, UnitOfWork

NOTHING_READ = (
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


async def announce(store: Store, said: Announcement, *, by: str | None, now: datetime) -> EtaNotice:
    """Put a notice in force. Raises `DataInvalidError` with every problem, `CatalogueError` if there is no catalogue.

    Names are those of the newest catalogue that can be read; where none can, they are taken as they are (`doubt` says so).
    """
    problems = (*_times(said, now), *await _names(store, said))
    if problems:
        raise DataInvalidError(problems)
    notice = EtaNotice(
        key=uuid.uuid4().hex[:12],
        item=said.item,
        contract=said.contract,
        start=said.start,
        end=said.end,
        delay_hours=said.delay_hours,
        caption=said.caption,
        made_at=now,
        by=by,
    )

    def work(uow: UnitOfWork) -> None:
        uow.eta_notices.add(notice)
        touch(uow)
        uow.commit()

    await store.run(work)
    return notice


async def clear(store: Store, item: str, contract: str | None, *, now: datetime) -> int:
    """Lift the notices of a test, of one contract or of all; their number."""

    def work(uow: UnitOfWork) -> int:
        cleared = uow.eta_notices.clear(item, contract, now=now)
        touch(uow)
        uow.commit()
        return cleared

    return await store.run(work)


async def standing(store: Store, now: datetime) -> tuple[EtaNotice, ...]:
    """What was announced and is in force or to come; the sheet of the catalogue has its own (see `Board`)."""
    return await store.run(lambda uow: uow.eta_notices.since(now))


async def doubt(store: Store) -> str | None:
    """Why the names of a notice may not be those of the catalogue in force; None if they are."""
    try:
        found = await newest_readable(store)
    except CatalogueError:
        return NOTHING_READ
    return None if found is None else doubt_of(found)


def doubt_of(found: Readable) -> str | None:
    """Why the names and the sheet of what was found may not be those of the catalogue in force; None if they are."""
    if found.broken is None:
        return None
    looked_up = f"code, contract and sheet notices were looked up in the one before it, version {found.kept.version}"
    return f"The catalogue in force cannot be read: {looked_up}."


def _times(said: Announcement, now: datetime) -> tuple[Problem, ...]:
    problems = []
    if said.end <= max(said.start, now):
        problems.append(Problem("until", "is not in the future, or not after the start", "name a later moment"))
    if said.delay_hours is not None and said.delay_hours <= 0:
        problems.append(Problem("hours", "is not above 0", "name the hours of the delay"))
    return tuple(problems)


async def _names(store: Store, said: Announcement) -> tuple[Problem, ...]:
    try:
        found = await newest_readable(store)
    except CatalogueError:
        return ()  # a test must be stopped also while no catalogue can be read
    if found is None:
        raise CatalogueError((Problem("store", "holds no catalogue yet", "import one: lab-agent catalogue import"),))
    contracts = found.catalogue.contracts
    if said.contract is not None and said.contract not in contracts:
        return (Problem("contract", f"{said.contract!r} is not in the catalogue", did_you_mean(said.contract, contracts)),)
    offering = [code for code, each in contracts.items() if said.item in each.items]
    if said.contract in offering or (offering and said.contract is None):
        return ()
    if offering:
        what = f"{said.item!r} is not offered in contract {said.contract}"
        return (Problem("item", what, f"name a contract that offers it: {', '.join(offering)}"),)
    offered = {code for key, each in contracts.items() if said.contract in (None, key) for code in each.items}
    return (Problem("item", f"{said.item!r} is not in the catalogue", did_you_mean(said.item, offered) or "look for its code"),)
