"""Erasing the data of one patient on request: what is found, what must not be erased yet, and the erasure itself.

Each order is erased in a unit of work of its own, with its record in the audit. What was sent to the exchange service and to
laboratory systems is theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from lab_agent.lis.lab_messages import LabRejection, LabReport
from lab_agent.lis.serialization import dump_message, load_stored_message
from lab_agent.shared.errors import DataInvalidError, InvalidTransitionError, StoreError
from lab_agent.shared.ids import OrderKey, RefusedKey, ReportKey
from lab_agent.shared.state_machines import FINISHED_REPORTS, OPEN_JOBS, ORDERS_BEFORE_HANDOVER, OrderState
from lab_agent.store.audit_records import AuditAction, AuditEntry
from lab_agent.store.event_records import Event
from lab_agent.store.unit_of_work import Store, UnitOfWork

_ERASED = "erased"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureTarget:
    """An order that is to be erased: its state, how many results it has, and why it cannot be erased (yet)."""

    order: OrderKey
    state: OrderState
    results: int
    obstacle: str | None = None
    is_open: bool = False
    """Whether it may be erased only where that was said."""


def raw_message(sealed: bytes) -> bytes:
    """The text of a refused message's content as it is stored, with the id that its adapter gave it."""
    return sealed[1:].replace(b"\0", b"\n", 1)


async def look_at_orders(store: Store, keys: Sequence[OrderKey]) -> tuple[ErasureTarget, ...]:
    """What erasing these orders would meet. Raises `StoreError` for an unknown one."""
    return await store.run_read_only(lambda uow: tuple(_look(uow, key) for key in keys))


async def erase_order(store: Store, key: OrderKey, *, include_open: bool, by: str, now: datetime) -> int:
    """Erase an order; how many documents went.

    Raises `StoreError` for an unknown one, and `InvalidTransitionError` where something of it is still to be done, or it is open
    and that was not said.
    """

    def work(uow: UnitOfWork) -> int:
        uow.orders.lock(key)
        target = _look(uow, key)
        if target.obstacle is not None and not (target.is_open and include_open):
            raise InvalidTransitionError(f"order {key} is not erased: {target.obstacle}")
        gone = uow.erasure.order(key, empty_message, at=now)
        uow.events.add(Event(order=key, at=now, action="order_erased", text="the patient's data were erased on request"))
        details = {"documents": gone, "results": target.results}
        uow.audit.add(AuditEntry(at=now, action=AuditAction.ORDER_ERASED, subject=key, by=by, details=details))
        return gone

    return await store.transact(work)


async def erase_report(store: Store, key: ReportKey, *, by: str, now: datetime) -> None:
    """Erase a result that belongs to no order. Raises `InvalidTransitionError` where somebody still has to decide about it."""

    def work(uow: UnitOfWork) -> None:
        report = uow.reports.get_for_update(key)
        if report.state not in FINISHED_REPORTS:
            raise InvalidTransitionError(f"result {key} is {report.state.value}: match or dismiss it first")
        uow.erasure.report(key, empty_message)
        uow.audit.add(AuditEntry(at=now, action=AuditAction.RESULT_ERASED, subject=key, by=by))

    await store.transact(work)


async def erase_refused(store: Store, key: RefusedKey, *, by: str, now: datetime) -> None:
    """Erase the raw text of a refused message; one that waits has to be sent again, or dismissed. Raises `StoreError`."""

    def work(uow: UnitOfWork) -> None:
        if uow.refused_messages.get(key) is None:
            raise StoreError(f"There is no refused message {key}.")
        uow.erasure.refused_message(key)
        text = "the raw message was erased on request"
        uow.events.add(Event(order=None, refused_message=key, at=now, action="refused_erased", text=text))
        uow.audit.add(AuditEntry(at=now, action=AuditAction.REFUSED_ERASED, subject=key, by=by))

    await store.transact(work)


def _look(uow: UnitOfWork, key: OrderKey) -> ErasureTarget:
    order = uow.orders.get(key)
    waiting, number = uow.erasure.count_results(key)
    open_jobs = sum(job.state in OPEN_JOBS for job in uow.jobs.list_for_order(key))
    target = ErasureTarget(order=key, state=order.state, results=number)
    if order.state in ORDERS_BEFORE_HANDOVER:
        why = f"it is {order.state.value}: the laboratory system would get it without its patient; have it rejected first"
        return replace(target, obstacle=why)
    if waiting or open_jobs:
        return replace(target, obstacle=f"{waiting} results and {open_jobs} jobs of it are not finished; settle them first")
    if order.state is not OrderState.CLOSED:
        return replace(target, obstacle=f"it is {order.state.value}; --include-open erases it all the same", is_open=True)
    return target


def empty_message(body: bytes) -> bytes:
    """A message without values, documents, reasons and patient."""
    try:
        message = load_stored_message(body)
    except DataInvalidError:
        return b"{}"
    if isinstance(message, LabReport):
        message = replace(message, observations=(), documents=(), not_performed=(), patient=None)
    elif isinstance(message, LabRejection):
        reasons = tuple(replace(each, reason=_ERASED) for each in message.not_performed)
        message = replace(message, not_performed=reasons, patient=None)
    return dump_message(message)
