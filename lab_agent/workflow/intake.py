"""Intake, second half: read a new order until its list of lines is stable, fetch it whole, assess it, and decide."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar

import structlog

from lab_agent.domain.ids import LineKey, OrderKey
from lab_agent.domain.records import Event, Job, JobKind, LineRecord, OrderRecord
from lab_agent.domain.retry import rest_after_hold
from lab_agent.domain.state_machines import UNDECIDED_ORDERS
from lab_agent.errors import InvalidResponse, ResourceNotReadable, ServicePaused, ServiceRejected, ServiceUnavailable
from lab_agent.fhir.order_graph import OrderGraph
from lab_agent.fhir.order_parser import parse_order
from lab_agent.ports.clock import Clock
from lab_agent.ports.exchange import Exchange, UnfilteredSearch
from lab_agent.ports.job_handler import Lease
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.settings.groups import WorkerSettings
from lab_agent.workflow.fetching import (
    NO_STATUS,
    UNREADABLE_STATUSES,
    add_answers,
    fetch_linked,
    raise_if_unavailable,
)
from lab_agent.workflow.line_lifecycle import LateLineFinder, close_order
from lab_agent.workflow.order_assessment import AssessedOrder, OrderAssessor, labels_in_use, lock_labels
from lab_agent.workflow.order_decision import (
    Decision,
    DecisionPolicy,
    decide_lines,
    hold_order,
    ignore_order,
    order_hold_reason,
    save_decision,
)
from lab_agent.workflow.order_tasks import KnownOrder, OrderTasks, find_other_order, load_known_order, read_order_tasks
from lab_agent.workflow.reopening import (
    OFFERED_AGAIN_AFTER_HANDOVER,
    OFFERED_AGAIN_WITHOUT_LINES,
    describe_lines_after_the_end,
    hold_lines_again,
)
from lab_agent.workflow.task_standing import DELETED, waiting_reason

log = structlog.get_logger(__name__)

ASKED_TO_WAIT = (
    "the service asks everybody to wait (503 or 429 with Retry-After) whenever the resources of this order are read; "
    "ask whoever runs the service"
)
LINES_DIFFER = (
    "the list of its line Tasks differs from one reading to the next; ask whoever runs the service whether copies of its search "
    "index differ"
)
NO_LINES = "no line Tasks are found for it"
QUESTIONNAIRE_SEARCH_MISSING_SINCE = "questionnaires.unknown_since"
"""Key of the time since when the service offers no search of answers; empty if it does."""


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """The order was decided before, or elsewhere."""

    reason: str


@dataclass(frozen=True, slots=True)
class LinesChanging:
    """The list of line Tasks is not known to be complete: it is read once more."""

    line_tasks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """The order is fetched again after `seconds`."""

    reason: str
    seconds: float
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """The order-level Task had this terminal status before the order was assessed."""

    status: str


@dataclass(frozen=True, slots=True)
class Ignored:
    """The order is older than `worker.ignore_before`."""

    assessed: AssessedOrder
    before: datetime


@dataclass(frozen=True, slots=True)
class Held:
    """The order is held and fetched again later; `assessed` is None where it could not be read.

    It is fetched again after `seconds`, and not before `worker.hold_retry`. `line_tasks` are its line Tasks as found, where they
    are not known to be complete.
    """

    reason: str
    assessed: AssessedOrder | None = None
    seconds: float = 0.0
    line_tasks: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class LinesBack:
    """Lines of an order that the laboratory had are requested again (`back`), or are new (`late`): a person decides."""

    back: tuple[LineKey, ...]
    late: tuple[LineRecord, ...]


@dataclass(frozen=True, slots=True)
class Decided:
    """Its lines are accepted and rejected, if nothing has changed meanwhile."""

    assessed: AssessedOrder
    decision: Decision


FetchResult = NothingToDo | LinesChanging | Waiting | TaskEnded | Ignored | Held | LinesBack | Decided


@dataclass(frozen=True, slots=True)
class FetchOrderHandler:
    """Fetches and assesses one order. Nothing outside is changed, so a lost lease needs no verification."""

    exchange: Exchange
    store: Store
    clock: Clock
    assessor: OrderAssessor
    policy: DecisionPolicy
    settings: WorkerSettings
    base_url: str
    late_lines: LateLineFinder
    line_codes: tuple[str, ...]

    kinds: ClassVar[frozenset[JobKind]] = frozenset({JobKind.FETCH_ORDER})

    def load(self, uow: UnitOfWork, job: Job) -> KnownOrder:
        """Load the order as it is known."""
        return load_known_order(uow, OrderKey(job.target))

    async def perform(self, lease: Lease, loaded: KnownOrder) -> FetchResult:  # noqa: ARG002 - nothing outside is changed
        """Fetch the order and, once two readings of its line Tasks in a row were equal, assess it."""
        known, order = loaded, loaded.order
        if order.state not in UNDECIDED_ORDERS:
            return NothingToDo(f"the order is {order.state.value}")
        try:
            return await self._read_and_assess(known)
        except ServiceUnavailable as failure:
            if failure.retry_after:
                return await self._hold_after_pause(order, failure, failure.retry_after)
            await raise_if_unavailable(self.exchange, failure)
            return self._wait_or_hold(order, str(failure))
        except (UnfilteredSearch, ServiceRejected, InvalidResponse) as failure:
            return self._after_rejection(order, failure)

    verify = perform

    def complete(self, uow: UnitOfWork, job: Job, result: FetchResult) -> Job:
        """Apply what was decided."""
        now, key = self.clock.now(), OrderKey(job.target)
        order = uow.orders.get_for_update(key)
        if isinstance(result, NothingToDo) or order.state not in UNDECIDED_ORDERS:
            return job.complete(now, result.reason if isinstance(result, NothingToDo) else "it was decided elsewhere")
        _record_reading(uow, order, result, now)
        match result:
            case LinesBack(back, late):
                hold_lines_again(uow, key, back, late, now)
            case LinesChanging(line_tasks):
                if order.seen_lines is not None and order.unreadable_since is not None:
                    _record_waiting(uow, key, LINES_DIFFER if line_tasks else NO_LINES, now)
                at = now + timedelta(seconds=self.settings.second_look_after)
                return job.reschedule(now, at, f"{len(line_tasks)} line Tasks found; reading once more whether these are all")
            case Waiting(reason=reason, seconds=seconds):
                _record_waiting(uow, key, reason, now)
                return job.reschedule(now, now + timedelta(seconds=seconds), reason)
            case Held(reason, assessed, seconds):
                return self._hold(uow, job, assessed, reason, now, seconds)
            case Decided(assessed, decision):
                return self._save(uow, job, assessed, decision, now)
            case TaskEnded(status):
                close_order(uow, key, now, f"its Task was {status} before the order was assessed", status)
            case Ignored(assessed, before):
                ignore_order(uow, key, assessed, now, before)
        return job.complete(now)

    async def _read_and_assess(self, known: KnownOrder) -> FetchResult:
        """Read the order as it is now. Raises `ServiceRejected`, and `ServiceUnavailable` for a search that fails."""
        order = known.order
        tasks = await read_order_tasks(self.exchange, known, self.line_codes)
        if tasks is None:
            return TaskEnded(DELETED)
        if tasks.has_ended and not (tasks.status in order.sent_statuses and tasks.has_open_lines):
            return TaskEnded(str(tasks.status))
        found = tasks.fingerprint
        if order.seen_lines != found or (not found and not self._is_unreadable_for(order, self.settings.unreadable_after)):
            return self._after_new_list(order, found)
        if known.submitted and not tasks.has_ended and tasks.has_open_lines:
            late = await self.late_lines.find_in(order.key, tasks.new)
            return LinesBack(tuple(line.key for line in tasks.back), late)
        graph = await fetch_linked(self.exchange, self.base_url, tasks.order_task, tasks.line_tasks)
        try:
            graph = await add_answers(self.exchange, graph)
        except UnfilteredSearch as unfiltered:  # the answers stay unknown; the rest is assessed, for a person to see
            return await self._assess(known, tasks, graph, str(unfiltered))
        await self.store.run(lambda uow: _record_questionnaire_search(uow, graph, self.clock.now()))
        return await self._assess(known, tasks, graph)

    def _after_new_list(self, order: OrderRecord, found: tuple[str, ...]) -> FetchResult:
        """Read a list of lines that differs from the one before it once more; hold the order if that goes on for long."""
        differs = order.seen_lines not in {None, found}
        if differs and self._is_unreadable_for(order, self.settings.unreadable_after):
            return Held(LINES_DIFFER, line_tasks=found)
        return LinesChanging(found)

    async def _assess(
        self, known: KnownOrder, tasks: OrderTasks, graph: OrderGraph, unfiltered: str | None = None
    ) -> FetchResult:
        """Assess what was read. `unfiltered` says why the order is held whatever the rules say."""
        order = known.order
        may_pass = all(why.status in UNREADABLE_STATUSES for why in graph.unreadable.values())
        if graph.unreadable and may_pass and not self._is_unreadable_for(order, self.settings.unreadable_after):
            names = ", ".join(str(ref) for ref in sorted(graph.unreadable))
            return Waiting(f"cannot be read yet: {names}", self.settings.backoff_longest / 10, unreadable=True)
        reject_unreadable = self._is_unreadable_for(order, self.settings.unreadable_refuse_after)
        assessed = await self.assessor.assess(order.key, graph, parse_order(graph), reject_unreadable=reject_unreadable)
        waiting = self._waiting_reason(known, tasks)
        if waiting == OFFERED_AGAIN_WITHOUT_LINES and not self._is_offered_for(order, self.settings.unreadable_after):
            return Waiting(waiting, self.settings.backoff_longest / 10)  # a partner puts Tasks back one by one
        reason = waiting or unfiltered or await self.store.run(lambda uow: find_other_order(uow, order.key, assessed))
        return self._decide(assessed, reason, known, tasks)

    def _waiting_reason(self, known: KnownOrder, tasks: OrderTasks) -> str | None:
        """Why the order waits although it can be read: somebody else has it, or it is not clear what is wanted of it."""
        if tasks.has_ended:
            return describe_lines_after_the_end(tasks.open_lines)
        if known.submitted:
            return OFFERED_AGAIN_AFTER_HANDOVER
        waiting = waiting_reason(tasks.order_task, tasks.line_tasks, self.line_codes)
        if waiting is None and known.order.ended_as is not None and not tasks.has_open_lines:
            return OFFERED_AGAIN_WITHOUT_LINES
        return waiting

    def _decide(self, assessed: AssessedOrder, waiting: str | None, known: KnownOrder, tasks: OrderTasks) -> FetchResult:
        before = self.settings.ignore_before
        if before is not None and _are_all_made_before(assessed, before):
            return Ignored(assessed, before)
        reason = waiting or order_hold_reason(assessed)
        if self.settings.mode == "observe":
            unreadable = bool(assessed.graph.unreadable)
            return Waiting(f"observe: {reason or _summary(assessed)}", self.settings.hold_retry, unreadable)
        if reason is not None:
            return Held(reason, assessed)
        decision = decide_lines(
            assessed,
            cancel_whole_order=self.policy.cancel_whole_order,
            decided=known.ended_lines(except_for=tasks.back),
            offered_again=known.order.ended_as is not None,
        )
        if (unrouted := self.policy.router.hold_reason(assessed, decision.accepted)) is not None:
            return Held(unrouted, assessed)
        return Decided(assessed, decision)

    def _after_rejection(self, order: OrderRecord, failure: UnfilteredSearch | ServiceRejected | InvalidResponse) -> FetchResult:
        """Wait or hold: a right may be granted later, and invalid JSON be corrected. Never a reason to reject (law 10)."""
        match failure:
            case UnfilteredSearch():  # what else it holds may be another order's: nothing is decided on it
                return Held(str(failure))
            case ServiceRejected():
                may_pass = isinstance(failure, ResourceNotReadable) and failure.status in UNREADABLE_STATUSES
                return self._wait_or_hold(order, str(failure), at_once=not (may_pass or failure.status == NO_STATUS))
        return self._wait_or_hold(order, str(failure))

    def _wait_or_hold(self, order: OrderRecord, reason: str, *, at_once: bool = False) -> FetchResult:
        """Wait for what cannot be read; after a while, or at once, the order is held, and somebody is alerted."""
        if at_once or self._is_unreadable_for(order, self.settings.unreadable_after):
            return Held(reason)
        return Waiting(reason, self.settings.backoff_longest / 10, unreadable=True)

    async def _hold_after_pause(self, order: OrderRecord, failure: ServiceUnavailable, wait: float) -> Held:
        """Hold an order whose resources make the service ask everybody to wait, time and again; others go first (law 9).

        Raises `failure` before that, and where the service is waited for already.
        """
        now, since = self.clock.now(), order.unreadable_since
        if isinstance(failure, ServicePaused):
            if since is None:
                raise failure
            raise ServicePaused(str(failure), retry_after=wait + rest_after_hold(wait, now - since)) from failure
        if since is not None and self._is_unreadable_for(order, self.settings.unreadable_after):
            return Held(ASKED_TO_WAIT, seconds=wait + max(self.settings.hold_retry, rest_after_hold(wait, now - since)))
        if since is None:
            await self.store.run(lambda uow: _mark_unreadable(uow, order.key, now))
        raise failure

    def _is_offered_for(self, order: OrderRecord, seconds: float) -> bool:
        """Whether the order was seen, or offered again, so many seconds ago."""
        return self.clock.now() >= order.seen_at + timedelta(seconds=seconds)

    def _is_unreadable_for(self, order: OrderRecord, seconds: float | None) -> bool:
        """Whether the order could not be read whole for so many seconds; never, for None."""
        since = order.unreadable_since
        return seconds is not None and since is not None and self.clock.now() >= since + timedelta(seconds=seconds)

    def _save(self, uow: UnitOfWork, job: Job, assessed: AssessedOrder, decision: Decision, now: datetime) -> Job:
        key = OrderKey(job.target)
        lock_labels(uow, key)
        if (other := find_other_order(uow, key, assessed)) is not None:
            return self._hold(uow, job, assessed, other, now)
        if labels_in_use(uow, key, assessed.received) != assessed.facts.labels_in_use:
            return job.reschedule(now, now, "another order took or released one of its labels meanwhile; assessing it again")
        if rule := self.policy.breaker.tripped(uow, decision.rules, now):
            return self._hold(uow, job, assessed, f"rule {rule} rejects too many orders; a person must check it first", now)
        order = save_decision(uow, key, assessed, decision, self.policy, now)
        log.info("order assessed", action="order_assessed", order=key, state=order.state.value, refused=len(decision.rejected))
        return job.complete(now)

    def _hold(
        self, uow: UnitOfWork, job: Job, assessed: AssessedOrder | None, reason: str, now: datetime, seconds: float = 0.0
    ) -> Job:
        key = OrderKey(job.target)
        hold_order(uow, key, assessed, now, reason)
        rules = sorted({each.rule for each in assessed.assessment.holds}) if assessed else []
        log.warning("order held", action="order_held", order=key, rules=rules)
        return job.reschedule(now, now + timedelta(seconds=max(seconds, self.settings.hold_retry)), reason)


def _record_reading(uow: UnitOfWork, order: OrderRecord, result: FetchResult, now: datetime) -> None:
    """Record since when the order cannot be read whole, and the list of its lines, where it is still to be confirmed."""
    since = (order.unreadable_since or now) if _is_unreadable(order, result) else None
    found = result.line_tasks if isinstance(result, LinesChanging | Held) else None
    read = replace(order, unreadable_since=since, seen_lines=order.seen_lines if found is None else found)
    if read != order:
        uow.orders.save(read)


def _is_unreadable(order: OrderRecord, result: FetchResult) -> bool:
    """Whether the order could not be read whole. The first list of its lines says nothing: there is none to compare it with."""
    match result:
        case LinesChanging(line_tasks):
            return not line_tasks or order.seen_lines is not None
        case Waiting(unreadable=unreadable):
            return unreadable
        case Held(assessed=assessed):
            return assessed is None or bool(assessed.graph.unreadable)
    return False


def _mark_unreadable(uow: UnitOfWork, key: OrderKey, now: datetime) -> None:
    uow.orders.save(replace(uow.orders.get_for_update(key), unreadable_since=now))
    uow.commit()


def _record_waiting(uow: UnitOfWork, key: OrderKey, reason: str, now: datetime) -> None:
    order = uow.orders.get_for_update(key)
    if order.reason != reason:
        uow.orders.save(replace(order, reason=reason, changed_at=now))
        uow.events.add(Event(order=key, at=now, action="waiting", text=reason))


def _record_questionnaire_search(uow: UnitOfWork, graph: OrderGraph, now: datetime) -> None:
    """Record whether the service offers the search of answers (`exchange.questionnaire_search`)."""
    missing_since = now.isoformat() if graph.questionnaire_responses is None else ""
    known = uow.key_values.get(QUESTIONNAIRE_SEARCH_MISSING_SINCE) or ""
    if bool(missing_since) != bool(known):
        uow.key_values.set(QUESTIONNAIRE_SEARCH_MISSING_SINCE, missing_since)
        uow.commit()


def _are_all_made_before(assessed: AssessedOrder, before: datetime) -> bool:
    times = [request.occurrence.at for request in assessed.received.requests if request.occurrence and request.occurrence.at]
    return bool(times) and all(at < before for at in times)


def _summary(assessed: AssessedOrder) -> str:
    rules = assessed.assessment.rejecting_rules()
    return f"would be rejected in part or whole by {', '.join(sorted(rules))}" if rules else "would be accepted"
