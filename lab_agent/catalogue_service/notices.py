"""Stopping and delaying tests at once, and lifting that again (interface: Turnaround item).

Every notice that partners may see: what staff announced, and the sheet `notices` of the catalogue. How a test then stands.

Moments and hours of a notice as staff write them, in a command or on the status page.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.turnaround import Delayed, Notice, most_severe_notice
from lab_agent.catalogue_service.cache import UNREAD_STAMP, to_notices
from lab_agent.catalogue_service.fallback import ReadableVersion, load_newest_readable
from lab_agent.catalogue_service.versions import mark_changed
from lab_agent.domain.catalogue_records import CATALOGUE_CHANGE_STAMP, TurnaroundNotice
from lab_agent.errors import CatalogueError, DataInvalidError, Problem, did_you_mean
from lab_agent.ports.repositories import Store, UnitOfWork

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


_DURATION = re.compile(r"([0-9]{1,4})([hd])")
_MAX_DIGITS = 6
"""More hours than a million, or finer parts of one, nobody means; and no arithmetic of ours shall meet 1e999999."""


def parse_time(where: str, text: str, now: datetime) -> datetime:
    """A moment: 2026-11-20T08:00+03:00, 2026-11-20 (midnight), 12h or 3d; without an offset it is in this machine's zone.

    `where` names the option or the field. Raises `DataInvalidError`.
    """
    if found := _DURATION.fullmatch(text.strip().lower()):
        count = int(found[1])
        return now + (timedelta(hours=count) if found[2] == "h" else timedelta(days=count))
    try:
        read = datetime.fromisoformat(text.strip())
        read = read if read.tzinfo else read.astimezone()
        read.astimezone(UTC)  # what no calendar holds in UTC could not be kept
    except (ValueError, OverflowError, OSError) as exc:
        mend = "write it as 2026-11-20T08:00+03:00, 2026-11-20, 12h or 3d"
        raise DataInvalidError((Problem(where, f"{text!r} is not a moment", mend),)) from exc
    return read


def parse_hours(where: str, text: str) -> Decimal:
    """A number of hours; a comma is a point. Raises `DataInvalidError`."""
    try:
        number = Decimal(text.replace(",", "."))
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise DataInvalidError((Problem(where, f"{text!r} is not a number", "write digits, as in 24"),))
    if max(number.adjusted(), -int(number.as_tuple().exponent)) > _MAX_DIGITS:
        raise DataInvalidError((Problem(where, f"{text!r} is out of all measure", "write digits, as in 24"),))
    return number
