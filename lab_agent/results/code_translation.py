"""Translation of a report into the codes of the exchange, and what the tables lack for it. Pure.

Only codes and units change: values keep their digits, and observations are identified across versions by the laboratory's own
codes, so that a corrected table renames nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from operator import is_
from typing import Any, TypeVar

from lab_agent.lis.lab_messages import LabReport, ReportedObservation
from lab_agent.results.mapping_tables import MappingTables, correct_loinc, is_meant_as_loinc
from lab_agent.shared.ids import ReportKey
from lab_agent.shared.text import shorten
from lab_agent.shared.values import CodeableConcept, Quantity

T = TypeVar("T")


class MissingKind(StrEnum):
    """What a table lacks."""

    CODE = "code"
    LOINC = "loinc"
    UNIT = "unit"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True, order=True)
class MissingMapping:
    """A value that no table translates; an answer also names its observation. A code meant as LOINC cannot be one."""

    kind: MissingKind
    value: str
    observation: str | None = None

    def __str__(self) -> str:
        """Give it as a reason."""
        if self.kind is MissingKind.LOINC:
            right = correct_loinc(self.value)
            return f"code '{shorten(self.value)}' is no LOINC code" + (f" ({right} would be)" if right else "")
        of = f" of {shorten(self.observation)}" if self.observation else ""
        return f"{self.kind.value} '{shorten(self.value)}'{of} is not mapped"


def missing_mappings(report: LabReport, tables: MappingTables) -> tuple[MissingMapping, ...]:
    """What the tables lack for this report, each once, in the report's order."""
    return tuple(dict.fromkeys(each for one in report.observations for each in _missing_for_observation(one, tables)))


def uncoded_units(report: LabReport, tables: MappingTables) -> tuple[str, ...]:
    """The units of numbers that go out as the laboratory writes them, since there is no table of units; each once."""
    found = (tables.unit(amount) for one in report.observations for amount in _quantities(one))
    return tuple(dict.fromkeys(one.unit or "" for one in found if one and one.unit and not (one.system and one.code)))


def translate(report: LabReport, tables: MappingTables) -> LabReport:
    """The report with its units and coded answers translated; what has no row stays as it is."""
    return replace(report, observations=tuple(_translate_observation(one, tables) for one in report.observations))


def _missing_for_observation(observation: ReportedObservation, tables: MappingTables) -> Iterator[MissingMapping]:
    if tables.code(observation.code) is None:
        kind = MissingKind.LOINC if is_meant_as_loinc(observation.code) else MissingKind.CODE
        yield MissingMapping(kind, observation.code.code)
    for amount in _quantities(observation):
        if tables.unit(amount) is None:
            yield MissingMapping(MissingKind.UNIT, amount.code or amount.unit or "")
    concept = observation.value_codeable_concept
    for coding in concept.coding if concept else ():
        if tables.answer(observation.code.code, coding) is None:
            yield MissingMapping(MissingKind.ANSWER, coding.code, observation.code.code)


def _translate_observation(observation: ReportedObservation, tables: MappingTables) -> ReportedObservation:
    changed = _map_quantities(observation, lambda amount: tables.unit(amount) or amount)
    concept = changed.value_codeable_concept
    if concept is None:
        return changed
    codings = (each for one in concept.coding for each in tables.answer(observation.code.code, one) or (one,))
    return replace(changed, value_codeable_concept=CodeableConcept(coding=tuple(dict.fromkeys(codings)), text=concept.text))


def _quantities(value: Any) -> list[Quantity]:
    found: list[Quantity] = []

    def keep(amount: Quantity) -> Quantity:
        found.append(amount)
        return amount

    _map_quantities(value, keep)
    return found


def _map_quantities(value: T, change: Callable[[Quantity], Quantity]) -> T:
    """The value with every quantity in it changed, at any depth."""
    if isinstance(value, Quantity):
        return change(value)  # type: ignore[return-value]
    if isinstance(value, tuple):
        items = tuple(_map_quantities(item, change) for item in value)
        return value if all(map(is_, items, value)) else items  # type: ignore[return-value]
    changed = {}
    kind: type = type(value)
    for name in _field_names(kind):
        member = getattr(value, name)
        if member is not None and (new := _map_quantities(member, change)) is not member:
            changed[name] = new
    return replace(value, **changed) if changed else value  # type: ignore[type-var]


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    """The fields of a dataclass, none for other types; kept for each type that a report is made of."""
    return tuple(each.name for each in fields(kind)) if is_dataclass(kind) else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingGap:
    """A value that no table translates, the number of `reports` that use it, and the first of them as an example."""

    missing: MissingMapping
    reports: int
    example: ReportKey


def find_gaps(reports: Iterable[tuple[ReportKey, LabReport]], tables: MappingTables) -> tuple[MappingGap, ...]:
    """Everything that the reports use and the tables lack, the most frequent first."""
    counted: dict[MissingMapping, tuple[int, ReportKey]] = {}
    for key, report in reports:
        for each in missing_mappings(report, tables):
            number, example = counted.get(each, (0, key))
            counted[each] = (number + 1, example)
    found = [MappingGap(missing=each, reports=number, example=key) for each, (number, key) in counted.items()]
    return tuple(sorted(found, key=lambda gap: (-gap.reports, gap.missing)))
