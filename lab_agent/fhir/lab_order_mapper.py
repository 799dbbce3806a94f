"""The order as received into `LabOrder`, what the laboratory system sees; of the lines that the rules accepted.

Nothing is checked here. What a warning let pass gets a plain default: a line without a readable time is as old as the order,
counted from when it was first seen.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date, datetime
from typing import Protocol

from lab_agent.fhir.human_name import HumanName, choose_name
from lab_agent.fhir.order_numbers import HasForm, choose_label, choose_old_order, choose_second_label, choose_supporting_info
from lab_agent.fhir.received_order import (
    ReceivedContainer,
    ReceivedLine,
    ReceivedOrder,
    ReceivedPatient,
    ReceivedRequest,
    ReceivedSpecimen,
)
from lab_agent.lis.lab_order import (
    AnswerStep,
    LabOrder,
    NotificationOption,
    OrderAnswer,
    OrderContainer,
    OrderLine,
    OrderPatient,
    OrderSpecimen,
    PatientName,
    Telecom,
)
from lab_agent.shared.code_systems import CodeSystem, CodeSystems, SystemMatch
from lab_agent.shared.errors import DataInvalidError, Problem
from lab_agent.shared.ids import LineKey, OrderKey
from lab_agent.shared.values import CodeableConcept, Coding, Identifier


class CatalogueLookup(Protocol):
    """What the catalogue adds to an order."""

    def lab_code(self, contract: str, item_id: str) -> str | None:
        """The laboratory's own code of an item."""
        ...

    def is_second_label(self, contract: str, item_ids: Collection[str], value: str) -> bool:
        """Whether a number has the form of the second barcode that one of these items needs."""
        ...

    def body_site(self, supporting_info: str) -> str | None:
        """The body site that a tube's supportingInfo names."""
        ...


def make_lab_order(
    received: ReceivedOrder,
    accepted_task_ids: Collection[str],
    *,
    order_key: OrderKey,
    line_keys: Mapping[str, LineKey],
    contract: str,
    catalogue: CatalogueLookup | None,
    systems: CodeSystems,
    first_seen_at: datetime,
) -> LabOrder:
    """Make the order of the accepted lines; `line_keys` by line Task id. Raises `DataInvalidError` if no line can be used."""
    lines = [line for line in received.lines if line.id in accepted_task_ids]
    accepted = [(line, line.request) for line in lines if line.request is not None]
    requisition = next((request.requisition for _, request in accepted if request.requisition), None)
    if requisition is None:
        raise DataInvalidError((Problem("order", "no accepted line with a requisition", "assess the order again"),))
    made = tuple(
        _line(
            line,
            request,
            line_keys[line.id],
            contract=contract,
            catalogue=catalogue,
            systems=systems,
            first_seen_at=first_seen_at,
        )
        for line, request in accepted
    )
    used = {specimen_id for line in made for specimen_id in line.specimens}

    def make_specimen(specimen: ReceivedSpecimen) -> OrderSpecimen:
        # Of every line, as the rules take it: a line that was refused does not change which number is the tube's barcode.
        requests = (line.request for line in received.lines_of(specimen) if line.request)
        items = frozenset(item for request in requests if (item := code_in(request.code, systems.nomenclature)))

        def has_second_form(value: str) -> bool:
            return catalogue is not None and catalogue.is_second_label(contract, items, value)

        return _specimen(specimen, catalogue, systems, has_second_form)

    return LabOrder(
        key=order_key,
        requisition=requisition,
        contract=contract,
        ordered_at=min(line.ordered_at for line in made),
        patient=_patient(received, systems, first_seen_at.date()),
        lines=made,
        specimens=tuple(make_specimen(each) for each in received.specimens if each.ref.id in used),
        answers=_answers(received),
        notifications=_notifications(received, systems),
    )


def code_in(concept: CodeableConcept, system: CodeSystem) -> str | None:
    """The code of a concept in a system, one spelled differently included; None where there is none."""
    best = min(concept.coding, key=lambda coding: system.rank(coding.system), default=None)
    return best.code if best and not _is_foreign(system, best) else None


