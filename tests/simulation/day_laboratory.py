"""The laboratory of a simulated day: what it was given, the numbers that it gives, and everything that it ever reported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from random import Random

from lab_agent.domain.ids import LineKey, work_order_key
from lab_agent.domain.lab_messages import (
    AccessionUpdate,
    LabRejection,
    LabReport,
    NotPerformed,
    ObservationStatus,
    ReportedObservation,
    ReportStatus,
)
from lab_agent.domain.lab_order import LabOrder, OrderLine
from lab_agent.ports.lis import SubmitResult
from tests.harness.fault_injection import SimulatedLis
from tests.harness.results import haemoglobin, make_report

_NUMBERS = 3
"""The laboratory's own numbers of orders begin anew so soon: each belongs to several orders of a day."""


@dataclass(frozen=True)
class SentVersion:
    """One version of a report, as the laboratory sent it."""

    system: str
    message: str
    line: LineKey
    number: int
    values: dict[str, str]
    """The digits of its values, by the names of its observations."""
    is_final: bool


@dataclass
class DayLaboratory:
    """Reports on the lines that the laboratory systems have."""

    systems: dict[str, SimulatedLis]
    versions: dict[str, list[SentVersion]] = field(default_factory=dict)
    """Versions of each report, by what its identifier on the service begins with."""
    rejected: int = 0
    _numbers: dict[tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, lis in self.systems.items():
            lis.give_numbers = lambda order, name=name: SubmitResult(accession=self._number_of(name, order))

    def find_line(self, key: LineKey) -> tuple[str, LabOrder, OrderLine] | None:
        """The system that has a line and works on it, with the order there."""
        for name, lis in self.systems.items():
            for order in lis.submitted:
                for line in order.lines:
                    if line.key == key and not lis.cancel_count(key):
                        return name, order, line
        return None

    def unreported_lines(self) -> Iterator[LineKey]:
        """Lines that a system has, of which it has sent no final report."""
        reported = {each.line for versions in self.versions.values() for each in versions if each.is_final}
        for lis in self.systems.values():
            yield from (line.key for order in lis.submitted for line in order.lines if line.key not in reported)

    def report(self, key: LineKey, kind: str, style: str, now: datetime, rng: Random) -> bool:
        """Report on a line, or say that it cannot be done. Whether any system has it."""
        found = self.find_line(key)
        if found is None:
            return False
        name, order, line = found
        if kind == "reject":
            self.rejected += 1
            reason = NotPerformed(line=key, reason="haemolysed — please collect again")
            self.systems[name].outbox[f"{key}:reject{self.rejected}"] = LabRejection(order=order.key, not_performed=(reason,))
            return True
        sent = self.versions.setdefault(f"{work_order_key(order.key, name)}.{key}", [])
        if kind == "preliminary" and sent:
            return True
        made = [self._make_version(name, order, line, kind, style, now, rng, sent) for _ in range(2 if kind == "swapped" else 1)]
        if style == "number":
            number = AccessionUpdate(order=order.key, accession=self._number_of(name, order))
            self.systems[name].outbox[f"{order.key}:number"] = number
        for message, content in reversed(made):
            self.systems[name].outbox[message] = content
        return True

    def _make_version(
        self,
        system: str,
        order: LabOrder,
        line: OrderLine,
        kind: str,
        style: str,
        now: datetime,
        rng: Random,
        sent: list[SentVersion],
    ) -> tuple[str, LabReport]:
        number, is_final = len(sent) + 1, kind != "preliminary"
        names = ["hb"] if kind == "shorter" or (not sent and rng.random() < 0.7) else ["hb", "hb2"]
        values = {name: f"{rng.randint(1, 20)}.{rng.choice(['0', '00', '50', str(rng.randrange(1000))])}" for name in names}
        content = make_report(
            *(_observation(name, value, is_final=is_final) for name, value in values.items()),
            report_id=line.key,
            version=number,
            status=ReportStatus.FINAL if is_final else ReportStatus.PRELIMINARY,
            effective=now,
            issued=now + timedelta(seconds=number),
        )
        message = f"{line.key}:{number}"
        sent.append(SentVersion(system, message, line.key, number, values, is_final))
        return message, self._name(content, system, order, line, style)

    def _name(self, content: LabReport, system: str, order: LabOrder, line: OrderLine, style: str) -> LabReport:
        """Say which line it is about, in the laboratory's manner."""
        tubes = [tube for each in order.specimens if each.id in line.specimens for tube in each.containers]
        barcode = next((tube.barcode for tube in tubes if tube.barcode), None)
        if style == "lines" or sum(each.item == line.item for each in order.lines) > 1:
            return replace(content, order=None, lines=(line.key,))
        if style == "order" or barcode is None:
            return replace(content, order=order.key, lines=(line.key,))
        number = self._number_of(system, order) if style == "number" else None
        return replace(content, order=None, accession=number, barcode=barcode, items=(line.item,))

    def _number_of(self, system: str, order: LabOrder) -> str:
        """The laboratory's own number of an order, which it gives again soon."""
        return self._numbers.setdefault((system, order.key), f"F{len(self._numbers) % _NUMBERS}")


def _observation(name: str, value: str, *, is_final: bool) -> ReportedObservation:
    status = ObservationStatus.FINAL if is_final else ObservationStatus.PRELIMINARY
    return haemoglobin(value, id=name, status=status)
