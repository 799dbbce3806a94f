"""Reads a new order from the service until its list of lines is stable, then whole, and assesses it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lab_agent.exchange.service import Exchange, UnfilteredSearch
from lab_agent.fhir.order_graph import OrderGraph
from lab_agent.fhir.order_parser import parse_order
from lab_agent.orders.fetching import NO_STATUS, UNREADABLE_STATUSES, add_answers, fetch_linked, raise_if_unavailable
from lab_agent.orders.line_lifecycle import LateLineFinder
from lab_agent.orders.order_assessment import AssessedOrder, OrderAssessor
from lab_agent.orders.order_tasks import KnownOrder, OrderTasks, fingerprint_of, read_lines, read_order_tasks
from lab_agent.orders.records import HoldCause, LineRecord, OrderHold, OrderRecord
from lab_agent.orders.reopening import OFFERED_AGAIN_AFTER_HANDOVER, OFFERED_AGAIN_WITHOUT_LINES, hold_for_lines_after_the_end
from lab_agent.orders.task_standing import DELETED, waiting_reason
from lab_agent.queue.retry import rest_after_hold
from lab_agent.settings.groups import WorkerSettings
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import (
    Failure,
    ForeignOrigin,
    InvalidResponse,
    OutcomeIssue,
    ResourceNotReadable,
    ServicePaused,
    ServiceRejected,
    ServiceUnavailable,
)
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.shared.state_machines import UNDECIDED_ORDERS, OrderState
from lab_agent.store.unit_of_work import Store, UnitOfWork

ASKED_TO_WAIT = (
    "the service asks everybody to wait (503 or 429 with Retry-After) whenever the resources of this order are read; "
    "ask whoever runs the service"
)
LINES_DIFFER = (
    "the list of its line Tasks differs from one reading to the next; ask whoever runs the service whether copies of its search "
    "index differ"
)
NO_LINES = "no line Tasks are found for it"


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
    """The order is fetched again after `seconds`. `issues` are the service's own words about what cannot be read."""

    reason: str
    seconds: float
    unreadable: bool = False
    issues: tuple[OutcomeIssue, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """The order-level Task had this terminal status before the order was assessed."""

    status: str


@dataclass(frozen=True, slots=True)
class Held:
    """The order is held and fetched again later; `assessed` is None where it could not be read.

    It is fetched again after `seconds`, and not before `worker.hold_retry`. `line_tasks` are its line Tasks as found, where they
    are not known to be complete. `issues` are the service's own words about what cannot be read.
    """

    hold: OrderHold
    assessed: AssessedOrder | None = None
    seconds: float = 0.0
    line_tasks: tuple[str, ...] | None = None
    issues: tuple[OutcomeIssue, ...] = ()


@dataclass(frozen=True, slots=True)
class LinesBack:
    """Lines of an order that the laboratory had are requested again (`back`), or are new (`late`): a person decides."""

    back: tuple[LineKey, ...]
    late: tuple[LineRecord, ...]


@dataclass(frozen=True, slots=True)
class Assessed:
    """The order was read whole, and assessed as if nobody else used its labels; it is decided together with what is stored.

    `waiting` is why it is held whatever the rules say.
    """

    known: KnownOrder
    tasks: OrderTasks
    assessed: AssessedOrder
    waiting: OrderHold | None


FetchResult = NothingToDo | LinesChanging | Waiting | TaskEnded | Held | LinesBack | Assessed


@dataclass(frozen=True, slots=True)
class OrderReader:
    """Reads an order and assesses it; nothing is decided here, and nothing outside is changed."""

    exchange: Exchange
    store: Store
    clock: Clock
    assessor: OrderAssessor
    settings: WorkerSettings
    base_url: str
    late_lines: LateLineFinder
    line_codes: tuple[str, ...]

    async def read(self, known: KnownOrder) -> FetchResult:
        """Read the order and, once two readings of its line Tasks in a row were equal, assess it.

        Raises what concerns the service as a whole.
        """
        order = known.order
        if order.state not in UNDECIDED_ORDERS:
            return NothingToDo(f"the order is {order.state.value}")
        try:
            return await self._read_lines(known) if _is_just_polled(order) else await self._read_whole(known)
        except ServiceUnavailable as failure:
            if failure.retry_after:
                return await self._hold_after_pause(order, failure, failure.retry_after)
            await raise_if_unavailable(self.exchange, failure)
            return self._wait_or_hold(order, failure)
        except (UnfilteredSearch, ServiceRejected, InvalidResponse, ForeignOrigin) as failure:
            return self._after_rejection(order, failure)

    async def _read_lines(self, known: KnownOrder) -> LinesChanging:
        """Take the first list of lines of an order whose Task the poll has just read."""
        return LinesChanging(fingerprint_of(await read_lines(self.exchange, known)))

    async def _read_whole(self, known: KnownOrder) -> FetchResult:
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
            return await self._assess(known, tasks, graph, OrderHold(HoldCause.SEARCH_NOT_FILTERED, str(unfiltered)))
        return await self._assess(known, tasks, graph)

    def _after_new_list(self, order: OrderRecord, found: tuple[str, ...]) -> FetchResult:
        """Read a list of lines that differs from the one before it once more; hold the order if that goes on for long."""
        differs = order.seen_lines not in {None, found}
        if differs and self._is_unreadable_for(order, self.settings.unreadable_after):
            return Held(OrderHold(HoldCause.LINES_DIFFER, LINES_DIFFER), line_tasks=found)
        return LinesChanging(found)

    async def _assess(
        self, known: KnownOrder, tasks: OrderTasks, graph: OrderGraph, unfiltered: OrderHold | None = None
    ) -> FetchResult:
        """Assess what was read. `unfiltered` is why the order is held whatever the rules say."""
        order, waiting = known.order, self._find_hold(known, tasks)
        if waiting is None:
            graph = graph.without_lines([task.get("id") for task in tasks.set_aside])
        may_pass = all(why.status in UNREADABLE_STATUSES for why in graph.unreadable.values())
        if graph.unreadable and may_pass and not self._is_unreadable_for(order, self.settings.unreadable_after):
            names = ", ".join(str(ref) for ref in sorted(graph.unreadable))
            issues = issues_about(graph)
            return Waiting(f"cannot be read yet: {names}", self.settings.backoff_longest / 10, unreadable=True, issues=issues)
        reject_unreadable = self._is_unreadable_for(order, self.settings.unreadable_refuse_after)
        if waiting == OFFERED_AGAIN_WITHOUT_LINES and not self._is_offered_for(order, self.settings.unreadable_after):
            return Waiting(waiting.text, self.settings.backoff_longest / 10)  # a partner puts Tasks back one by one
        assessed = await self.assessor.assess(
            graph, parse_order(graph), released=order.released_findings, reject_unreadable=reject_unreadable
        )
        return Assessed(known, tasks, assessed, waiting or unfiltered)

    def _find_hold(self, known: KnownOrder, tasks: OrderTasks) -> OrderHold | None:
        """Why the order waits although it can be read: somebody else has it, or it is not clear what is wanted of it."""
        if tasks.has_ended:
            return hold_for_lines_after_the_end(tasks.open_lines)
        if known.submitted:
            return OFFERED_AGAIN_AFTER_HANDOVER
        waiting = waiting_reason(tasks.order_task, tasks.line_tasks, self.line_codes)
        if waiting is None and known.order.ended_as is not None and not tasks.has_open_lines:
            return OFFERED_AGAIN_WITHOUT_LINES
        return None if waiting is None else OrderHold(HoldCause.NOT_REQUESTED, waiting)

    def _after_rejection(
        self, order: OrderRecord, failure: UnfilteredSearch | ServiceRejected | InvalidResponse | ForeignOrigin
    ) -> FetchResult:
        """Wait or hold: a right may be granted later, and invalid JSON be corrected. Never a reason to reject (law 10)."""
        match failure:
            case UnfilteredSearch():  # what else it holds may be another order's: nothing is decided on it
                return Held(OrderHold(HoldCause.SEARCH_NOT_FILTERED, str(failure)))
            case ServiceRejected():
                may_pass = isinstance(failure, ResourceNotReadable) and failure.status in UNREADABLE_STATUSES
                return self._wait_or_hold(order, failure, at_once=not (may_pass or failure.status == NO_STATUS))
        return self._wait_or_hold(order, failure)

    def _wait_or_hold(self, order: OrderRecord, failure: Failure, *, at_once: bool = False) -> FetchResult:
        """Wait for what cannot be read; after a while, or at once, the order is held, and somebody is alerted."""
        if at_once or self._is_unreadable_for(order, self.settings.unreadable_after):
            return Held(OrderHold(HoldCause.UNREADABLE, str(failure)), issues=failure.issues)
        return Waiting(str(failure), self.settings.backoff_longest / 10, unreadable=True, issues=failure.issues)

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
            hold = OrderHold(HoldCause.MAKES_SERVICE_PAUSE, ASKED_TO_WAIT)
            seconds = wait + max(self.settings.hold_retry, rest_after_hold(wait, now - since))
            return Held(hold, seconds=seconds, issues=failure.issues)
        if since is None:
            await self.store.transact(lambda uow: _mark_unreadable(uow, order.key, now))
        raise failure

    def _is_offered_for(self, order: OrderRecord, seconds: float) -> bool:
        """Whether the order was seen, or offered again, so many seconds ago."""
        return self.clock.now() >= order.seen_at + timedelta(seconds=seconds)

    def _is_unreadable_for(self, order: OrderRecord, seconds: float | None) -> bool:
        """Whether the order could not be read whole for so many seconds; never, for None."""
        since = order.unreadable_since
        return seconds is not None and since is not None and self.clock.now() >= since + timedelta(seconds=seconds)


def issues_about(graph: OrderGraph) -> tuple[OutcomeIssue, ...]:
    """What the service said about the resources that cannot be read."""
    return tuple(issue for ref in sorted(graph.unreadable) for issue in graph.unreadable[ref].issues)


def _is_just_polled(order: OrderRecord) -> bool:
    """Whether nothing of the order was read yet but the order-level Task, by the poll: its lines alone are read then."""
    return order.state is OrderState.SEEN and not order.reopened and order.seen_lines is None and order.unreadable_since is None


def _mark_unreadable(uow: UnitOfWork, key: OrderKey, now: datetime) -> None:
    uow.orders.save(replace(uow.orders.get_for_update(key), unreadable_since=now))