def _line(
    line: ReceivedLine,
    request: ReceivedRequest,
    key: LineKey,
    *,
    contract: str,
    catalogue: CatalogueLookup | None,
    systems: CodeSystems,
    first_seen_at: datetime,
) -> OrderLine:
    item, old_order = code_in(request.code, systems.nomenclature), choose_old_order(request.old_orders, systems)
    if item is None:
        raise DataInvalidError((Problem(f"{line.where}.code", "no test is named", "assess the order again"),))
    return OrderLine(
        key=key,
        item=item,
        other_codes=tuple(each for each in request.code.coding if each.code != item or _is_foreign(systems.nomenclature, each)),
        text=request.code.text,
        lab_code=catalogue.lab_code(contract, item) if catalogue else None,
        ordered_at=(request.occurrence.at if request.occurrence else None) or first_seen_at,
        specimens=tuple(link.target.id for link in request.specimens if link.target),
        identifiers=request.identifiers,
        notes=request.notes,
        old_order_number=old_order.value if old_order else None,
    )


def _is_foreign(system: CodeSystem, coding: Coding) -> bool:
    return system.match(coding.system) is SystemMatch.FOREIGN


def _patient(received: ReceivedOrder, systems: CodeSystems, on: date) -> OrderPatient:
    patient = received.patient
    if patient is None:
        subjects = (request.subject for request in received.requests if request.subject)
        return OrderPatient(global_identifier=next((link.identifier for link in subjects if link.identifier), None))
    name = choose_name(patient.names, on) or HumanName()
    others = (each for each in patient.names if each is not name and not each.is_empty)
    whole = None if name.family else name.text  # nothing says which of its words is the family name
    return OrderPatient(
        service_identifier=Identifier(system=systems.patients, value=patient.ref.id),
        anonymous=name.is_anonymous,
        family=name.family or whole,
        given=() if name.is_anonymous or whole else name.given,
        name_text=name.text,
        other_names=tuple(PatientName(use=one.use, family=one.family, given=one.given, text=one.text) for one in others),
        gender=patient.gender,
        birth_date=patient.birth_date,
        telecom=_telecom(patient),
        identifiers=patient.identifiers,
    )


def _telecom(patient: ReceivedPatient) -> tuple[Telecom, ...]:
    return tuple(
        Telecom(system=each.system, value=each.value, use=each.use) for each in patient.telecom if each.system and each.value
    )


def _specimen(
    specimen: ReceivedSpecimen, catalogue: CatalogueLookup | None, systems: CodeSystems, has_second_form: HasForm
) -> OrderSpecimen:
    info = choose_supporting_info(specimen.extensions, systems)
    sites = [coding.code for coding in specimen.body_site.coding]
    start = specimen.collected or specimen.collected_start
    return OrderSpecimen(
        id=specimen.ref.id,
        type=code_in(specimen.type, systems.specimen_type),
        body_site=sites[0] if sites else (catalogue.body_site(info) if catalogue and info else None),
        collected_at=start.at if start else None,
        collected_until=specimen.collected_end.at if specimen.collected_end and not specimen.collected else None,
        method=code_in(specimen.method, systems.method) or specimen.method.text,
        containers=tuple(_container(each, systems, has_second_form) for each in specimen.containers),
        supporting_info=info,
    )


def _container(container: ReceivedContainer, systems: CodeSystems, has_second_form: HasForm) -> OrderContainer:
    label = choose_label(container.identifiers, systems, has_second_form)
    barcode, second = label.value if label else None, choose_second_label(container.identifiers, systems, has_second_form)
    return OrderContainer(
        barcode=barcode,
        second_barcode=second,
        other_identifiers=tuple(each for each in container.identifiers if each.value not in {barcode, second}),
        type=code_in(container.type, systems.container_type),
        quantity=container.quantity,
    )


def _answers(received: ReceivedOrder) -> tuple[OrderAnswer, ...]:
    answers = (answer for response in received.responses or () for answer in response.answers)
    return tuple(
        OrderAnswer(
            link_id=each.link_id or "",
            path=tuple(AnswerStep(link_id=link_id, repeat=repeat) for link_id, repeat in each.path),
            text=each.text,
            values=each.values,
            units=each.units,
        )
        for each in answers
        if each.values
    )


def _notifications(received: ReceivedOrder, systems: CodeSystems) -> tuple[NotificationOption, ...]:
    options = ((code_in(each.type, systems.notification), each.value) for each in received.task.inputs)
    return tuple(NotificationOption(channel=code, wanted=wanted) for code, wanted in options if code and wanted is not None)
