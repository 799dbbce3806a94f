"""Intake, second half: look at a new order until its picture is whole, fetch it, judge it, and decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar

import structlog

from lab_agent.domain.ids import OrderKey
from lab_agent.domain.jobs import TERMINAL_TASK_STATUSES
from lab_agent.domain.records import Event, Job, JobKind, OrderRecord
from lab_agent.domain.state_machines import OrderState
from lab_agent.errors import ServiceRejected
from lab_agent.fhir.order_graph import OrderGraph
from lab_agent.fhir.task_update import task_status
from lab_agent.ports.clock import Clock
from lab_agent.ports.exchange import Exchange
from lab_agent.ports.jobs import Completion, Lease, completion
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.settings.groups import WorkerSettings
from lab_agent.workflow.assessment import AssessedOrder, OrderAssessor, labels_in_use, lock_labels
from lab_agent.workflow.decision import (
    DecisionPolicy,
    decide_lines,
    held_order_alert_key,
    hold_order,
    hold_unassessed_order,
    ignore_order,
    order_hold_reason,
    save_decision,
)
from lab_agent.workflow.fetching import fetch_graph
from lab_agent.workflow.line_lifecycle import close_order

log = structlog.get_logger(__name__)

QUESTIONNAIRE_SEARCH_MISSING_SINCE = "questionnaires.unknown_since"
"""Note that holds since when the service offers no search of answers; empty where it does."""


@dataclass(frozen=True, slots=True)
class FetchOrderHandler:
    """Fetches and judges one order. Nothing outside is changed, so a lost claim needs no look."""

    exchange: Exchange
    store: Store
    clock: Clock
    assessor: OrderAssessor
    policy: DecisionPolicy
    settings: WorkerSettings
    base_url: str

    kinds: ClassVar[frozenset[JobKind]] = frozenset({JobKind.FETCH_ORDER})

    async def perform(self, lease: Lease) -> Completion:
        """Look; the order is judged once two part-of answers in a row were equal."""
        key = OrderKey(lease.job.target)
        order = await self.store.run(lambda uow: uow.orders.get_for_update(key))
        if order.state not in {OrderState.SEEN, OrderState.HELD}:
            return completion(f"the order is {order.state.value}")
        try:
            order_task = (await self.exchange.read("Task", order.task_id)).body
            line_tasks = await self.exchange.line_tasks(order.task_id)
        except ServiceRejected as refusal:  # a missing right may be mended: never a reason to refuse (law 10)
            return self._reschedule_unreadable(order, str(refusal))
        if (status := task_status(order_task)) in TERMINAL_TASK_STATUSES:
            return self._complete_ended(key, status)
        seen = tuple(sorted(str(task.get("id")) for task in line_tasks))
        if order.seen_lines != seen or (not seen and not self._is_older_than(order, self.settings.unreadable_after)):
            return self._recheck_lines(key, seen)
        graph = await fetch_graph(self.exchange, self.base_url, order_task, line_tasks)
        await self.store.run(lambda uow: record_questionnaire_search(uow, graph, self.clock.now()))
        if graph.unreadable and not self._is_older_than(order, self.settings.unreadable_after):
            names = ", ".join(str(ref) for ref in sorted(graph.unreadable))
            return self._reschedule(key, f"cannot be read yet: {names}", self.settings.backoff_longest / 10)
        ended = self._is_older_than(order, self.settings.unreadable_refuse_after)
        return self._complete(order, await self.assessor.assess(key, graph, reject_unreadable=ended))

    verify = perform

    def _is_older_than(self, order: OrderRecord, seconds: float | None) -> bool:
        """Whether the order was seen so many seconds ago; never, for None."""
        return seconds is not None and self.clock.now() >= order.seen_at + timedelta(seconds=seconds)

    def _complete(self, order: OrderRecord, assessed: AssessedOrder) -> Completion:
        now = self.clock.now()
        before = self.settings.ignore_before
        if before is not None and _are_all_made_before(assessed, before):
            return _complete_with(lambda uow: ignore_order(uow, order.key, assessed, now, before), now)
        reason = order_hold_reason(assessed)
        if self.settings.mode == "observe":
            return self._reschedule(order.key, f"observe: {reason or _summary(assessed)}", self.settings.hold_retry)
        if reason is not None:
            return self._hold(order.key, assessed, reason)
        return self._decide(order.key, assessed)

    def _decide(self, key: OrderKey, assessed: AssessedOrder) -> Completion:
        now = self.clock.now()
        verdict = decide_lines(assessed, cancel_whole_order=self.policy.cancel_whole_order)

        def write(uow: UnitOfWork, job: Job) -> Job:
            if uow.orders.get_for_update(key).state not in {OrderState.SEEN, OrderState.HELD}:
                return job.complete(now, "it was decided elsewhere")
            lock_labels(uow, key)
            if labels_in_use(uow, key, assessed.received) != assessed.facts.labels_in_use:
                return job.reschedule(now, now, "another order took or gave up one of its labels meanwhile; judging it again")
            if rule := self.policy.breaker.tripped(uow, verdict.rules, now):
                return self._hold_and_reschedule(
                    uow, job, key, assessed, f"rule {rule} refuses too many orders; a person must look first"
                )
            order = save_decision(uow, key, assessed, verdict, self.policy, now)
            log.info("order judged", action="order_assessed", order=key, state=order.state.value, refused=len(verdict.rejected))
            return job.complete(now)

        return write

    def _hold(self, key: OrderKey, assessed: AssessedOrder, reason: str) -> Completion:
        return lambda uow, job: self._hold_and_reschedule(uow, job, key, assessed, reason)

    def _hold_and_reschedule(self, uow: UnitOfWork, job: Job, key: OrderKey, assessed: AssessedOrder, reason: str) -> Job:
        now = self.clock.now()
        hold_order(uow, key, assessed, now, reason)
        log.warning("order held", action="order_held", order=key, rules=sorted({each.rule for each in assessed.assessment.holds}))
        return job.reschedule(now, now + timedelta(seconds=self.settings.hold_retry), reason)

    def _recheck_lines(self, key: OrderKey, seen: tuple[str, ...]) -> Completion:
        now = self.clock.now()

        def write(uow: UnitOfWork, job: Job) -> Job:
            uow.orders.save(replace(uow.orders.get_for_update(key), seen_lines=seen))
            at = now + timedelta(seconds=self.settings.second_look_after)
            return job.reschedule(now, at, f"{len(seen)} line Tasks found; looking once more whether these are all")

        return write

    def _reschedule(self, key: OrderKey, reason: str, seconds: float) -> Completion:
        now = self.clock.now()

        def write(uow: UnitOfWork, job: Job) -> Job:
            order = uow.orders.get_for_update(key)
            if order.reason != reason:
                uow.orders.save(replace(order, reason=reason, changed_at=now))
                uow.events.add(Event(order=key, at=now, action="waiting", text=reason))
            return job.reschedule(now, now + timedelta(seconds=seconds), reason)

        return write

    def _reschedule_unreadable(self, order: OrderRecord, reason: str) -> Completion:
        """Wait for a Task that cannot be read; after a while the order is held, and somebody is told."""
        if not self._is_older_than(order, self.settings.unreadable_after):
            return self._reschedule(order.key, reason, self.settings.backoff_longest / 10)
        now = self.clock.now()

        def write(uow: UnitOfWork, job: Job) -> Job:
            hold_unassessed_order(uow, order.key, now, reason)
            return job.reschedule(now, now + timedelta(seconds=self.settings.hold_retry), reason)

        return write

    def _complete_ended(self, key: OrderKey, status: str | None) -> Completion:
        now = self.clock.now()

        def work(uow: UnitOfWork) -> None:
            uow.alerts.close(held_order_alert_key(key), now=now)
            close_order(uow, key, now, f"its Task was {status} before the order was judged")

        return _complete_with(work, now)


def _complete_with(work: Callable[[UnitOfWork], None], now: datetime) -> Completion:
    """Conclude with `work`, and nothing left to do."""

    def write(uow: UnitOfWork, job: Job) -> Job:
        work(uow)
        return job.complete(now)

    return write


def record_questionnaire_search(uow: UnitOfWork, graph: OrderGraph, now: datetime) -> None:
    """Keep in sight whether the service offers the search of answers (`exchange.questionnaire_search`)."""
    said = now.isoformat() if graph.questionnaire_responses is None else ""
    known = uow.key_values.get(QUESTIONNAIRE_SEARCH_MISSING_SINCE) or ""
    if bool(said) != bool(known):
        uow.key_values.set(QUESTIONNAIRE_SEARCH_MISSING_SINCE, said)
        uow.commit()


def _are_all_made_before(assessed: AssessedOrder, before: datetime) -> bool:
    times = [request.occurrence.at for request in assessed.received.requests if request.occurrence and request.occurrence.at]
    return bool(times) and all(at < before for at in times)


def _summary(assessed: AssessedOrder) -> str:
    refused = assessed.assessment.refusing_rules()
    return f"would be refused in part or whole by {', '.join(sorted(refused))}" if refused else "would be accepted"
