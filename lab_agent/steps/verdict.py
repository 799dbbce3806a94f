"""Write down what was decided about an order, with all that follows, in one unit of work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from lab_agent.codec import split_identity
from lab_agent.domain import effects
from lab_agent.domain.effects import REQUESTED, TERMINAL_TASK_STATUSES
from lab_agent.domain.ids import LineKey, OrderKey, ResourceId, line_key
from lab_agent.domain.journal import Alert, Event, LabelUse, LineRecord, OrderRecord
from lab_agent.domain.lifecycle import LineState, OrderState
from lab_agent.domain.received import ReceivedLine
from lab_agent.domain.systems import Systems
from lab_agent.fhir.order import make_lab_order
from lab_agent.ports.store import UnitOfWork
from lab_agent.settings.exchange import ContractSettings
from lab_agent.steps.catch import Catch
from lab_agent.steps.follow import close, follow
from lab_agent.steps.identity import pack
from lab_agent.steps.judging import Judged

SISTER = "not performed: another line of this order was refused, and this laboratory takes orders only whole"
"""Reason for the good lines of an order under `worker.on_line_error = cancel_order`."""


@dataclass(frozen=True, slots=True)
class VerdictPolicy:
    """What this installation has set: the contracts, where orders go by default, and what a bad line does to the others."""

    systems: Systems
    contracts: Mapping[str, ContractSettings]
    default_adapter: str
    cancel_whole_order: bool
    catch: Catch


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of judging one order: lines that go to the laboratory, and refused ones with their reasons (by Task id)."""

    accepted: tuple[str, ...]
    refused: Mapping[str, tuple[str, ...]]
    ended: frozenset[str]
    """Task ids of lines that somebody else had ended before we judged them."""
    rules: frozenset[str] = frozenset()
    """Ids of the rules that refuse: what the safety catch counts. What a rule says of an ended line refuses nothing."""


def verdict_of(judged: Judged, *, cancel_whole_order: bool) -> Verdict:
    """Read the verdict off the judgement. Pure."""
    lines = judged.received.lines
    ended = frozenset(line.id for line in lines if line.task.status in TERMINAL_TASK_STATUSES)
    refused = {line.id: judged.judgement.reasons(line.id) for line in lines if line.id not in ended}
    refused = {task_id: reasons for task_id, reasons in refused.items() if reasons}
    if refused and cancel_whole_order:
        refused = {line.id: refused.get(line.id, (SISTER,)) for line in lines if line.id not in ended}
    accepted = tuple(each for each in judged.judgement.accepted if each not in refused and each not in ended)
    return Verdict(accepted, refused, ended, judged.judgement.refusing_rules(refused))


def held_because(judged: Judged) -> str | None:
    """Why the order must be held instead of decided; None if nothing speaks for it."""
    if judged.judgement.hold:
        return "; ".join(dict.fromkeys(finding.message for finding in judged.judgement.hold))
    if judged.contract is None and not judged.judgement.order_refusals:
        return "the order's contract is not known here: see [exchange.contracts]"
    return None


def hold(uow: UnitOfWork, key: OrderKey, judged: Judged, now: datetime, reason: str) -> None:
    """Hold the order: it may be our own fault, so nothing is refused, and somebody is told (law 10)."""
    hold_unjudged(uow, key, now, reason)
    _keep(uow, uow.orders.take(key), judged, now)


def hold_unjudged(uow: UnitOfWork, key: OrderKey, now: datetime, reason: str) -> None:
    """Hold an order that cannot even be read."""
    order = uow.orders.take(key)
    if order.state is not OrderState.HELD or order.reason != reason:
        uow.book.tell(Event(order=key, at=now, action="held", text=reason))
    uow.orders.save(order.become(OrderState.HELD, now, reason))
    uow.book.open_alert(Alert(key=held_alert(key), text=f"order {key} is held: {reason}", opened_at=now))


def decide(uow: UnitOfWork, key: OrderKey, judged: Judged, verdict: Verdict, policy: VerdictPolicy, now: datetime) -> OrderRecord:
    """Refuse what is refused, accept the rest, and write the effects of both. Gives the order as it stands then."""
    order = uow.orders.take(key)
    order = _keep(uow, order, judged, now)
    lines = [_decide_line(uow, order, line, verdict, policy.systems.base_url, now) for line in judged.received.lines]
    policy.catch.remember(uow.book, verdict.rules, key, now)
    uow.book.close_alert(held_alert(key), now=now)
    for finding in judged.judgement.findings():
        if finding.line not in verdict.ended:
            uow.book.tell(Event(order=key, at=now, action=finding.severity.value, text=f"{finding.rule}: {finding.message}"))
    if verdict.accepted:
        return _accept(uow, order, judged, lines, verdict, policy, now)
    why = "every line was refused" if verdict.refused else "every line had been ended by the partner or the service"
    order = order.become(OrderState.REFUSED, now, why)
    uow.orders.save(order)
    follow(uow, key, now)
    return order


