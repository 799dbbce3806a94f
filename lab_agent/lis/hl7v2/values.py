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
from lab_agent.lis.hl7v2.message import Segment, Value
from lab_agent.lis.hl7v2.times import has_minutes, read_clock, read_day, read_stamp

NUMBER = r"[+-]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
_MEASURED = re.compile(rf"(<=|>=|<|>|≤|≥|=)?\s*({NUMBER})\Z")
_PLAIN = {"≤": "<=", "≥": ">=", "=": None, "": None, None: None}
_MISSING = "has a number that cannot be read"
TEXTS = frozenset({"ST", "TX", "FT"})
CODES = frozenset({"CE", "CWE", "CNE", "CF"})
PLAIN_CODES = frozenset({"IS", "ID"})


class ValueProblemError(ValueError):
    """A value that cannot be used; the text says why, and does not quote it."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads values. `zone` is meant where a time names none."""

    field_map: FieldMap
    zone: tzinfo | None

    def value(self, obx: Segment) -> dict[str, Any]:
        """Give the value as a field of `ReportedObservation`. Raises `ValueProblemError`, `TimeError`."""
        kind, values = obx.text(2).upper(), obx.repetitions(5)
        if not values:
            raise ValueProblemError("has no value")
        if kind in TEXTS:
            return self._text(obx, values, kind)
        if kind in CODES:
            return {"value_codeable_concept": self._concepts(values)}
        if kind in PLAIN_CODES:
            return {"value_string": "\n".join(value.text.strip() for value in values)}
        if len(values) > 1:
            raise ValueProblemError(f"has {len(values)} values of type {kind}, and not one")
        return self._single(kind, obx, values[0])

    def unit(self, obx: Segment) -> dict[str, str | None]:
        """Give OBX-6 as the unit of a quantity."""
        value = obx.value(6)
        coding = self.coding(value, 1) if value else None
        if coding is None:
            return {"unit": value.at(2).strip() or None} if value else {}
        if coding.system is None:
            return {"unit": coding.display or coding.code}
        return {"unit": coding.display or coding.code, "system": coding.system, "code": coding.code}

    def number(self, text: str) -> Decimal | None:
        """Read a decimal; None if it is none."""
        found = _MEASURED.match(self._point(text))
        return Decimal(found[2]) if found and not found[1] else None

    def codings(self, value: Value) -> Iterator[Coding]:
        """Give the codings of a coded value: the first triple, and the alternative one."""
        return (coding for coding in (self.coding(value, 1), self.coding(value, 4)) if coding is not None)

    def coding(self, value: Value, first: int) -> Coding | None:
        """Give the coding whose code stands in component `first`."""
        code, display, system = (value.at(first + step).strip() for step in range(3))
        if not code:
            return None
        return Coding(system=self._system(system), code=code, display=display or None)

    def _single(self, kind: str, obx: Segment, value: Value) -> dict[str, Any]:
        match kind:
            case "NM":
                return {"value_quantity": self._quantity(obx, value.text)}
            case "SN":
                return self._structured(obx, value)
            case "DT" | "DTM" | "TS":
                text = value.at(1)
                if has_minutes(text):
                    return {"value_date_time": read_stamp(text, self.zone)}
                return {"value_string": read_day(text)}  # a day is no moment, and midnight would be made up
            case "TM":
                return {"value_time": read_clock(value.at(1))}
            case _:
                raise ValueProblemError(f"is of type {kind or '(none)'}, which is not read here")

    def _text(self, obx: Segment, values: Sequence[Value], kind: str) -> dict[str, Any]:
        text = "\n".join(value.text for value in values).strip()
        if self.field_map.results.numeric_text and kind == "ST" and obx.value(6) and _MEASURED.match(self._point(text)):
            return {"value_quantity": self._quantity(obx, text)}
        return {"value_string": text}

    def _concepts(self, values: Sequence[Value]) -> CodeableConcept:
        codings = tuple(coding for value in values for coding in self.codings(value))
        texts = (value.at(9).strip() or value.at(2).strip() or value.at(5).strip() or value.at(1).strip() for value in values)
        return CodeableConcept(coding=codings, text="\n".join(text for text in texts if text) or None)

    def _quantity(self, obx: Segment, text: str, comparator: str | None = None) -> Quantity:
        found = _MEASURED.match(self._point(text))
        if found is None:
            raise ValueProblemError(_MISSING)
        sign = comparator or _PLAIN.get(found[1], found[1])
        return Quantity(value=Decimal(found[2]), comparator=sign, **self.unit(obx))

    def _structured(self, obx: Segment, value: Value) -> dict[str, Any]:
        sign, first, separator, second = (value.at(number).strip() for number in range(1, 5))
        if sign not in {"", "=", "<", "<=", ">", ">="} or separator not in {"", "-", ":", "/"} or not first:
            return {"value_string": f"{sign}{first}{separator}{second}"}
        if not second:
            if separator:
                return {"value_string": f"{sign}{first}{separator}"}
            return {"value_quantity": self._quantity(obx, first, None if sign in {"", "="} else sign)}
        low, high = self._quantity(obx, first, None if sign in {"", "="} else sign), self._quantity(obx, second)
        if separator == "-":
            return {"value_range": Range(low=low, high=high)}
        bare = Quantity(value=low.value, comparator=low.comparator), Quantity(value=high.value)
        return {"value_ratio": Ratio(numerator=bare[0], denominator=bare[1])}

    def _point(self, text: str) -> str:
        text = text.strip()
        return text.replace(",", ".") if self.field_map.results.decimal_comma and text.count(",") == 1 else text

    def _system(self, name: str) -> str | None:
        """Give the address of a code system; local codes (`L`, `99…`) have none."""
        known = self.field_map.table("code_systems").get(name.upper()) or self.field_map.table("code_systems").get(name)
        if known:
            return known
        return None if not name or name.upper() == "L" or name.startswith("99") else name
