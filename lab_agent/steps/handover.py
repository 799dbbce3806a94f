"""Handover: give a checked order to the laboratory system, once (law 2, law 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

import structlog

from lab_agent.codec import join_identity
from lab_agent.domain import effects
from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.journal import Effect, EffectKind, Event, OrderRecord
from lab_agent.domain.lifecycle import EffectState, LineState, OrderState
from lab_agent.domain.order import LabOrder
from lab_agent.errors import LisRefusal, PermanentFailure
from lab_agent.ports.clock import Clock
from lab_agent.ports.lis import Lis, Receipt
from lab_agent.ports.store import Store, UnitOfWork
from lab_agent.steps.adapters import AdapterSource
from lab_agent.steps.follow import follow
from lab_agent.steps.handler import Claim, Conclusion
from lab_agent.steps.identity import lab_patient_of
from lab_agent.steps.receipts import match_again, receive

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class HandOver:
    """Prepare, commit *prepared*, submit, commit *done*; after a crash, ask before anything is done again."""

    store: Store
    clock: Clock
    adapters: AdapterSource
    acknowledge: str | None = None
    """Task status that tells the partner of the handover; None: Tasks stay `requested` until they end."""

    kinds: ClassVar[frozenset[EffectKind]] = frozenset({EffectKind.HANDOVER})

    async def do(self, claim: Claim) -> Conclusion:
        """Hand the order over, unless it was withdrawn meanwhile."""
        key = OrderKey(claim.effect.subject)
        record, order = await self.store.run(lambda uow: _load(uow, key))
        if record.state is not OrderState.FETCHED:
            return self._needless(f"the order is {record.state.value}")
        if order is not None and not order.lines:
            return self._needless("every line was withdrawn before the handover")
        if order is None:
            raise PermanentFailure("the identification data of this order was purged; it cannot be handed over any more")
        adapter = self.adapters.get(record.adapter)
        if not claim.effect.begun:
            await adapter.prepare(order)
            await claim.begin()
        receipt = await adapter.submit(order)
        log.info("order handed over", action="order_handed_over", order=key, adapter=record.adapter)
        return self._handed_over(receipt)

    async def look(self, claim: Claim) -> Conclusion:
        """Ask the laboratory system whether it has the order; where nobody can tell, a person decides."""
        key = OrderKey(claim.effect.subject)
        record, _ = await self.store.run(lambda uow: _load(uow, key))
        adapter = self.adapters.get(record.adapter)
        match await adapter.was_received(key):
            case True:
                return self._handed_over(Receipt())
            case False:
                return lambda _, effect: effect.again(
                    self.clock.now(), self.clock.now(), "the laboratory system does not have it"
                )
            case None if record.state is OrderState.FETCHED:
                return self._nobody_knows(adapter)
            case None:
                return self._needless(f"the order is {record.state.value}; the laboratory system is told so in any case")

    def _needless(self, reason: str) -> Conclusion:
        """Hand nothing over. An order whose lines were all withdrawn one by one is refused here, so that it comes to its end."""
        now = self.clock.now()

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            key = OrderKey(effect.subject)
            order = uow.orders.take(key)
            lines = uow.orders.lines(key)
            if order.state is OrderState.FETCHED and any(line.state is LineState.ACCEPTED for line in lines):
                return effect.again(now, now, "the order changed meanwhile")
            if order.state is OrderState.FETCHED:
                uow.orders.save(order.become(OrderState.REFUSED, now, reason))
            follow(uow, key, now, ending=effect)
            return effect.obsolete(now, reason)

        return write

    def _nobody_knows(self, adapter: Lis) -> Conclusion:
        now = self.clock.now()
        if adapter.idempotent:
            return lambda _, effect: effect.again(now, now, "the laboratory system tells repeats by the order's key")
        return lambda _, effect: effect.for_review(
            now, "nobody can tell whether the laboratory system has this order: ask there, then retry it or mark it done"
        )

    def _handed_over(self, receipt: Receipt) -> Conclusion:
        now = self.clock.now()

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            key = OrderKey(effect.subject)
            order = uow.orders.take(key)
            uow.orders.save(_now_handed_over(order, now))
            receive(uow, key, receipt)
            match_again(uow, key, receipt, now)
            self._acknowledge(uow, key, now)
            uow.book.tell(Event(order=key, at=now, action="handed_over", text=f"handed to {order.adapter}"))
            follow(uow, key, now, ending=effect)
            return effect.done(now)

        return write

    def _acknowledge(self, uow: UnitOfWork, key: OrderKey, now: datetime) -> None:
        if self.acknowledge is None or uow.orders.take(key).state is not OrderState.HANDED_OVER:
            return
        uow.effects.add(effects.order_task(key, self.acknowledge, now))
        for line in uow.orders.lines(key):
            if line.state is LineState.ACCEPTED:
                uow.effects.add(effects.line_task(line, self.acknowledge, now))


@dataclass(frozen=True, slots=True)
class CancelInLis:
    """Tell the laboratory system that lines were withdrawn. Harmless when repeated, so nothing needs a look."""

    store: Store
    clock: Clock
    adapters: AdapterSource

    kinds: ClassVar[frozenset[EffectKind]] = frozenset({EffectKind.LIS_CANCEL})

    async def do(self, claim: Claim) -> Conclusion:
        """Tell it."""
        effect = claim.effect
        key = OrderKey(effect.subject)
        record, went_there = await self.store.run(lambda uow: (uow.orders.take(key), _may_be_there(uow, key)))
        if not went_there:
            return self._told("the laboratory system never got the order, and need not be told")
        lines = tuple(LineKey(line) for line in effect.payload["lines"])
        await claim.begin()
        try:
            await self.adapters.get(record.adapter).cancel(key, lines, effect.payload["reason"])
        except LisRefusal as refusal:
            return self._told(f"the laboratory system did not cancel: {refusal}")
        return self._told("the laboratory system was told of the withdrawal")

    look = do

    def _told(self, text: str) -> Conclusion:
        at = self.clock.now()

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            key = OrderKey(effect.subject)
            uow.book.tell(Event(order=key, at=at, action="lis_cancel", text=text))
            follow(uow, key, at, ending=effect)
            return effect.done(at, text)

        return write


def _may_be_there(uow: UnitOfWork, key: OrderKey) -> bool:
    """Whether the laboratory system may have the order."""
    handovers = (each for each in uow.effects.of_order(key, open_only=False) if each.kind is EffectKind.HANDOVER)
    return any(each.begun or each.state is EffectState.DONE for each in handovers)


def _load(uow: UnitOfWork, key: OrderKey) -> tuple[OrderRecord, LabOrder | None]:
    record = uow.orders.take(key)
    identity = uow.vault.identity(key)
    if record.lab_order is None or identity is None:
        return record, None
    patient = lab_patient_of(identity)
    if patient is None:
        return record, None
    order = join_identity(record.lab_order, patient)
    accepted = {line.key for line in uow.orders.lines(key) if line.state is LineState.ACCEPTED}
    return record, replace(order, lines=tuple(line for line in order.lines if line.key in accepted))


def hand_over_by_hand(uow: UnitOfWork, key: OrderKey, now: datetime) -> None:
    """Write that the laboratory system has the order, as a person found out."""
    uow.orders.save(_now_handed_over(uow.orders.take(key), now))


def _now_handed_over(order: OrderRecord, now: datetime) -> OrderRecord:
    """The order as the laboratory has it; one that was withdrawn meanwhile stays withdrawn."""
    return order.become(OrderState.HANDED_OVER, now) if order.state is OrderState.FETCHED else order
