"""The order as received: what the partner sent, in frozen values, before it is assessed.

Nothing is required here. Whatever is missing or of the wrong type is None or empty, and what was of the wrong type is kept as a
`MalformedField`, so that the rules can report all problems at once. Every part knows its place (`where`, such as
`Specimen[2].container[0]`), since a rejection must name it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Protocol

from lab_agent.fhir.human_name import HumanName
from lab_agent.shared.errors import OutcomeIssue
from lab_agent.shared.values import BirthDate, CodeableConcept, Coding, Identifier

EMPTY_CONCEPT = CodeableConcept()
"""Stands for a concept that was not sent."""


@dataclass(frozen=True, slots=True, order=True)
class ResourceRef:
    """A resource on the service; `type` in canonical spelling, such as `ProcedureRequest`."""

    type: str
    id: str

    def __str__(self) -> str:
        """Give it as the interface writes references: `procedurerequest/<id>`."""
        return f"{self.type.lower()}/{self.id}"


@dataclass(frozen=True, slots=True)
class UnreadableResource:
    """Why a resource could not be read: HTTP `status` (0 if there was none) and our reason.

    `issues` are the service's own words, which may name the patient: they are sealed apart, and not stored with the order.
    """

    reason: str
    status: int
    issues: tuple[OutcomeIssue, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class MalformedField:
    """A field of the wrong type, which was left out: where, and what it should have been."""

    where: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceText:
    """A reference as received. `target` is None if it is not one that we know; `is_foreign` if it leaves the service.

    `is_unaddressable`: it names a resource of the service, by an id that cannot be part of an address.
    """

    where: str
    text: str | None = None
    target: ResourceRef | None = None
    is_foreign: bool = False
    is_unaddressable: bool = False
    identifier: Identifier | None = None

    @property
    def is_unusable(self) -> bool:
        """Whether it may be right, and cannot be followed all the same: rules about such references hold (law 10)."""
        return self.is_foreign or self.is_unaddressable


@dataclass(frozen=True, slots=True)
class DateTimeText:
    """A date-time as received; `at` is None unless it is a full date-time with offset, and one to calculate with."""

    text: str
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class AccessRight:
    """One entry of meta.security: `system` as received (full address or short name), `code` the counterparty's guid."""

    system: str
    code: str

    @property
    def name(self) -> str:
        """The short name of the right: read, readhistory, updatebody, owner."""
        return self.system.rstrip("/").rsplit("/", 1)[-1].casefold()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInput:
    """One option of the order-level Task (interface: Task.input)."""

    where: str
    type: CodeableConcept
    value: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedTask:
    """A Task of either level."""

    ref: ResourceRef | None
    where: str
    status: str | None = None
    code: CodeableConcept = EMPTY_CONCEPT
    based_on: tuple[ReferenceText, ...] = ()
    part_of: tuple[ReferenceText, ...] = ()
    inputs: tuple[TaskInput, ...] = ()
    rights: tuple[AccessRight, ...] = ()

    @property
    def id(self) -> str:
        """Its id; empty if the resource had none."""
        return self.ref.id if self.ref else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRequest:
    """A ProcedureRequest. `supporting_info` has all references, contract and others; `old_orders` the identifiers of basedOn."""

    ref: ResourceRef
    where: str
    status: str | None = None
    identifiers: tuple[Identifier, ...] = ()
    requisition: Identifier | None = None
    supporting_info: tuple[ReferenceText, ...] = ()
    code: CodeableConcept = EMPTY_CONCEPT
    subject: ReferenceText | None = None
    occurrence: DateTimeText | None = None
    specimens: tuple[ReferenceText, ...] = ()
    notes: tuple[str, ...] = ()
    old_orders: tuple[Identifier, ...] = ()
    rights: tuple[AccessRight, ...] = ()

    @property
    def owner(self) -> str | None:
        """The guid of the counterparty that owns it, by its rights."""
        return next((right.code for right in self.rights if right.name == "owner"), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedLine:
    """An order line: its Task, and the ProcedureRequest that the Task is based on (None if unread, missing or not one)."""

    task: ReceivedTask
    request: ReceivedRequest | None = None

    @property
    def id(self) -> str:
        """The id of its Task, by which the line is named."""
        return self.task.id

    @property
    def where(self) -> str:
        """Its place in the order."""
        return self.request.where if self.request else self.task.where


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedContainer:
    """A container of a Specimen. `quantity` keeps its digits."""

    where: str
    identifiers: tuple[Identifier, ...] = ()
    type: CodeableConcept = EMPTY_CONCEPT
    quantity: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """An extension with a string in it."""

    url: str | None
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedSpecimen:
    """A Specimen. `collected_start` and `collected_end` are the ends of collectedPeriod, another form that FHIR has."""

    ref: ResourceRef
    where: str
    type: CodeableConcept = EMPTY_CONCEPT
    subject: ReferenceText | None = None
    collected: DateTimeText | None = None
    collected_start: DateTimeText | None = None
    collected_end: DateTimeText | None = None
    method: CodeableConcept = EMPTY_CONCEPT
    body_site: CodeableConcept = EMPTY_CONCEPT
    containers: tuple[ReceivedContainer, ...] = ()
    extensions: tuple[Extension, ...] = ()
    rights: tuple[AccessRight, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedTelecom:
    """A contact of the patient."""

    system: str | None
    value: str | None
    use: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedPatient:
    """A Patient. `birth_date` is None unless `birth_date_text`, which was sent, is a date, be it a year or month alone."""

    ref: ResourceRef
    where: str = "Patient"
    names: tuple[HumanName, ...] = ()
    gender: str | None = None
    birth_date: BirthDate | None = None
    birth_date_text: str | None = None
    telecom: tuple[ReceivedTelecom, ...] = ()
    identifiers: tuple[Identifier, ...] = ()
    rights: tuple[AccessRight, ...] = ()


AnswerValue = bool | int | Decimal | str | Coding


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedAnswer:
    """The answers to one question, however deeply nested; `values` is empty for a group and for a question without answer.

    `path` leads to it: link ids from the outermost group to its own, each with its number among those answered more than once.
    `units` has the unit of each value, empty where it has none; it is empty where no value has one.
    """

    where: str
    link_id: str | None
    path: tuple[tuple[str, int | None], ...] = ()
    text: str | None = None
    values: tuple[AnswerValue, ...] = ()
    units: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedResponse:
    """A QuestionnaireResponse, its nested answers in one list."""

    ref: ResourceRef | None
    where: str
    status: str | None = None
    source: ReferenceText | None = None
    subject: ReferenceText | None = None
    answers: tuple[ReceivedAnswer, ...] = ()
    rights: tuple[AccessRight, ...] = ()


class OrderResource(Protocol):
    """A resource of the order: its reference, its place, and who has which right to it."""

    @property
    def ref(self) -> ResourceRef | None:
        """Its type and id on the service."""
        ...

    @property
    def where(self) -> str:
        """Its place in the order."""
        ...

    @property
    def rights(self) -> tuple[AccessRight, ...]:
        """Its meta.security."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedOrder:
    """A whole order. `responses` is None if it is not known whether there are answers.

    `answers_withheld`: the service has more of them than it shows us.
    """

    task: ReceivedTask
    lines: tuple[ReceivedLine, ...] = ()
    specimens: tuple[ReceivedSpecimen, ...] = ()
    patients: tuple[ReceivedPatient, ...] = ()
    responses: tuple[ReceivedResponse, ...] | None = None
    answers_withheld: bool = False
    unreadable: tuple[tuple[ResourceRef, UnreadableResource], ...] = ()
    not_fetched: tuple[ResourceRef, ...] = ()
    malformed_fields: tuple[MalformedField, ...] = ()

    @property
    def requests(self) -> tuple[ReceivedRequest, ...]:
        """The ProcedureRequests that could be read, each once."""
        found = {line.request.ref: line.request for line in self.lines if line.request}
        return tuple(found.values())

    @property
    def counterparty(self) -> str | None:
        """The GUID of the partner: the one owner of the ProcedureRequests; None if there is none, or more than one."""
        owners = {request.owner for request in self.requests if request.owner}
        return owners.pop() if len(owners) == 1 else None

    @property
    def patient(self) -> ReceivedPatient | None:
        """The Patient of the order, if exactly one was read."""
        return self.patients[0] if len(self.patients) == 1 else None

    @property
    def patient_reference(self) -> str | None:
        """The one patient of the order: `patient/<id>`, or `<system>|<value>` of a global identifier; None if not exactly one."""
        subjects = {patient_key(request.subject) for request in self.requests if request.subject} - {None}
        return subjects.pop() if len(subjects) == 1 else None

    def specimens_of(self, request: ReceivedRequest) -> tuple[ReceivedSpecimen, ...]:
        """The Specimens that a ProcedureRequest names and that could be read."""
        wanted = [link.target for link in request.specimens]
        return tuple(specimen for specimen in self.specimens if specimen.ref in wanted)

    def lines_of(self, specimen: ReceivedSpecimen) -> tuple[ReceivedLine, ...]:
        """The lines that are made from a Specimen."""
        return tuple(
            line for line in self.lines if line.request and any(link.target == specimen.ref for link in line.request.specimens)
        )


def patient_key(reference: ReferenceText | None) -> str | None:
    """A text that is the same for the same patient: the normalized reference, or the global identifier."""
    if reference is None or (reference.target is None and reference.identifier is None):
        return None
    if reference.target is not None:
        return str(reference.target)
    return f"{reference.identifier.system or ''}|{reference.identifier.value}" if reference.identifier else None
