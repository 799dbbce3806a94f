"""The desk: what a person decides about what waits, from the command line or the status page.

Every decision is told in the order's timeline, with who took it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from lab_agent.domain.ids import EffectId, OrderKey, ReportKey
from lab_agent.domain.journal import Effect, EffectKind, Event
from lab_agent.domain.lifecycle import ASKING_EFFECTS, EffectState, OrderState, ReportState
from lab_agent.errors import IllegalMoveError, StoreError
from lab_agent.ports.store import Store, UnitOfWork
from lab_agent.steps.catch import release_rule
from lab_agent.steps.endings import cancel_lines
from lab_agent.steps.follow import close, follow
from lab_agent.steps.handover import hand_over_by_hand
from lab_agent.steps.notes import said_why
from lab_agent.steps.reopen import reopen_lines

_TOLD_BY_A_PERSON = frozenset({EffectKind.HANDOVER, EffectKind.LIS_CANCEL, EffectKind.LINE_TASK, EffectKind.ORDER_TASK})
_ABOUT_REPORTS = frozenset({EffectKind.MATCH, EffectKind.DELIVER})


_RETRY_DOES = {
    EffectKind.LOOK: "fetches and judges the order now",
    EffectKind.HANDOVER: "hands the order to the laboratory system",
    EffectKind.LIS_CANCEL: "tells the laboratory system of the withdrawal",
    EffectKind.MATCH: "looks for the order of this result again",
    EffectKind.DELIVER: "uploads the report; what is on the service already is found and not written twice",
    EffectKind.LINE_TASK: "reads the Task and sets its status, unless somebody else has ended it",
    EffectKind.ORDER_TASK: "reads the Task and sets its status, unless somebody else has ended it",
}


def what_retry_does(kind: EffectKind, state: EffectState) -> str:
    """Say, before anybody presses the button, what a retry will do."""
    if kind is EffectKind.HANDOVER and state is EffectState.REVIEW:
        return "hands the order to the laboratory system AGAIN: only if it is certain that it is not there"
    return _RETRY_DOES[kind]


def may_be_marked_done(kind: EffectKind) -> bool:
    """Whether a person may say that it has happened; the others find out for themselves when they are retried."""
    return kind in _TOLD_BY_A_PERSON


async def retry_effect(store: Store, effect: EffectId, *, by: str, now: datetime) -> Effect:
    """Do it (again) now. Raises `StoreError` if there is none, `IllegalMoveError` if it is done or under way."""

    def change(_: UnitOfWork, current: Effect) -> Effect:
        if current.state is EffectState.DUE:
            return replace(current, due_at=now, changed_at=now)
        if current.state in ASKING_EFFECTS:
            # The person has looked: the next try starts afresh.
            return replace(current.again(now, now, f"retried by {by}"), begun=False, attempts=0)
        raise IllegalMoveError(f"effect {effect} is {current.state.value}; only waiting, parked and doubtful ones can be retried")

    return await _decide(store, effect, "retried", by=by, now=now, change=change)


async def dismiss_effect(store: Store, effect: EffectId, *, by: str, note: str, now: datetime) -> Effect:
    """Leave it undone for good; the lines of an order that is not handed over are cancelled, and the clinic reads the note.

    Raises as `retry_effect` does, `InputError` for a note that says nothing or too much, and `IllegalMoveError` for an order that
    is not judged: refuse that one.
    """

    why = said_why(note)

    def change(uow: UnitOfWork, current: Effect) -> Effect:
        dismissed = current.dismissed(now, why)
        if current.kind is EffectKind.LOOK:
            raise IllegalMoveError("an order cannot be left unjudged; mend what holds it, or `lab-agent orders refuse` it")
        if current.kind is EffectKind.HANDOVER:
            _never_handed_over(uow, OrderKey(current.subject), now, why)
        if current.kind is EffectKind.DELIVER:
            uow.reports.save(uow.reports.take(ReportKey(current.subject)).become(ReportState.DISMISSED, now, why))
        return dismissed

    return await _decide(store, effect, f"dismissed ({why})", by=by, now=now, change=change)


async def mark_effect_done(store: Store, effect: EffectId, *, by: str, note: str, now: datetime) -> Effect:
    """Say that it has happened, as a person found out elsewhere. Raises as `dismiss_effect` does."""

    why = said_why(note)

    def change(uow: UnitOfWork, current: Effect) -> Effect:
        if not may_be_marked_done(current.kind):
            raise IllegalMoveError(f"{current.kind.value} cannot be marked done; retry it: what has happened already is found")
        if current.kind is EffectKind.HANDOVER:
            hand_over_by_hand(uow, OrderKey(current.subject), now)
        return current.done(now, why)

    return await _decide(store, effect, f"marked done ({why})", by=by, now=now, change=change)


async def retry_order(store: Store, order: OrderKey, *, by: str, now: datetime) -> tuple[Effect, ...]:
    """Do now whatever of an order waits.

    Raises `StoreError` if there is no such order, or nothing of it waits, and `IllegalMoveError` while its handover is in doubt.
    """

    def waiting(uow: UnitOfWork) -> tuple[Effect, ...]:
        uow.orders.take(order)
        return tuple(e for e in uow.effects.of_order(order) if e.state in {EffectState.DUE, *ASKING_EFFECTS})

    found = await store.run(waiting)
    if doubtful := [e for e in found if e.kind is EffectKind.HANDOVER and e.state is EffectState.REVIEW]:
        number = doubtful[0].id
        raise IllegalMoveError(
            f"it is in doubt whether the laboratory system has order {order}: ask there, then `lab-agent outbox done {number}` "
            f"if it is there, or `lab-agent outbox retry {number}` if it certainly is not"
        )
    if not found:
        raise StoreError(f"nothing of order {order} waits; there is nothing to retry")
    return tuple([await retry_effect(store, effect.id, by=by, now=now) for effect in found])


async def release(store: Store, rule: str, *, now: datetime) -> bool:
    """Let a rule refuse again that the safety catch had stopped. False if it was not stopped."""

    def write(uow: UnitOfWork) -> bool:
        released = release_rule(uow.book, rule, now)
        if released:
            uow.effects.wake(EffectKind.LOOK, now=now)
        uow.commit()
        return released

    return await store.run(write)


def _never_handed_over(uow: UnitOfWork, key: OrderKey, now: datetime, note: str) -> None:
    order = uow.orders.take(key)
    if order.state is OrderState.FETCHED:
        cancel_lines(uow, key, {line.key: note for line in uow.orders.lines(key)}, now)
        uow.orders.save(order.become(OrderState.REFUSED, now, note))


async def _decide(
    store: Store,
    effect: EffectId,
    what: str,
    *,
    by: str,
    now: datetime,
    change: Callable[[UnitOfWork, Effect], Effect],
) -> Effect:
    def write(uow: UnitOfWork) -> Effect:
        current = uow.effects.get(effect)
        if current is None:
            raise StoreError(f"there is no effect {effect}; `lab-agent outbox list` shows them")
        changed = change(uow, current)
        uow.effects.save(changed)
        if changed.order is not None:
            text = f"{current.kind.value} (effect {effect}) {what}"
            report = ReportKey(changed.subject) if changed.kind in _ABOUT_REPORTS else None
            uow.book.tell(Event(order=changed.order, report=report, at=now, action="desk", text=text, by=by))
            _follow(uow, changed, changed.order, now)
        uow.commit()
        return changed

    return await store.run(write)


def _follow(uow: UnitOfWork, effect: Effect, order: OrderKey, now: datetime) -> None:
    """Let the order go on, now that the effect does not stand in its way any more."""
    if effect.kind is EffectKind.DELIVER and effect.state is EffectState.DISMISSED:
        reopen_lines(uow, order, now)
    if uow.orders.take(order).state is OrderState.CLOSED:
        return
    if effect.kind is EffectKind.ORDER_TASK and effect.state in {EffectState.DONE, EffectState.DISMISSED}:
        close(uow, order, now, "a person settled the order-level Task")
    else:
        follow(uow, order, now, ending=effect if effect.state in {EffectState.DONE, EffectState.DISMISSED} else None)
