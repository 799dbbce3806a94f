"""Made-up results of a handed-over order: final reports with the laboratory's own codes, units and answers.

A test is reported with the laboratory's code that the catalogue has for it (`lab_id`), as long as the mapping tables know it,
else with the next row of the tables. So in the course of a day every row is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from itertools import cycle
from random import Random

from lab_agent.lis.lab_messages import LabReport, ReferenceRange, ReportedObservation, ReportStatus
from lab_agent.lis.lab_order import LabOrder, OrderLine
from lab_agent.results.mapping_tables import LOINC, MappingTables
from lab_agent.shared.values import CodeableConcept, Coding, Quantity

_GLUCOSE = Coding(system=LOINC, code="2345-7", display="Glucose")
"""What a laboratory without a table of codes reports: LOINC codes pass as they are."""
_SHARE_OF_TEXTS = 0.1


@dataclass(slots=True)
class ResultMaker:
    """Makes reports. `unmapped` are the laboratory's codes in the catalogue that the tables lack, with an item of each."""

    tables: MappingTables
    rng: Random
    unmapped: dict[str, str] = field(default_factory=dict)
    _codes: Iterator[Coding] = field(init=False)
    _units: Iterator[str] = field(init=False)
    _waiting: dict[str, list[Coding]] = field(init=False)

    def __post_init__(self) -> None:
        answers = self.tables.answers or {}
        observations = {observation for observation, _, _ in answers if observation is not None}
        known = [Coding(system=system, code=code) for system, code in self.tables.codes or {} if code not in observations]
        self._codes = cycle(known or [_GLUCOSE])
        self._units = cycle(self.tables.units or [""])
        self._waiting = {}
        for observation, system, code in answers:
            self._waiting.setdefault(observation or "", []).append(Coding(system=system, code=code))

    def make(self, order: LabOrder, at: datetime) -> LabReport:
        """One final report of all lines, with one observation or two of each."""
        observations = [each for line in order.lines for each in self._observe(line)]
        return LabReport(
            report_id=f"rehearsal-{order.key}",
            status=ReportStatus.FINAL,
            order=order.key,
            lines=tuple(line.key for line in order.lines),
            effective=at,
            issued=at,
            observations=tuple(observations),
        )

    def _observe(self, line: OrderLine) -> Iterator[ReportedObservation]:
        yield self._measure(self._code_of(line), line)
        coded = next((observation for observation, answers in self._waiting.items() if answers), None)
        if coded is not None:
            yield self._answer(coded, self._waiting[coded].pop(), line)

    def _code_of(self, line: OrderLine) -> Coding:
        if line.lab_code:
            own = Coding(code=line.lab_code, display=line.text)
            if self.tables.code(own) is not None:
                return own
            self.unmapped.setdefault(line.lab_code, line.item)
        return next(self._codes)

    def _measure(self, code: Coding, line: OrderLine) -> ReportedObservation:
        name = f"{line.key}/{code.code}"
        if self.rng.random() < _SHARE_OF_TEXTS:
            return ReportedObservation(id=name, code=code, value_string="not detected; see the note — «α < β»")
        unit = next(self._units) or None
        value = Quantity(value=Decimal(self.rng.randrange(1, 100_000)).scaleb(-2), unit=unit)
        low, high = Quantity(value=Decimal("3.50"), unit=unit), Quantity(value=Decimal("250.00"), unit=unit)
        return ReportedObservation(
            id=name, code=code, value_quantity=value, reference_ranges=(ReferenceRange(low=low, high=high),)
        )

    def _answer(self, observation: str, answer: Coding, line: OrderLine) -> ReportedObservation:
        code = Coding(code=observation) if observation else next(self._codes)
        concept = CodeableConcept(coding=(answer,))
        return ReportedObservation(id=f"{line.key}/{code.code}/{answer.code}", code=code, value_codeable_concept=concept)
