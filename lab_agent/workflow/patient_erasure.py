"""Erasing the data of one patient on request: what is found, what must not be erased yet, and the erasure itself.

Each order is erased in a unit of work of its own, with its record in the audit. What was sent to the exchange service and to
laboratory systems is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from lab_agent.domain.audit import AuditAction, AuditEntry
from lab_agent.domain.ids import OrderKey, RefusedKey, ReportKey
from lab_agent.domain.lab_messages import LabRejection, LabReport
from lab_agent.domain.patient_search import KnownPatient, plain_identifier, words_of
from lab_agent.domain.records import Event
from lab_agent.domain.state_machines import FINISHED_REPORTS, OPEN_JOBS, ORDERS_BEFORE_HANDOVER, OrderState
from lab_agent.domain.values import Identifier
from lab_agent.errors import DataInvalidError, InvalidTransitionError, StoreError
from lab_agent.fhir.order_parser import parse_patients
from lab_agent.ports.repositories import Store, UnitOfWork
from lab_agent.serialization import dump_message, load_order_patient, load_reported_patient, load_stored_message
from lab_agent.serialization.identity import unpack_lab_patient, unpack_patients

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


def known_patient(packed: bytes) -> KnownPatient | None:
    """What an order's identification says of its patient, as fetched and as the laboratory system got it; None if unreadable."""
    parts = [part for read in (_fetched_patients, _ordered_patient) if (part := _read(read, packed)) is not None]
    if not parts:
        return None
    return KnownPatient(
        names=tuple(name for part in parts for name in part.names),
        birth_dates=frozenset().union(*(part.birth_dates for part in parts)),
        identifiers=frozenset().union(*(part.identifiers for part in parts)),
    )


def _read(read: Callable[[bytes], KnownPatient | None], packed: bytes) -> KnownPatient | None:
    try:
        return read(packed)
    except (DataInvalidError, ValueError, KeyError, TypeError):
        return None


def _fetched_patients(packed: bytes) -> KnownPatient:
    patients = parse_patients(unpack_patients(packed))
    return KnownPatient(
        names=tuple(_words(each.family, each.given, each.text) for patient in patients for each in patient.names),
        birth_dates=frozenset(each.birth_date.isoformat() for each in patients if each.birth_date is not None),
        identifiers=_plain([each for patient in patients for each in patient.identifiers]),
    )


def _ordered_patient(packed: bytes) -> KnownPatient | None:
    content = unpack_lab_patient(packed)
    if content is None:
        return None
    patient = load_order_patient(content)
    others = tuple(_words(each.family, each.given, each.text) for each in patient.other_names)
    own = (patient.service_identifier, patient.global_identifier, *patient.identifiers)
    return KnownPatient(
        names=(_words(patient.family, patient.given, patient.name_text), *others),
        birth_dates=frozenset((patient.birth_date.isoformat(),) if patient.birth_date is not None else ()),
        identifiers=_plain([each for each in own if each is not None]),
    )


def _words(family: str | None, given: Sequence[str], text: str | None) -> frozenset[str]:
    return words_of(" ".join((family or "", *given, text or "")))


def reported_patient(sealed: bytes) -> KnownPatient | None:
    """What a result says of its patient: never a name."""
    try:
        found = load_reported_patient(sealed)
    except DataInvalidError:
        return None
    dates = frozenset({found.birth_date.isoformat()} if found.birth_date is not None else ())
    return KnownPatient(birth_dates=dates, identifiers=_plain(found.identifiers))


def raw_message(sealed: bytes) -> bytes:
    """The text of a refused message's content as it is stored, with the id that its adapter gave it."""
    return sealed[1:].replace(b"\0", b"\n", 1)


def _plain(identifiers: Sequence[Identifier]) -> frozenset[str]:
    return frozenset(plain_identifier(each.value) for each in identifiers)


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
        uow.commit()
        return gone

    return await store.run(work)


async def erase_report(store: Store, key: ReportKey, *, by: str, now: datetime) -> None:
    """Erase a result that belongs to no order. Raises `InvalidTransitionError` where somebody still has to decide about it."""

    def work(uow: UnitOfWork) -> None:
        report = uow.reports.get_for_update(key)
        if report.state not in FINISHED_REPORTS:
            raise InvalidTransitionError(f"result {key} is {report.state.value}: match or dismiss it first")
        uow.erasure.report(key, empty_message)
        uow.audit.add(AuditEntry(at=now, action=AuditAction.RESULT_ERASED, subject=key, by=by))
        uow.commit()

    await store.run(work)


async def erase_refused(store: Store, key: RefusedKey, *, by: str, now: datetime) -> None:
    """Erase the raw text of a refused message; one that waits has to be sent again, or dismissed. Raises `StoreError`."""

    def work(uow: UnitOfWork) -> None:
        if uow.refused_messages.get(key) is None:
            raise StoreError(f"There is no refused message {key}.")
        uow.erasure.refused_message(key)
        text = "the raw message was erased on request"
        uow.events.add(Event(order=None, refused_message=key, at=now, action="refused_erased", text=text))
        uow.audit.add(AuditEntry(at=now, action=AuditAction.REFUSED_ERASED, subject=key, by=by))
        uow.commit()

    await store.run(work)


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
