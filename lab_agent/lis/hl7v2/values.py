"""OBX-5, by OBX-2: a value in one of the interface's forms. Decimals keep their digits; what cannot be read is not guessed at."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from decimal import Decimal
from typing import Any

from lab_agent.domain.values import CodeableConcept, Coding, Quantity, Range, Ratio
from lab_agent.lis.hl7v2.fieldmap import FieldMap
from lab_agent.lis.hl7v2.message import FieldValue, Segment
from lab_agent.lis.hl7v2.times import has_minutes, parse_partial_date, parse_time_of_day, parse_timestamp

NUMBER_PATTERN = r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
_NUMBER_WITH_COMPARATOR = re.compile(rf"(<=|>=|<|>|≤|≥|=)?\s*({NUMBER_PATTERN})\Z")
_COMPARATORS = {"≤": "<=", "≥": ">=", "=": None, "": None, None: None}
_UNREADABLE_NUMBER = "has a number that cannot be read"
TEXT_TYPES = frozenset({"ST", "TX", "FT"})
CODED_TYPES = frozenset({"CE", "CWE", "CNE", "CF"})
CODE_STRING_TYPES = frozenset({"IS", "ID"})


class InvalidValueError(ValueError):
    """A value that cannot be used; the text says why, and does not quote it."""


@dataclass(frozen=True, slots=True)
class ObxValueReader:
    """Reads values. `zone` is meant where a time names none."""

    field_map: FieldMap
    zone: tzinfo | None

    def read_value(self, obx: Segment) -> dict[str, Any]:
        """Give the value as a field of `ReportedObservation`. Raises `ValueProblemError`, `TimeError`."""
        kind, values = obx.text(2).upper(), obx.repetitions(5)
        if not values:
            raise InvalidValueError("has no value")
        if kind in TEXT_TYPES:
            return self._read_text(obx, values, kind)
        if kind in CODED_TYPES:
            return {"value_codeable_concept": self._read_concept(values)}
        if kind in CODE_STRING_TYPES:
            return {"value_string": "\n".join(value.text.strip() for value in values)}
        if len(values) > 1:
            raise InvalidValueError(f"has {len(values)} values of type {kind}, and not one")
        return self._read_single(kind, obx, values[0])

    def read_unit(self, obx: Segment) -> dict[str, str | None]:
        """Give OBX-6 as the unit of a quantity."""
        value = obx.first_repetition(6)
        coding = self.read_coding(value, 1) if value else None
        if coding is None:
            return {"unit": value.component_text(2).strip() or None} if value else {}
        if coding.system is None:
            return {"unit": coding.display or coding.code}
        return {"unit": coding.display or coding.code, "system": coding.system, "code": coding.code}

    def read_number(self, text: str) -> Decimal | None:
        """Read a decimal; None if it is none."""
        found = _NUMBER_WITH_COMPARATOR.match(self._normalize_decimal(text))
        return Decimal(found[2]) if found and not found[1] else None

    def read_codings(self, value: FieldValue) -> Iterator[Coding]:
        """Give the codings of a coded value: the first triple, and the alternative one."""
        return (coding for coding in (self.read_coding(value, 1), self.read_coding(value, 4)) if coding is not None)

    def read_coding(self, value: FieldValue, first: int) -> Coding | None:
        """Give the coding whose code stands in component `first`."""
        code, display, system = (value.component_text(first + step).strip() for step in range(3))
        if not code:
            return None
        return Coding(system=self._code_system(system), code=code, display=display or None)

    def _read_single(self, kind: str, obx: Segment, value: FieldValue) -> dict[str, Any]:
        match kind:
            case "NM":
                return {"value_quantity": self._read_quantity(obx, value.text)}
            case "SN":
                return self._read_structured_numeric(obx, value)
            case "DT" | "DTM" | "TS":
                text = value.component_text(1)
                if has_minutes(text):
                    return {"value_date_time": parse_timestamp(text, self.zone)}
                return {"value_string": parse_partial_date(text)}  # a day is no moment, and midnight would be made up
            case "TM":
                return {"value_time": parse_time_of_day(value.component_text(1))}
            case _:
                raise InvalidValueError(f"is of type {kind or '(none)'}, which is not read here")

    def _read_text(self, obx: Segment, values: Sequence[FieldValue], kind: str) -> dict[str, Any]:
        text = "\n".join(value.text for value in values).strip()
        if (
            self.field_map.results.numeric_text
            and kind == "ST"
            and obx.first_repetition(6)
            and _NUMBER_WITH_COMPARATOR.match(self._normalize_decimal(text))
        ):
            return {"value_quantity": self._read_quantity(obx, text)}
        return {"value_string": text}

    def _read_concept(self, values: Sequence[FieldValue]) -> CodeableConcept:
        codings = tuple(coding for value in values for coding in self.read_codings(value))
        texts = (
            value.component_text(9).strip()
            or value.component_text(2).strip()
            or value.component_text(5).strip()
            or value.component_text(1).strip()
            for value in values
        )
        return CodeableConcept(coding=codings, text="\n".join(text for text in texts if text) or None)

    def _read_quantity(self, obx: Segment, text: str, comparator: str | None = None) -> Quantity:
        found = _NUMBER_WITH_COMPARATOR.match(self._normalize_decimal(text))
        if found is None:
            raise InvalidValueError(_UNREADABLE_NUMBER)
        sign = comparator or _COMPARATORS.get(found[1], found[1])
        return Quantity(value=Decimal(found[2]), comparator=sign, **self.read_unit(obx))

    def _read_structured_numeric(self, obx: Segment, value: FieldValue) -> dict[str, Any]:
        sign, first, separator, second = (value.component_text(number).strip() for number in range(1, 5))
        if sign not in {"", "=", "<", "<=", ">", ">="} or separator not in {"", "-", ":", "/"} or not first:
            return {"value_string": f"{sign}{first}{separator}{second}"}
        if not second:
            if separator:
                return {"value_string": f"{sign}{first}{separator}"}
            return {"value_quantity": self._read_quantity(obx, first, None if sign in {"", "="} else sign)}
        low, high = self._read_quantity(obx, first, None if sign in {"", "="} else sign), self._read_quantity(obx, second)
        if separator == "-":
            return {"value_range": Range(low=low, high=high)}
        bare = Quantity(value=low.value, comparator=low.comparator), Quantity(value=high.value)
        return {"value_ratio": Ratio(numerator=bare[0], denominator=bare[1])}

    def _normalize_decimal(self, text: str) -> str:
        text = text.strip()
        return text.replace(",", ".") if self.field_map.results.decimal_comma and text.count(",") == 1 else text

    def _code_system(self, name: str) -> str | None:
        """Give the address of a code system; local codes (`L`, `99…`) have none."""
        known = self.field_map.table("code_systems").get(name.upper()) or self.field_map.table("code_systems").get(name)
        if known:
            return known
        return None if not name or name.upper() == "L" or name.startswith("99") else name
