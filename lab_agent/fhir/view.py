"""A tolerant look at JSON: what is there is given, what is missing is None, what is of the wrong type is noted and left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from lab_agent.domain.received import Flaw, Link, Moment, Right
from lab_agent.domain.values import CodeableConcept, Coding, Identifier
from lab_agent.errors import ForeignOrigin
from lab_agent.fhir.references import parse

_DATE_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?)(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)


@dataclass(frozen=True, slots=True)
class View:
    """A JSON object at its place. Flaws go into the shared list; nothing here raises."""

    body: Mapping[str, Any]
    where: str
    base_url: str
    flaws: list[Flaw]

    def text(self, key: str) -> str | None:
        """A string; empty counts as missing."""
        value = self.body.get(key)
        if value is None or isinstance(value, str):
            return value.strip() or None if value else None
        self._wrong(key, "a string")
        return None

    def code(self, key: str) -> str | None:
        """A string, or a whole number taken as its digits (the interface shows codes in both types)."""
        value = self.body.get(key)
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else self.text(key)

    def flag(self, key: str) -> bool | None:
        """A boolean."""
        value = self.body.get(key)
        if value is None or isinstance(value, bool):
            return value
        self._wrong(key, "true or false")
        return None

    def number(self, key: str) -> Decimal | None:
        """A number, with its digits."""
        value = self.body.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            self._wrong(key, "a number")
            return None
        return Decimal(value)

    def moment(self, key: str) -> Moment | None:
        """A date-time; one without offset keeps its text alone."""
        text = self.text(key)
        return None if text is None else Moment(text, date_time(text))

    def date(self, key: str) -> date | None:
        """A whole date."""
        text = self.text(key)
        return None if text is None else whole_date(text)

    def child(self, key: str) -> View:
        """An object; an empty one if it is missing."""
        value = self.body.get(key)
        if value is not None and not isinstance(value, Mapping):
            self._wrong(key, "an object")
        return self._at(key, value if isinstance(value, Mapping) else {})

    def children(self, key: str) -> tuple[View, ...]:
        """The objects of an array; a single object is taken for an array of one, and noted."""
        views = []
        for index, each in enumerate(self._array(key, Mapping)):
            if isinstance(each, Mapping):
                views.append(self._at(f"{key}[{index}]", each))
            else:
                self._wrong(f"{key}[{index}]", "an object")
        return tuple(views)

    def texts(self, key: str) -> tuple[str, ...]:
        """The strings of an array."""
        return tuple(each for each in self._array(key, str) if isinstance(each, str))

    def concept(self, key: str) -> CodeableConcept:
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

    def link(self, key: str) -> Link | None:
        """A reference; None if it is missing."""
        return self.child(key).as_link() if self.body.get(key) is not None else None

    def links(self, key: str) -> tuple[Link, ...]:
        """The references of an array."""
        return tuple(each.as_link() for each in self.children(key))

    def as_link(self) -> Link:
        """This object as a reference, by address or by identifier."""
        text, identifier = self.text("reference"), self.identifier("identifier")
        try:
            return Link(where=self.where, text=text, target=parse(text, self.base_url), identifier=identifier)
        except ForeignOrigin:
            return Link(where=self.where, text=text, foreign=True, identifier=identifier)

    def rights(self) -> tuple[Right, ...]:
        """The entries of meta.security."""
        entries = self.child("meta").children("security")
        pairs = ((each.text("system"), each.text("code")) for each in entries)
        return tuple(Right(system, code) for system, code in pairs if system and code)

    def _array(self, key: str, single: type) -> Sequence[Any]:
        """An array; one value that stands where an array should is taken for an array of one."""
        value = self.body.get(key)
        if value is None or isinstance(value, list | tuple):
            return value or ()
        self._wrong(key, "an array")
        return (value,) if isinstance(value, single) else ()

    def _at(self, key: str, body: Mapping[str, Any]) -> View:
        return View(body, f"{self.where}.{key}", self.base_url, self.flaws)

    def _wrong(self, key: str, expected: str) -> None:
        self.flaws.append(Flaw(f"{self.where}.{key}", f"is not {expected}"))


def date_time(text: str) -> datetime | None:
    """Read a FHIR dateTime with offset; None for anything else. Fractions beyond microseconds are cut."""
    match = _DATE_TIME.fullmatch(text)
    if not match:
        return None
    try:
        return datetime.fromisoformat(match[1] + (match[2] or "")[:7].ljust(7, "0") * bool(match[2]) + match[3])
    except ValueError:
        return None


def whole_date(text: str) -> date | None:
    """Read a FHIR date with year, month and day; None for anything else."""
    try:
        return date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        return None
