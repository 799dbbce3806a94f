"""The identity of an order's patient as the vault stores it, and as patients are compared and searched for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lab_agent.fhir.order_parser import parse_patients
from lab_agent.lis.serialization import load_order_patient, load_reported_patient
from lab_agent.orders.patient_search import KnownPatient, plain_identifier, words_of
from lab_agent.shared import exact_json
from lab_agent.shared.errors import DataInvalidError
from lab_agent.shared.values import Identifier


def pack_identity(patients: bytes, lab_patient: bytes | None = None) -> bytes:
    """One JSON value of both parts, which are JSON already; the second is there once the order was accepted."""
    return b'{"patients":' + patients + b',"lab_patient":' + (lab_patient or b"null") + b"}"


def unpack_patients(packed: bytes) -> bytes:
    """The Patient resources as fetched (the identification part of the graph)."""
    return exact_json.dumps(exact_json.loads(packed)["patients"])


def unpack_lab_patient(packed: bytes) -> bytes | None:
    """The patient as the LIS sees them (the identity part of `LabOrder`); None where the order was not accepted."""
    patient = exact_json.loads(packed)["lab_patient"]
    return None if patient is None else exact_json.dumps(patient)


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
    """What a result says of its patient; None if unreadable."""
    try:
        found = load_reported_patient(sealed)
    except DataInvalidError:
        return None
    dates = frozenset({found.birth_date.isoformat()} if found.birth_date is not None else ())
    return KnownPatient(
        names=(_words(found.family, found.given, None),), birth_dates=dates, identifiers=_plain(found.identifiers)
    )


def _plain(identifiers: Sequence[Identifier]) -> frozenset[str]:
    return frozenset(plain_identifier(each.value) for each in identifiers)
