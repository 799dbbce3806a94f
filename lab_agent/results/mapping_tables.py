"""Mapping tables as values with their look-ups, and whether a code can be LOINC (check digit) or UCUM (characters). Pure.

A table of units or answers that an installation does not have is None: what it would translate passes as the laboratory system
wrote it. The code of an observation is LOINC (interface: Observation), so without a row nothing else passes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lab_agent.shared.values import CodeableConcept, Coding, Quantity

LOINC = "http://loinc.org"
UCUM = "http://unitsofmeasure.org"
_LOINC_SYSTEMS = frozenset({LOINC, f"{LOINC}/", "https://loinc.org", "https://loinc.org/", "urn:oid:2.16.840.1.113883.6.1"})
_LOINC_PATTERN = re.compile(r"(\d{1,7})-(\d)", re.ASCII)
_VISIBLE_ASCII = re.compile(r"[!-~]+")


def is_loinc(code: str) -> bool:
    """Whether a code has the form of a LOINC code and the right check digit (modulus 10)."""
    found = _LOINC_PATTERN.fullmatch(code)
    return found is not None and check_digit(found[1]) == int(found[2])


def is_meant_as_loinc(local: Coding) -> bool:
    """Whether a code names LOINC as its system, or names none and has the form of a LOINC code."""
    return local.system in _LOINC_SYSTEMS or (local.system is None and _LOINC_PATTERN.fullmatch(local.code) is not None)


def correct_loinc(code: str) -> str | None:
    """The code with the right check digit; None for one that has not the form of a LOINC code."""
    found = _LOINC_PATTERN.fullmatch(code)
    return f"{found[1]}-{check_digit(found[1])}" if found else None


def check_digit(number: str) -> int:
    """The modulus 10 check digit of a number: from the right, every second digit counts double, beginning with the last."""
    total = 0
    for place, digit in enumerate(reversed(number)):
        doubled = int(digit) * (1 if place % 2 else 2)
        total += doubled - 9 if doubled > 9 else doubled
    return -total % 10


def is_visible_ascii(code: str) -> bool:
    """Whether a code is visible ASCII only: spreadsheets turn a hyphen into a dash, and some keyboards an a into а."""
    return _VISIBLE_ASCII.fullmatch(code) is not None


def is_ucum(code: str) -> bool:
    """Whether a unit can be UCUM: visible ASCII, brackets and braces in pairs. Its meaning is not checked."""
    open_ones = []
    pairs = {"]": "[", "}": "{", ")": "("}
    for character in code:
        if character in pairs.values():
            open_ones.append(character)
        elif character in pairs and (not open_ones or open_ones.pop() != pairs[character]):
            return False
    return is_visible_ascii(code) and not open_ones


LocalCode = tuple[str | None, str]
"""A code of an observation within its system, or in any (None)."""
LocalAnswer = tuple[str | None, str | None, str]
"""The local code of an observation, or any (None); the system that an answer names, or none (None); the answer's code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingTables:
    """`codes`: (system, local code) → LOINC; `units`: local unit → UCUM; `answers`: (observation, system, answer) → coding."""

    codes: Mapping[LocalCode, Coding] | None = None
    units: Mapping[str, str] | None = None
    answers: Mapping[LocalAnswer, Coding] | None = None
    version: str = ""
    _targets: frozenset[str] = field(init=False, default=frozenset())

    def __post_init__(self) -> None:
        object.__setattr__(self, "_targets", frozenset((self.units or {}).values()))

    def code(self, local: Coding) -> CodeableConcept | None:
        """The LOINC code of an observation, with the laboratory's own beside it where that names its system; None: no row.

        A LOINC code is taken as it is if its check digit is right.
        """
        rows = self.codes or {}
        if found := rows.get((local.system, local.code)) or rows.get((None, local.code)):
            own = (local,) if local.system and local.system not in _LOINC_SYSTEMS else ()
            return CodeableConcept(coding=(found, *own), text=local.display)
        if not (is_meant_as_loinc(local) and is_loinc(local.code)):
            return None
        return CodeableConcept(coding=(Coding(system=LOINC, code=local.code, display=local.display),))

    def unit(self, amount: Quantity) -> Quantity | None:
        """The amount with its UCUM code; the unit that people read stays as the laboratory wrote it. None: no row."""
        if self.units is None or not (amount.unit or amount.code) or (amount.system and amount.code):
            return amount
        local = amount.code or amount.unit or ""
        code = self.units.get(amount.unit or local) or self.units.get(local) or (local if local in self._targets else None)
        if code is None:
            return None
        return Quantity(value=amount.value, comparator=amount.comparator, unit=amount.unit or amount.code, system=UCUM, code=code)

    def answer(self, observation: str, local: Coding) -> tuple[Coding, ...] | None:
        """A coded answer as (standard, own) codings; None: no row.

        An answer of a named system is taken as it is, unless a row is for answers of that system. All other rows are for answers
        without a system: `1` of one list of the laboratory means something else in another.
        """
        rows = self.answers or {}
        found = rows.get((observation, local.system, local.code)) or rows.get((None, local.system, local.code))
        if found is not None:
            return (found, local) if local.system and local.system != found.system else (found,)
        return (local,) if local.system or self.answers is None else None
