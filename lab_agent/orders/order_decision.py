"""Decide an assessed order, and write the decision with all that follows in one unit of work."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lab_agent.fhir.lab_order_mapper import make_lab_order
from lab_agent.fhir.received_order import ReceivedLine
from lab_agent.lis.serialization import split_identity
from lab_agent.orders.group_alerts import held_orders_alert_key, open_at_once
from lab_agent.orders.line_lifecycle import advance_order, close_order
from lab_agent.orders.line_routing import LineRouter
from lab_agent.orders.order_assessment import AssessedOrder
from lab_agent.orders.patient_data import known_patient, pack_identity
from lab_agent.orders.records import HoldCause, LabelUse, LineRecord, OrderHold, OrderRecord, WorkOrder, route_line
from lab_agent.orders.rejection_breaker import RejectionBreaker
from lab_agent.queue import jobs
from lab_agent.queue.jobs import TASK_REQUESTED, TERMINAL_TASK_STATUSES
from lab_agent.results.order_lookup import rematch_awaiting
from lab_agent.rules.engine import RELEASABLE_RULES
from lab_agent.shared.code_systems import CodeSystems
from lab_agent.shared.ids import LineKey, OrderKey, ResourceId, line_key
from lab_agent.shared.state_machines import ENDED_LINES, LineState, OrderState, WorkOrderState
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import UnitOfWork

OTHER_LINE_REJECTED = "not performed: another line of this order was rejected, and this laboratory takes orders only whole"
"""Reason for the valid lines of an order under `worker.on_line_error = cancel_order`."""


RELEASE_HINT = " Check this, then release the order (`lab-agent orders release`) or reject it (`lab-agent orders refuse`)."
"""What an operator does about an order that is held by a question to a person."""


@dataclass(frozen=True, slots=True)
class DecisionPolicy:
    """What this installation has set: which laboratory system gets a line, and what an invalid line does to the others."""

    systems: CodeSystems
    router: LineRouter
    cancel_whole_order: bool
    breaker: RejectionBreaker


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of an order's lines, by Task id: accepted ones go to the laboratory, rejected ones have their reasons."""

    accepted: tuple[str, ...]
    rejected: Mapping[str, tuple[str, ...]]
    ended: frozenset[str]
    """Lines that somebody else had ended before the order was assessed."""
    rules: frozenset[str] = frozenset()
    """Ids of the rules that reject: what the circuit breaker counts. A rule's objection to an ended line rejects nothing."""


def decide_lines(
    assessed: AssessedOrder,
    *,
    cancel_whole_order: bool,
    decided: Mapping[str, LineState] | None = None,
    offered_again: bool = False,
) -> Decision:
    """Read the decision off the assessment. Pure.

    `decided` are lines of an order that is taken up again, by Task id, that had ended before and stay as they ended.
    `offered_again`: the partner requested the order anew after its end, without those lines, so that they cancel no others.
    """
    lines, decided = assessed.received.lines, decided or {}
    ended = frozenset(line.id for line in lines if line.task.status in TERMINAL_TASK_STATUSES or line.id in decided)
    rejected = {line.id: assessed.assessment.rejection_reasons(line.id) for line in lines if line.id not in ended}
    rejected = {task_id: reasons for task_id, reasons in rejected.items() if reasons}
    invalid = rejected or (LineState.REJECTED in decided.values() and not offered_again)
    if cancel_whole_order and invalid:
        rejected = {line.id: rejected.get(line.id, (OTHER_LINE_REJECTED,)) for line in lines if line.id not in ended}
    accepted = tuple(each for each in assessed.assessment.accepted_lines if each not in rejected and each not in ended)
    return Decision(accepted, rejected, ended, assessed.assessment.rejecting_rules(rejected))


def find_order_hold(assessed: AssessedOrder) -> OrderHold | None:
    """Why the order must be held instead of decided; None if it need not be.

    Of several rules the cause is one that cannot be released: what may be released does not free the order alone.
    """
    if holds := assessed.assessment.holds:
        reasons = "; ".join(dict.fromkeys(finding.message for finding in holds))
        rules = [finding.rule for finding in holds]
        cause = next((rule for rule in rules if rule not in RELEASABLE_RULES), rules[0])
        return OrderHold(cause, reasons + (RELEASE_HINT if not RELEASABLE_RULES.isdisjoint(rules) else ""))
    if assessed.contract is None and assessed.assessment.accepted_lines:
        text = "no contract is known, though the rules let this pass: see [exchange.contracts] and [rules.severities]"
        return OrderHold(HoldCause.NO_CONTRACT, text)
    return None


