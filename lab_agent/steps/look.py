"""Intake, second half: look at a new order until its picture is whole, fetch it, judge it, and decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar

import structlog

from lab_agent.domain.effects import TERMINAL_TASK_STATUSES
from lab_agent.domain.ids import OrderKey
from lab_agent.domain.journal import Effect, EffectKind, Event, OrderRecord
from lab_agent.domain.lifecycle import OrderState
from lab_agent.errors import ServiceRefusal
from lab_agent.fhir.graph import OrderGraph
from lab_agent.fhir.write import task_status
from lab_agent.ports.clock import Clock
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.store import Store, UnitOfWork
from lab_agent.settings.worker import WorkerSettings
from lab_agent.steps.fetch import fetch_graph
from lab_agent.steps.follow import close
from lab_agent.steps.handler import Claim, Conclusion, done
from lab_agent.steps.judging import Judged, Judging, in_turn, labels_in_use
from lab_agent.steps.verdict import VerdictPolicy, decide, held_alert, held_because, hold, hold_unjudged, ignore, verdict_of

log = structlog.get_logger(__name__)

ANSWERS_UNKNOWN = "questionnaires.unknown_since"
"""Note that holds since when the service offers no search of answers; empty where it does."""


@dataclass(frozen=True, slots=True)
class LookAtOrder:
    """Fetches and judges one order. Nothing outside is changed, so a lost claim needs no look."""

    exchange: Exchange
    store: Store
    clock: Clock
    judging: Judging
    policy: VerdictPolicy
    settings: WorkerSettings
    service: str

    kinds: ClassVar[frozenset[EffectKind]] = frozenset({EffectKind.LOOK})

    async def do(self, claim: Claim) -> Conclusion:
        """Look; the order is judged once two part-of answers in a row were equal."""
        key = OrderKey(claim.effect.subject)
        order = await self.store.run(lambda uow: uow.orders.take(key))
        if order.state not in {OrderState.SEEN, OrderState.HELD}:
            return done(f"the order is {order.state.value}")
        try:
            order_task = (await self.exchange.read("Task", order.task_id)).body
            line_tasks = await self.exchange.line_tasks(order.task_id)
        except ServiceRefusal as refusal:  # a missing right may be mended: never a reason to refuse (law 10)
            return self._unreadable(order, str(refusal))
        if (status := task_status(order_task)) in TERMINAL_TASK_STATUSES:
            return self._gone(key, status)
        seen = tuple(sorted(str(task.get("id")) for task in line_tasks))
        if order.seen_lines != seen or (not seen and not self._older(order, self.settings.unreadable_after)):
            return self._once_more(key, seen)
        graph = await fetch_graph(self.exchange, self.service, order_task, line_tasks)
        await self.store.run(lambda uow: note_answers(uow, graph, self.clock.now()))
        if graph.unreadable and not self._older(order, self.settings.unreadable_after):
            names = ", ".join(str(ref) for ref in sorted(graph.unreadable))
            return self._wait(key, f"cannot be read yet: {names}", self.settings.backoff_longest / 10)
        ended = self._older(order, self.settings.unreadable_refuse_after)
        return self._conclude(order, await self.judging.judge(key, graph, patience_ended=ended))

    look = do

    def _older(self, order: OrderRecord, seconds: float | None) -> bool:
        """Whether the order was seen so many seconds ago; never, for None."""
        return seconds is not None and self.clock.now() >= order.seen_at + timedelta(seconds=seconds)

    def _conclude(self, order: OrderRecord, judged: Judged) -> Conclusion:
        now = self.clock.now()
        before = self.settings.ignore_before
        if before is not None and _all_made_before(judged, before):
            return _after(lambda uow: ignore(uow, order.key, judged, now, before), now)
        reason = held_because(judged)
        if self.settings.mode == "observe":
            return self._wait(order.key, f"observe: {reason or _summary(judged)}", self.settings.hold_retry)
        if reason is not None:
            return self._hold(order.key, judged, reason)
        return self._decide(order.key, judged)

    def _decide(self, key: OrderKey, judged: Judged) -> Conclusion:
        now = self.clock.now()
        verdict = verdict_of(judged, cancel_whole_order=self.policy.cancel_whole_order)

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            if uow.orders.take(key).state not in {OrderState.SEEN, OrderState.HELD}:
                return effect.done(now, "it was decided elsewhere")
            in_turn(uow, key)
            if labels_in_use(uow, key, judged.received) != judged.facts.labels_in_use:
                return effect.again(now, now, "another order took or gave up one of its labels meanwhile; judging it again")
            if rule := self.policy.catch.stopped(uow.book, verdict.rules, now):
                return self._held(uow, effect, key, judged, f"rule {rule} refuses too many orders; a person must look first")
            order = decide(uow, key, judged, verdict, self.policy, now)
            log.info("order judged", action="order_judged", order=key, state=order.state.value, refused=len(verdict.refused))
            return effect.done(now)

        return write

    def _hold(self, key: OrderKey, judged: Judged, reason: str) -> Conclusion:
        return lambda uow, effect: self._held(uow, effect, key, judged, reason)

    def _held(self, uow: UnitOfWork, effect: Effect, key: OrderKey, judged: Judged, reason: str) -> Effect:
        now = self.clock.now()
        hold(uow, key, judged, now, reason)
        log.warning("order held", action="order_held", order=key, rules=sorted({each.rule for each in judged.judgement.hold}))
        return effect.again(now, now + timedelta(seconds=self.settings.hold_retry), reason)

    def _once_more(self, key: OrderKey, seen: tuple[str, ...]) -> Conclusion:
        now = self.clock.now()

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            uow.orders.save(replace(uow.orders.take(key), seen_lines=seen))
            at = now + timedelta(seconds=self.settings.second_look_after)
            return effect.again(now, at, f"{len(seen)} line Tasks found; looking once more whether these are all")

        return write

    def _wait(self, key: OrderKey, reason: str, seconds: float) -> Conclusion:
        now = self.clock.now()

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            order = uow.orders.take(key)
            if order.reason != reason:
                uow.orders.save(replace(order, reason=reason, changed_at=now))
                uow.book.tell(Event(order=key, at=now, action="waiting", text=reason))
            return effect.again(now, now + timedelta(seconds=seconds), reason)

        return write

    def _unreadable(self, order: OrderRecord, reason: str) -> Conclusion:
        """Wait for a Task that cannot be read; after a while the order is held, and somebody is told."""
        if not self._older(order, self.settings.unreadable_after):
            return self._wait(order.key, reason, self.settings.backoff_longest / 10)
        now = self.clock.now()

        def write(uow: UnitOfWork, effect: Effect) -> Effect:
            hold_unjudged(uow, order.key, now, reason)
            return effect.again(now, now + timedelta(seconds=self.settings.hold_retry), reason)

        return write

    def _gone(self, key: OrderKey, status: str | None) -> Conclusion:
        now = self.clock.now()

        def work(uow: UnitOfWork) -> None:
            uow.book.close_alert(held_alert(key), now=now)
            close(uow, key, now, f"its Task was {status} before the order was judged")

        return _after(work, now)


def _after(work: Callable[[UnitOfWork], None], now: datetime) -> Conclusion:
    """Conclude with `work`, and nothing left to do."""

    def write(uow: UnitOfWork, effect: Effect) -> Effect:
        work(uow)
        return effect.done(now)

    return write


def note_answers(uow: UnitOfWork, graph: OrderGraph, now: datetime) -> None:
    """Keep in sight whether the service offers the search of answers (`exchange.questionnaire_search`)."""
    said = now.isoformat() if graph.questionnaire_responses is None else ""
    known = uow.book.noted(ANSWERS_UNKNOWN) or ""
    if bool(said) != bool(known):
        uow.book.note(ANSWERS_UNKNOWN, said)
        uow.commit()


def _all_made_before(judged: Judged, before: datetime) -> bool:
    times = [request.occurrence.at for request in judged.received.requests if request.occurrence and request.occurrence.at]
    return bool(times) and all(at < before for at in times)


def _summary(judged: Judged) -> str:
    refused = judged.judgement.refusing_rules()
    return f"would be refused in part or whole by {', '.join(sorted(refused))}" if refused else "would be accepted"
