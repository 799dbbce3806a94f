"""Reconciliation: re-read the Tasks of open orders, and notice what the partner or the service changed meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

import structlog

from lab_agent.exchange.service import Exchange, Json
from lab_agent.fhir.task_update import task_status
from lab_agent.orders.fetching import DELETED_STATUS, raise_if_unavailable, read_or_reject
from lab_agent.orders.group_alerts import LINE_TASKS_ALERT, ORDER_TASKS_ALERT, open_at_once
from lab_agent.orders.handover import mark_handed_over
from lab_agent.orders.line_lifecycle import (
    LateLineFinder,
    advance_order,
    complete_lines,
    find_work_order,
    hold_late_line,
    read_line_tasks,
    withdraw_line,
    withdraw_order,
)
from lab_agent.orders.records import LineRecord, OrderRecord, WorkOrder
from lab_agent.orders.reopening import find_lines_put_back, hold_lines_again
from lab_agent.orders.restored_service import end_when_quiet, find_lost_reports, is_quiet, send_lost_reports_again
from lab_agent.orders.restored_store import note_second_agent
from lab_agent.orders.task_standing import DELETED, tell_other_tasks
from lab_agent.queue.job_records import JobKind
from lab_agent.queue.jobs import TASK_COMPLETED, TERMINAL_TASK_STATUSES
from lab_agent.results.own_reports import OwnReports, find_report, is_unknown, last_change
from lab_agent.shared.clock import Clock
from lab_agent.shared.conditions.model import AlertKey
from lab_agent.shared.errors import (
    ForeignLink,
    InvalidResponse,
    LabAgentError,
    ServiceRejected,
    ServiceUnavailable,
    StoreUnreachableError,
    TemporaryFailure,
)
from lab_agent.shared.ids import OrderKey, ReportKey, ResourceId
from lab_agent.shared.state_machines import ENDED_LINES, UNDECIDED_ORDERS, WAITING_LINES, LineState, OrderState, WorkOrderState
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import Store, UnitOfWork

log = structlog.get_logger(__name__)

PAGE_SIZE = 50
_TRIES = 3
"""How often an order is compared that changes meanwhile: a job, or another comparison, has decided about it."""
_CAN_GET_LINES = frozenset({OrderState.FETCHED, OrderState.HANDED_OVER, OrderState.REPORTED})
"""A rejected order looks for late lines itself, right before its Task is ended."""
_TASK_JOBS = frozenset({JobKind.UPDATE_LINE_TASK, JobKind.UPDATE_ORDER_TASK})


@dataclass(frozen=True, slots=True)
class TaskReading:
    """One Task as it is now: its status (`DELETED` if the service has deleted it), or why it cannot be read."""

    status: str | None = None
    unreadable: str | None = None


@dataclass(frozen=True, slots=True)
class OrderReading:
    """The Tasks of an order as they are now: the order-level one, those of lines by Task id, and lines that came late.

    `others` are open Tasks beside the lines that are not ours: not requested, or of another code. `reported` are the
    ProcedureRequests with a final report of ours, each with that, where a Task was found completed that we know to be open.
    `lost` are reports of ours that are gone, where a Task was found requested that we had completed.
    """

    order: TaskReading
    lines: Mapping[str, TaskReading]
    late: tuple[LineRecord, ...] = ()
    others: tuple[Json, ...] = ()
    reported: Mapping[ResourceId, Json] = field(default_factory=dict)
    lost: frozenset[ReportKey] = frozenset()

    @property
    def is_whole(self) -> bool:
        """Whether it says of each Task how it is."""
        return all(each.status is not None or each.unreadable is None for each in (self.order, *self.lines.values()))


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many decided orders were compared with their Tasks, and how many could not be: something is wrong with each alone."""

    compared: int
    missed: int


