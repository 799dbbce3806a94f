"""The match desk: what a person decides about results that wait, from the command line or the status page.

Every decision says who took it, when and why: in the result's own history, and in the order's timeline where the order is known.
Each of them raises `InputError` for a note that says nothing, or too much, and `IllegalMoveError` where the result has changed
since `shown`, the time of its last change as the person saw it (None for somebody who saw no such time).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from lab_agent.codec import dump_message, load_kept
from lab_agent.domain.ids import LineKey, OrderKey, ReportKey
from lab_agent.domain.journal import Effect, EffectKind, Event, ReportRecord
from lab_agent.domain.lifecycle import ASKING_EFFECTS, WAITING_REPORTS, ReportState
from lab_agent.errors import IllegalMoveError, StoreError
from lab_agent.ports.store import Store, UnitOfWork
from lab_agent.steps.follow import follow
from lab_agent.steps.inbox import refused_alert
from lab_agent.steps.match import Matcher, wake_newer
from lab_agent.steps.narrowing import about
from lab_agent.steps.notes import said_why
from lab_agent.steps.order_names import names_of
from lab_agent.steps.reasons import is_behind, is_fault
from lab_agent.steps.reopen import reopen_lines

_DISMISSED = "dismissed"
_WHAT = {
    ReportState.UNMATCHED: "match: say which order it belongs to; or dismiss it with a note",
    ReportState.UNMAPPED: "add the missing rows to the mapping tables, then `lab-agent mappings release`; or dismiss it",
    ReportState.HELD: "answer the question: release it, if it is meant; or dismiss it with a note",
}
_MEND = "let the laboratory system send it mended, as the reason says, or dismiss it with a note; a release sends nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What became of a result: as it stands now, and whether it moved on."""

    report: ReportRecord
    moved: bool


def what_to_do(state: ReportState, reason: str | None) -> str:
    """The next step for a result that is in this state for this reason; empty where nothing waits."""
    if state is ReportState.HELD and is_behind(reason):
        return "decide about the result that it waits for; this one follows by itself"
    return _MEND if state is ReportState.HELD and is_fault(reason) else _WHAT.get(state, "")


async def waiting(store: Store) -> tuple[ReportRecord, ...]:
    """Every result that waits for a person, by arrival."""
    return await store.run(lambda uow: uow.reports.waiting())


async def match_result(  # noqa: PLR0913 - what is decided, and who, when and why: each is kept
    store: Store,
    matcher: Matcher,
    key: ReportKey,
    order: OrderKey,
    *,
    lines: tuple[LineKey, ...] = (),
    by: str,
    note: str,
    now: datetime,
    shown: datetime | None = None,
) -> Decided:
    """Say which order (and which of its lines) a result belongs to, and match it.

    Raises `StoreError` for an order or a line that is not known, `IllegalMoveError` for a result that does not wait.
    """

    def change(uow: UnitOfWork, report: ReportRecord) -> ReportRecord:
        known = {str(line.key): (line.key,) for line in uow.orders.lines(order)}
        if strange := [line for line in lines if line not in known]:
            raise StoreError(f"order {order} has no line {strange[0]}")
        named = about(load_kept(report.body), order, lines, {**names_of(uow.orders.take(order)).codes, **known})
        uow.reports.save(replace(report, body=dump_message(named), order=order))
        return matcher.match(uow, report.key, now)

    return await _decide(store, key, f"matched to order {order}", by=by, note=note, now=now, shown=shown, change=change)


async def release_result(
    store: Store, matcher: Matcher, key: ReportKey, *, by: str, note: str, now: datetime, shown: datetime | None = None
) -> Decided:
    """Try a result again; a late or odd one goes out, since a person has looked. What cannot be said stays, with its reason.

    Raises `StoreError` for an unknown result, `IllegalMoveError` for one that does not wait.
    """

    def change(uow: UnitOfWork, report: ReportRecord) -> ReportRecord:
        return matcher.match(uow, report.key, now, waive=True)

    return await _decide(store, key, "released", by=by, note=note, now=now, shown=shown, change=change)


async def dismiss_result(
    store: Store, key: ReportKey, *, by: str, note: str, now: datetime, shown: datetime | None = None
) -> Decided:
    """Leave a result for good: it waits, or its delivery was parked. Lines that it was to complete wait again.

    Raises as `release_result` does.
    """

    def change(uow: UnitOfWork, report: ReportRecord) -> ReportRecord:
        for effect in _parked(uow, report):
            uow.effects.save(effect.dismissed(now, note))
        gone = report.become(ReportState.DISMISSED, now, f"dismissed by {by}: {said_why(note)}")
        uow.reports.save(gone)
        if gone.order is not None:
            reopen_lines(uow, gone.order, now)
            follow(uow, gone.order, now)
        return gone

    return await _decide(store, key, _DISMISSED, by=by, note=note, now=now, shown=shown, change=change)