def save_decision(
    uow: UnitOfWork, key: OrderKey, assessed: AssessedOrder, decision: Decision, policy: DecisionPolicy, now: datetime
) -> OrderRecord:
    """Write which lines are accepted and rejected, and the jobs that follow. Gives the order as it stands then."""
    order = replace(uow.orders.get_for_update(key), sent_statuses=(), ended_as=None)
    lines = _save_lines(uow, order, assessed, decision, policy, now)
    policy.breaker.record_rejections(uow, decision.rules, key, now)
    for finding in assessed.assessment.findings():
        if finding.line not in decision.ended:
            event = Event(order=key, at=now, action=finding.severity.value, text=f"{finding.rule}: {finding.message}")
            add_once_offered(uow, order, event)
    if decision.accepted:
        return _accept(uow, order, assessed, lines, decision, policy, now)
    reason = "every line was rejected" if decision.rejected else "every line had been ended by the partner or the service"
    order = _with_fetched(uow, order, assessed, now).transition_to(OrderState.REJECTED, now, reason)
    uow.orders.save(order)
    advance_order(uow, key, now)
    return order


def add_once_offered(uow: UnitOfWork, order: OrderRecord, event: Event) -> bool:
    """Add an event that may come about at each assessment: once since the order was offered. Whether it was added."""
    if order.state is OrderState.SEEN and order.reason is None and not order.reopened:  # its first assessment
        uow.events.add(event)
        return True
    return uow.events.add_once(event, since=order.seen_at)


def hold_order(uow: UnitOfWork, key: OrderKey, assessed: AssessedOrder | None, now: datetime, hold: OrderHold) -> bool:
    """Hold the order and alert somebody: it may be our own fault, so nothing is rejected (law 10). Whether the reason is new.

    `assessed` is None for an order that could not even be read.
    """
    order = uow.orders.get_for_update(key)
    is_new = order.state is not OrderState.HELD or order.reason != hold.text
    if is_new:
        is_new = add_once_offered(uow, order, Event(order=key, at=now, action="held", text=hold.text))
    held = order.hold(now, hold)
    uow.orders.save(held if assessed is None else _with_fetched(uow, held, assessed, now))
    open_at_once(uow, held_orders_alert_key(hold.cause), key, held.held_since or now, now)
    return is_new


def ignore_order(uow: UnitOfWork, key: OrderKey, assessed: AssessedOrder, now: datetime, before: datetime) -> None:
    """Leave an order of the backlog alone (`worker.ignore_before`): nothing is written to the service."""
    uow.orders.save(_with_fetched(uow, uow.orders.get_for_update(key), assessed, now))
    close_order(uow, key, now, f"made before worker.ignore_before ({before.isoformat()}); left alone")


def _accept(
    uow: UnitOfWork,
    order: OrderRecord,
    assessed: AssessedOrder,
    lines: list[LineRecord],
    decision: Decision,
    policy: DecisionPolicy,
    now: datetime,
) -> OrderRecord:
    contract = assessed.contract or ""
    line_keys = {str(line.task_id): line.key for line in lines}
    lab_order = make_lab_order(
        assessed.received,
        decision.accepted,
        order_key=order.key,
        line_keys=line_keys,
        contract=contract,
        catalogue=assessed.catalogue,
        systems=policy.systems,
        first_seen_at=order.seen_at,
    )
    medical, patient = split_identity(lab_order)
    labels = _label_uses(assessed, order.key, line_keys, decision.accepted)
    uow.orders.set_labels(order.key, labels)
    uow.issued_labels.mark_used([label.barcode for label in labels], order.key, at=now)
    order = replace(
        _with_fetched(uow, order, assessed, now, patient).transition_to(OrderState.FETCHED, now),
        lab_order=medical,
        expected_at=_expected_at(assessed, decision),
    )
    uow.orders.save(order)
    adapters = {line.adapter for line in lines if line.adapter and line.state is LineState.ACCEPTED}
    _save_work_orders(uow, order, adapters, now)
    names = {order.key, *(line.key for line in lines), *(label.barcode for label in labels)}
    rematch_awaiting(uow, order.key, names, adapters, now)
    return order


def _save_work_orders(uow: UnitOfWork, order: OrderRecord, adapters: Collection[str], now: datetime) -> None:
    """Divide the order among the laboratory systems; each part is handed over by a job of its own."""
    known = {each.adapter: each for each in uow.orders.work_orders(order.key)}
    for adapter in sorted(adapters):
        part = known.get(adapter) or WorkOrder(order=order.key, adapter=adapter, changed_at=now)
        uow.orders.save_work_order(part.transition_to(WorkOrderState.ACCEPTED, now))
        uow.jobs.add(jobs.submit_order(order.key, adapter, now, order.reopened))


