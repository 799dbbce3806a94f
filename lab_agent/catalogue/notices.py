"""Turnaround notices (interface: Turnaround item): staff stop or delay a test at once, and lift that again.

Partners see what staff announced and the sheet `notices` of the catalogue; `NoticeBoard` shows both, and the status of a test.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

from lab_agent.catalogue.catalogue_cache import UNREAD_STAMP, to_notices
from lab_agent.catalogue.catalogue_fallback import ReadableVersion, load_newest_readable
from lab_agent.catalogue.model import Catalogue
from lab_agent.catalogue.records import CATALOGUE_CHANGE_STAMP, TurnaroundNotice
from lab_agent.catalogue.turnaround import Delayed, Notice, most_severe_notice
from lab_agent.catalogue.versions import mark_changed
from lab_agent.shared.errors import CatalogueError, DataInvalidError, Problem, did_you_mean
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.unit_of_work import Store, UnitOfWork

NO_READABLE_CATALOGUE = (
    "No stored catalogue can be read: code and contract were not checked, and what its sheet notices says is not known. "
    "Import it again: `lab-agent catalogue import`."
)
"""The staleness warning where no catalogue can be read."""


_DURATION = re.compile(r"([0-9]{1,4})([hd])")
_MAX_DIGITS = 6
"""Nobody means more than a million hours, or finer parts of one, and 1e999999 must not reach our arithmetic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """A notice to be made: which test is stopped (`delay_hours` None) or delayed, from when until when, in which contract."""

    item: str
    start: datetime
    end: datetime
    contract: str | None = None
    delay_hours: Decimal | None = None
    caption: str = ""


async def announce(store: Store, announcement: Announcement, *, by: str | None, now: datetime) -> TurnaroundNotice:
    """Make a notice. Raises `DataInvalidError` with every problem, `CatalogueError` if there is no catalogue.

    Item and contract are checked against the newest catalogue that can be read; where none can, they are taken unchecked.
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
        uow.audit.add(_entry(AuditAction.NOTICE_ANNOUNCED, notice.item, notice.contract, by, now, kind=_kind_of(notice)))
        mark_changed(uow)

    await store.transact(work)
    return notice


async def lift_notices(store: Store, item: str, contract: str | None, *, by: str | None = None, now: datetime) -> int:
    """Lift the notices of a test, of one contract or of all; their number."""

    def work(uow: UnitOfWork) -> int:
        lifted = uow.turnaround_notices.lift(item, contract, now=now)
        if lifted:
            uow.audit.add(_entry(AuditAction.NOTICES_LIFTED, item, contract, by, now))
        mark_changed(uow)
        return lifted

    return await store.transact(work)


def _entry(action: AuditAction, item: str, contract: str | None, by: str | None, now: datetime, **details: str) -> AuditEntry:
    named = {"contract": contract, **details} if contract else details
    return AuditEntry(at=now, action=action, subject=item, by=by, details=named)


def _kind_of(notice: TurnaroundNotice) -> str:
    return "stopped" if notice.delay_hours is None else "delayed"


async def load_notices(store: Store, now: datetime) -> tuple[TurnaroundNotice, ...]:
    """Announced notices that are active or to come; those of the catalogue's sheet are not among them."""
    return await store.run_read_only(lambda uow: uow.turnaround_notices.active_since(now))


async def load_staleness_warning(store: Store) -> str | None:
    """As `staleness_warning`, of what is stored now."""
    try:
        found = await load_newest_readable(store)
    except CatalogueError:
        return NO_READABLE_CATALOGUE
    return None if found is None else staleness_warning(found)


def staleness_warning(found: ReadableVersion) -> str | None:
    """Why names and sheet notices may not be those of the active catalogue; None if they are."""
    if found.read_error is None:
        return None
    looked_up = f"code, contract and sheet notices were looked up in the one before it, version {found.stored.version}"
    return f"The catalogue in force cannot be read: {looked_up}."


def _check_times(announcement: Announcement, now: datetime) -> tuple[Problem, ...]:
    problems = []
    if announcement.end <= max(announcement.start, now):
        problems.append(Problem("until", "is not in the future, or not after the start", "name a later time"))
    if announcement.delay_hours is not None and announcement.delay_hours <= 0:
        problems.append(Problem("hours", "is not above 0", "name the hours of the delay"))
    return tuple(problems)


