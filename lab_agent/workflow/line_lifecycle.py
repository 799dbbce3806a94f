"""Lines that come after their order was judged: the laboratory has the order without them, so a person decides.

How lines end: completed by a delivered report, or cancelled with the reason that the clinic will read.

What follows for the order once its lines have ended: its own Task, and its end.

Withdrawal: the partner or the service ended a line or an order; the LIS is told, and it is closed here.

Only what is still open moves: a line that has ended before stays as it ended.

Lines that were to be completed by a report which does not go after all: they wait for another one, in sight (law 11).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from lab_agent.domain import jobs
from lab_agent.domain.ids import LineKey, OrderKey, ReportKey, ResourceId, line_key
from lab_agent.domain.jobs import TERMINAL_TASK_STATUSES
from lab_agent.domain.lab_messages import AccessionUpdate
from lab_agent.domain.records import Alert, Event, Job, JobKind, LineRecord, OrderRecord
from lab_agent.domain.report_coverage import determine_coverage
from lab_agent.domain.state_machines import ENDED_LINES, JobState, LineState, OrderState, ReportState
from lab_agent.domain.text import join_limited
from lab_agent.fhir.order_parser import parse_order
from lab_agent.fhir.task_update import task_status
from lab_agent.ports.clock import Clock
from lab_agent.ports.exchange import Exchange, Json
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.serialization import load_stored_message
from lab_agent.workflow.fetching import fetch_graph
from lab_agent.workflow.order_lookup import order_codes

_RESULT_STATES = frozenset({LineState.RESULTED, LineState.COMPLETED})


def complete_lines(uow: UnitOfWork, order: OrderKey, keys: Iterable[LineKey], now: datetime) -> None:
    """End those of the lines that are open as completed; their Tasks follow."""
    wanted = set(keys)
    for line in uow.orders.lines(order):
        if line.key in wanted and line.state not in ENDED_LINES:
            completed = line.transition_to(LineState.COMPLETED, now)
            uow.orders.save_line(completed)
            uow.jobs.add(jobs.update_line_task(completed, jobs.TASK_COMPLETED, now))


def cancel_lines(uow: UnitOfWork, order: OrderKey, reasons: Mapping[LineKey, str], now: datetime) -> tuple[LineKey, ...]:
    """End those of the lines that wait for a result as cancelled, each with its reason; their Tasks follow. Gives which moved.

    One that is resulted stays: a final result of it is on its way.
    """
    moved = []
    for line in uow.orders.lines(order):
        if line.key in reasons and line.state is LineState.ACCEPTED:
            cancelled = line.transition_to(LineState.CANCELLED, now, (reasons[line.key],))
            uow.orders.save_line(cancelled)
            uow.jobs.add(jobs.update_line_task(cancelled, jobs.TASK_CANCELLED, now))
            moved.append(line.key)
    return tuple(moved)


def lines_with_result(lines: Iterable[LineRecord], keys: Collection[LineKey]) -> tuple[LineKey, ...]:
    """Those of the lines that have a final result already, on the service or on its way there."""
    return tuple(line.key for line in lines if line.key in keys and line.state in _RESULT_STATES)


def describe_existing_result(keys: Collection[LineKey]) -> str:
    """Say of lines that a message calls not performed that they have a result, and what a person's release would do."""
    mend = "send a corrected report, or tell the clinic; released, only lines that still wait are cancelled"
    return f"{join_limited(keys)}, which has a final result already — {mend}"


_BLOCKING_JOBS = frozenset({JobKind.UPDATE_LINE_TASK, JobKind.DELIVER_REPORT, JobKind.SUBMIT_ORDER, JobKind.CANCEL_AT_LIS})

_UNDECIDED_STATES = frozenset({OrderState.SEEN, OrderState.HELD})


def order_task_status(lines: tuple[LineRecord, ...]) -> str:
    """Status of the order-level Task once every line has ended: completed if at least one line was, else cancelled.

    Source: the interface does not show it; this is our one policy function for it.
    """
    return jobs.TASK_COMPLETED if any(line.state is LineState.COMPLETED for line in lines) else jobs.TASK_CANCELLED


def advance_order(uow: UnitOfWork, key: OrderKey, now: datetime, *, completing: Job | None = None) -> None:
    """Let the order follow its lines: nothing happens until every line has ended and its effects (but `ending`) are settled."""
    order = uow.orders.get_for_update(key)
    lines = uow.orders.lines(key)
    if any(line.state not in ENDED_LINES for line in lines) or (not lines and order.state in _UNDECIDED_STATES):
        return
    waiting = (job for job in uow.jobs.list_for_order(key) if completing is None or job.id != completing.id)
    if any(job.kind in _BLOCKING_JOBS for job in waiting):
        return
    if order.state is OrderState.WITHDRAWN:
        _save_closed(uow, order, now, "withdrawn by the partner or the service")
    elif order.state in {OrderState.HANDED_OVER, OrderState.REJECTED}:
        if order.state is OrderState.HANDED_OVER:
            uow.orders.save(order.transition_to(OrderState.REPORTED, now))
        uow.jobs.add(jobs.update_order_task(key, order_task_status(lines), now))


def close_order(uow: UnitOfWork, key: OrderKey, now: datetime, text: str) -> None:
    """Close an order whose Task has been settled."""
    _save_closed(uow, uow.orders.get_for_update(key), now, text)


def _save_closed(uow: UnitOfWork, order: OrderRecord, now: datetime, text: str) -> None:
    uow.orders.save(order.transition_to(OrderState.CLOSED, now, text))
    uow.events.add(Event(order=order.key, at=now, action="closed", text=text))


