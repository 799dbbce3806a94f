"""`LabOrder`: the order as the laboratory system gets it, made only after the assessment.

Adapter authors build against this module; `lab-agent schema order` prints its JSON Schema. Within one `schema_version` fields
are added, never renamed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.shared.values import BirthDate, Coding, Identifier

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Telecom:
    """A contact of the patient: `system` is phone or email."""

    system: str
    value: str
    use: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PatientName:
    """A further name of the patient: `use` as FHIR has it (usual, maiden, old …); some names are only `text`."""

    use: str | None = None
    family: str | None = None
    given: tuple[str, ...] = ()
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderPatient:
    """Who the specimens are from.

    `service_identifier` is the id of the Patient on the exchange service with its system, the same in every order that refers to
    that Patient; a partner may create a Patient anew for each order. `anonymous` is the interface's anonymous form (family of
    exactly ten digits, given names `-`): `family` then holds the ten digits. `family` and `given` are the name that counts now;
    a name that was sent as text alone is in `name_text`, and whole in `family`. The others are in `other_names`. A global
    patient identifier without a Patient resource comes as `global_identifier`, all else empty.
    """

    service_identifier: Identifier | None = None
    anonymous: bool = False
    family: str | None = None
    given: tuple[str, ...] = ()
    name_text: str | None = None
    other_names: tuple[PatientName, ...] = ()
    gender: str | None = None
    birth_date: BirthDate | None = None
    telecom: tuple[Telecom, ...] = ()
    identifiers: tuple[Identifier, ...] = ()
    global_identifier: Identifier | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderLine:
    """One ordered test. `item` is the nomenclature code; `lab_code` the laboratory's own; `specimens` are `OrderSpecimen.id`s.

    `other_codes` are further codes that the partner gave the test, in other systems.
    """

    key: LineKey
    item: str
    other_codes: tuple[Coding, ...] = ()
    text: str | None = None
    lab_code: str | None = None
    ordered_at: datetime
    specimens: tuple[str, ...] = ()
    identifiers: tuple[Identifier, ...] = ()
    notes: tuple[str, ...] = ()
    old_order_number: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderContainer:
    """One tube. `barcode` is the partner's label; `second_barcode` that of the two-barcode studies; `quantity` as received.

    `other_identifiers` are the further numbers that the partner gave the tube.
    """

    barcode: str | None = None
    second_barcode: str | None = None
    other_identifiers: tuple[Identifier, ...] = ()
    type: str | None = None
    quantity: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSpecimen:
    """Biomaterial of one type taken at one time. `id` is its id on the exchange service.

    Where it was collected over a period (urine of 24 hours), `collected_at` is its start and `collected_until` its end.
    """

    id: str
    type: str | None = None
    body_site: str | None = None
    collected_at: datetime | None = None
    collected_until: datetime | None = None
    method: str | None = None
    containers: tuple[OrderContainer, ...] = ()
    supporting_info: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerStep:
    """A group or question on the way to an answer. `repeat` counts from 1 where it was answered more than once, else None."""

    link_id: str
    repeat: int | None = None


def format_answer_path(path: tuple[AnswerStep, ...]) -> str:
    """Give a path as text for a single column: `drugs[2]/dose`."""
    return "/".join(step.link_id + (f"[{step.repeat}]" if step.repeat else "") for step in path)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderAnswer:
    """The answers to one question; `false` and `0` are answers.

    `path` leads from the outermost group to the question itself, so that two repeats of a group are told apart.
    `units` has the unit of each value, empty where it has none; it is empty where no value has one.
    """

    link_id: str
    path: tuple[AnswerStep, ...] = ()
    text: str | None = None
    values: tuple[bool | int | Decimal | str | Coding, ...] = ()
    units: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationOption:
    """Whether the client wants to be notified of status changes by `channel` (sms or email)."""

    channel: str
    wanted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LabOrder:
    """An assessed order. `key` is stable: the same order always has the same key, and a LIS may recognise repeats by it."""

    key: OrderKey
    requisition: Identifier
    contract: str
    ordered_at: datetime
    patient: OrderPatient
    lines: tuple[OrderLine, ...]
    specimens: tuple[OrderSpecimen, ...] = ()
    answers: tuple[OrderAnswer, ...] = ()
    notifications: tuple[NotificationOption, ...] = ()
    schema_version: int = field(default=SCHEMA_VERSION)
