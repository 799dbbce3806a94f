"""Converts OBX-5 by its type (OBX-2) into one of the interface's value forms; numbers and texts are read by `value_reading`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from decimal import Decimal
from typing import Any

from lab_agent.lis.hl7v2.field_map import FieldMap
from lab_agent.lis.hl7v2.parser import HL7_NULL, FieldValue, Segment
from lab_agent.lis.hl7v2.results.obx_texts import has_control_character, join_powers
from lab_agent.lis.hl7v2.timestamps import parse_date_or_time, parse_time_of_day
from lab_agent.lis.value_reading import (
    BLANKS,
    COMPARATORS,
    Declared,
    Number,
    UnreadableValueError,
    ValueFault,
    ValueRules,
    add_unit,
    check_spreadsheet,
    is_amount,
    read_number,
    read_text,
    read_value,
    readable_text,
)
from lab_agent.shared.values import CodeableConcept, Coding, Quantity, Range, Ratio

LOINC = "http://loinc.org"
TEXT_TYPES = frozenset({"ST", "TX", "FT"})
_LONGEST_TYPE = 3
CODED_TYPES = frozenset({"CE", "CWE", "CNE", "CF"})
CODE_STRING_TYPES = frozenset({"IS", "ID"})
_PRECISION = 2
"""The component of a TS that says how exact it is."""
_SN_COMPONENTS = 4
_PLAIN_AMOUNT = re.compile(r"(?:1:)?\d+(?:[.,]\d+)?(?:\s\D*)?", re.ASCII)
_PLAIN_TYPES = TEXT_TYPES | CODE_STRING_TYPES | {"NM", "SN"}


_MORE_PARTS = "has components (^) or sub-components (&) that such a value does not have: have the laboratory system send it alone"


class InvalidValueError(ValueError):
    """An invalid value; the text says why without quoting it."""


def is_text_for_number(value: FieldValue, field_map: FieldMap) -> bool:
    """Whether an OBX-5 of type NM is a text for a number that there is not: `****`, `neg`."""
    try:
        read = read_value(_only_part(value), None, value_rules(field_map), Declared.NUMBER)
    except (InvalidValueError, UnreadableValueError):
        return False
    return isinstance(read, str) and bool(read)


def value_rules(field_map: FieldMap) -> ValueRules:
    """How values are written, as the map says it."""
    return ValueRules(field_map.results.decimal_comma, field_map.results.numeric_text)


@dataclass(frozen=True, slots=True)
class ObxValueReader:
    """Reads values. `zone` applies to times without one."""

    field_map: FieldMap
    zone: tzinfo | None

    def read_value(self, obx: Segment, *, is_line: bool = False) -> dict[str, Any]:
        """Return the value as a field of `ReportedObservation`. `is_line`: it is one line of a longer text.

        Raises `InvalidValueError`, `InvalidTimestampError`, `UnreadableValueError`.
        """
        kind, values = obx.text(2).upper(), obx.repetitions(5)
        if not values:
            raise InvalidValueError("has no value")
        if kind in _PLAIN_TYPES and not is_line and len(values) == 1 and _says_about(obx):
            raise UnreadableValueError(ValueFault.ABOUT)
        if kind in TEXT_TYPES or kind in CODE_STRING_TYPES:
            return self._read_text(obx, values, is_line=is_line)
        if kind in CODED_TYPES:
            return {"value_codeable_concept": self._read_concept(obx, values)}
        if len(values) > 1:
            raise InvalidValueError(f"has {len(values)} values of the type {_quoted_type(kind)}".rstrip() + " instead of one")
        return self._read_single(kind, obx, values[0])

    def read_unit(self, obx: Segment) -> dict[str, str | None]:
        """OBX-6 as the unit of a quantity: what the laboratory calls it, with the code of a system that has an address."""
        codings = list(self._unit_codings(obx.first_repetition(6)))
        if not codings:
            name = self._checked(readable_text(obx.first_repetition(6).component_text(2)), "OBX-6")
            return {"unit": name} if name else {}
        unit = codings[0].display or codings[0].code
        coded = next((each for each in codings if each.system and ":" in each.system), None)
        if coded is None:  # a name such as ISO+: no code can be sent without its address
            return {"unit": unit}
        return {"unit": unit, "system": coded.system, "code": coded.code}

    def _unit_codings(self, value: FieldValue) -> Iterator[Coding]:
        """The codings of a unit; `10^9/L` and `kg/m^2` are one word whose caret was not escaped."""
        mark = value.separators.component
        parts = join_powers(value.raw.split(mark), mark)
        is_system = len(parts) == 2 and len(value.components) > 2 and self._code_system(parts[1].strip()) not in {None, parts[1]}
        texts = ["" if raw == HL7_NULL else FieldValue(raw, value.separators, value.encoding).text for raw in parts]
        words = [*([texts[0], "", texts[1]] if is_system else texts), *[""] * 6]
        for code, display, system in (words[:3], words[3:6]):
            if code.strip():
                yield self._build_coding(code, display, system, "OBX-6")

    def read_number(self, text: str) -> Decimal | None:
        """Read a decimal; None if it is not one for certain."""
        try:
            found = read_number(text, value_rules(self.field_map))
        except UnreadableValueError:
            return None
        return found.value if found and not found.comparator else None

    def read_codings(self, value: FieldValue) -> Iterator[Coding]:
        """The codings of a coded value: the first triple and the alternative one."""
        return (coding for coding in (self.read_coding(value, 1), self.read_coding(value, 4)) if coding is not None)

    def read_coding(self, value: FieldValue, first: int) -> Coding | None:
        """The coding whose code is in component `first`."""
        code, display, system = (_whole_component(value, first + step) for step in range(3))
        return self._build_coding(code, display, system, "a code") if code.strip() else None

    def _build_coding(self, code: str, display: str, system: str, where: str) -> Coding:
        found = self._checked(code.strip(), where)
        return Coding(system=self._code_system(system.strip()), code=found, display=readable_text(display) or None)

    @staticmethod
    def _checked(text: str, where: str) -> str:
        if has_control_character(text):
            raise InvalidValueError(f"has a control character in {where}")
        return text

    def _read_single(self, kind: str, obx: Segment, value: FieldValue) -> dict[str, Any]:
        match kind:
            case "NM":
                return self._read_plain(obx, _only_part(value), Declared.NUMBER)
            case "SN":
                return self._read_structured_numeric(obx, value)
            case "DT" | "DTM" | "TS":
                text = _only_part(value, may_have=_PRECISION if kind == "TS" else 1)
                return {"value_date_time": parse_date_or_time(text, self.zone)}
            case "TM":
                return {"value_time": parse_time_of_day(_only_part(value))}
            case _:
                raise InvalidValueError(f"has the unsupported type {_quoted_type(kind)}".rstrip() + " in OBX-2")

    def _read_text(self, obx: Segment, values: Sequence[FieldValue], *, is_line: bool) -> dict[str, Any]:
        text = "\n".join(value.text for value in values)
        if not is_line:
            return self._read_plain(obx, text, Declared.TEXT)
        text = read_text(text)  # may be empty: such a line parts two paragraphs
        return {"value_string": self._with_unit(text, obx) if is_amount(text) else text}

    def _read_plain(self, obx: Segment, text: str, declared: Declared) -> dict[str, Any]:
        unit = self.read_unit(obx)
        read = read_value(text, unit.get("unit"), value_rules(self.field_map), declared)
        if isinstance(read, Number):
            return {"value_quantity": Quantity(value=read.value, comparator=read.comparator, **unit)}
        if not read:
            raise InvalidValueError("has no value")
        return {"value_string": read}

    def _has_unit(self, obx: Segment) -> bool:
        return bool(self.read_unit(obx).get("unit"))

    def _with_unit(self, text: str, obx: Segment) -> str:
        return add_unit(text, self.read_unit(obx).get("unit"))

    def _read_concept(self, obx: Segment, values: Sequence[FieldValue]) -> CodeableConcept:
        """The answer; several are several values, and no synonyms."""
        if len({value.raw.rstrip(value.separators.component) for value in values}) > 1:
            raise InvalidValueError(
                f"has {len(values)} coded values instead of one: have the laboratory system send an OBX for each, "
                "with a number of its own in OBX-4"
            )
        text = read_text(self._concept_text(values[0]))
        codings = tuple(self._concept_codings(values[0]))
        return CodeableConcept(coding=codings, text=(self._with_unit(text, obx) if is_amount(text) else text) or None)

    def _concept_codings(self, value: FieldValue) -> Iterator[Coding]:
        """The codings of an answer; `10^5 CFU/mL` without a code system is a text whose caret was not escaped."""
        return iter(()) if self._is_power(value) else self.read_codings(value)

    def _concept_text(self, value: FieldValue) -> str:
        if self._is_power(value):
            return value.text
        return next((text for number in (9, 2, 5, 4, 1) if (text := _whole_component(value, number)).strip()), "")

    @staticmethod
    def _is_power(value: FieldValue) -> bool:
        mark = value.separators.component
        return value.raw.count(mark) == 1 and len(join_powers(value.raw.split(mark), mark)) == 1

    def _read_structured_numeric(self, obx: Segment, value: FieldValue) -> dict[str, Any]:
        """SN as a quantity, range or ratio; what is none of them is a text: `2+`, `<1:8`, or a titre with a unit of its own."""
        sign, first, separator, second = (_whole_component(value, number).strip(BLANKS) for number in range(1, 5))
        if any(value.components[_SN_COMPONENTS:]):
            raise InvalidValueError(_MORE_PARTS)
        text = {"value_string": self._with_unit(read_text(f"{sign}{first}{separator}{second}"), obx)}
        if (sign and sign not in COMPARATORS) or not first or bool(separator) != bool(second):
            return text
        low = self._read_part(obx, first, COMPARATORS.get(sign))
        if not second:
            return {"value_quantity": low}
        high = self._read_part(obx, second)
        if low.comparator or high.comparator:
            return text
        if separator == "-":
            return {"value_range": Range(low=low, high=high)}
        if separator in {":", "/"} and not self._has_unit(obx):
            return {"value_ratio": Ratio(numerator=low, denominator=high)}
        return text

    def _read_part(self, obx: Segment, text: str, comparator: str | None = None) -> Quantity:
        check_spreadsheet(text)
        found = read_number(text, value_rules(self.field_map))
        if found is None:
            raise UnreadableValueError(ValueFault.NOT_A_NUMBER)
        if found.comparator and comparator and found.comparator != comparator:
            raise UnreadableValueError(ValueFault.COMPARATOR)
        return Quantity(value=found.value, comparator=comparator or found.comparator, **self.read_unit(obx))

    def _code_system(self, name: str) -> str | None:
        """The URL of a code system; local codes (`L`, `99…`) have none."""
        known = self.field_map.table("code_systems").get(name.upper()) or self.field_map.table("code_systems").get(name)
        if known:
            return known
        return None if not name or name.upper() == "L" or name.startswith("99") else name


def put_off_scale(value: Mapping[str, Any], signs: Collection[str]) -> dict[str, Any]:
    """The value with the comparator that OBX-8 has for it: `>` beside 5000 is above the scale of the instrument.

    A text that is no amount stays as it is. Raises `UnreadableValueError` for another comparator, or an amount that takes none.
    """
    match dict(value):
        case {"value_quantity": Quantity() as quantity} if {*signs} <= {(quantity.comparator or min(signs))[0]}:
            return {"value_quantity": replace(quantity, comparator=quantity.comparator or min(signs))}
        case {"value_string": str() as text} if not is_amount(text) or {*signs} == {text[0]}:
            return {"value_string": text}
        case {"value_string": str() as text} if _PLAIN_AMOUNT.fullmatch(text) and len(signs) == 1:
            return {"value_string": f"{min(signs)}{text}"}
        case {"value_codeable_concept": CodeableConcept() as concept} if not is_amount(concept.text or ""):
            return dict(value)
    raise UnreadableValueError(ValueFault.COMPARATOR)


def _only_part(value: FieldValue, *, may_have: int = 1) -> str:
    """The text of a value that has one part; components up to `may_have` may stand behind it. Raises `InvalidValueError`."""
    parts = value.components
    mark = value.separators.subcomponent
    if any(parts[may_have:]) or (mark and mark in parts[0].raw.strip(mark)):
        raise InvalidValueError(_MORE_PARTS)
    return parts[0].text


def _whole_component(value: FieldValue, number: int) -> str:
    """A component with its sub-components: `A & B` is one text, whose `&` was not escaped."""
    parts = value.components
    raw = parts[number - 1].raw if number <= len(parts) else ""
    return "" if raw == HL7_NULL else parts[number - 1].text if raw else ""


def _says_about(obx: Segment) -> bool:
    """Whether a `~` stands before the value: it parts repetitions, and some write it for "about"."""
    mark, value = obx.separators.repetition, obx.raw(5).strip()
    return mark == "~" and value.startswith(mark) and is_amount(value.strip(f"{mark}{obx.separators.component} "))


def _quoted_type(kind: str) -> str:
    """A type as a reason names it; empty for a text that is longer than any type of HL7 v2, and may be a name (law 7)."""
    return (kind if len(kind) <= _LONGEST_TYPE else "") if kind else "(none)"
