"""Task statuses: read, change only our fields, replace the whole resource; never over somebody else's decision (law 4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar

import structlog

from lab_agent.domain.effects import REQUESTED, TERMINAL_TASK_STATUSES
from lab_agent.domain.ids import LineKey, OrderKey, ResourceId
from lab_agent.domain.journal import Effect, EffectKind, Event, LineRecord
from lab_agent.domain.lifecycle import ENDED_LINES, OrderState
from lab_agent.domain.quoting import quoted
from lab_agent.errors import PermanentFailure, StaleVersion, StoreError, TemporaryFailure
from lab_agent.fhir.write import task_is, task_status, task_update
from lab_agent.ports.clock import Clock
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.store import Store, UnitOfWork
from lab_agent.steps.follow import close, follow, order_task_status
from lab_agent.steps.handler import CONFLICTS, Claim, Conclusion
from lab_agent.steps.late_lines import LateLines, hold_late_line
from lab_agent.steps.withdrawal import withdraw_line, withdraw_order

log = structlog.get_logger(__name__)

LATE_LINES_AGAIN = timedelta(minutes=1)
"""How long an order-level Task waits before it is looked at again whether its late lines have ended."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a Task shall become: `status`, with `outputs` (None: leave them), where only `ours` may be overwritten."""

    task_id: ResourceId
    status: str
    outputs: tuple[str, ...] | None
    ours: frozenset[str]


@dataclass(frozen=True, slots=True)
class TaskUpdates:
    """Brings the Tasks of lines and orders to their ends."""

    exchange: Exchange
    store: Store
    clock: Clock
    late_lines: LateLines

    kinds: ClassVar[frozenset[EffectKind]] = frozenset({EffectKind.LINE_TASK, EffectKind.ORDER_TASK})

    async def do(self, claim: Claim) -> Conclusion:
        """Read the Task; where it is not so yet and nobody else has decided otherwise, make it so."""
        if unfinished := await self._unfinished(claim):
            return unfinished
        for _ in range(CONFLICTS):
            wish = await self.store.run(lambda uow: _wish(uow, claim.effect))
            saved = await self.exchange.read("Task", wish.task_id)
            if task_is(saved.body, wish.status, wish.outputs):
                return self._settled(wish.status)
            current = task_status(saved.body)
            if current in TERMINAL_TASK_STATUSES and current not in wish.ours:
                return self._withdrawn(current)
            if current in TERMINAL_TASK_STATUSES and current != wish.status:
                return self._too_late(current)
            if current not in wish.ours:
                raise PermanentFailure(
                    f"Task {wish.task_id} is in status '{quoted(current or '')}', which we did not set; it is not overwritten. "
                    "Ask the partner, then retry or dismiss this"
                )
            await self._remember(claim, wish.status)
            body = task_update(saved.body, status=wish.status, outputs=wish.outputs)
            try:
                await self.exchange.update("Task", wish.task_id, body, version=saved.version)
            except StaleVersion:
                continue
            log.info("Task set", action="task_set", order=claim.effect.order, status=wish.status)
            return self._settled(wish.status)
        raise TemporaryFailure(f"the Task was changed by somebody else {CONFLICTS} times while we wrote it")

    look = do  # reading first is the look

    async def _unfinished(self, claim: Claim) -> Conclusion | None:
        """Let the order-level Task wait while a line of its order is open: one that came late would be lost with its end."""
        effect = claim.effect
        if effect.kind is not EffectKind.ORDER_TASK or effect.payload["status"] not in TERMINAL_TASK_STATUSES:
            return None
        key = OrderKey(effect.subject)
        order = await self.store.run(lambda uow: uow.orders.take(key))
        late = await self.late_lines.of(key, order.task_id)
        lines = (*late, *await self.store.run(lambda uow: uow.orders.lines(key)))
        if any(line.state not in ENDED_LINES for line in lines):
            return self._wait_for(late)
        if order_task_status(lines) != effect.payload["status"]:
            now = self.clock.now()
            return lambda _, current: current.obsolete(now, "a line that came late has given the order another end")
        return None

    def _wait_for(self, late: tuple[LineRecord, ...]) -> Conclusion:
        now = self.clock.now()
        reason = "a line of the order came late and waits for a person"

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            for line in late:
                hold_late_line(uow, line, now)
            order = uow.orders.take(_order_of(effect))
            if order.state is OrderState.REPORTED:
                uow.orders.save(order.become(OrderState.HANDED_OVER, now, reason))
            return effect.again(now, now + LATE_LINES_AGAIN, reason)

        return write

    async def _remember(self, claim: Claim, status: str) -> None:
        """Commit that we send this status, before it is sent: from then on it is ours, answered or not."""
        subject, kind = claim.effect.subject, claim.effect.kind

        def write(uow: UnitOfWork) -> None:
            if kind is EffectKind.ORDER_TASK:
                order = uow.orders.take(OrderKey(subject))
                if status not in order.sent_statuses:
                    uow.orders.save(replace(order, sent_statuses=(*order.sent_statuses, status)))
                return
            line = uow.orders.line(LineKey(subject))
            if line is not None and status not in line.sent_statuses:
                uow.orders.save_line(replace(line, sent_statuses=(*line.sent_statuses, status)))

        await claim.begin(write)

    def _settled(self, status: str) -> Conclusion:
        now = self.clock.now()

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            order = _order_of(effect)
            uow.book.tell(Event(order=order, at=now, action="task_set", text=f"{_named(effect)} is {status}"))
            if status in TERMINAL_TASK_STATUSES:
                if effect.kind is EffectKind.ORDER_TASK:
                    close(uow, order, now, f"order-level Task is {status}")
                else:
                    follow(uow, order, now, ending=effect)
            return effect.done(now)

        return write

    def _too_late(self, status: str) -> Conclusion:
        """Leave alone a Task that we have ended already: nothing leads out of a terminal status."""
        now = self.clock.now()

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            follow(uow, _order_of(effect), now, ending=effect)
            return effect.obsolete(now, f"we had set the Task to {status} already")

        return write

    def _withdrawn(self, status: str) -> Conclusion:
        now = self.clock.now()
        reason = f"the partner or the service had set the Task to {status}"

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            order = _order_of(effect)
            uow.book.tell(Event(order=order, at=now, action="task_left", text=f"{_named(effect)} is left as it is: {reason}"))
            if effect.kind is EffectKind.ORDER_TASK:
                withdraw_order(uow, order, now, reason)
            else:
                withdraw_line(uow, LineKey(effect.subject), now, reason)
            follow(uow, order, now, ending=effect)
            return effect.obsolete(now, reason)

        return write


def _order_of(effect: Effect) -> OrderKey:
    if effect.order is None:
        raise StoreError(f"effect {effect.id} names no order")
    return effect.order


def _named(effect: Effect) -> str:
    return "order-level Task" if effect.kind is EffectKind.ORDER_TASK else f"Task of line {effect.subject}"


def _wish(uow: UnitOfWork, effect: Effect) -> Wish:
    status = effect.payload["status"]
    if effect.kind is EffectKind.ORDER_TASK:
        order = uow.orders.take(OrderKey(effect.subject))
        return Wish(order.task_id, status, None, frozenset({REQUESTED, *order.sent_statuses}))
    line = uow.orders.line(LineKey(effect.subject))
    if line is None:
        raise PermanentFailure(f"line {effect.subject} is not in the journal")
    outputs = line.outputs if status in TERMINAL_TASK_STATUSES and line.outputs else None
    return Wish(line.task_id, status, outputs, frozenset({REQUESTED, *line.sent_statuses}))
