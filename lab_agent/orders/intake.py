"""Intake, second half: read a new order until its list of lines is stable, fetch it whole, assess it, and decide."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar

import structlog

from lab_agent.exchange.service import Json
from lab_agent.orders.line_lifecycle import close_order
from lab_agent.orders.order_assessment import AssessedOrder, OrderAssessor, labels_in_use
from lab_agent.orders.order_decision import (
    Decision,
    DecisionPolicy,
    add_once_offered,
    decide_lines,
    find_order_hold,
    hold_order,
    ignore_order,
    save_decision,
)
from lab_agent.orders.order_reading import (
    LINES_DIFFER,
    NO_LINES,
    Assessed,
    FetchResult,
    Held,
    LinesBack,
    LinesChanging,
    NothingToDo,
    OrderReader,
    TaskEnded,
    Waiting,
    issues_about,
)
from lab_agent.orders.order_tasks import KnownOrder, find_other_order, load_known_order
from lab_agent.orders.records import HoldCause, OrderHold, OrderRecord
from lab_agent.orders.reopening import hold_lines_again
from lab_agent.orders.task_standing import tell_other_tasks
from lab_agent.queue.failure_causes import format_issues
from lab_agent.queue.job_handler import Lease
from lab_agent.queue.job_records import Job, JobKind, ServiceMessage
from lab_agent.queue.retry import growing_wait
from lab_agent.settings.groups import WorkerSettings
from lab_agent.shared.clock import Clock
from lab_agent.shared.ids import OrderKey
from lab_agent.shared.state_machines import UNDECIDED_ORDERS, OrderState
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import UnitOfWork

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Ignored:
    """The order is older than `worker.ignore_before`."""

    assessed: AssessedOrder
    before: datetime


@dataclass(frozen=True, slots=True)
class Decided:
    """Its lines are accepted and rejected, and those that somebody has `set_aside` are left out."""

    assessed: AssessedOrder
    decision: Decision
    set_aside: tuple[Json, ...] = ()


FetchDecision = LinesChanging | Waiting | TaskEnded | Ignored | Held | LinesBack | Decided


@dataclass(frozen=True, slots=True)
class FetchOrderHandler:
    """Fetches, assesses and decides one order. Nothing outside is changed, so a lost lease needs no verification."""

    reader: OrderReader
    clock: Clock
    assessor: OrderAssessor
    policy: DecisionPolicy
    settings: WorkerSettings

    kinds: ClassVar[frozenset[JobKind]] = frozenset({JobKind.FETCH_ORDER})

    def load(self, uow: UnitOfWork, job: Job) -> KnownOrder:
        """Load the order as it is known."""
        return load_known_order(uow, OrderKey(job.target))

    async def perform(self, lease: Lease, loaded: KnownOrder) -> FetchResult:  # noqa: ARG002 - nothing outside is changed
        """Read the order, and assess it."""
        return await self.reader.read(loaded)

    verify = perform

    def complete(self, uow: UnitOfWork, job: Job, result: FetchResult) -> Job:
        """Apply what was decided."""
        now, key = self.clock.now(), OrderKey(job.target)
        order = uow.orders.get_for_update(key)
        if isinstance(result, NothingToDo) or order.state not in UNDECIDED_ORDERS:
            return job.complete(now, result.reason if isinstance(result, NothingToDo) else "it was decided elsewhere")
        decided = self._decide(uow, order, result) if isinstance(result, Assessed) else result
        read = _record_reading(uow, order, decided, now)
        since = order.unreadable_since or order.held_since or read.unreadable_since or job.first_due_at
        _seal_words(uow, job, key, decided, now)
        match decided:
            case LinesBack(back, late):
                hold_lines_again(uow, key, back, late, now)
            case LinesChanging(line_tasks):
                if order.seen_lines is not None and order.unreadable_since is not None:
                    _record_waiting(uow, key, LINES_DIFFER if line_tasks else NO_LINES, now)
                return self._look_again(job, order, line_tasks, now, since)
            case Waiting(reason=reason, seconds=seconds):
                _record_waiting(uow, key, reason, now)
                return job.wait(now, self._next_look(seconds, now, since), reason)
            case Held(hold, assessed, seconds):
                return self._hold(uow, job, assessed, hold, now, seconds)
            case Decided(assessed, decision, set_aside):
                tell_other_tasks(uow, key, set_aside, now)
                return self._save(uow, job, assessed, decision, now)
            case TaskEnded(status):
                close_order(uow, key, now, f"its Task was {status} before the order was assessed", status)
            case Ignored(assessed, before):
                ignore_order(uow, key, assessed, now, before)
        return job.complete(now)

    def _decide(self, uow: UnitOfWork, order: OrderRecord, result: Assessed) -> Waiting | Ignored | Held | Decided:
        """Decide the order with what only the store knows. No other order is decided meanwhile, as it may use the same labels."""
        uow.orders.lock_labels()
        assessed = self._add_what_is_stored(uow, order, result)
        before = self.settings.ignore_before
        if before is not None and _are_all_made_before(assessed, before):
            return Ignored(assessed, before)
        hold = result.waiting or find_other_order(uow, order.key, assessed) or find_order_hold(assessed)
        if self.settings.mode == "observe":
            unreadable = bool(assessed.graph.unreadable)
            found = _summary(assessed) if hold is None else hold.text
            return Waiting(f"observe: {found}", self.settings.hold_retry, unreadable)
        if hold is not None:
            return Held(hold, assessed)
        return self._decide_lines(uow, assessed, result)

    def _add_what_is_stored(self, uow: UnitOfWork, order: OrderRecord, result: Assessed) -> AssessedOrder:
        """Assess the order once more in the rare case that others use its labels, or that an operator has just released it."""
        assessed, labels = result.assessed, labels_in_use(uow, order.key, result.assessed.received)
        if not labels and order.released_findings == result.known.order.released_findings:
            return assessed
        return self.assessor.assess_again(assessed, labels, order.released_findings)

    def _decide_lines(self, uow: UnitOfWork, assessed: AssessedOrder, result: Assessed) -> Held | Decided:
        known = result.known
        decision = decide_lines(
            assessed,
            cancel_whole_order=self.policy.cancel_whole_order,
            decided=known.ended_lines(except_for=result.tasks.back),
            offered_again=known.order.ended_as is not None,
        )
        if (unrouted := self.policy.router.hold_reason(assessed, decision.accepted)) is not None:
            return Held(OrderHold(HoldCause.NO_ROUTE, unrouted), assessed)
        if rule := self.policy.breaker.tripped(uow, decision.rules, self.clock.now()):
            text = f"rule {rule} rejects too many orders; a person must check it first"
            return Held(OrderHold(HoldCause.RULE_STOPPED, text), assessed)
        return Decided(assessed, decision, result.tasks.set_aside)

    def _save(self, uow: UnitOfWork, job: Job, assessed: AssessedOrder, decision: Decision, now: datetime) -> Job:
        key = OrderKey(job.target)
        order = save_decision(uow, key, assessed, decision, self.policy, now)
        log.info("order assessed", action="order_assessed", order=key, state=order.state.value, refused=len(decision.rejected))
        return job.complete(now)

    def _hold(
        self, uow: UnitOfWork, job: Job, assessed: AssessedOrder | None, hold: OrderHold, now: datetime, seconds: float = 0.0
    ) -> Job:
        key = OrderKey(job.target)
        is_new = hold_order(uow, key, assessed, now, hold)
        rules = sorted({each.rule for each in assessed.assessment.holds}) if assessed else []
        (log.warning if is_new else log.debug)("order held", action="order_held", order=key, rules=rules)
        held_since = uow.orders.get_for_update(key).held_since or now
        return job.wait(now, growing_wait(max(seconds, self.settings.hold_retry), now - held_since), hold.text)

    def _look_again(self, job: Job, order: OrderRecord, line_tasks: tuple[str, ...], now: datetime, since: datetime) -> Job:
        """Read the list of lines once more: soon where it has changed once, and ever later where it has none, or changes on."""
        reason = f"{len(line_tasks)} line Tasks found; reading once more whether these are all"
        if line_tasks and (not order.seen_lines or order.unreadable_since is None):
            return replace(job.reschedule(now, now + timedelta(seconds=self.settings.second_look_after), reason), gives_way=False)
        return job.wait(now, self._next_look(self.settings.second_look_after, now, since), reason)

    def _next_look(self, first: float, now: datetime, since: datetime) -> float:
        """Seconds until an order is looked at again that is not held yet, and has waited for others `since` then."""
        return growing_wait(first, now - since, self.settings.unreadable_after)


def _record_reading(uow: UnitOfWork, order: OrderRecord, result: FetchDecision, now: datetime) -> OrderRecord:
    """Record since when the order cannot be read whole, and the list of its lines, where it is still to be confirmed.

    An outage before that, in which it was not looked at, is no time that it has waited for others.
    """
    since = (order.unreadable_since or now) if _is_unreadable(order, result) else None
    found = result.line_tasks if isinstance(result, LinesChanging | Held) else None
    read = replace(order, unreadable_since=since, seen_lines=order.seen_lines if found is None else found)
    if read != order:
        uow.orders.save(read)
    return read


def _seal_words(uow: UnitOfWork, job: Job, key: OrderKey, result: FetchDecision, now: datetime) -> None:
    """Keep what the service said about what cannot be read, as that of a failed job is kept: it may name the patient."""
    if not isinstance(result, Held | Waiting):
        return
    issues, answer = result.issues, result.hold.text if isinstance(result, Held) else result.reason
    if isinstance(result, Held) and result.assessed is not None:
        issues = issues_about(result.assessed.graph)
    if text := format_issues(issues):
        uow.vault.save_service_message(job.id, key, ServiceMessage(at=now, text=text, attempt=job.attempts, answer=answer))


def _is_unreadable(order: OrderRecord, result: FetchDecision) -> bool:
    """Whether the order could not be read whole. The first list of its lines says nothing: there is none to compare it with."""
    match result:
        case LinesChanging(line_tasks):
            return not line_tasks or order.seen_lines is not None
        case Waiting(unreadable=unreadable):
            return unreadable
        case Held(assessed=assessed):
            return assessed is None or bool(assessed.graph.unreadable)
    return False


def _record_waiting(uow: UnitOfWork, key: OrderKey, reason: str, now: datetime) -> None:
    """Record why the order waits. One that is held keeps the reason for that: the job says why it is not assessed just now."""
    order = uow.orders.get_for_update(key)
    if order.state is not OrderState.HELD and order.reason != reason:
        add_once_offered(uow, order, Event(order=key, at=now, action="waiting", text=reason))
        uow.orders.save(replace(order, reason=reason, changed_at=now))


def _are_all_made_before(assessed: AssessedOrder, before: datetime) -> bool:
    times = [request.occurrence.at for request in assessed.received.requests if request.occurrence and request.occurrence.at]
    return bool(times) and all(at < before for at in times)


def _summary(assessed: AssessedOrder) -> str:
    rules = assessed.assessment.rejecting_rules()
    return f"would be rejected in part or whole by {', '.join(sorted(rules))}" if rules else "would be accepted"