def ignore(uow: UnitOfWork, key: OrderKey, judged: Judged, now: datetime, before: datetime) -> None:
    """Leave an order of the backlog alone (`worker.ignore_before`): nothing is written to the service."""
    _keep(uow, uow.orders.take(key), judged, now)
    close(uow, key, now, f"made before worker.ignore_before ({before.isoformat()}); left alone")


def _accept(
    uow: UnitOfWork,
    order: OrderRecord,
    judged: Judged,
    lines: list[LineRecord],
    verdict: Verdict,
    policy: VerdictPolicy,
    now: datetime,
) -> OrderRecord:
    contract = judged.contract or ""
    lab_order = make_lab_order(
        judged.received,
        verdict.accepted,
        order_key=order.key,
        line_keys={line.task_id: line.key for line in lines},
        contract=contract,
        catalogue=judged.catalogue,
        systems=policy.systems,
        seen_at=order.seen_at,
    )
    medical, patient = split_identity(lab_order)
    uow.vault.put_identity(order.key, pack(judged.graph.to_json().identification, patient), at=now)
    labels = _labels(judged, order.key, {line.task_id: line.key for line in lines}, verdict.accepted)
    uow.orders.set_labels(order.key, labels)
    uow.labels.use([label.barcode for label in labels], order.key, at=now)
    settings = policy.contracts.get(contract, ContractSettings())
    order = replace(
        order.become(OrderState.FETCHED, now),
        lab_order=medical,
        adapter=settings.adapter or policy.default_adapter,
        expected_at=_expected_at(judged, verdict),
    )
    uow.orders.save(order)
    uow.effects.add(effects.handover(order.key, now))
    return order


def _keep(uow: UnitOfWork, order: OrderRecord, judged: Judged, now: datetime) -> OrderRecord:
    """Keep what was fetched, in its two parts (law 7), and what can be told from it already."""
    parts = judged.graph.to_json()
    requests = judged.received.requests
    order = replace(
        order,
        received=parts.medical,
        contract=judged.contract,
        requisition=requests[0].requisition if requests else None,
        counterparty=judged.received.counterparty,
        patient_reference=judged.received.patient_reference,
    )
    uow.orders.save(order)
    uow.vault.put_identity(order.key, pack(parts.identification), at=now)
    return order


def _decide_line(
    uow: UnitOfWork, order: OrderRecord, line: ReceivedLine, verdict: Verdict, service: str, now: datetime
) -> LineRecord:
    key = line_key(service, line.id)
    known = uow.orders.line(key)
    record = known or LineRecord(
        key=key,
        order=order.key,
        task_id=ResourceId(line.id),
        procedure_request_id=ResourceId(line.request.ref.id) if line.request else None,
        item=next((coding.code for coding in line.request.code.coding), None) if line.request else None,
        changed_at=now,
    )
    if line.id in verdict.refused:
        record = record.become(LineState.REFUSED, now, verdict.refused[line.id])
    elif line.id in verdict.accepted:
        record = record.become(LineState.ACCEPTED, now)
    else:
        status = line.task.status or REQUESTED
        record = record.become(LineState.WITHDRAWN, now, (f"its Task was {status} before it was judged",))
    (uow.orders.save_line if known else uow.orders.add_line)(record)
    if record.state is LineState.REFUSED:
        uow.effects.add(effects.line_task(record, effects.CANCELLED, now))
    return record


def _labels(judged: Judged, order: OrderKey, keys: Mapping[str, LineKey], accepted: tuple[str, ...]) -> list[LabelUse]:
    return [
        LabelUse(
            barcode=identifier.value,
            order=order,
            line=keys[line.id],
            specimen_id=specimen.ref.id,
            patient_reference=judged.received.patient_reference or "",
        )
        for specimen in judged.received.specimens
        for line in judged.received.lines_of(specimen)
        if line.id in accepted
        for container in specimen.containers
        for identifier in container.identifiers
    ]


def _expected_at(judged: Judged, verdict: Verdict) -> datetime | None:
    """When the last result is expected, by the normal times of the catalogue; used to show overdue results, never to act."""
    if judged.catalogue is None or judged.contract is None:
        return None
    expected = []
    for line in judged.received.lines:
        if line.id not in verdict.accepted or line.request is None or line.request.occurrence is None:
            continue
        ordered_at = line.request.occurrence.at
        items = [judged.catalogue.current(judged.contract, coding.code) for coding in line.request.code.coding]
        expected += [ordered_at + timedelta(hours=float(item.turnaround.hours)) for item in items if item and ordered_at]
    return max(expected, default=None)


def held_alert(key: OrderKey) -> str:
    """Name of the alert of a held order."""
    return f"order.{key}.held"
