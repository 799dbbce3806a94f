"""Every notice that partners may see: what staff announced, and the sheet `notices` of the catalogue. How a test then stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogue.turnaround import Delayed, Notice, deciding
from lab_agent.catalogues.fallback import newest_readable
from lab_agent.catalogues.notices import NOTHING_READ, doubt_of, standing
from lab_agent.catalogues.offer import UNREAD, as_notices
from lab_agent.domain.offer import OFFER_STAMP, EtaNotice
from lab_agent.errors import CatalogueError
from lab_agent.ports.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A notice in force or to come: a row of the sheet, or what staff announced, when and by whom."""

    notice: Notice
    sheet: bool = False
    made_at: datetime | None = None
    by: str | None = None

    @property
    def item(self) -> str:
        """Code of the test."""
        return self.notice.item_id

    @property
    def contract(self) -> str | None:
        """The one contract that it is about; None for every one."""
        return self.notice.contract

    @property
    def start(self) -> datetime:
        """Its beginning."""
        return self.notice.status.period.start

    @property
    def end(self) -> datetime:
        """Its end."""
        return self.notice.status.period.end

    @property
    def delay_hours(self) -> Decimal | None:
        """The hours of a delay; None where the test is stopped."""
        return self.notice.status.hours if isinstance(self.notice.status, Delayed) else None

    @property
    def caption(self) -> str:
        """The sentence for the partners; empty for the usual one."""
        return self.notice.caption


@dataclass(frozen=True, slots=True)
class Outlook:
    """How a test stands in the contracts that offer it: what decides now (None: it is as usual).

    `besides` are the notices that decide nowhere now, by their start: they are to come, or a graver one outweighs them.
    """

    now: Mapping[str, Standing | None]
    besides: tuple[Standing, ...]

    @property
    def usual(self) -> bool:
        """Whether it is as usual now in each of them."""
        return all(each is None for each in self.now.values())


@dataclass(frozen=True, slots=True)
class Seen:
    """The notices in force or to come as of a moment, and the catalogue; `doubt` says why that may not be the one in force."""

    at: datetime
    notices: tuple[Standing, ...]
    catalogue: Catalogue | None
    doubt: str | None

    def outlook(self, item: str, contract: str | None = None) -> Outlook:
        """How a test stands: in one contract, or in all."""
        contracts = self.catalogue.contracts if self.catalogue else {}
        offering = [code for code, each in contracts.items() if contract in (None, code) and item in each.items]
        mine = {each.notice: each for each in self.notices if any(each.notice.concerns(code, item) for code in offering)}
        found = {code: deciding(code, item, mine, self.at) for code in offering}
        besides = sorted((each for notice, each in mine.items() if notice not in found.values()), key=lambda each: each.start)
        return Outlook({code: mine[notice] if notice else None for code, notice in found.items()}, tuple(besides))

    def outweighing(self, said: EtaNotice) -> Outlook:
        """What decides in the place of a notice that was announced to hold from now on; nothing where it decides itself."""
        others = {
            code: each
            for code, each in self.outlook(said.item, said.contract).now.items()
            if each and each.notice not in as_notices([said]) and said.start <= self.at
        }
        return Outlook(others, ())


class Board:
    """Where all notices can be seen. The catalogue is read again only after a change of the offer, or if it could not be read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stamp: str | None = UNREAD
        self._catalogue: Catalogue | None = None

    async def look(self, now: datetime) -> Seen:
        """See what is in force or to come."""
        doubt = await self._read()
        announced = await standing(self._store, now)
        sheet = self._catalogue.notices if self._catalogue else ()
        return Seen(now, (*_announced(announced), *_of_sheet(sheet, now)), self._catalogue, doubt)

    async def _read(self) -> str | None:
        stamp = await self._store.run(lambda uow: uow.book.noted(OFFER_STAMP))
        if stamp == self._stamp:
            return None
        self._stamp, self._catalogue = UNREAD, None
        try:
            found = await newest_readable(self._store)
        except CatalogueError:
            return NOTHING_READ
        if found is None:
            return None
        self._catalogue = found.catalogue
        if found.broken is None:
            self._stamp = stamp
        return doubt_of(found)


def _announced(kept: Iterable[EtaNotice]) -> Iterator[Standing]:
    for each in kept:
        for notice in as_notices([each]):
            yield Standing(notice=notice, made_at=each.made_at, by=each.by)


def _of_sheet(notices: Iterable[Notice], now: datetime) -> Iterator[Standing]:
    return (Standing(notice=each, sheet=True) for each in notices if each.status.period.end > now)