_BEFORE_HANDOVER = frozenset({OrderState.SEEN, OrderState.HELD, OrderState.FETCHED})


def withdraw_line(uow: UnitOfWork, key: LineKey, now: datetime, reason: str) -> None:
    """Withdraw one line, if it is open."""
    line = uow.orders.line(key)
    if line is not None:
        withdraw_lines(uow, line.order, [line], now, reason)


def withdraw_lines(uow: UnitOfWork, key: OrderKey, lines: Sequence[LineRecord], now: datetime, reason: str) -> None:
    """Withdraw those of the lines that are open; tell the LIS if the order went there, or is on its way."""
    order = uow.orders.get_for_update(key)
    open_lines = [line for line in lines if line.state not in ENDED_LINES]
    if not open_lines:
        return
    for line in open_lines:
        uow.orders.save_line(line.transition_to(LineState.WITHDRAWN, now, (reason,)))
    names = ", ".join(line.key for line in open_lines)
    uow.events.add(Event(order=key, at=now, action="withdrawn", text=f"lines {names}: {reason}"))
    for line in open_lines:
        uow.alerts.close(late_line_alert_key(line.key), now=now)
    told = [line.key for line in open_lines if line.state is not LineState.HELD]  # a held one never went to the LIS
    if not told:
        return
    if order.state in {OrderState.HANDED_OVER, OrderState.REPORTED} or _is_submit_started(uow, key):
        uow.jobs.add(jobs.cancel_at_lis(key, told, reason, now))
    elif order.state in _BEFORE_HANDOVER and all(line.state in ENDED_LINES for line in uow.orders.lines(key)):
        uow.orders.save(order.transition_to(OrderState.REJECTED, now, "every line was refused or withdrawn before the handover"))


def withdraw_order(uow: UnitOfWork, key: OrderKey, now: datetime, reason: str) -> None:
    """Withdraw an order with all its open lines."""
    withdraw_lines(uow, key, uow.orders.lines(key), now, reason)
    order = uow.orders.get_for_update(key)
    if order.state is not OrderState.CLOSED:
        uow.orders.save(order.transition_to(OrderState.WITHDRAWN, now, reason))


def _is_submit_started(uow: UnitOfWork, key: OrderKey) -> bool:
    return any(
        job.kind is JobKind.SUBMIT_ORDER and (job.started or job.state is not JobState.DUE)
        for job in uow.jobs.list_for_order(key)
    )


def late_line_alert_key(line: LineKey) -> str:
    """Name of the alert of a line that came after its order had been judged."""
    return f"line.{line}.late"


@dataclass(frozen=True, slots=True)
class LateLineFinder:
    """Finds open lines that the journal does not know, with what can be told of them."""

    exchange: Exchange
    store: Store
    clock: Clock
    base_url: str

    async def find(self, key: OrderKey, order_task: ResourceId) -> tuple[LineRecord, ...]:
        """Ask the service once more for the lines of an order. Raises what the exchange port raises."""
        return await self.find_in(key, await self.exchange.line_tasks(order_task))

    async def find_in(self, key: OrderKey, tasks: Sequence[Json]) -> tuple[LineRecord, ...]:
        """Late lines among these line Tasks. Raises what the exchange port raises."""
        known = await self.store.run(lambda uow: {line.task_id for line in uow.orders.lines(key)})
        new = [task for task in tasks if task.get("id") not in known and task_status(task) not in TERMINAL_TASK_STATUSES]
        return tuple([await self._to_line_record(key, task) for task in new])

    async def _to_line_record(self, key: OrderKey, task: Json) -> LineRecord:
        task_id = ResourceId(str(task.get("id")))
        graph = await fetch_graph(self.exchange, self.base_url, {}, [task])
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


def hold_late_line(uow: UnitOfWork, line: LineRecord, now: datetime) -> None:
    """Hold a late line in sight."""
    if uow.orders.line(line.key) is not None:
        return
    uow.orders.add_line(line)
    text = f"line {line.key} (Task {line.task_id}) came after the order had been judged; it is held"
    uow.events.add(Event(order=line.order, at=now, action="late_line", text=text))
    mend = f"enter it in the laboratory system and run `lab-agent orders accept-line {line.key}`, or refuse-line"
    uow.alerts.open(Alert(key=late_line_alert_key(line.key), text=f"order {line.order}: {text}; {mend}", opened_at=now))


def reopen_lines(uow: UnitOfWork, order: OrderKey, now: datetime) -> None:
    """Take the lines that wait as resulted, and that no report on its way completes, back to accepted."""
    resulted = [line for line in uow.orders.lines(order) if line.state is LineState.RESULTED]
    coming = _lines_being_completed(uow, order) if resulted else frozenset()
    for line in resulted:
        if line.key not in coming:
            uow.orders.save_line(line.transition_to(LineState.ACCEPTED, now))
            text = f"line {line.key} waits for a result again: the report that was to complete it does not go"
            uow.events.add(Event(order=order, at=now, action="line_reopened", text=text))


def _lines_being_completed(uow: UnitOfWork, order: OrderKey) -> frozenset[LineKey]:
    """Lines that reports on their way will complete; each of these has an open delivery."""
    lines, names = uow.orders.lines(order), order_codes(uow.orders.get_for_update(order))
    deliveries = (each for each in uow.jobs.list_for_order(order) if each.kind is JobKind.DELIVER_REPORT)
    reports = (uow.reports.get_for_update(ReportKey(each.target)) for each in deliveries)
    messages = (load_stored_message(report.body) for report in reports if report.state is ReportState.MATCHED)
    return frozenset(
        key
        for message in messages
        if not isinstance(message, AccessionUpdate)
        for key in determine_coverage(message, lines, names).completes
    )
