"""Field templates such as `{patient.family}^{patient.given}`, and the values of their placeholders, group by group.

Placeholders are escaped; everything else is HL7 as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from lab_agent.lis.hl7v2.parser import STANDARD_SEPARATORS, escape
from lab_agent.lis.hl7v2.timestamps import format_date, format_timestamp
from lab_agent.lis.lab_order import (
    LabOrder,
    OrderAnswer,
    OrderContainer,
    OrderLine,
    OrderPatient,
    OrderSpecimen,
    PatientName,
    format_answer_path,
)
from lab_agent.shared.values import Coding

_NAME_TYPES: Mapping[str | None, str] = {"official": "L", "usual": "D", "maiden": "M", "nickname": "N", "anonymous": "S"}
_PLACEHOLDER = re.compile(r"\{([a-z_]+\.[a-z_]+)(?:\|([a-z_]+))?\}")


class EncodedText(str):
    """A value that is HL7 already, separators included."""

    __slots__ = ()


TemplateValue = str | tuple[str, ...] | None
TemplateValues = Mapping[str, TemplateValue]
LookupTables = Mapping[str, Mapping[str, str]]


def find_placeholders(template: str) -> Iterator[tuple[str, str | None]]:
    """The placeholders of a template, each with its lookup table if it has one."""
    return ((found[1], found[2]) for found in _PLACEHOLDER.finditer(template))


def render_field(template: str, values: TemplateValues, tables: LookupTables) -> str:
    """Render one field; a placeholder with several values gives one repetition for each."""
    used = [values.get(word) for word, _ in find_placeholders(template)]
    lengths = [len(value) for value in used if isinstance(value, tuple)]
    count = max(lengths) if lengths else 1
    repetitions = (_render_repetition(template, values, tables, index) for index in range(count))
    return STANDARD_SEPARATORS.repetition.join(repetitions).rstrip(STANDARD_SEPARATORS.repetition)


def has_content(fields: Mapping[int, str], values: TemplateValues) -> bool:
    """Whether any placeholder but the counters has a value, or there are no placeholders at all."""
    used = {word for template in fields.values() for word, _ in find_placeholders(template) if not word.endswith(".n")}
    return not used or any(values.get(word) for word in used)


def _render_repetition(template: str, values: TemplateValues, tables: LookupTables, index: int) -> str:
    has_value = False

    def substitute(found: re.Match[str]) -> str:
        nonlocal has_value
        text = _value_at(values.get(found[1]), index)
        if not text:
            return ""
        has_value = True
        if found[2]:
            return escape(tables.get(found[2], {}).get(text, text))
        return text if isinstance(text, EncodedText) else escape(text)

    rendered = _PLACEHOLDER.sub(substitute, template)
    if not has_value and any(True for _ in find_placeholders(template)):
        return ""  # constants beside empty placeholders would be noise, such as ^^^L
    return _strip_trailing_separators(rendered)


def _value_at(value: TemplateValue, index: int) -> str | None:
    if isinstance(value, tuple):
        return value[index] if index < len(value) else None
    return value


def _strip_trailing_separators(field: str) -> str:
    return field.rstrip(STANDARD_SEPARATORS.component + STANDARD_SEPARATORS.subcomponent)


def _names(group: str, names: str) -> frozenset[str]:
    return frozenset(f"{group}.{name}" for name in names.split())


_ORDER_LEVEL = (
    _names("order", "key requisition requisition_system contract ordered_at sms email")
    | _names(
        "patient",
        "id id_system family given middle name_type anonymous sex birth_date phones emails identifiers identifier_systems",
    )
    | _names("patient", "ids id_systems service_id service_id_system name_text other_names")
)
_LINE_LEVEL = (
    _ORDER_LEVEL
    | _names("line", "n key item lab_code code text ordered_at collected_at old_order_number identifiers notes specimen_type")
    | _names("line", "method supporting_info barcode second_barcode barcodes second_barcodes")
    | _names("line", "collected_until other_codes other_numbers other_number_systems")
    | _names("cancel", "reason")
)
_SPECIMEN_LEVEL = (
    _LINE_LEVEL
    | _names("specimen", "n id type body_site collected_at method supporting_info container_type")
    | _names("specimen", "barcode second_barcode barcodes second_barcodes")
    | _names("specimen", "collected_until other_numbers other_number_systems")
)

PLACEHOLDERS_BY_GROUP: Mapping[str, frozenset[str]] = {
    "once": _ORDER_LEVEL,
    "line": _LINE_LEVEL,
    "note": _LINE_LEVEL | _names("note", "n text"),
    "answer": _LINE_LEVEL | _names("answer", "n type link_id path repeats text values unit"),
    "specimen": _SPECIMEN_LEVEL,
    "container": _SPECIMEN_LEVEL | _names("container", "n barcode second_barcode type quantity"),
    "end": _ORDER_LEVEL,
}
"""The placeholders that may be used in the segments of each group."""


def order_values(order: LabOrder) -> dict[str, TemplateValue]:
    """Values of the order and its patient."""
    wanted = {option.channel: "Y" if option.wanted else "N" for option in order.notifications}
    return {
        "order.key": order.key,
        "order.requisition": order.requisition.value,
        "order.requisition_system": order.requisition.system,
        "order.contract": order.contract,
        "order.ordered_at": format_timestamp(order.ordered_at),
        "order.sms": wanted.get("sms"),
        "order.email": wanted.get("email"),
        **_patient_values(order.patient, order.key),
    }


def _patient_values(patient: OrderPatient, order: str) -> dict[str, TemplateValue]:
    own = None if patient.anonymous else patient.service_identifier
    identifiers = [one for one in (patient.global_identifier, own, *patient.identifiers) if one is not None]
    ids = tuple(one.value for one in identifiers) or (order,)  # unique: different people are never merged
    systems = tuple(one.system or "" for one in identifiers)
    telecom = {kind: tuple(one.value for one in patient.telecom if one.system == kind) for kind in ("phone", "email")}
    return {
        "patient.id": ids[0],
        "patient.id_system": systems[0] or None if systems else None,
        "patient.ids": ids,
        "patient.id_systems": systems or None,
        "patient.service_id": patient.service_identifier.value if patient.service_identifier else None,
        "patient.service_id_system": patient.service_identifier.system if patient.service_identifier else None,
        "patient.family": patient.family,
        "patient.given": next(iter(patient.given), None),
        "patient.middle": " ".join(patient.given[1:]) or None,
        "patient.name_type": "S" if patient.anonymous else "L" if patient.family else None,
        "patient.name_text": patient.name_text,
        "patient.other_names": tuple(EncodedText(_encode_name(name)) for name in patient.other_names) or None,
        "patient.anonymous": "Y" if patient.anonymous else None,
        "patient.sex": patient.gender,
        "patient.birth_date": format_date(patient.birth_date) if patient.birth_date else None,
        "patient.phones": telecom["phone"] or None,
        "patient.emails": telecom["email"] or None,
        "patient.identifiers": tuple(one.value for one in patient.identifiers) or None,
        "patient.identifier_systems": tuple(one.system or "" for one in patient.identifiers) or None,
    }


def _encode_name(name: PatientName) -> str:
    """A name as XPN: family, given, further given names, and in the seventh component its type (HL7 table 0200)."""
    family = name.family or (name.text if not name.given else None) or ""
    parts = (family, next(iter(name.given), ""), " ".join(name.given[1:]), "", "", "", _NAME_TYPES.get(name.use, "U"))
    return STANDARD_SEPARATORS.component.join(map(escape, parts))


def line_values(number: int, line: OrderLine, specimens: tuple[OrderSpecimen, ...]) -> dict[str, TemplateValue]:
    """Values of a line, including those of its specimens for messages without specimen segments."""
    tubes = [tube for one in specimens for tube in one.containers]
    collected = [one.collected_at for one in specimens if one.collected_at]
    until = [one.collected_until for one in specimens if one.collected_until]
    return {
        "line.n": str(number),
        "line.key": line.key,
        "line.item": line.item,
        "line.lab_code": line.lab_code,
        "line.code": line.lab_code or line.item,
        "line.text": line.text,
        "line.ordered_at": format_timestamp(line.ordered_at),
        "line.collected_at": format_timestamp(min(collected)) if collected else None,
        "line.collected_until": format_timestamp(max(until)) if until else None,
        "line.other_codes": tuple(EncodedText(_encode_answer(code, "CWE")) for code in line.other_codes) or None,
        "line.old_order_number": line.old_order_number,
        "line.identifiers": tuple(one.value for one in line.identifiers) or None,
        "line.notes": line.notes or None,
        "line.specimen_type": _first_present(one.type for one in specimens),
        "line.method": _first_present(one.method for one in specimens),
        "line.supporting_info": _first_present(one.supporting_info for one in specimens),
        **_barcode_values("line", tubes),
    }


def specimen_values(number: int, specimen: OrderSpecimen) -> dict[str, TemplateValue]:
    """Values of a specimen."""
    return {
        "specimen.n": str(number),
        "specimen.id": specimen.id,
        "specimen.type": specimen.type,
        "specimen.body_site": specimen.body_site,
        "specimen.collected_at": format_timestamp(specimen.collected_at) if specimen.collected_at else None,
        "specimen.collected_until": format_timestamp(specimen.collected_until) if specimen.collected_until else None,
        "specimen.method": specimen.method,
        "specimen.supporting_info": specimen.supporting_info,
        "specimen.container_type": _first_present(tube.type for tube in specimen.containers),
        **_barcode_values("specimen", specimen.containers),
    }


def container_values(number: int, tube: OrderContainer) -> dict[str, TemplateValue]:
    """Values of a tube."""
    return {
        "container.n": str(number),
        "container.barcode": tube.barcode,
        "container.second_barcode": tube.second_barcode,
        "container.type": tube.type,
        "container.quantity": format(tube.quantity, "f") if tube.quantity is not None else None,
    }


def answer_values(number: int, answer: OrderAnswer) -> dict[str, TemplateValue]:
    """Values of an answer; `false` and 0 are answers."""
    kinds, units = {_obx_value_type(value) for value in answer.values}, set(answer.units)
    kind = kinds.pop() if len(kinds) == 1 and len(units) < 2 else "ST"
    values = tuple(EncodedText(_encode_answer(value, kind)) for value in answer.values)
    if len(units) > 1:  # OBX-6 has room for one unit
        pairs = zip(values, answer.units, strict=True)
        values = tuple(EncodedText(f"{value} {escape(unit)}".rstrip()) for value, unit in pairs)
    return {
        "answer.n": str(number),
        "answer.type": kind if values else None,
        "answer.link_id": answer.link_id,
        "answer.path": format_answer_path(answer.path),
        "answer.repeats": ".".join(str(step.repeat) for step in answer.path if step.repeat) or None,
        "answer.text": answer.text,
        "answer.values": values or None,
        "answer.unit": next(iter(units)) if len(units) == 1 else None,
    }


def _obx_value_type(value: bool | int | Decimal | str | Coding) -> str:
    match value:
        case bool():
            return "ID"
        case int() | Decimal():
            return "NM"
        case Coding():
            return "CWE"
        case _:
            return "ST"


def _encode_answer(value: bool | int | Decimal | str | Coding, value_type: str) -> str:
    match value:
        case bool():
            return "Y" if value else "N"
        case Coding() if value_type == "CWE":
            parts = (value.code, value.display or "", value.system or "")
            return STANDARD_SEPARATORS.component.join(map(escape, parts)).rstrip(STANDARD_SEPARATORS.component)
        case Coding():
            return escape(value.code)
        case Decimal():
            return format(value, "f")
        case _:
            return escape(str(value))


def _barcode_values(group: str, tubes: Iterable[OrderContainer]) -> dict[str, TemplateValue]:
    listed = list(tubes)
    first = tuple(tube.barcode for tube in listed if tube.barcode)
    second = tuple(tube.second_barcode for tube in listed if tube.second_barcode)
    others = tuple(one for tube in listed for one in tube.other_identifiers)
    return {
        f"{group}.barcode": _first_present(first),
        f"{group}.second_barcode": _first_present(second),
        f"{group}.barcodes": first or None,
        f"{group}.second_barcodes": second or None,
        f"{group}.other_numbers": (*second, *(one.value for one in others)) or None,
        f"{group}.other_number_systems": (*("" for _ in second), *(one.system or "" for one in others)) or None,
    }


def _first_present(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value), None)