@dataclass(frozen=True, slots=True)
class KnownOpenOrder:
    """A decided order as it is stored, with its lines and its parts."""

    order: OrderRecord
    lines: tuple[LineRecord, ...]
    parts: tuple[WorkOrder, ...]

    @property
    def is_unreadable(self) -> bool:
        """Whether it was told that a Task of it cannot be read."""
        told = (self.order.task_unreadable_since, *(line.task_unreadable_since for line in self.lines))
        return any(each is not None for each in told)

    def is_confirmed_by(self, reading: OrderReading) -> bool:
        """Whether the Tasks are as is known, so that there is nothing to write. Pure."""
        statuses = {task: each.status for task, each in reading.lines.items()}
        if reading.late or reading.others or self.is_unreadable or find_lines_put_back(self.lines, statuses):
            return False
        open_lines = [line for line in self.lines if line.state not in ENDED_LINES]
        lines = [(reading.lines[line.task_id], line.sent_statuses) for line in open_lines if line.task_id in reading.lines]
        readings = [(reading.order, self.order.sent_statuses), *lines]
        return bool(open_lines) and not any(
            task.unreadable is not None or _is_ended_by_others(task.status, ours) for task, ours in readings
        )


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Re-reads the Tasks of decided orders. Tasks with open jobs are left alone: their own handler reads them."""

    exchange: Exchange
    store: Store
    clock: Clock
    late_lines: LateLineFinder
    own_reports: OwnReports

    async def run(self) -> Comparison:
        """Compare all decided orders once. Raises what the exchange port raises if it is unavailable."""
        after: OrderKey | None = None
        compared: list[bool] = []
        while orders := await self._load_page(after):
            compared += [await self._try_reconcile(order) for order in orders if order.state not in UNDECIDED_ORDERS]
            after = orders[-1].key
        if await self.store.run_read_only(lambda uow: is_quiet(uow, self.clock.now())):
            await self.store.transact(self._end_restored_service)
        return Comparison(sum(compared), len(compared) - sum(compared))

    def _end_restored_service(self, uow: UnitOfWork) -> None:
        end_when_quiet(uow, self.clock.now())

    async def _try_reconcile(self, order: OrderRecord) -> bool:
        """Check one order; what is wrong with it alone is logged, and the others go on (law 9)."""
        try:
            return await self._reconcile_order(order)
        except ServiceUnavailable as failure:
            await raise_if_unavailable(self.exchange, failure)
            log.warning("order not reconciled", action="reconcile_failed", order=order.key, reason=str(failure))
            return False
        except (TemporaryFailure, StoreUnreachableError):
            raise
        except LabAgentError as exc:
            log.warning("order not reconciled", action="reconcile_failed", order=order.key, reason=str(exc))
            return False

    async def _load_page(self, after: OrderKey | None) -> tuple[OrderRecord, ...]:
        return await self.store.run_read_only(lambda uow: uow.orders.open_orders(limit=PAGE_SIZE, after=after))

    async def _reconcile_order(self, order: OrderRecord) -> bool:
        """Compare one order; most are as they were, and nothing is written then. Raises what the ports raise.

        False where a Task of it could not be read, or it changed each time meanwhile.
        """
        for _ in range(_TRIES):
            known = await self.store.run_read_only(partial(_load_open_order, key=order.key))
            reading = await self._read_reports(known, await self._read(known.order, known.lines))
            reading = await self._read_lost(known, reading)
            if known.is_confirmed_by(reading):
                return True
            if await self.store.transact(partial(self._compare, known=known, reading=reading)):
                return reading.is_whole
        return False

    async def _read(self, order: OrderRecord, lines: Sequence[LineRecord]) -> OrderReading:
        """Read the Tasks. What a search says may be out of date: a line is read by its id before anything is done about it."""
        order_task = await self._read_task(order.task_id)
        tasks, failure = await self._search_lines(order.task_id)
        if failure is not None:  # then every line is read by its id
            order_task = replace(order_task, unreadable=failure)
        readings = {str(task.get("id")): TaskReading(task_status(task)) for task in tasks}
        for line in lines:
            if _is_read_by_id(line, readings.get(line.task_id)):
                readings[line.task_id] = await self._read_task(line.task_id)
        own = {line.task_id for line in lines}
        if not (unknown := [task for task in tasks if task.get("id") not in own]):
            return OrderReading(order_task, readings)
        late, others = await self.late_lines.find_in(order.key, unknown), await self.late_lines.find_others(unknown)
        return OrderReading(order_task, readings, late, others)

    async def _read_reports(self, known: KnownOpenOrder, reading: OrderReading) -> OrderReading:
        """Look whether it was us who completed Tasks that we know to be open. Where nobody can tell, they are left alone."""
        completed = [line for line in known.lines if _is_completed_unknown(line, reading.lines.get(line.task_id))]
        if not completed:
            return reading
        try:
            return replace(reading, reported=await self.own_reports.find_reported(part.key for part in known.parts))
        except (ServiceRejected, InvalidResponse, ForeignLink) as failure:
            reason = str(failure)
        except ServiceUnavailable as failure:
            await raise_if_unavailable(self.exchange, failure)
            reason = str(failure)
        unread: dict[str, TaskReading] = {line.task_id: TaskReading(unreadable=reason) for line in completed}
        return replace(reading, order=TaskReading(unreadable=reason), lines={**reading.lines, **unread})

    async def _read_lost(self, known: KnownOpenOrder, reading: OrderReading) -> OrderReading:
        """Look whether the reports of completed lines that were put back are still there. Raises as the search for them."""
        statuses = {task: each.status for task, each in reading.lines.items()}
        back = find_lines_put_back(known.lines, statuses)
        if not any(line.state is LineState.COMPLETED for line in back):
            return reading
        return replace(reading, lost=await find_lost_reports(self.exchange, self.store, known.order.key, back))

    async def _search_lines(self, order_task: ResourceId) -> tuple[tuple[Json, ...], str | None]:
        """The line Tasks, or why this one search fails. Raises what the exchange port raises if it is unavailable."""
        try:
            return await read_line_tasks(self.exchange, order_task), None
        except (ServiceRejected, InvalidResponse, ForeignLink) as failure:
            return (), str(failure)
        except ServiceUnavailable as failure:
            await raise_if_unavailable(self.exchange, failure)
            return (), str(failure)

    async def _read_task(self, task: ResourceId) -> TaskReading:
        try:
            return TaskReading(task_status((await read_or_reject(self.exchange, "Task", task)).body))
        except ServiceRejected as rejection:
            return TaskReading(status=DELETED if rejection.status == DELETED_STATUS else None, unreadable=str(rejection))

    def _compare(self, uow: UnitOfWork, known: KnownOpenOrder, reading: OrderReading) -> bool:
        """Compare what is stored with the reading, unless it changed meanwhile: the reading may be older than that then."""
        key, now = known.order.key, self.clock.now()
        order = uow.orders.get_for_update(key)
        if (order, uow.orders.lines(key)) != (known.order, known.lines):
            return False
        for late in reading.late if order.state in _CAN_GET_LINES else ():
            hold_late_line(uow, late, now)
        tell_other_tasks(uow, key, reading.others, now)
        busy = {job.target for job in uow.jobs.list_for_order(key) if job.kind in _TASK_JOBS}
        tell_order_unreadable(uow, key, reading.order.unreadable, now)
        _complete_reported(uow, key, reading, now)
        if key not in busy and not _is_completed_by_us(uow.orders.lines(key), reading.order.status):
            _compare_order(uow, uow.orders.get_for_update(key), reading.order.status, now)
        for line in uow.orders.lines(key):
            if line.state not in ENDED_LINES and line.key not in busy and line.task_id in reading.lines:
                _compare_line(uow, line, reading.lines[line.task_id], now)
        self._hold_lines_put_back(uow, key, busy, reading, now)
        advance_order(uow, key, now)
        return True

    def _hold_lines_put_back(
        self, uow: UnitOfWork, key: OrderKey, busy: Collection[str], reading: OrderReading, now: datetime
    ) -> None:
        if uow.orders.get_for_update(key).state not in _CAN_GET_LINES:
            return
        statuses = {task: each.status for task, each in reading.lines.items()}
        back = find_lines_put_back([line for line in uow.orders.lines(key) if line.key not in busy], statuses)
        keys = [line.key for line in back]
        ending = send_lost_reports_again(uow, key, keys, reading.lost, now) if reading.lost else frozenset()
        hold_lines_again(uow, key, [each for each in keys if each not in ending], (), now)


def _load_open_order(uow: UnitOfWork, key: OrderKey) -> KnownOpenOrder:
    return KnownOpenOrder(uow.orders.get(key), uow.orders.lines(key), uow.orders.work_orders(key))


def _is_completed_unknown(line: LineRecord, task: TaskReading | None) -> bool:
    """Whether the Task of a line that waits for its result is completed, and that is not of our sending as far as we know."""
    return (
        line.state in WAITING_LINES
        and task is not None
        and task.status == TASK_COMPLETED
        and TASK_COMPLETED not in line.sent_statuses
    )


def _complete_reported(uow: UnitOfWork, key: OrderKey, reading: OrderReading, now: datetime) -> None:
    """Take lines as completed whose Tasks are, and whose reports are there, although the database does not know of their ends.

    It was restored, or is not the only one of the laboratory; or somebody else has completed the Task of a report that it knows.
    """
    completed = [line for line in uow.orders.lines(key) if _is_completed_unknown(line, reading.lines.get(line.task_id))]
    reports = {line.task_id: find_report(reading.reported, line.procedure_request_id) for line in completed}
    reported = [line for line in completed if reports[line.task_id] is not None]
    if not reported:
        return
    for adapter in {line.adapter for line in reported if line.adapter is not None}:
        if find_work_order(uow, key, adapter).state is WorkOrderState.ACCEPTED:
            mark_handed_over(uow, key, adapter, now)
    complete_lines(uow, key, [line.key for line in reported], now)
    names = ", ".join(line.key for line in reported)
    text = f"lines {names} were completed before: their Tasks are completed, and our reports are on the service"
    uow.events.add(Event(order=key, at=now, action="completed_before", text=text))
    by_others = ((task, each) for task, each in reports.items() if each is not None and is_unknown(uow, each))
    if (first := next(by_others, None)) is not None:
        shown = f"Task {first[0]} was completed with a report of ours, {last_change(first[1])}"
        note_second_agent(uow, now, shown, before=max(line.changed_at for line in reported))


def _is_completed_by_us(lines: Sequence[LineRecord], status: str | None) -> bool:
    """Whether an order-level Task that is completed only says what its lines do: all have ended, and one by a result."""
    has_result = any(line.state is LineState.COMPLETED for line in lines)
    return status == TASK_COMPLETED and has_result and all(line.state in ENDED_LINES for line in lines)


def _is_read_by_id(line: LineRecord, found: TaskReading | None) -> bool:
    """Whether the search misses the line's Task, or gives it a status that would change the line."""
    if line.state in ENDED_LINES:
        return found is not None and bool(find_lines_put_back([line], {line.task_id: found.status}))
    return found is None or _is_ended_by_others(found.status, line.sent_statuses)


