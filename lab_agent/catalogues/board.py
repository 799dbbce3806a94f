"""Every notice that partners may see: what staff announced, and the sheet `notices` of the catalogue. How a test then stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from lab_agent.catalogue.items import Catalogue
from lab_agent.catalogue.turnaround import Delayed, Notice, most_severe_notice
from lab_agent.catalogues.fallback import load_newest_readable
from lab_agent.catalogues.notices import NO_READABLE_CATALOGUE, load_notices, staleness_warning
from lab_agent.catalogues.offer import UNREAD_STAMP, to_notices
from lab_agent.domain.offer import CATALOGUE_CHANGE_STAMP, TurnaroundNotice
from lab_agent.errors import CatalogueError
from lab_agent.ports.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveNotice:
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
class TestStatus:
    """How a test stands in the contracts that offer it: what decides now (None: it is as usual).

    `besides` are the notices that decide nowhere now, by their start: they are to come, or a graver one outweighs them.
    """

    current: Mapping[str, ActiveNotice | None]
    other_notices: tuple[ActiveNotice, ...]

    @property
    def is_normal(self) -> bool:
        """Whether it is as usual now in each of them."""
        return all(each is None for each in self.current.values())


@dataclass(frozen=True, slots=True)
class NoticeOverview:
    """The notices in force or to come as of a moment, and the catalogue; `doubt` says why that may not be the one in force."""

    at: datetime
    notices: tuple[ActiveNotice, ...]
    catalogue: Catalogue | None
    staleness_warning: str | None

    def test_status(self, item: str, contract: str | None = None) -> TestStatus:
        """How a test stands: in one contract, or in all."""
        contracts = self.catalogue.contracts if self.catalogue else {}
        offering = [code for code, each in contracts.items() if contract in (None, code) and item in each.items]
        mine = {each.notice: each for each in self.notices if any(each.notice.applies_to(code, item) for code in offering)}
        found = {code: most_severe_notice(code, item, mine, self.at) for code in offering}
        besides = sorted((each for notice, each in mine.items() if notice not in found.values()), key=lambda each: each.start)
        return TestStatus({code: mine[notice] if notice else None for code, notice in found.items()}, tuple(besides))

    def overriding(self, notice: TurnaroundNotice) -> TestStatus:
        """What decides in the place of a notice that was announced to hold from now on; nothing where it decides itself."""
        others = {
            code: each
            for code, each in self.test_status(notice.item, notice.contract).current.items()
            if each and each.notice not in to_notices([notice]) and notice.start <= self.at
        }
        return TestStatus(others, ())


class NoticeBoard:
    """Where all notices can be seen. The catalogue is read again only after a change of the offer, or if it could not be read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stamp: str | None = UNREAD_STAMP
        self._catalogue: Catalogue | None = None

    async def load_overview(self, now: datetime) -> NoticeOverview:
        """See what is in force or to come."""
        doubt = await self._refresh_catalogue()
        announced = await load_notices(self._store, now)
        sheet = self._catalogue.notices if self._catalogue else ()
        return NoticeOverview(now, (*_from_announcements(announced), *_from_sheet(sheet, now)), self._catalogue, doubt)

    async def _refresh_catalogue(self) -> str | None:
        stamp = await self._store.run(lambda uow: uow.key_values.get(CATALOGUE_CHANGE_STAMP))
        if stamp == self._stamp:
            return None
        self._stamp, self._catalogue = UNREAD_STAMP, None
        try:
            found = await load_newest_readable(self._store)
        except CatalogueError:
            return NO_READABLE_CATALOGUE
        if found is None:
            return None
        self._catalogue = found.catalogue
        if found.read_error is None:
            self._stamp = stamp
        return staleness_warning(found)


def _from_announcements(records: Iterable[TurnaroundNotice]) -> Iterator[ActiveNotice]:
    for each in records:
        for notice in to_notices([each]):
            yield ActiveNotice(notice=notice, made_at=each.made_at, by=each.by)


def _from_sheet(notices: Iterable[Notice], now: datetime) -> Iterator[ActiveNotice]:
    return (ActiveNotice(notice=each, sheet=True) for each in notices if each.status.period.end > now)
