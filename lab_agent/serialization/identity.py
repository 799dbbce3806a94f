"""The identity of an order's patient as the vault stores it: the Patients as fetched, and the patient as the LIS sees them."""

from __future__ import annotations

from lab_agent import exact_json


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