def _compare_order(uow: UnitOfWork, order: OrderRecord, status: str | None, now: datetime) -> None:
    """Withdraw an order whose Task somebody else has ended. One that was deleted is told: its lines say what is wanted."""
    if _is_ended_by_others(status, order.sent_statuses) and status != DELETED and order.state is not OrderState.WITHDRAWN:
        withdraw_order(uow, order.key, now, f"the order-level Task was set to {status} by somebody else", str(status))


def _compare_line(uow: UnitOfWork, line: LineRecord, reading: TaskReading, now: datetime) -> None:
    if _is_ended_by_others(reading.status, line.sent_statuses):
        withdraw_line(uow, line.key, now, f"its Task was set to {reading.status} by somebody else", str(reading.status))
    else:
        tell_line_unreadable(uow, line, reading.unreadable, now)


def tell_order_unreadable(uow: UnitOfWork, key: OrderKey, reason: str | None, now: datetime) -> None:
    """Tell once, until it can be read again, that the order-level Task of an order at the laboratory cannot be read."""
    order = uow.orders.get_for_update(key)
    if (order.task_unreadable_since is None) is (reason is None):
        return
    uow.orders.save(replace(order, task_unreadable_since=None if reason is None else now))
    if reason is not None:
        what = "the order-level Task, or the list of the line Tasks,"
        _tell_unreadable(uow, key, ORDER_TASKS_ALERT, what, reason, now)


def tell_line_unreadable(uow: UnitOfWork, line: LineRecord, reason: str | None, now: datetime) -> None:
    """Tell once, until it can be read again, that the Task of a line at the laboratory cannot be read."""
    if (line.task_unreadable_since is None) is (reason is None):
        return
    uow.orders.save_line(replace(line, task_unreadable_since=None if reason is None else now))
    if reason is not None:
        _tell_unreadable(uow, line.order, LINE_TASKS_ALERT, f"the Task of line {line.key}", reason, now)


def _tell_unreadable(uow: UnitOfWork, order: OrderKey, alert: AlertKey, what: str, reason: str, now: datetime) -> None:
    text = f"{what} cannot be read: {reason}. Results are uploaded all the same; ask the partner, or whoever runs the service"
    uow.events.add(Event(order=order, at=now, action="task_unreadable", text=text))
    open_at_once(uow, alert, order, now, now)


def _is_ended_by_others(status: str | None, ours: tuple[str, ...]) -> bool:
    return status in {*TERMINAL_TASK_STATUSES, DELETED} and status not in ours
