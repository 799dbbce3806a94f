"""What a person decides about held orders and lines (law 10).

A held order may be rejected, or released where a rule only asks a person to look. A line that came after its order was assessed
is entered in the laboratory by hand, or rejected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from lab_agent.fhir.order_graph import OrderGraph
from lab_agent.fhir.order_parser import parse_order
from lab_agent.orders.audit_trail import note_decision
from lab_agent.orders.job_actions import validate_note
from lab_agent.orders.line_lifecycle import advance_order
from lab_agent.orders.records import LineRecord, OrderRecord, WorkOrder, route_line
from lab_agent.queue import jobs
from lab_agent.queue.job_records import JobKind
from lab_agent.queue.jobs import TERMINAL_TASK_STATUSES
from lab_agent.rules.engine import RELEASABLE_RULES
from lab_agent.rules.rule import Finding
from lab_agent.shared.errors import InvalidTransitionError, StoreError
from lab_agent.shared.ids import LineKey, OrderKey, ResourceId, line_key
from lab_agent.shared.state_machines import ENDED_LINES, JobState, LineState, OrderState, WorkOrderState
from lab_agent.store.audit_records import AuditAction, AuditValue
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import Store, UnitOfWork


async def reject_order(store: Store, base_url: str, key: OrderKey, reason: str, *, by: str, now: datetime) -> None:
    """Reject a held order; the clinic reads the reason at every line.

    Raises `InputError` for an empty reason, `StoreError`, and `InvalidTransitionError` if the order is not held.
    """
    reason = validate_note(reason)

    def write(uow: UnitOfWork) -> None:
        order = uow.orders.get_for_update(key)
        if order.state is not OrderState.HELD:
            raise InvalidTransitionError(f"order {key} is {order.state.value}; only a held order can be rejected by hand")
        if order.received is None:
            raise StoreError(
                f"order {key} was not read completely yet, so its lines are not known; see to what its reason says first"
            )
        for line in parse_order(OrderGraph.from_json(order.received, None)).lines:
            if line.task.status not in TERMINAL_TASK_STATUSES:
                _add_rejected_line(uow, key, base_url, line.id, reason, now)
        uow.orders.save(order.transition_to(OrderState.REJECTED, now, reason))
        event = Event(order=key, at=now, action="operator", text=f"rejected: {reason}", by=by)
        note_decision(uow, event, AuditAction.ORDER_REJECTED, note=reason)
        advance_order(uow, key, now)

    await store.transact(write)


async def release_order(
    store: Store, key: OrderKey, holds: Collection[Finding], note: str, *, by: str, now: datetime
) -> frozenset[str]:
    """Override what holds an order, so that it is assessed again and goes on; gives the rules that were overridden.

    The release is of these findings alone: what the same rules find in an order that is edited later holds it again.

    Only rules that ask a person to look can be overridden: the others need their cause mended. Raises `InputError` for an empty
    note, `StoreError`, and `InvalidTransitionError` if the order is not held, or not by such a rule.
    """
    note = validate_note(note)

    def write(uow: UnitOfWork) -> frozenset[str]:
        return override_holds(uow, key, holds, note, by=by, now=now)

    return await store.transact(write)


def override_holds(
    uow: UnitOfWork, key: OrderKey, holds: Collection[Finding], note: str, *, by: str, now: datetime
) -> frozenset[str]:
    """Override those of the findings that a person may override, and have the order assessed now; gives their rules.

    Raises `StoreError`, and `InvalidTransitionError` if the order is not held, or none of them may be overridden.
    """
    findings = [each for each in holds if each.rule in RELEASABLE_RULES]
    released, order = frozenset(each.rule for each in findings), uow.orders.get_for_update(key)
    if order.state is not OrderState.HELD or not released:
        why = "held by no rule that a person may override" if order.state is OrderState.HELD else order.state.value
        raise InvalidTransitionError(f"order {key} is {why}; see to what its reason says, or reject it")
    digests = {*order.released_findings, *(each.digest for each in findings)}
    uow.orders.save(replace(order, released_findings=tuple(sorted(digests))))
    text = f"released in spite of {', '.join(sorted(released))}: {note}"
    event = Event(order=key, at=now, action="operator", text=text, by=by)
    note_decision(uow, event, AuditAction.ORDER_RELEASED, note=note, details={"rules": tuple(sorted(released))})
    make_assessment_due(uow, key, now)
    return released


def make_assessment_due(uow: UnitOfWork, key: OrderKey, now: datetime) -> bool:
    """Have an order assessed now that is to be assessed again later; whether there was anything to make due."""
    waiting = [job for job in uow.jobs.list_for_order(key) if job.kind is JobKind.FETCH_ORDER and job.state is JobState.DUE]
    later = [replace(job, due_at=now, changed_at=now, gives_way=False) for job in waiting if job.due_at > now]
    uow.jobs.save_all(later)
    return bool(later)


async def reject_line(store: Store, key: LineKey, reason: str, *, by: str, now: datetime) -> None:
    """Reject a held line with a reason that the clinic reads. Raises as `reject_order` does."""
    reason = validate_note(reason)

    def write(uow: UnitOfWork) -> None:
        line = _get_held_line(uow, key).transition_to(LineState.REJECTED, now, (reason,))
        uow.orders.save_line(line)
        uow.jobs.add(jobs.update_line_task(line, jobs.TASK_CANCELLED, now))
        event = Event(order=line.order, at=now, action="operator", text=f"line {key} rejected: {reason}", by=by)
        _save_decision(uow, event, line, AuditAction.LINE_REJECTED, {"line": key}, note=reason)

    await store.transact(write)


async def accept_line(store: Store, key: LineKey, *, adapter: str | None = None, by: str, now: datetime) -> None:
    """Accept a held line that was entered in the laboratory system by hand: its results are delivered like any other's.

    `adapter` is the laboratory system in which it was entered; None where only one can be meant. Raises `StoreError`, and
    `InvalidTransitionError` if the line is not held, the laboratory does not have its order, or that system's part of it is
    still on its way: nobody could say then whether the handover takes the line with it.
    """

    def write(uow: UnitOfWork) -> None:
        line = _get_held_line(uow, key)
        order = uow.orders.get_for_update(line.order)
        parts = {each.adapter: each for each in uow.orders.work_orders(order.key)}
        if not _is_at_laboratory(order, parts.values()):
            raise InvalidTransitionError(
                f"order {order.key} is {order.state.value}; the laboratory does not work on it. Reject the line"
            )
        if line.procedure_request_id is None:
            raise InvalidTransitionError(
                f"the ProcedureRequest of line {key} could not be read, so no result could refer to it. Reject the line"
            )
        name = adapter or _only_adapter(uow, line)
        part = parts.get(name) or WorkOrder(order=order.key, adapter=name, state=WorkOrderState.CANCELLED, changed_at=now)
        if part.state is WorkOrderState.ACCEPTED:
            raise InvalidTransitionError(
                f"the part of order {order.key} for {name} is not handed over yet. Accept the line once it is, or settle that "
                f"handover first (`lab-agent orders show {order.key}` names its job)"
            )
        line = route_line(line.transition_to(LineState.ACCEPTED, now), name)
        uow.orders.save_line(line)
        uow.orders.save_work_order(part.transition_to(WorkOrderState.HANDED_OVER, now))
        text = f"line {key} was entered in the laboratory system {name} by hand"
        event = Event(order=line.order, at=now, action="operator", text=text, by=by)
        _save_decision(uow, event, line, AuditAction.LINE_ACCEPTED, {"line": key, "system": name})

    await store.transact(write)


def _is_at_laboratory(order: OrderRecord, parts: Iterable[WorkOrder]) -> bool:
    """Whether a laboratory system works on the order, though others may not have their parts yet."""
    handed_over = any(part.state is WorkOrderState.HANDED_OVER for part in parts)
    return order.state is OrderState.HANDED_OVER or (order.state is OrderState.FETCHED and handed_over)


def _only_adapter(uow: UnitOfWork, line: LineRecord) -> str:
    """The laboratory system that can only be meant: where the line was before, or that of the whole order."""
    names = [line.adapter] if line.adapter else [each.adapter for each in uow.orders.work_orders(line.order)]
    if len(names) != 1:
        where = " and ".join(names) or "no laboratory system"
        raise StoreError(f"order {line.order} is at {where}; say with --adapter where line {line.key} was entered")
    return names[0]


def _add_rejected_line(uow: UnitOfWork, order: OrderKey, base_url: str, task_id: str, reason: str, now: datetime) -> None:
    key = line_key(base_url, task_id)
    known = uow.orders.line(key)
    if known is not None and known.order != order:  # a line of another order, which held this one
        return
    requested = known or LineRecord(key=key, order=order, task_id=ResourceId(task_id), changed_at=now)
    if requested.state in ENDED_LINES:
        requested = requested.reopen(LineState.HELD, now)
    line = requested.transition_to(LineState.REJECTED, now, (reason,))
    (uow.orders.save_line if known else uow.orders.add_line)(line)
    uow.jobs.add(jobs.update_line_task(line, jobs.TASK_CANCELLED, now))


def _get_held_line(uow: UnitOfWork, key: LineKey) -> LineRecord:
    """A held line as it is behind the lock of its order."""
    found = uow.orders.line(key)
    if found is not None:
        uow.orders.lock(found.order)
    line = uow.orders.line(key)
    if line is None:
        raise StoreError(f"there is no line {key}; `lab-agent orders show` lists the lines of an order")
    if line.state is not LineState.HELD:
        raise InvalidTransitionError(f"line {key} is {line.state.value}; only a held line waits for a decision")
    return line


def _save_decision(
    uow: UnitOfWork,
    event: Event,
    line: LineRecord,
    action: AuditAction,
    details: Mapping[str, AuditValue],
    *,
    note: str | None = None,
) -> None:
    note_decision(uow, event, action, note=note, details=details)
    advance_order(uow, line.order, event.at)