async def released_by_mappings(store: Store, matcher: Matcher, *, now: datetime) -> tuple[ReportRecord, ...]:
    """What releasing unmapped results would do: each as it would stand afterwards. Nothing is written (no commit)."""

    def look(uow: UnitOfWork) -> tuple[ReportRecord, ...]:
        return tuple(matcher.match(uow, report.key, now) for report in _unmapped(uow))

    return await store.run(look)


async def release_mapped(store: Store, matcher: Matcher, *, by: str, now: datetime) -> tuple[Decided, ...]:
    """Release every result that the mended tables can say; the others stay, each with what is still missing.

    What somebody else decides about meanwhile is left to them.
    """
    keys = await store.run(lambda uow: [report.key for report in _unmapped(uow)])

    def change(uow: UnitOfWork, report: ReportRecord) -> ReportRecord:
        return matcher.match(uow, report.key, now)

    decided = []
    for key in keys:
        with suppress(IllegalMoveError):
            note = "the mapping tables were mended"
            decided.append(await _decide(store, key, "released", by=by, note=note, now=now, change=change))
    return tuple(decided)


async def refused(store: Store, sources: Iterable[str]) -> dict[str, int]:
    """How many messages of each laboratory system were refused since somebody looked last; those without any are left out."""

    def look(uow: UnitOfWork) -> dict[str, int]:
        counted = {source: int(uow.book.noted(refused_alert(source)) or "0") for source in sources}
        return {source: number for source, number in counted.items() if number}

    return await store.run(look)


async def refused_seen(store: Store, source: str, *, now: datetime, number: int | None = None) -> bool:
    """A person has looked at the refused messages of a laboratory system: its alert ends. False if there was none.

    Raises `IllegalMoveError` if they are not the `number` any more that the person saw (None for whatever there is).
    """

    def write(uow: UnitOfWork) -> bool:
        counted = int(uow.book.noted(refused_alert(source)) or "0")
        if number not in (None, counted):
            raise IllegalMoveError(f"meanwhile {counted} messages of {source} are refused; nothing was done, look again")
        uow.book.note(refused_alert(source), "0")
        closed = uow.book.close_alert(refused_alert(source), now=now)
        uow.commit()
        return closed

    return await store.run(write)


def _unmapped(uow: UnitOfWork) -> list[ReportRecord]:
    return [report for report in uow.reports.waiting() if report.state is ReportState.UNMAPPED]


def _parked(uow: UnitOfWork, report: ReportRecord) -> list[Effect]:
    """Deliveries of a report that a person has to decide about. Raises `IllegalMoveError` while one is under way."""
    if report.state in WAITING_REPORTS or report.order is None:
        return []
    mine = [each for each in uow.effects.of_order(report.order) if each.kind is EffectKind.DELIVER and each.subject == report.key]
    if not mine or any(each.state not in ASKING_EFFECTS for each in mine):
        raise IllegalMoveError(f"result {report.key} is {report.state.value}; only what waits for a person can be dismissed")
    return mine


async def _decide(
    store: Store,
    key: ReportKey,
    what: str,
    *,
    by: str,
    note: str,
    now: datetime,
    change: Callable[[UnitOfWork, ReportRecord], ReportRecord],
    shown: datetime | None = None,
) -> Decided:
    why = said_why(note)

    def write(uow: UnitOfWork) -> Decided:
        before = uow.reports.take(key)
        if before.state not in (WAITING_REPORTS if what != _DISMISSED else WAITING_REPORTS | {ReportState.MATCHED}):
            raise IllegalMoveError(f"result {key} is {before.state.value}; it does not wait for anybody")
        if shown not in (None, before.changed_at):
            raise IllegalMoveError(f"result {key} has changed since you looked; nothing was done, look again")
        after = change(uow, before)
        if after.state not in WAITING_REPORTS or after.order != before.order:
            wake_newer(uow, before, now)
        changed = f": {after.reason}" if after.state is ReportState.MATCHED and after.reason else ""
        text = f"result {key} {what} ({why}): it is {after.state.value} now{changed}"
        uow.book.tell(Event(order=after.order, report=key, at=now, action="desk", text=text, by=by))
        uow.commit()
        return Decided(report=after, moved=after.state not in WAITING_REPORTS)

    return await store.run(write)