def _with_fetched(
    uow: UnitOfWork, order: OrderRecord, assessed: AssessedOrder, now: datetime, patient: bytes | None = None
) -> OrderRecord:
    """Put identification data into the vault (law 7), and give the order with the rest of what was fetched."""
    fetched = assessed.graph.to_json()
    identity = pack_identity(fetched.identification, patient)
    uow.vault.save_identity(order.key, identity, at=now)
    known = known_patient(identity)
    uow.vault.index_patient(order.key, known.search_terms if known else (), is_first=order.received is None)
    requests = assessed.received.requests
    return replace(
        order,
        received=fetched.medical,
        contract=assessed.contract,
        requisition=requests[0].requisition if requests else None,
        counterparty=assessed.received.counterparty,
        patient_reference=assessed.received.patient_reference,
    )


def _save_lines(
    uow: UnitOfWork, order: OrderRecord, assessed: AssessedOrder, decision: Decision, policy: DecisionPolicy, now: datetime
) -> list[LineRecord]:
    """Write what becomes of each line. Only an order that was decided before has lines already."""
    if not order.reopened:
        uow.orders.expect_nothing_of(order.key)
    known = {line.key: line for line in uow.orders.lines(order.key)}
    adapters = policy.router.route(assessed, decision.accepted)
    saved = []
    for line in assessed.received.lines:
        key = line_key(policy.systems.base_url, line.id)
        saved.append(_decide_line(line, known.get(key) or _new_line(order, line, key, now), decision, adapters, now))
    for each in saved:
        if known.get(each.key) != each:
            (uow.orders.save_line if each.key in known else uow.orders.add_line)(each)
    rejected = [each for each in saved if each.state is LineState.REJECTED and known.get(each.key) != each]
    uow.jobs.add_all([jobs.update_line_task(each, jobs.TASK_CANCELLED, now) for each in rejected])
    return saved


def _new_line(order: OrderRecord, line: ReceivedLine, key: LineKey, now: datetime) -> LineRecord:
    return LineRecord(
        key=key,
        order=order.key,
        task_id=ResourceId(line.id),
        procedure_request_id=ResourceId(line.request.ref.id) if line.request else None,
        item=next((coding.code for coding in line.request.code.coding), None) if line.request else None,
        changed_at=now,
    )


def _decide_line(
    line: ReceivedLine,
    record: LineRecord,
    decision: Decision,
    adapters: Mapping[str, str],
    now: datetime,
) -> LineRecord:
    """The line as it stands after the decision. Pure."""
    if record.state in ENDED_LINES:
        if line.id in decision.ended:
            return record
        record = record.reopen(LineState.REQUESTED, now)
    if line.id in decision.rejected:
        record = record.transition_to(LineState.REJECTED, now, decision.rejected[line.id])
    elif line.id in decision.accepted:
        record = route_line(record.transition_to(LineState.ACCEPTED, now), adapters[line.id])
    else:
        status = line.task.status or TASK_REQUESTED
        record = record.transition_to(LineState.WITHDRAWN, now, (f"its Task was {status} before the order was assessed",))
        record = replace(record, ended_as=status)
    return record


def _label_uses(
    assessed: AssessedOrder, order: OrderKey, keys: Mapping[str, LineKey], accepted: tuple[str, ...]
) -> list[LabelUse]:
    context = assessed.context
    return [
        LabelUse(
            barcode=barcode,
            order=order,
            line=keys[line.id],
            specimen_id=specimen.ref.id,
            patient_reference=assessed.received.patient_reference or "",
        )
        for specimen in assessed.received.specimens
        for line in assessed.received.lines_of(specimen)
        if line.id in accepted
        for container in specimen.containers
        for barcode in context.barcodes(container) or (each.value for each in container.identifiers)
    ]


def _expected_at(assessed: AssessedOrder, decision: Decision) -> datetime | None:
    """When the last result is expected by the catalogue's turnaround times; used to show overdue results, never to act."""
    if assessed.catalogue is None or assessed.contract is None:
        return None
    expected = []
    for line in assessed.received.lines:
        if line.id not in decision.accepted or line.request is None or line.request.occurrence is None:
            continue
        ordered_at = line.request.occurrence.at
        items = [assessed.catalogue.current_item(assessed.contract, coding.code) for coding in line.request.code.coding]
        expected += [ordered_at + timedelta(hours=float(item.turnaround.hours)) for item in items if item and ordered_at]
    return max(expected, default=None)
