"""How lines and orders come to their ends, and how lines come late or wait again.

A line is completed by a delivered report, cancelled with a reason that the clinic reads, or withdrawn by the partner or the
service. Only what is open moves: a line that has ended stays as it ended. An order follows once all its lines have ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lab_agent.exchange.service import Exchange, Json, UnfilteredSearch
from lab_agent.fhir.order_parser import parse_order
from lab_agent.fhir.task_update import has_task_code, task_codes, task_status
from lab_agent.lis.lab_messages import AccessionUpdate
from lab_agent.lis.serialization import load_stored_message
from lab_agent.orders.fetching import fetch_linked
from lab_agent.orders.group_alerts import HELD_LINES_ALERT, open_at_once
from lab_agent.orders.records import LineRecord, OrderRecord, WorkOrder
from lab_agent.queue import jobs
from lab_agent.queue.job_records import Job, JobKind
from lab_agent.queue.jobs import TASK_REQUESTED, TERMINAL_TASK_STATUSES
from lab_agent.results.order_lookup import load_part
from lab_agent.results.records import ReportRecord
from lab_agent.results.report_coverage import determine_coverage
from lab_agent.shared.clock import Clock
from lab_agent.shared.errors import StoreError
from lab_agent.shared.ids import LineKey, OrderKey, ReportKey, ResourceId, line_key
from lab_agent.shared.state_machines import (
    ENDED_LINES,
    LINES_WITH_RESULT,
    ORDERS_BEFORE_HANDOVER,
    UNDECIDED_ORDERS,
    JobState,
    LineState,
    OrderState,
    ReportState,
    WorkOrderState,
)
from lab_agent.shared.text import join_limited
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import Store, UnitOfWork

RECHECK_AFTER = timedelta(minutes=5)
_WAITING_FOR_RESULT = frozenset({LineState.ACCEPTED, LineState.RESULTED})
_BLOCKING_JOBS = frozenset({JobKind.UPDATE_LINE_TASK, JobKind.DELIVER_REPORT, JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS})
"""Jobs that must be settled before their order may end."""


def complete_lines(uow: UnitOfWork, order: OrderKey, keys: Iterable[LineKey], now: datetime) -> tuple[LineKey, ...]:
    """Complete those of the lines that wait for a result; their Tasks follow. Gives which were completed.

    A person decides about one that is held.
    """
    wanted = set(keys)
    waiting = [line for line in _lock_lines(uow, order) if line.key in wanted and line.state in _WAITING_FOR_RESULT]
    return _end_lines(uow, [line.transition_to(LineState.COMPLETED, now) for line in waiting], jobs.TASK_COMPLETED, now)


def cancel_lines(uow: UnitOfWork, order: OrderKey, reasons: Mapping[LineKey, str], now: datetime) -> tuple[LineKey, ...]:
    """Cancel those of the lines that wait for a result, each with its reason; their Tasks follow. Gives which were cancelled.

    One that is resulted stays: its final result is on its way.
    """
    waiting = [line for line in _lock_lines(uow, order) if line.key in reasons and line.state is LineState.ACCEPTED]
    cancelled = [line.transition_to(LineState.CANCELLED, now, (reasons[line.key],)) for line in waiting]
    return _end_lines(uow, cancelled, jobs.TASK_CANCELLED, now)


def _lock_lines(uow: UnitOfWork, order: OrderKey) -> tuple[LineRecord, ...]:
    """The lines of an order, which nobody else changes until the unit of work ends."""
    uow.orders.lock(order)
    return uow.orders.lines(order)


def _end_lines(uow: UnitOfWork, ended: Sequence[LineRecord], status: str, now: datetime) -> tuple[LineKey, ...]:
    """Write lines that have ended, then the jobs of their Tasks, each in one statement."""
    for line in ended:
        uow.orders.save_line(line)
    uow.jobs.add_all([jobs.update_line_task(line, status, now) for line in ended])
    return tuple(line.key for line in ended)


def lines_with_result(lines: Iterable[LineRecord], keys: Collection[LineKey]) -> tuple[LineKey, ...]:
    """Those of the lines that have a final result already, on the service or on its way there."""
    return tuple(line.key for line in lines if line.key in keys and line.state in LINES_WITH_RESULT)


def describe_existing_result(keys: Collection[LineKey]) -> str:
    """Say of lines that a message calls not performed that they have a result, and what releasing it would do."""
    hint = "send a corrected report, or inform the clinic; if released, only lines that still wait are cancelled"
    return f"{join_limited(keys)}, which has a final result already — {hint}"


def reopen_lines(uow: UnitOfWork, order: OrderKey, now: datetime) -> None:
    """Take resulted lines that no report on its way completes back to accepted: they wait for a result again (law 11)."""
    resulted = [line for line in _lock_lines(uow, order) if line.state is LineState.RESULTED]
    coming = _lines_being_completed(uow, order) if resulted else frozenset()
    for line in resulted:
        if line.key not in coming:
            uow.orders.save_line(line.transition_to(LineState.ACCEPTED, now))
            text = f"line {line.key} waits for a result again: the report that was to complete it is not delivered"
            uow.events.add(Event(order=order, at=now, action="line_reopened", text=text))


def withdraw_line(uow: UnitOfWork, key: LineKey, now: datetime, reason: str, ended_as: str) -> None:
    """Withdraw one line, if it is open; its Task ended with the status `ended_as`."""
    line = uow.orders.line(key)
    if line is None:
        return
    _withdraw_lines(uow, line.order, [each for each in _lock_lines(uow, line.order) if each.key == key], now, reason)
    record_line_end(uow, line.order, key, ended_as)


def leave_line_out(uow: UnitOfWork, key: LineKey, now: datetime, status: str) -> None:
    """Leave out of its order a line that no laboratory system has, as somebody has set its Task aside, with this status.

    Others of its part are handed over. It counts as ended, so that it is a line that was put back once it is requested again.
    """
    line = uow.orders.line(key)
    if line is None or line.state is not LineState.ACCEPTED:
        return
    reason = f"its Task was set to {status} by somebody else before the handover"
    uow.orders.save_line(replace(line.transition_to(LineState.WITHDRAWN, now, (reason,)), ended_as=status))
    uow.events.add(Event(order=line.order, at=now, action="withdrawn", text=f"line {key}: {reason}; the others go on"))


def withdraw_order(uow: UnitOfWork, key: OrderKey, now: datetime, reason: str, ended_as: str) -> None:
    """Withdraw an order with all its open lines; its Task ended with the status `ended_as`."""
    _withdraw_lines(uow, key, _lock_lines(uow, key), now, reason)
    order = uow.orders.get_for_update(key)
    if order.state is not OrderState.CLOSED:
        order = order.transition_to(OrderState.WITHDRAWN, now, reason)
    uow.orders.save(replace(order, ended_as=ended_as))


def record_line_end(uow: UnitOfWork, order: OrderKey, key: LineKey, ended_as: str) -> None:
    """Record with which status the Task of a line ended: should it be requested after that, it was put back.

    The order is locked first, since it may follow its lines: of lines that end at once, the last one finds all the others ended.
    """
    line = next((each for each in _lock_lines(uow, order) if each.key == key), None)
    if line is not None and line.ended_as != ended_as:
        uow.orders.save_line(replace(line, ended_as=ended_as))


def advance_order(uow: UnitOfWork, key: OrderKey, now: datetime, *, completing: Job | None = None) -> None:
    """Let the order follow its lines, once every one of them has ended and their jobs (but `completing`) are settled."""
    order = uow.orders.get_for_update(key)
    lines = uow.orders.lines(key)
    if any(line.state not in ENDED_LINES for line in lines) or (not lines and order.state in UNDECIDED_ORDERS):
        return
    waiting = (job for job in uow.jobs.list_for_order(key) if completing is None or job.id != completing.id)
    if any(job.kind in _BLOCKING_JOBS for job in waiting):
        return
    if order.state is OrderState.WITHDRAWN:
        _save_closed(uow, order, now, "withdrawn by the partner or the service")
    elif order.state in {OrderState.HANDED_OVER, OrderState.REJECTED}:
        if order.state is OrderState.HANDED_OVER:
            uow.orders.save(order.transition_to(OrderState.REPORTED, now))
        uow.jobs.add(jobs.update_order_task(key, order_task_status(lines), now, order.reopened))


def order_task_status(lines: tuple[LineRecord, ...], mixed: str = jobs.TASK_COMPLETED) -> str:
    """Status of the order-level Task once every line has ended; `mixed` where some were completed and others were not.

    Source: the interface does not show it; this is our one policy function for it. A job says it without the setting of the
    laboratory (`worker.mixed_order_status`), which counts when the Task is written.
    """
    completed = [line.state is LineState.COMPLETED for line in lines]
    return jobs.TASK_CANCELLED if not any(completed) else jobs.TASK_COMPLETED if all(completed) else mixed


def close_order(uow: UnitOfWork, key: OrderKey, now: datetime, text: str, ended_as: str | None = None) -> None:
    """Close an order whose Task is settled, with the status `ended_as`; None if it was left alone. Open lines end with it."""
    _withdraw_lines(uow, key, _lock_lines(uow, key), now, text)
    _save_closed(uow, replace(uow.orders.get_for_update(key), ended_as=ended_as), now, text)


@dataclass(frozen=True, slots=True)
class LateLineFinder:
    """Finds late lines: requested line Tasks that came after their order was assessed, so that the laboratory works without them.

    `line_codes` is `exchange.line_task_codes`. Tasks that are not requested, or of another code, are not ours, and no lines.
    """

    exchange: Exchange
    store: Store
    clock: Clock
    base_url: str
    line_codes: tuple[str, ...]

    async def find(self, key: OrderKey, order_task: ResourceId, known: Collection[LineRecord] = ()) -> tuple[LineRecord, ...]:
        """Read the line Tasks of an order and find the late ones. Raises what the exchange port raises.

        `known` are lines of the order as the caller has read them: of their Tasks, the store is not asked.
        """
        tasks, ours = await read_line_tasks(self.exchange, order_task), {line.task_id for line in known}
        return await self.find_in(key, [task for task in tasks if task.get("id") not in ours])

    async def find_in(self, key: OrderKey, tasks: Sequence[Json]) -> tuple[LineRecord, ...]:
        """Find the late ones among these line Tasks. Raises what the exchange port raises.

        A Task that is known already is no late line: neither one of this order's lines, nor another order's Task or line.
        """
        new = [task for task in await self._find_new(tasks) if is_requested_line(task, self.line_codes)]
        return tuple([await self._to_line_record(key, task) for task in new])

    async def find_others(self, tasks: Sequence[Json]) -> tuple[Json, ...]:
        """Those of these open Tasks that nobody knows and that are no late lines. Raises `StoreUnreachableError`."""
        return tuple(task for task in await self._find_new(tasks) if not is_requested_line(task, self.line_codes))

    async def _find_new(self, tasks: Sequence[Json]) -> list[Json]:
        open_tasks = [task for task in tasks if task_status(task) not in TERMINAL_TASK_STATUSES]
        if not open_tasks:
            return []
        known = await self.store.transact(lambda uow: self._known_tasks(uow, open_tasks))
        return [task for task in open_tasks if task.get("id") not in known]

    def _known_tasks(self, uow: UnitOfWork, tasks: Sequence[Json]) -> frozenset[str]:
        found = [str(task.get("id")) for task in tasks]
        lines = {each for each in found if uow.orders.line(line_key(self.base_url, ResourceId(each))) is not None}
        return uow.orders.existing(found) | lines

    async def _to_line_record(self, key: OrderKey, task: Json) -> LineRecord:
        task_id = ResourceId(str(task.get("id")))
        graph = await fetch_linked(self.exchange, self.base_url, {}, [task])
        request = parse_order(graph).lines[0].request
        return LineRecord(
            key=line_key(self.base_url, task_id),
            order=key,
            task_id=task_id,
            procedure_request_id=ResourceId(request.ref.id) if request else None,
            item=next((coding.code for coding in request.code.coding), None) if request else None,
            state=LineState.HELD,
            changed_at=self.clock.now(),
        )


async def read_line_tasks(exchange: Exchange, order_task: ResourceId) -> tuple[Json, ...]:
    """The line Tasks of an order that was decided: where the service gives others too, those that name it as their partOf."""
    try:
        return await exchange.line_tasks(order_task)
    except UnfilteredSearch as unfiltered:
        return unfiltered.rows


def is_requested_line(task: Json, line_codes: Collection[str]) -> bool:
    """Whether a Task is one that the laboratory works on: a requested line."""
    return task_status(task) == TASK_REQUESTED and is_line(task, line_codes)


def is_line(task: Json, line_codes: Collection[str]) -> bool:
    """Whether a Task of an order is a line of it: of no other code than those of lines."""
    return not task_codes(task) or has_task_code(task, line_codes)


def hold_late_line(uow: UnitOfWork, line: LineRecord, now: datetime) -> None:
    """Hold a late line, and alert somebody: a person decides about it."""
    if uow.orders.line(line.key) is not None:
        return
    uow.orders.add_line(line)
    text = f"line {line.key} (Task {line.task_id}) came after the order had been assessed; it is held"
    uow.events.add(Event(order=line.order, at=now, action="late_line", text=text))
    open_at_once(uow, HELD_LINES_ALERT, line.order, now, now)


def _lines_being_completed(uow: UnitOfWork, order: OrderKey) -> frozenset[LineKey]:
    """Lines that reports on their way will complete; each of these has an open delivery job."""
    coming: set[LineKey] = set()
    for job in uow.jobs.list_for_order(order):
        report = uow.reports.get_for_update(ReportKey(job.target)) if job.kind is JobKind.DELIVER_REPORT else None
        if report is not None and report.state is ReportState.MATCHED:
            coming |= {*lines_completed_by(uow, order, report), *jobs.lines_ending_again(job)}
    return frozenset(coming)


def lines_completed_by(uow: UnitOfWork, order: OrderKey, report: ReportRecord) -> tuple[LineKey, ...]:
    """The lines of its order that a report completes by itself."""
    message, part = load_stored_message(report.body), load_part(uow, order, report.adapter)
    return () if isinstance(message, AccessionUpdate) else determine_coverage(message, part.lines, part.codes).completes


def _withdraw_lines(uow: UnitOfWork, key: OrderKey, lines: Sequence[LineRecord], now: datetime, reason: str) -> None:
    """Withdraw those of the lines that are open; cancel them at the LIS if the order is there, or on its way."""
    open_lines = [line for line in lines if line.state not in ENDED_LINES]
    if not open_lines:
        return
    for line in open_lines:
        uow.orders.save_line(line.transition_to(LineState.WITHDRAWN, now, (reason,)))
    names = ", ".join(line.key for line in open_lines)
    uow.events.add(Event(order=key, at=now, action="withdrawn", text=f"lines {names}: {reason}"))
    at_lis = [line for line in open_lines if line.state is not LineState.HELD]  # a held one never went to the LIS
    for part in uow.orders.work_orders(key) if at_lis else ():
        _cancel_part(uow, part, [line for line in at_lis if line.adapter == part.adapter], now, reason)
    if at_lis:
        _reject_if_nothing_went(uow, key, now)


def _cancel_part(uow: UnitOfWork, part: WorkOrder, lines: Sequence[LineRecord], now: datetime, reason: str) -> None:
    """Tell the laboratory system of the withdrawn lines if it may have them; a part that is left without lines is cancelled."""
    if lines and (part.state is WorkOrderState.HANDED_OVER or _is_submit_started(uow, part)):
        keys, reopened = [line.key for line in lines], max(line.reopened for line in lines)
        uow.jobs.add(jobs.cancel_at_lis(part.order, part.adapter, keys, reason, now, reopened))
    elif part.state is WorkOrderState.ACCEPTED:
        mine = [line for line in uow.orders.lines(part.order) if line.adapter == part.adapter]
        if lines and all(line.state in ENDED_LINES for line in mine):
            uow.orders.save_work_order(part.transition_to(WorkOrderState.CANCELLED, now, reason))


def _reject_if_nothing_went(uow: UnitOfWork, key: OrderKey, now: datetime) -> None:
    """Reject an order of which no laboratory system has a part, or may have one, once all its lines have ended."""
    order, parts = uow.orders.get_for_update(key), uow.orders.work_orders(key)
    if order.state not in ORDERS_BEFORE_HANDOVER or any(part.state is not WorkOrderState.CANCELLED for part in parts):
        return
    if all(line.state in ENDED_LINES for line in uow.orders.lines(key)):
        uow.orders.save(order.transition_to(OrderState.REJECTED, now, "every line was rejected or withdrawn before the handover"))


def settle_handover(uow: UnitOfWork, key: OrderKey, now: datetime, reason: str | None = None) -> None:
    """Let an accepted order follow its parts, once none of them is on its way any more.

    It counts as handed over if a laboratory system has a part of it, and else is rejected with the `reason`.
    """
    order, parts = uow.orders.get_for_update(key), uow.orders.work_orders(key)
    if order.state is not OrderState.FETCHED or any(part.state is WorkOrderState.ACCEPTED for part in parts):
        return
    if any(part.state is WorkOrderState.HANDED_OVER for part in parts):
        uow.orders.save(order.transition_to(OrderState.HANDED_OVER, now))
    else:
        uow.orders.save(order.transition_to(OrderState.REJECTED, now, reason))


def find_work_order(uow: UnitOfWork, key: OrderKey, adapter: str) -> WorkOrder:
    """The part of an order that a laboratory system gets. Raises `StoreError` if it gets none."""
    found = next((each for each in uow.orders.work_orders(key) if each.adapter == adapter), None)
    if found is None:
        raise StoreError(f"order {key} has no part for the laboratory system {adapter}")
    return found


def _is_submit_started(uow: UnitOfWork, part: WorkOrder) -> bool:
    submits = (job for job in uow.jobs.list_for_order(part.order) if job.kind is JobKind.SUBMIT_ORDER)
    return any(jobs.adapter_of(job) == part.adapter and (job.started or job.state is not JobState.DUE) for job in submits)


def _save_closed(uow: UnitOfWork, order: OrderRecord, now: datetime, text: str) -> None:
    """Close it. One that ended is checked once more some minutes later: an index may have been slow to show all its lines."""
    closed = order.transition_to(OrderState.CLOSED, now, text)
    uow.orders.save(replace(closed, recheck_at=now + RECHECK_AFTER if order.ended_as is not None else None))
    uow.events.add(Event(order=order.key, at=now, action="closed", text=text))
