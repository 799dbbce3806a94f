"""The words of an order that templates may use, group by group: what they are called, and what they say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from lab_agent.domain.order import LabOrder, OrderAnswer, OrderContainer, OrderLine, OrderPatient, OrderSpecimen
from lab_agent.domain.values import Coding
from lab_agent.lis.hl7v2.escapes import STANDARD, escape
from lab_agent.lis.hl7v2.template import Encoded, Word
from lab_agent.lis.hl7v2.times import day, stamp

_ORDER = """order.key order.requisition order.requisition_system order.contract order.ordered_at order.sms order.email"""
_PATIENT = """patient.id patient.id_system patient.family patient.given patient.middle patient.name_type patient.anonymous
    patient.sex patient.birth_date patient.phones patient.emails patient.identifiers patient.identifier_systems"""
_LINE = """line.n line.key line.item line.lab_code line.code line.text line.ordered_at line.collected_at line.old_order_number
    line.identifiers line.notes line.specimen_type line.method line.supporting_info line.barcode line.second_barcode
    line.barcodes line.second_barcodes"""
_SPECIMEN = """specimen.n specimen.id specimen.type specimen.body_site specimen.collected_at specimen.method
    specimen.supporting_info specimen.barcode specimen.second_barcode specimen.container_type specimen.barcodes
    specimen.second_barcodes"""
_CONTAINER = """container.n container.barcode container.second_barcode container.type container.quantity"""
_ONCE = frozenset((*_ORDER.split(), *_PATIENT.split()))
_EACH = _ONCE | set(_LINE.split()) | {"cancel.reason"}

WORDS: Mapping[str, frozenset[str]] = {
    "once": _ONCE,
    "line": _EACH,
    "note": _EACH | {"note.n", "note.text"},
    "answer": _EACH | {"answer.n", "answer.type", "answer.link_id", "answer.text", "answer.values"},
    "specimen": _EACH | set(_SPECIMEN.split()),
    "container": _EACH | set(_SPECIMEN.split()) | set(_CONTAINER.split()),
    "end": _ONCE,
}
"""The words that may be used in the segments of each group."""


def order_words(order: LabOrder) -> dict[str, Word]:
    """Words of the order and its patient."""
    wanted = {option.channel: "Y" if option.wanted else "N" for option in order.notifications}
    return {
        "order.key": order.key,
        "order.requisition": order.requisition.value,
        "order.requisition_system": order.requisition.system,
        "order.contract": order.contract,
        "order.ordered_at": stamp(order.ordered_at),
        "order.sms": wanted.get("sms"),
        "order.email": wanted.get("email"),
        **_patient_words(order.patient, order.key),
    }


def _patient_words(patient: OrderPatient, order: str) -> dict[str, Word]:
    named = [one for one in (patient.global_identifier, *patient.identifiers) if one is not None]
    reach = {kind: tuple(one.value for one in patient.telecom if one.system == kind) for kind in ("phone", "email")}
    return {
        "patient.id": named[0].value if named else order,  # of its own for each order: strangers are never merged
        "patient.id_system": named[0].system if named else None,
        "patient.family": patient.family,
        "patient.given": next(iter(patient.given), None),
        "patient.middle": " ".join(patient.given[1:]) or None,
        "patient.name_type": "S" if patient.anonymous else "L" if patient.family else None,
        "patient.anonymous": "Y" if patient.anonymous else None,
        "patient.sex": patient.gender,
        "patient.birth_date": day(patient.birth_date) if patient.birth_date else None,
        "patient.phones": reach["phone"] or None,
        "patient.emails": reach["email"] or None,
        "patient.identifiers": tuple(one.value for one in patient.identifiers) or None,
        "patient.identifier_systems": tuple(one.system or "" for one in patient.identifiers) or None,
    }


def line_words(number: int, line: OrderLine, specimens: tuple[OrderSpecimen, ...]) -> dict[str, Word]:
    """Words of a line; those of its specimens are put together, for messages that have no place for each."""
    tubes = [tube for one in specimens for tube in one.containers]
    collected = [one.collected_at for one in specimens if one.collected_at]
    return {
        "line.n": str(number),
        "line.key": line.key,
        "line.item": line.item,
        "line.lab_code": line.lab_code,
        "line.code": line.lab_code or line.item,
        "line.text": line.text,
        "line.ordered_at": stamp(line.ordered_at),
        "line.collected_at": stamp(min(collected)) if collected else None,
        "line.old_order_number": line.old_order_number,
        "line.identifiers": tuple(one.value for one in line.identifiers) or None,
        "line.notes": line.notes or None,
        "line.specimen_type": _first(one.type for one in specimens),
        "line.method": _first(one.method for one in specimens),
        "line.supporting_info": _first(one.supporting_info for one in specimens),
        **_barcodes("line", tubes),
    }


def specimen_words(number: int, specimen: OrderSpecimen) -> dict[str, Word]:
    """Words of a specimen."""
    return {
        "specimen.n": str(number),
        "specimen.id": specimen.id,
        "specimen.type": specimen.type,
        "specimen.body_site": specimen.body_site,
        "specimen.collected_at": stamp(specimen.collected_at) if specimen.collected_at else None,
        "specimen.method": specimen.method,
        "specimen.supporting_info": specimen.supporting_info,
        "specimen.container_type": _first(tube.type for tube in specimen.containers),
        **_barcodes("specimen", specimen.containers),
    }


def container_words(number: int, tube: OrderContainer) -> dict[str, Word]:
    """Words of a tube."""
    return {
        "container.n": str(number),
        "container.barcode": tube.barcode,
        "container.second_barcode": tube.second_barcode,
        "container.type": tube.type,
        "container.quantity": format(tube.quantity, "f") if tube.quantity is not None else None,
    }


def answer_words(number: int, answer: OrderAnswer) -> dict[str, Word]:
    """Words of an answer; `false` and 0 are answers."""
    kinds = {_kind(value) for value in answer.values}
    kind = kinds.pop() if len(kinds) == 1 else "ST"
    values = tuple(Encoded(_answer_value(value, kind)) for value in answer.values)
    return {
        "answer.n": str(number),
        "answer.type": kind if values else None,
        "answer.link_id": answer.link_id,
        "answer.text": answer.text,
        "answer.values": values or None,
    }


def _kind(value: bool | int | Decimal | str | Coding) -> str:
    match value:
        case bool():
            return "ID"
        case int() | Decimal():
            return "NM"
        case Coding():
            return "CWE"
        case _:
            return "ST"


def _answer_value(value: bool | int | Decimal | str | Coding, kind: str) -> str:
    match value:
        case bool():
            return "Y" if value else "N"
        case Coding() if kind == "CWE":
            parts = (value.code, value.display or "", value.system or "")
            return STANDARD.component.join(map(escape, parts)).rstrip(STANDARD.component)
        case Coding():
            return escape(value.code)
        case Decimal():
            return format(value, "f")
        case _:
            return escape(str(value))


def _barcodes(group: str, tubes: Iterable[OrderContainer]) -> dict[str, Word]:
    listed = list(tubes)
    first = tuple(tube.barcode for tube in listed if tube.barcode)
    second = tuple(tube.second_barcode for tube in listed if tube.second_barcode)
    return {
        f"{group}.barcode": _first(first),
        f"{group}.second_barcode": _first(second),
        f"{group}.barcodes": first or None,
        f"{group}.second_barcodes": second or None,
    }


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value), None)
