"""Orders and results to and from JSON, digit for digit.

This is the form that LIS adapters exchange by file, that the store keeps and that `lab-agent schema` prints. Reading is strict,
so that a misspelt field is reported and not lost: unknown fields are rejected, times need an offset, a value is a `Decimal` from
the first character to the last. All errors are reported at once, each with its path and a hint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import tzinfo
from typing import Any

from lab_agent.lis.lab_messages import AccessionUpdate, LabMessage, LabRejection, LabReport, ReportedPatient
from lab_agent.lis.lab_order import LabOrder, OrderPatient
from lab_agent.lis.serialization.json_schema import build_schema, limit_name_lengths
from lab_agent.lis.serialization.types import read_as, to_json_object
from lab_agent.lis.serialization.validation import message_issues, order_issues
from lab_agent.shared import exact_json
from lab_agent.shared.validation_errors import ValidationIssue, raise_issues

__all__ = [
    "dump_message",
    "dump_order",
    "dump_reported_patient",
    "join_identity",
    "load_message",
    "load_order",
    "load_order_patient",
    "load_reported_patient",
    "load_stored_message",
    "message_schema",
    "order_schema",
    "split_identity",
    "validate_message",
]

_MessageType = type[LabReport] | type[LabRejection] | type[AccessionUpdate]
_MESSAGE_TYPES: Mapping[str, _MessageType] = {
    "report": LabReport,
    "rejection": LabRejection,
    "accession_update": AccessionUpdate,
}


_SEALED = {"line_notes": ("lines", "key", "notes"), "specimen_infos": ("specimens", "id", "supporting_info")}
"""Texts of the clinic, in which people write names: where the identity part of an order has them, and the medical part had them:
of which objects, by what these are named, in which field."""


def dump_order(order: LabOrder) -> bytes:
    """Write an order. Raises `DataInvalidError` for what JSON cannot say exactly (a float, NaN, a time without an offset)."""
    return _dump(to_json_object(order))


def load_order(data: bytes) -> LabOrder:
    """Read an order. Raises `DataInvalidError`, naming every bad field."""
    return _read_order(_parse_object(data))


def dump_message(message: LabMessage) -> bytes:
    """Write a report, a rejection or an accession update. Raises `DataInvalidError` for what JSON cannot say exactly."""
    kind = next(name for name, target in _MESSAGE_TYPES.items() if isinstance(message, target))
    return _dump({"kind": kind, **to_json_object(message)})


def load_message(data: bytes, *, time_zone: tzinfo | None = None) -> LabMessage:
    """Read a message; its `kind` is `report` (the default), `rejection` or `accession_update`.

    A time without an offset is rejected, unless `time_zone` says which zone the laboratory means by it. Raises
    `DataInvalidError`, naming every bad field; also for a duplicate key.
    """
    target, tree = _message_type(_parse_object(data, exact_json.loads_strictly))
    return read_as(target, tree, issues=message_issues(target, tree, time_zone), time_zone=time_zone)


def load_stored_message(data: bytes) -> LabMessage:
    """Read a message that we stored: it met the rules when it came, and later rules must not lose it."""
    target, tree = _message_type(_parse_object(data))
    return read_as(target, tree, issues=[])


def dump_reported_patient(patient: ReportedPatient) -> bytes:
    """Write whose result it is, as a laboratory system says: for the vault, never beside the report (law 7)."""
    return _dump(to_json_object(patient))


def load_reported_patient(data: bytes) -> ReportedPatient:
    """Read what `dump_reported_patient` wrote. Raises `DataInvalidError`."""
    return read_as(ReportedPatient, _parse_object(data), issues=[])


def load_order_patient(data: bytes) -> OrderPatient:
    """Read the identity part of `split_identity`. Raises `DataInvalidError`."""
    patient = {key: value for key, value in _parse_object(data).items() if key not in _SEALED}
    return read_as(OrderPatient, patient, issues=[])


def validate_message(message: LabMessage) -> LabMessage:
    """Check a message that was made in Python by the same rules, and give it as it reads back.

    The zone of `issued` stays: it says whether that time exists twice. Raises `DataInvalidError`, naming every bad field.
    """
    read = load_message(dump_message(message))
    return replace(read, issued=message.issued) if isinstance(read, LabReport) and isinstance(message, LabReport) else read


def split_identity(order: LabOrder) -> tuple[bytes, bytes]:
    """Split an order into its medical part and what may identify the patient, texts included (law 7): `(medical, identity)`."""
    tree = to_json_object(order)
    identity = tree.pop("patient")
    for name, (objects, key, text) in _SEALED.items():
        if found := {each[key]: each.pop(text) for each in tree.get(objects, ()) if each.get(text)}:
            identity[name] = found
    return _dump(tree), _dump(identity)


def join_identity(medical: bytes, identity: bytes) -> LabOrder:
    """Join the two parts of `split_identity` again; a purged identity is `{}`. Raises `DataInvalidError`."""
    tree, patient = _parse_object(medical), _parse_object(identity)
    for name, (objects, key, text) in _SEALED.items():
        found = patient.pop(name, {})
        for each in tree.get(objects, ()):
            each.update({text: found[each[key]]} if each[key] in found else {})
    return _read_order({**tree, "patient": patient})


def order_schema() -> dict[str, Any]:
    """Give the JSON Schema of an order, as `dump_order` writes it."""
    return build_schema({"": LabOrder}, "LabOrder")


def message_schema() -> dict[str, Any]:
    """Give the JSON Schema of a message, as `load_message` reads it."""
    return limit_name_lengths(build_schema(_MESSAGE_TYPES, "LabMessage"))


def _read_order(tree: dict[str, Any]) -> LabOrder:
    return read_as(LabOrder, tree, issues=order_issues(tree))


def _message_type(tree: dict[str, Any]) -> tuple[_MessageType, dict[str, Any]]:
    kind = tree.pop("kind", "report")
    target = _MESSAGE_TYPES.get(kind) if isinstance(kind, str) else None
    if target is None:
        raise_issues([ValidationIssue(("kind",), "unknown value", 'write "report", "rejection" or "accession_update"')])
    return target, tree


def _parse_object(data: bytes, loads: Callable[[bytes], Any] = exact_json.loads) -> dict[str, Any]:
    try:
        tree = loads(exact_json.strip_byte_order_mark(data))
    except RecursionError:
        raise_issues([ValidationIssue((), "is nested too deeply", "send one object of the published schema")])
    if not isinstance(tree, dict):
        raise_issues([ValidationIssue((), "is not a JSON object", "send one object of the published schema")])
    return tree


def _dump(tree: dict[str, Any]) -> bytes:
    try:
        return exact_json.dumps(tree)
    except UnicodeEncodeError:
        raise_issues(
            [ValidationIssue((), "contains half of a character (a lone surrogate)", "give text that can be written in UTF-8")]
        )
