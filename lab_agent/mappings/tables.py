"""The tables as values: what each says, and how a value is looked up. Pure.

A table that an installation does not have is None: what it would translate passes as the laboratory system wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lab_agent.domain.values import CodeableConcept, Coding, Quantity
from lab_agent.mappings.codes import LOINC, UCUM, is_loinc

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

        A well-formed LOINC code stands for itself. Without a table, a code of another system is left to the service.
        """
        rows = self.codes or {}
        if found := rows.get((local.system, local.code)) or rows.get((None, local.code)):
            own = (local,) if local.system and local.system != LOINC else ()
            return CodeableConcept(coding=(found, *own), text=local.display)
        if local.system in {None, LOINC}:
            known = Coding(system=LOINC, code=local.code, display=local.display)
            return CodeableConcept(coding=(known,)) if is_loinc(local.code) else None
        return CodeableConcept(coding=(local,)) if self.codes is None else None

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

        An answer of a named system stands for itself, unless a row is for answers of that system; all other rows are for answers
        that name none: what is `1` in one laboratory list means something else in another.
        """
        rows = self.answers or {}
        found = rows.get((observation, local.system, local.code)) or rows.get((None, local.system, local.code))
        if found is not None:
            return (found, local) if local.system and local.system != found.system else (found,)
        return (local,) if local.system or self.answers is None else None
