"""Task updates: read, change only our fields, replace the whole resource; never overwrite somebody else's decision (law 4)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar

import structlog

from lab_agent.exchange.service import Exchange, Json
from lab_agent.fhir.task_update import build_task_update, is_task_updated, own_sentences, task_status
from lab_agent.orders.fetching import DELETED_STATUS
from lab_agent.orders.line_lifecycle import (
    LateLineFinder,
    advance_order,
    close_order,
    hold_late_line,
    order_task_status,
    record_line_end,
    withdraw_line,
    withdraw_order,
)
from lab_agent.orders.records import LineRecord
from lab_agent.orders.reopening import is_possibly_submitted, offer_again, reopen_for_held_lines
from lab_agent.orders.restored_service import find_lost_reports, send_lost_reports_again
from lab_agent.orders.restored_store import note_second_agent
from lab_agent.orders.task_standing import DELETED
from lab_agent.queue.job_handler import MAX_CONFLICT_RETRIES, Lease
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.queue.jobs import TASK_COMPLETED, TASK_REQUESTED, TERMINAL_TASK_STATUSES
from lab_agent.results.own_reports import OwnReports, last_change
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import (
    ForeignLink,
    InvalidResponse,
    PermanentFailure,
    ResourceNotReadable,
    ServiceRejected,
    StaleVersion,
    StoreError,
    TemporaryFailure,
)
from lab_agent.shared.ids import LineKey, OrderKey, ReportKey, ResourceId
from lab_agent.shared.state_machines import ENDED_LINES, UNDECIDED_ORDERS, LineState, OrderState
from lab_agent.shared.text import shorten
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import UnitOfWork

log = structlog.get_logger(__name__)

_AT_LABORATORY = frozenset({OrderState.HANDED_OVER, OrderState.REPORTED})
_REPORT_IS_THERE_FOR = timedelta(minutes=1)
"""How long a report counts as being on the service after its upload without another look."""
LATE_LINES_RETRY_INTERVAL = timedelta(minutes=1)
"""How long an order-level Task waits until it is checked again whether its late lines have ended."""


@dataclass(frozen=True, slots=True)
class DesiredTask:
    """What a Task should become: `status`, with `outputs` (None: leave them); only `own_statuses` may be overwritten.

    `renewed` is a Task that had ended and was requested again: what we said of it then is said no more.
    """

    order: OrderKey
    task_id: ResourceId
    status: str
    outputs: tuple[str, ...] | None
    own_statuses: frozenset[str]
    renewed: bool = False


@dataclass(frozen=True, slots=True)
class StatusSet:
    """The Task has the status that we want; `by_another`: what shows that another agent of ours has set it, if one has."""

    status: str
    by_another: str = ""


@dataclass(frozen=True, slots=True)
class EndedByUs:
    """We had ended the Task with another status: nothing leads out of a terminal one."""

    status: str


@dataclass(frozen=True, slots=True)
class EndedByOthers:
    """The partner or the service has ended the Task."""

    status: str


@dataclass(frozen=True, slots=True)
class LinesOpen:
    """A line of the order is open, so that its Task must not end yet; `late` are those that we did not know."""

    late: tuple[LineRecord, ...]


@dataclass(frozen=True, slots=True)
class Outdated:
    """A line that came late has given the order another end."""


@dataclass(frozen=True, slots=True)
class ReportsLost:
    """The line is not to be completed yet: these reports of its order are not on the service any more."""

    reports: frozenset[ReportKey]


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """What is known of a Task before it is read: what it should become, and for an order-level Task that is to end, the order's
    lines. Before the Task is ended, they are read again.
    """

    desired: DesiredTask
    lines: tuple[LineRecord, ...] | None


TaskUpdateResult = StatusSet | EndedByUs | EndedByOthers | LinesOpen | Outdated | ReportsLost


class _ObstacleError(Exception):
    """The Task must not be set now, for what was stored since its job was loaded; nothing was written or sent."""

    def __init__(self, result: LinesOpen | Outdated) -> None:
        super().__init__(result)
        self.result = result


@dataclass(frozen=True, slots=True)
class TaskUpdateHandler:
    """Brings the Tasks of lines and orders to their ends; `mixed_order_status` is `worker.mixed_order_status`."""

    exchange: Exchange
    clock: Clock
    late_lines: LateLineFinder
    own_reports: OwnReports
    mixed_order_status: str = TASK_COMPLETED

    kinds: ClassVar[frozenset[JobKind]] = frozenset({JobKind.UPDATE_LINE_TASK, JobKind.UPDATE_ORDER_TASK})

    def load(self, uow: UnitOfWork, job: Job) -> LoadedTask:
        """Load what the Task should become. Raises `PermanentFailure` for a line that is not stored."""
        desired = _desired_task(uow, job)
        if job.kind is not JobKind.UPDATE_ORDER_TASK or desired.status not in TERMINAL_TASK_STATUSES:
            return LoadedTask(desired, None)
        lines = uow.orders.lines(OrderKey(job.target))
        return LoadedTask(replace(desired, status=order_task_status(lines, self.mixed_order_status)), lines)

    async def perform(self, lease: Lease, loaded: LoadedTask) -> TaskUpdateResult:
        """Read the Task; where it differs from what is wanted and nobody else has decided otherwise, update it."""
        if loaded.lines is not None and (obstacle := await self._find_obstacle(lease.job, loaded.desired, loaded.lines)):
            return obstacle
        desired = loaded.desired
        if self._has_waited(lease.job) and (lost := await self._find_lost(desired)):
            return ReportsLost(lost)
        for _ in range(MAX_CONFLICT_RETRIES):
            with suppress(StaleVersion):
                try:
                    return await self._update(lease, desired)
                except _ObstacleError as obstructed:
                    return obstructed.result
            desired = replace(desired, own_statuses=desired.own_statuses | {desired.status})  # it was sent, and so is ours
        raise TemporaryFailure(f"the Task was changed by somebody else {MAX_CONFLICT_RETRIES} times while we wrote it")

    verify = perform  # which reads first

    def complete(self, uow: UnitOfWork, job: Job, result: TaskUpdateResult) -> Job:
        """Let the order follow its Tasks."""
        now = self.clock.now()
        match result:
            case StatusSet(status, by_another):
                if by_another:
                    note_second_agent(uow, now, by_another, before=uow.orders.get(_get_order_key(job)).seen_at)
                return _complete_status_set(uow, job, status, now)
            case EndedByUs(status):
                return _complete_ended_by_us(uow, job, status, now)
            case EndedByOthers(status):
                return _complete_withdrawn(uow, job, status, now)
            case LinesOpen(late):
                return _postpone_order_end(uow, job, late, now)
            case ReportsLost(reports):
                return _postpone_line_end(uow, job, reports, now)
            case Outdated():
                return job.mark_obsolete(now, "a line that came late has given the order another end")

    def _has_waited(self, job: Job) -> bool:
        """Whether a line was not completed right after its report was uploaded, so that this may not be there any more."""
        completes = job.kind is JobKind.UPDATE_LINE_TASK and job.payload["status"] == TASK_COMPLETED
        return completes and (job.attempts > 1 or self.clock.now() > job.first_due_at + _REPORT_IS_THERE_FOR)

    async def _find_lost(self, desired: DesiredTask) -> frozenset[ReportKey]:
        return await find_lost_reports(self.exchange, self.late_lines.store, desired.order)

    async def _find_obstacle(self, job: Job, desired: DesiredTask, known: tuple[LineRecord, ...]) -> TaskUpdateResult | None:
        """Why the order-level Task must not end now: a line that is open, or came late, would be lost with its end."""
        late = await self.late_lines.find(desired.order, desired.task_id, known)
        return LinesOpen(late) if late else self._obstacle_among(known, job, desired.status)

    def _obstacle_among(self, lines: tuple[LineRecord, ...], job: Job, status: str) -> LinesOpen | Outdated | None:
        """Why an order with these lines must not end by this job, or not yet, with this status of its Task."""
        if any(line.state not in ENDED_LINES for line in lines):
            return LinesOpen(())
        if order_task_status(lines) != job.payload["status"]:
            return Outdated()
        # Lines that have ended anew since the job was loaded may be mixed now: there is no other job, so this one comes again.
        return None if order_task_status(lines, self.mixed_order_status) == status else LinesOpen(())

    async def _update(self, lease: Lease, desired: DesiredTask) -> TaskUpdateResult:
        """Read and update once. Raises `StaleVersion` where somebody changed the Task between the two."""
        try:
            task = await self.exchange.read("Task", desired.task_id)
        except ResourceNotReadable as unreadable:
            if unreadable.status != DELETED_STATUS:
                raise
            return EndedByOthers(DELETED)
        if is_task_updated(task.body, desired.status, desired.outputs):
            return StatusSet(desired.status, await self._find_other_maker(desired, task.body))
        current = task_status(task.body)
        if current in TERMINAL_TASK_STATUSES and current not in desired.own_statuses:
            return EndedByOthers(str(current))
        if current in TERMINAL_TASK_STATUSES and current != desired.status:
            return EndedByUs(str(current))
        if current not in desired.own_statuses:
            raise PermanentFailure(
                f"Task {desired.task_id} is in status '{shorten(current or '')}', which we did not set; it is not overwritten. "
                "Ask the partner, then retry or dismiss this"
            )
        await lease.mark_started(lambda uow: self._record_sent_status(uow, lease.job, desired.status))
        obsolete = own_sentences(task.body) if desired.renewed else ()
        body = build_task_update(task.body, status=desired.status, outputs=desired.outputs, replaces=obsolete)
        await self.exchange.update("Task", desired.task_id, body, version=task.version)
        log.info("Task set", action="task_set", order=lease.job.order, status=desired.status)
        return StatusSet(desired.status)

    async def _find_other_maker(self, desired: DesiredTask, task: Json) -> str:
        """What shows that another agent of ours has ended a Task as we would: our sentences, or a report that we do not know.

        Without either, it was somebody else: a service may complete what has a report. Sentences of a Task that was put back may
        be those that we wrote before.
        """
        if desired.status not in TERMINAL_TASK_STATUSES or desired.status in desired.own_statuses:
            return ""
        has_new_sentences = desired.outputs and not desired.renewed
        if not has_new_sentences and not await self._has_unknown_report(desired.order):
            return ""
        return f"Task {desired.task_id} was set to {desired.status} as we would have set it, {last_change(task)}"

    async def _has_unknown_report(self, order: OrderKey) -> bool:
        parts = await self.late_lines.store.run_read_only(lambda uow: uow.orders.work_orders(order))
        try:
            return bool(await self.own_reports.find_unknown(part.key for part in parts))
        except (ServiceRejected, InvalidResponse, ForeignLink):  # then nobody can tell
            return False

    def _record_sent_status(self, uow: UnitOfWork, job: Job, status: str) -> None:
        """Record that we send this status, before it is sent: from then on it is ours, answered or not.

        Raises `_ObstacleError` where the order must not end with it: a line may have been held since the job was loaded.
        """
        if job.kind is JobKind.UPDATE_ORDER_TASK:
            order = uow.orders.get_for_update(OrderKey(job.target))
            ends = status in TERMINAL_TASK_STATUSES
            if ends and (obstacle := self._obstacle_among(uow.orders.lines(order.key), job, status)) is not None:
                raise _ObstacleError(obstacle)
            if status not in order.sent_statuses:
                uow.orders.save(replace(order, sent_statuses=(*order.sent_statuses, status)))
            return
        uow.orders.lock(_get_order_key(job))
        line = _find_line(uow, job)
        if line is not None and status not in line.sent_statuses:
            uow.orders.save_line(replace(line, sent_statuses=(*line.sent_statuses, status)))


def _complete_status_set(uow: UnitOfWork, job: Job, status: str, now: datetime) -> Job:
    order = _get_order_key(job)
    uow.events.add(Event(order=order, at=now, action="task_set", text=f"{_task_name(job)} is {status}"))
    if status in TERMINAL_TASK_STATUSES:
        if job.kind is JobKind.UPDATE_ORDER_TASK:
            _end_order(uow, order, now, f"order-level Task is {status}", status)
        else:
            record_line_end(uow, order, LineKey(job.target), status)
            advance_order(uow, order, now, completing=job)
    return job.complete(now)


def _complete_ended_by_us(uow: UnitOfWork, job: Job, status: str, now: datetime) -> Job:
    """Leave the Task as we had ended it; an order that was taken up after that ends all the same."""
    order, reason = _get_order_key(job), f"we had set the Task to {status} already"
    if job.kind is JobKind.UPDATE_LINE_TASK:
        record_line_end(uow, order, LineKey(job.target), status)
    if job.kind is JobKind.UPDATE_ORDER_TASK and job.payload["status"] in TERMINAL_TASK_STATUSES:
        _end_order(uow, order, now, reason, status)
    else:
        advance_order(uow, order, now, completing=job)
    return job.mark_obsolete(now, reason)


def _end_order(uow: UnitOfWork, key: OrderKey, now: datetime, text: str, status: str) -> None:
    """Close an order whose Task we have ended. A line that was held while that was on its way is not lost with it: it waits."""
    order = uow.orders.get_for_update(key)
    if order.state in _AT_LABORATORY and any(line.state is LineState.HELD for line in uow.orders.lines(key)):
        reopen_for_held_lines(uow, key, now, status)
    else:
        close_order(uow, key, now, text, status)


def _complete_withdrawn(uow: UnitOfWork, job: Job, status: str, now: datetime) -> Job:
    order, reason = _get_order_key(job), f"the partner or the service had set the Task to {status}"
    text = f"{_task_name(job)} is left as it is: {reason}"
    uow.events.add(Event(order=order, at=now, action="task_unchanged", text=text))
    if job.kind is JobKind.UPDATE_ORDER_TASK:
        withdraw_order(uow, order, now, reason, status)
    else:
        withdraw_line(uow, LineKey(job.target), now, reason, status)
    advance_order(uow, order, now, completing=job)
    return job.mark_obsolete(now, reason)


def _postpone_order_end(uow: UnitOfWork, job: Job, late: tuple[LineRecord, ...], now: datetime) -> Job:
    """Hold late lines in sight; the order-level Task waits until every line has ended.

    An order of which nothing went to the laboratory is assessed again with them, as if they had come in time.
    """
    key = _get_order_key(job)
    if late and uow.orders.get_for_update(key).state is OrderState.REJECTED and not is_possibly_submitted(uow, key):
        offer_again(uow, key, now, f"{len(late)} more lines came before the order ended")
        return job.mark_obsolete(now, "more lines came, and the order is assessed again")
    if uow.orders.get_for_update(key).state in UNDECIDED_ORDERS:
        return job.mark_obsolete(now, "the order is assessed again")
    reason = "a line of the order came late and waits for a person"
    for line in late:
        hold_late_line(uow, line, now)
    order = uow.orders.get_for_update(key)
    if order.state is OrderState.REPORTED:
        uow.orders.save(order.transition_to(OrderState.HANDED_OVER, now, reason))
    return job.reschedule(now, now + LATE_LINES_RETRY_INTERVAL, reason)


def _postpone_line_end(uow: UnitOfWork, job: Job, lost: frozenset[ReportKey], now: datetime) -> Job:
    """Let a line end with its report, which is sent again; the Task is not set on the strength of our record alone."""
    reason = "reports of the order are not on the service any more, and are sent again first"
    if send_lost_reports_again(uow, _get_order_key(job), [LineKey(job.target)], lost, now):
        return job.mark_obsolete(now, reason)
    return job.reschedule(now, now + LATE_LINES_RETRY_INTERVAL, reason)


def _get_order_key(job: Job) -> OrderKey:
    if job.order is None:
        raise StoreError(f"job {job.id} names no order")
    return job.order


def _task_name(job: Job) -> str:
    return "order-level Task" if job.kind is JobKind.UPDATE_ORDER_TASK else f"Task of line {job.target}"


def _find_line(uow: UnitOfWork, job: Job) -> LineRecord | None:
    """The line of a job. All lines of its order are read: the jobs of one order often follow in one unit of work."""
    return next((line for line in uow.orders.lines(_get_order_key(job)) if line.key == job.target), None)


def _desired_task(uow: UnitOfWork, job: Job) -> DesiredTask:
    status = job.payload["status"]
    if job.kind is JobKind.UPDATE_ORDER_TASK:
        order = uow.orders.get_for_update(OrderKey(job.target))
        return DesiredTask(order.key, order.task_id, status, None, frozenset({TASK_REQUESTED, *order.sent_statuses}))
    line = _find_line(uow, job)
    if line is None:
        raise PermanentFailure(f"line {job.target} is not in the database")
    renewed = line.reopened > 0
    outputs = line.outputs if status in TERMINAL_TASK_STATUSES and line.outputs else () if renewed else None
    return DesiredTask(line.order, line.task_id, status, outputs, frozenset({TASK_REQUESTED, *line.sent_statuses}), renewed)
