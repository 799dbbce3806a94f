"""The laboratory of a simulated day: what it was given, the numbers that it gives, and everything that it ever reported."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from random import Random

from lab_agent.lis.lab_messages import (
    AccessionUpdate,
    LabMessage,
    LabRejection,
    LabReport,
    NotPerformed,
    ObservationStatus,
    ReportedPatient,
    ReportStatus,
)
from lab_agent.lis.lab_order import LabOrder, OrderLine
from lab_agent.lis.laboratory_system import SubmitResult
from lab_agent.lis.serialization import dump_message
from lab_agent.results.records import ReportRecord
from lab_agent.shared.ids import LineKey, OrderKey, work_order_key
from tests.harness.fault_injection import SimulatedLis
from tests.harness.results import haemoglobin, make_report

_NUMBERS = 3
"""The laboratory's own numbers of orders begin anew so soon: each belongs to several orders of a day."""


@dataclass(frozen=True)
class SentVersion:
    """One version of a report, as the laboratory sent it."""

    system: str
    message: str
    order: OrderKey
    line: LineKey
    number: int
    values: dict[str, str]
    """The digits of its values, by the names of its observations."""
    is_final: bool


@dataclass
class DayLaboratory:
    """Reports on the lines that the laboratory systems have.

    With `constant_ids`, messages have one name but for their content, and no number of their version, as from a sender whose
    MSH-10 never changes. With `clocks`, versions have no number either: their own time says which is the later one, by the clock
    of the laboratory system, which is put right now and then; what corrects a final value is marked as a correction.
    """

    systems: dict[str, SimulatedLis]
    constant_ids: bool = False
    clocks: bool = False
    names_patient: float = 0.0
    """The share of reports that say whose they are."""
    versions: dict[str, list[SentVersion]] = field(default_factory=dict)
    """Versions of each report, by what its identifier on the service begins with."""
    rejected: int = 0
    ambiguous: set[LineKey] = field(default_factory=set)
    """Lines of which a report named a tube that is in another order of the same test: a person may have to say whose it is."""
    clock: timedelta = timedelta()
    """By how much the clocks of the laboratory systems are wrong."""
    _refused: set[LineKey] = field(default_factory=set)
    """Lines that it would not do. Of a result of such a line that names only a tube, nobody would know that it is meant."""
    _numbers: dict[tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, lis in self.systems.items():
            lis.give_numbers = lambda order, name=name: SubmitResult(accession=self._number_of(name, order))
            if self.constant_ids:
                lis.name_message = _name_by_content

    def find_line(self, key: LineKey) -> tuple[str, LabOrder, OrderLine] | None:
        for name, lis in self.systems.items():
            for order in lis.submitted:
                for line in order.lines:
                    if line.key == key and not lis.cancel_count(key):
                        return name, order, line
        return None

    def find_measured(self, report: ReportRecord) -> tuple[OrderKey, LineKey] | None:
        """What a report was measured for, if it named that so that it may mean several orders."""
        sent = next((each for each in self._sent() if each.line == report.report_id), None)
        return (sent.order, sent.line) if sent is not None and sent.line in self.ambiguous else None

    def is_outdated(self, report: ReportRecord, others: Sequence[ReportRecord]) -> bool:
        """Whether the laboratory has sent a later version of a report; the `others` are those that came."""
        if not self._numbers_versions:
            return any(each.sequence > report.sequence for each in others)
        return any(each.line == report.report_id and each.number > (report.version or 0) for each in self._sent())

    def _sent(self) -> Iterator[SentVersion]:
        return (each for some in self.versions.values() for each in some)

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
            self._refused.add(key)
            reason = NotPerformed(line=key, reason="haemolysed — please collect again")
            self.systems[name].outbox[f"{key}:reject{self.rejected}"] = LabRejection(order=order.key, not_performed=(reason,))
            return True
        sent = self.versions.setdefault(f"{work_order_key(order.key, name)}.{key}", [])
        if kind == "preliminary" and sent:
            return True
        count = 2 if kind == "swapped" and self._numbers_versions else 1
        made = [self._make_version(name, order, line, kind, style, now, rng, sent) for _ in range(count)]
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
        if kind == "back" and len(sent) > 1:
            values = sent[-2].values
        status = ObservationStatus.FINAL if is_final else ObservationStatus.PRELIMINARY
        if not self._numbers_versions and is_final and any(each.is_final for each in sent):
            status = ObservationStatus.AMENDED
        content = make_report(
            *(haemoglobin(value, id=name, status=status) for name, value in values.items()),
            report_id=line.key,
            version=number if self._numbers_versions else None,
            status=ReportStatus.FINAL if is_final else ReportStatus.PRELIMINARY,
            effective=now,
            issued=now + timedelta(seconds=number) + self.clock,
            patient=_patient_of(order) if rng.random() < self.names_patient else None,
        )
        message = f"{line.key}:{number}"
        sent.append(SentVersion(system, message, order.key, line.key, number, values, is_final))
        return message, self._name(content, system, order, line, style)

    @property
    def _numbers_versions(self) -> bool:
        return not (self.constant_ids or self.clocks)

    def _name(self, content: LabReport, system: str, order: LabOrder, line: OrderLine, style: str) -> LabReport:
        """Say which line it is about, in the laboratory's manner."""
        tubes = [tube for each in order.specimens if each.id in line.specimens for tube in each.containers]
        barcode = next((tube.barcode for tube in tubes if tube.barcode), None)
        if style == "lines" or sum(each.item == line.item for each in order.lines) > 1:
            return replace(content, order=None, lines=(line.key,))
        shares_test = barcode is not None and self._shares_test(system, order, line, barcode)
        if style == "order" or barcode is None or (shares_test and line.key in self._refused):
            return replace(content, order=order.key, lines=(line.key,))
        if shares_test:
            self.ambiguous.add(line.key)
        number = self._number_of(system, order) if style == "number" and not shares_test else None
        return replace(content, order=None, accession=number, barcode=barcode, items=(line.item,))

    def _shares_test(self, system: str, order: LabOrder, line: OrderLine, barcode: str) -> bool:
        """Whether a line of another order there is of the same test, and from a tube with that barcode."""
        others = (each for each in self.systems[system].submitted if each.key != order.key)
        return any(one.item == line.item and barcode in barcodes_of(each) for each in others for one in each.lines)

    def _number_of(self, system: str, order: LabOrder) -> str:
        """The laboratory's own number of an order, which it gives again soon."""
        return self._numbers.setdefault((system, order.key), f"F{len(self._numbers) % _NUMBERS}")


def barcodes_of(order: LabOrder) -> set[str]:
    return {tube.barcode for each in order.specimens for tube in each.containers if tube.barcode}


def _patient_of(order: LabOrder) -> ReportedPatient:
    return ReportedPatient(birth_date=order.patient.birth_date, gender=order.patient.gender)


def _name_by_content(name: str, message: LabMessage) -> str:
    """The name that a message gets whose sender gives it none of its own, and whose time stands outside of what it says."""
    if not isinstance(message, LabReport):
        return name
    said = dump_message(replace(message, issued=message.issued.replace(year=2000, month=1, day=1, hour=0, minute=0, second=0)))
    return f"1/{sha256(said).hexdigest()[:24]}"
