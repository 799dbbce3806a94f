"""Tolerant typed access to JSON: what is missing is None; what has the wrong type is left out and reported."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from lab_agent.fhir.elements import items_of, object_of, references_of, text_of
from lab_agent.fhir.received_order import AccessRight, DateTimeText, MalformedField, ReferenceText
from lab_agent.fhir.references import leads_elsewhere, names_resource, parse_reference
from lab_agent.shared.errors import ForeignOrigin
from lab_agent.shared.values import BirthDate, CodeableConcept, Coding, Identifier, PartialDate, is_calculable

_DATE_TIME_PATTERN = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?)(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_OBJECTS = (dict, Mapping)
"""What is an object: JSON as read is a `dict`, which is told from a `Mapping` in a tenth of the time."""
_DATE_PATTERN = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


@dataclass(slots=True)
class JsonReader:
    """A JSON object at its place. Malformed fields go into the shared list; nothing here raises.

    An order has hundreds of them: it is not frozen, since that makes one four times as dear.
    """

    body: Mapping[str, Any]
    where: str
    base_url: str
    malformed_fields: list[MalformedField]

    def text(self, key: str) -> str | None:
        """A string; empty counts as missing."""
        value = self.body.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            self._add_malformed(key, "a string")
        return text_of(value)

    def fhir_code(self, key: str) -> str | None:
        """A code of one of FHIR's own lists, in small letters."""
        text = self.text(key)
        return None if text is None else text.lower()

    def code(self, key: str) -> str | None:
        """A string, or a whole number taken as its digits (the interface shows codes in both types)."""
        value = self.body.get(key)
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else self.text(key)

    def boolean(self, key: str) -> bool | None:
        """A boolean."""
        value = self.body.get(key)
        if value is None or isinstance(value, bool):
            return value
        self._add_malformed(key, "true or false")
        return None

    def decimal(self, key: str) -> Decimal | None:
        """A number, with its digits."""
        value = self.body.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            self._add_malformed(key, "a number")
            return None
        return Decimal(value)

    def date_time(self, key: str) -> DateTimeText | None:
        """A date-time; one without offset keeps its text alone."""
        text = self.text(key)
        return None if text is None else DateTimeText(text, parse_date_time(text))

    def date(self, key: str) -> BirthDate | None:
        """A date; FHIR allows the year alone, and year and month."""
        text = self.text(key)
        return None if text is None else parse_date(text)

    def child(self, key: str) -> JsonReader:
        """An object; an empty one if it is missing."""
        value = self.body.get(key)
        if isinstance(value, _OBJECTS):
            return self._reader_at(key, value)
        if value is not None:
            self._add_malformed(key, "an object")
        return self._reader_at(key, object_of(value) or {})

    def children(self, key: str) -> tuple[JsonReader, ...]:
        """The objects of an array; a single object counts as an array of one, and is reported."""
        if key not in self.body:
            return ()
        readers = []
        for index, each in enumerate(self._array(key, Mapping)):
            if isinstance(each, _OBJECTS):
                readers.append(self._reader_at(f"{key}[{index}]", each))
            else:
                self._add_malformed(f"{key}[{index}]", "an object")
        return tuple(readers)

    def texts(self, key: str) -> tuple[str, ...]:
        """The strings of an array."""
        return tuple(each for each in self._array(key, str) if isinstance(each, str))

    def codeable_concept(self, key: str) -> CodeableConcept:
        """A CodeableConcept; codings without a code are left out."""
        concept = self.child(key)
        found = (each.coding() for each in concept.children("coding"))
        return CodeableConcept(coding=tuple(each for each in found if each), text=concept.text("text"))

    def coding(self) -> Coding | None:
        """This object as a Coding."""
        code = self.code("code")
        return None if code is None else Coding(system=self.text("system"), code=code, display=self.text("display"))

    def identifier(self, key: str) -> Identifier | None:
        """An Identifier; None without a value."""
        return self.child(key).as_identifier()

    def identifiers(self, key: str) -> tuple[Identifier, ...]:
        """The Identifiers of an array that have a value."""
        found = (each.as_identifier() for each in self.children(key))
        return tuple(each for each in found if each)

    def as_identifier(self) -> Identifier | None:
        """This object as an Identifier."""
        value = self.code("value")
        return None if value is None else Identifier(system=self.text("system"), value=value)

    def reference(self, key: str) -> ReferenceText | None:
        """A reference; None if it is missing."""
        if isinstance(self.body.get(key), str):
            return next(iter(self.references(key)), None)
        return self.child(key).as_reference() if self.body.get(key) is not None else None

    def references(self, key: str) -> tuple[ReferenceText, ...]:
        """The references of an array; a text in place of one is its address, and is reported."""
        value = self.body.get(key)
        if not any(isinstance(each, str) for each in items_of(value)):
            return tuple(each.as_reference() for each in self.children(key))
        self._add_malformed(key, "an array of references")
        found = enumerate(references_of(value))
        return tuple(self._reader_at(f"{key}[{index}]", each).as_reference() for index, each in found)

    def as_reference(self) -> ReferenceText:
        """This object as a reference, by address or by identifier."""
        text, identifier = self.text("reference"), self.identifier("identifier")
        try:
            target = parse_reference(text, self.base_url)
        except ForeignOrigin:
            target = None
        is_foreign = target is None and leads_elsewhere(text, self.base_url)
        is_unaddressable = target is None and not is_foreign and names_resource(text, self.base_url)
        return ReferenceText(
            where=self.where,
            text=text,
            target=target,
            is_foreign=is_foreign,
            is_unaddressable=is_unaddressable,
            identifier=identifier,
        )

    def access_rights(self) -> tuple[AccessRight, ...]:
        """The entries of meta.security."""
        entries = self.child("meta").children("security")
        pairs = ((each.text("system"), each.text("code")) for each in entries)
        return tuple(AccessRight(system, code) for system, code in pairs if system and code)

    def _array(self, key: str, element_type: type) -> Sequence[Any]:
        """An array; a single value where an array should be counts as an array of one."""
        value = self.body.get(key)
        if value is None or isinstance(value, list | tuple):
            return value or ()
        self._add_malformed(key, "an array")
        return (value,) if isinstance(value, element_type) else ()

    def _reader_at(self, key: str, body: Mapping[str, Any]) -> JsonReader:
        return JsonReader(body, f"{self.where}.{key}", self.base_url, self.malformed_fields)

    def _add_malformed(self, key: str, expected: str) -> None:
        self.malformed_fields.append(MalformedField(f"{self.where}.{key}", f"is not {expected}"))


def parse_date_time(text: str) -> datetime | None:
    """Read a FHIR dateTime with offset that can be calculated with; None for anything else.

    Fractions beyond microseconds are cut.
    """
    match = _DATE_TIME_PATTERN.fullmatch(text)
    if not match:
        return None
    try:
        read = datetime.fromisoformat(match[1] + (match[2] or "")[:7].ljust(7, "0") * bool(match[2]) + match[3])
    except ValueError:
        return None
    return read if is_calculable(read) else None


def parse_date(text: str) -> BirthDate | None:
    """Read a FHIR date; None for anything else."""
    try:
        return date.fromisoformat(text) if _DATE_PATTERN.fullmatch(text) else PartialDate(text)
    except ValueError:
        return None
