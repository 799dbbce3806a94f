"""`LabReport`, `LabRejection` and `AccessionUpdate`: the messages of a laboratory system.

`lab-agent schema result` prints their JSON Schemas. A `LabReport` is one version of a report; corrections are new versions of the
same `report_id`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time
from enum import StrEnum

from lab_agent.shared.values import (
    BirthDate,
    CodeableConcept,
    Coding,
    DateOrTime,
    Identifier,
    Period,
    Quantity,
    Range,
    Ratio,
    SampledData,
)


class ReportStatus(StrEnum):
    """DiagnosticReport.status (interface: DiagnosticReport)."""

    REGISTERED = "registered"
    PARTIAL = "partial"
    PRELIMINARY = "preliminary"
    FINAL = "final"


class ObservationStatus(StrEnum):
    """Observation.status (interface: Observation)."""

    REGISTERED = "registered"
    PRELIMINARY = "preliminary"
    FINAL = "final"
    AMENDED = "amended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A result document: exactly one of `content` (bytes; Base64 in JSON), `file` (a name beside the report) and `url`."""

    content: bytes | None = None
    file: str | None = None
    url: str | None = None
    content_type: str = "application/pdf"
    language: str | None = None
    title: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRange:
    """Normal values (interface: Observation.referenceRange); `age` in a unit of time."""

    low: Quantity | None = None
    high: Quantity | None = None
    meaning: CodeableConcept | None = None
    age: Range | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedObservation:
    """One observed value; exactly one of the `value_…` fields is set.

    `id` names the observation within its report from version to version; without one, its code and its place among the
    observations of that code do. `specimen` is a barcode or the `id` of an `OrderSpecimen`.
    """

    id: str | None = None
    code: Coding
    status: ObservationStatus = ObservationStatus.FINAL
    value_quantity: Quantity | None = None
    value_codeable_concept: CodeableConcept | None = None
    value_string: str | None = None
    value_range: Range | None = None
    value_ratio: Ratio | None = None
    value_sampled_data: SampledData | None = None
    value_attachment: Document | None = None
    value_time: time | None = None
    value_date_time: DateOrTime | None = None
    value_period: Period | None = None
    method: CodeableConcept | None = None
    specimen: str | None = None
    reference_ranges: tuple[ReferenceRange, ...] = ()
    issued: datetime | None = None
    flags: tuple[str, ...] = ()
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotPerformed:
    """A line that was not or cannot be performed, with the reason that the clinic will read.

    It is named by its key or its item code; without either, all that the message is about is meant.
    """

    line: str | None = None
    item: str | None = None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedPatient:
    """Whose result the laboratory system says it is, as far as it says so; the order's patient is compared with it.

    `family` and `given` are the name, as `OrderPatient` has it; one that the laboratory system keeps in one piece is whole in
    `family`. `birth_date` may be a year or a month where no more is known; `gender` is FHIR's (male, female, other, unknown); an
    identifier is compared within its system. It is identification data: it is stored sealed, apart from the report.
    """

    family: str | None = None
    given: tuple[str, ...] = ()
    birth_date: BirthDate | None = None
    gender: str | None = None
    identifiers: tuple[Identifier, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LabReport:
    """One version of one report.

    It names its order by at least one of `order` (our order key), `lines` (our line keys), `accession` and `barcode`; and
    what it covers by `lines` or `items` (nomenclature or laboratory codes), else by the tube's `barcode` or a line's `accession`,
    else the whole order. `completes` lists line keys or item codes that it completes, or repeats `accession`, `barcode` or
    `order`: then it completes the line that this means, and nothing if it means several. None is the default: a final report
    completes what it covers. Versions are ordered by `version` if all have it, else by `issued`, else by arrival. `correction`
    says that it corrects what was sent before it, as an observation with the status `amended` does. `effective` may be a date
    without a time, `issued` is a moment.
    """

    report_id: str
    version: int | None = None
    status: ReportStatus
    order: str | None = None
    lines: tuple[str, ...] = ()
    accession: str | None = None
    barcode: str | None = None
    items: tuple[str, ...] = ()
    completes: tuple[str, ...] | None = None
    effective: DateOrTime
    issued: datetime
    observations: tuple[ReportedObservation, ...] = ()
    documents: tuple[Document, ...] = ()
    not_performed: tuple[NotPerformed, ...] = ()
    patient: ReportedPatient | None = None
    correction: bool = False

    @property
    def is_correction(self) -> bool:
        """Whether its sender says that it corrects what was sent before."""
        return self.correction or any(one.status is ObservationStatus.AMENDED for one in self.observations)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRejection:
    """Lines or specimens that the laboratory rejects after it accepted the order, with nothing to report.

    It names its order as a report does, and without a line or an item the lines as well. `collect_again` asks the clinic
    for new biomaterial; the Task's output says so.
    """

    order: str | None = None
    accession: str | None = None
    barcode: str | None = None
    not_performed: tuple[NotPerformed, ...]
    collect_again: bool = False
    patient: ReportedPatient | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Accession:
    """The laboratory's number of one line (`line`: its key), of the lines of one item (`item`) or of one tube (`barcode`)."""

    number: str
    line: str | None = None
    item: str | None = None
    barcode: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessionUpdate:
    """The laboratory's own numbers of an order that it accepted, if it gives them later than at the submission.

    It names the order by `order` (our key) or `barcode`. `accession` is the number of the whole order; reports may then name
    the order by any of the numbers. A later update replaces the numbers that it gives, and no others.
    """

    order: str | None = None
    barcode: str | None = None
    accession: str | None = None
    accessions: tuple[Accession, ...] = ()


LabMessage = LabReport | LabRejection | AccessionUpdate
