"""Whose result it is: the patient that a laboratory system names is compared with the order's, within one unit of work.

Both are in the vault; what leaves this module names fields, never their content (law 7).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lab_agent.lis.lab_order import OrderPatient
from lab_agent.lis.serialization import load_order_patient, load_reported_patient
from lab_agent.orders.patient_data import unpack_lab_patient
from lab_agent.results.hold_reasons import Hold, held
from lab_agent.results.patient_comparison import PatientField, find_differences
from lab_agent.results.records import HoldReason, ReportRecord
from lab_agent.settings.groups import ResultsSettings
from lab_agent.shared.ids import OrderKey
from lab_agent.store.unit_of_work import UnitOfWork

_CANNOT_COMPARE = "whose it is was not compared: the order's identification data is not kept any more"


@dataclass(frozen=True, slots=True)
class PatientCheck:
    """What came of comparing: why the report waits, if it does, and what the order's timeline should say when it goes."""

    hold: Hold | None = None
    remark: str = ""


def check_patient(uow: UnitOfWork, report: ReportRecord, order: OrderKey, settings: ResultsSettings) -> PatientCheck:
    """Compare the patient that a report names with that of its order."""
    mode = settings.patient_mismatch
    reported = None if mode == "ignore" else uow.vault.reported_patient(report.key)
    if reported is None or report.patient_confirmed_for == order:
        return PatientCheck()
    ordered = load_ordered_patient(uow, order)
    if ordered is None:
        return PatientCheck(remark=_CANNOT_COMPARE)
    return _judge(find_differences(load_reported_patient(reported), ordered, settings.unknown_birth_dates), mode)


def names_another_patient(uow: UnitOfWork, report: ReportRecord, order: OrderKey, settings: ResultsSettings) -> bool:
    """Whether a report names a patient who is not the order's, as far as both are known."""
    reported = None if settings.patient_mismatch == "ignore" else uow.vault.reported_patient(report.key)
    ordered = None if reported is None else load_ordered_patient(uow, order)
    if reported is None or ordered is None:
        return False
    return bool(find_differences(load_reported_patient(reported), ordered, settings.unknown_birth_dates))


def confirm_patient(report: ReportRecord, order: OrderKey) -> ReportRecord:
    """Record that an operator released the report although it names another patient: that is not asked again for this order."""
    return replace(report, patient_confirmed_for=order)


def _judge(differing: tuple[PatientField, ...], mode: str) -> PatientCheck:
    named = ", ".join(differing)
    if differing and mode == "hold":
        return PatientCheck(hold=held(HoldReason.PATIENT_MISMATCH, named))
    return PatientCheck(remark=f"names another patient than the order ({named})" if differing else "")


def load_ordered_patient(uow: UnitOfWork, order: OrderKey) -> OrderPatient | None:
    """The patient as the laboratory system got it; None once it was purged, or if it was never given."""
    identity = uow.vault.identity(order)
    patient = unpack_lab_patient(identity) if identity is not None else None
    return load_order_patient(patient) if patient is not None else None