async def _check_names(store: Store, announcement: Announcement) -> tuple[Problem, ...]:
    try:
        found = await load_newest_readable(store)
    except CatalogueError:
        return ()  # a test can be stopped also while no catalogue can be read
    if found is None:
        raise CatalogueError((Problem("store", "holds no catalogue yet", "import one: `lab-agent catalogue import`"),))
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
            did_you_mean(announcement.item, offered) or "look up its code",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveNotice:
    """A notice that is active or to come: a row of the sheet, or announced by staff, when and by whom."""

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
        """The only contract that it holds for; None for every one."""
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
    """The status of a test in the contracts that offer it: the notice that applies now (None: the test is normal).

    `other_notices` apply nowhere now, by start: they are to come, or a more severe one applies.
    """

    current: Mapping[str, ActiveNotice | None]
    other_notices: tuple[ActiveNotice, ...]

    @property
    def is_normal(self) -> bool:
        """Whether no notice applies now in any of them."""
        return all(each is None for each in self.current.values())


@dataclass(frozen=True, slots=True)
class NoticeOverview:
    """The notices active or to come at a time, and the catalogue; `staleness_warning` says why that may not be the active one."""

    at: datetime
    notices: tuple[ActiveNotice, ...]
    catalogue: Catalogue | None
    staleness_warning: str | None

    def test_status(self, item: str, contract: str | None = None) -> TestStatus:
        """The status of a test, in one contract or in all."""
        contracts = self.catalogue.contracts if self.catalogue else {}
        offering = [code for code, each in contracts.items() if contract in (None, code) and item in each.items]
        mine = {each.notice: each for each in self.notices if any(each.notice.applies_to(code, item) for code in offering)}
        found = {code: most_severe_notice(code, item, mine, self.at) for code in offering}
        others = sorted((each for notice, each in mine.items() if notice not in found.values()), key=lambda each: each.start)
        return TestStatus({code: mine[notice] if notice else None for code, notice in found.items()}, tuple(others))

    def overriding(self, notice: TurnaroundNotice) -> TestStatus:
        """What applies instead of a notice that was announced to hold from now on; nothing where it applies itself."""
        others = {
            code: each
            for code, each in self.test_status(notice.item, notice.contract).current.items()
            if each and each.notice not in to_notices([notice]) and notice.start <= self.at
        }
        return TestStatus(others, ())


class NoticeBoard:
    """All notices. The catalogue is read again only after a change, or if it could not be read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stamp: str | None = UNREAD_STAMP
        self._catalogue: Catalogue | None = None

    async def load_overview(self, now: datetime) -> NoticeOverview:
        """Load what is active or to come."""
        warning = await self._refresh_catalogue()
        announced = await load_notices(self._store, now)
        sheet = self._catalogue.notices if self._catalogue else ()
        return NoticeOverview(now, (*_from_announcements(announced), *_from_sheet(sheet, now)), self._catalogue, warning)

    async def _refresh_catalogue(self) -> str | None:
        stamp = await self._store.run_read_only(lambda uow: uow.key_values.get(CATALOGUE_CHANGE_STAMP))
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


def parse_time(where: str, text: str, now: datetime) -> datetime:
    """Parse a time: 2026-11-20T08:00+03:00, 2026-11-20 (midnight), 12h or 3d; without an offset it is in this machine's zone.

    `where` names the option or the field. Raises `DataInvalidError`.
    """
    if found := _DURATION.fullmatch(text.strip().lower()):
        count = int(found[1])
        return now + (timedelta(hours=count) if found[2] == "h" else timedelta(days=count))
    try:
        read = datetime.fromisoformat(text.strip())
        read = read if read.tzinfo else read.astimezone()
        read.astimezone(UTC)  # what has no date in UTC could not be stored
    except (ValueError, OverflowError, OSError) as exc:
        hint = "write it as 2026-11-20T08:00+03:00, 2026-11-20, 12h or 3d"
        raise DataInvalidError((Problem(where, f"{text!r} is not a time", hint),)) from exc
    return read


def parse_hours(where: str, text: str) -> Decimal:
    """Parse a number of hours, with a point or a comma. Raises `DataInvalidError`."""
    try:
        number = Decimal(text.replace(",", "."))
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite():
        raise DataInvalidError((Problem(where, f"{text!r} is not a number", "write digits, as in 24"),))
    if max(number.adjusted(), -int(number.as_tuple().exponent)) > _MAX_DIGITS:
        raise DataInvalidError((Problem(where, f"{text!r} is too large or too fine", "write digits, as in 24"),))
    return number
