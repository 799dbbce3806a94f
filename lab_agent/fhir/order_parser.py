"""Resources into the order as received (interface: Resources and their fields).

Tolerant by design: a real partner's resource has fields that we do not know and lacks some that we expect. Unknown fields are
ignored, fields of the wrong type are collected, and whether the order is right is left to the rules.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from lab_agent.fhir.human_name import HumanName
from lab_agent.fhir.json_reader import JsonReader
from lab_agent.fhir.order_graph import OrderGraph, read_patients
from lab_agent.fhir.received_order import (
    AnswerValue,
    Extension,
    MalformedField,
    ReceivedAnswer,
    ReceivedContainer,
    ReceivedLine,
    ReceivedOrder,
    ReceivedPatient,
    ReceivedRequest,
    ReceivedResponse,
    ReceivedSpecimen,
    ReceivedTask,
    ReceivedTelecom,
    ResourceRef,
    TaskInput,
)
from lab_agent.shared.values import Coding

_MAX_DEPTH = 20
_DATE_PREFIX = re.compile(r"\d{4}(-\d\d(-\d\d)?)?", re.ASCII)


def parse_order(graph: OrderGraph) -> ReceivedOrder:
    """Read a graph. Never raises, whatever the partner sent."""
    malformed_fields: list[MalformedField] = []
    order = _task(_make_reader(graph, graph.order_task, "Task[0]", malformed_fields))
    tasks = [_task(_make_reader(graph, body, f"Task[{n}]", malformed_fields)) for n, body in enumerate(graph.line_tasks, 1)]
    requests = _requests(graph, tasks, malformed_fields)
    patients = dict.fromkeys(each.subject.target for each in requests.values() if each.subject)
    specimens = dict.fromkeys(reference.target for each in requests.values() for reference in each.specimens)
    return ReceivedOrder(
        task=order,
        lines=tuple(ReceivedLine(task=task, request=_request_of_task(task, requests)) for task in tasks),
        patients=tuple(_patient(reader, ref) for ref, reader in _make_readers(graph, patients, "Patient", malformed_fields)),
        specimens=tuple(_specimen(reader, ref) for ref, reader in _make_readers(graph, specimens, "Specimen", malformed_fields)),
        responses=_responses(graph, malformed_fields),
        answers_withheld=graph.answers_withheld,
        unreadable=tuple(graph.unreadable.items()),
        not_fetched=tuple(sorted(graph.missing_references())),
        malformed_fields=tuple(dict.fromkeys(malformed_fields)),
    )


def _make_reader(graph: OrderGraph, body: Any, where: str, malformed_fields: list[MalformedField]) -> JsonReader:
    return JsonReader(body if isinstance(body, Mapping) else {}, where, graph.base_url, malformed_fields)


def _make_readers(
    graph: OrderGraph, refs: Mapping[ResourceRef | None, None], resource_type: str, malformed_fields: list[MalformedField]
) -> list[tuple[ResourceRef, JsonReader]]:
    known = [ref for ref in refs if ref is not None and ref.type == resource_type]
    numbered = [
        (ref, resource_type if resource_type == "Patient" and len(known) == 1 else f"{resource_type}[{n}]")
        for n, ref in enumerate(known)
    ]
    return [
        (ref, _make_reader(graph, graph.resources[ref], where, malformed_fields))
        for ref, where in numbered
        if ref in graph.resources
    ]


def _task(reader: JsonReader) -> ReceivedTask:
    task_id = reader.text("id")
    return ReceivedTask(
        ref=ResourceRef("Task", task_id) if task_id else None,
        where=reader.where,
        status=reader.fhir_code("status"),
        code=reader.codeable_concept("code"),
        based_on=reader.references("basedOn"),
        part_of=reader.references("partOf"),
        inputs=tuple(
            TaskInput(where=each.where, type=each.codeable_concept("type"), value=each.boolean("valueBoolean"))
            for each in reader.children("input")
        ),
        rights=reader.access_rights(),
    )


def _requests(
    graph: OrderGraph, tasks: list[ReceivedTask], malformed_fields: list[MalformedField]
) -> dict[ResourceRef, ReceivedRequest]:
    refs = dict.fromkeys(link.target for task in tasks for link in task.based_on)
    return {ref: _request(reader, ref) for ref, reader in _make_readers(graph, refs, "ProcedureRequest", malformed_fields)}


def _request_of_task(task: ReceivedTask, requests: Mapping[ResourceRef, ReceivedRequest]) -> ReceivedRequest | None:
    targets = {link.target for link in task.based_on if link.target and link.target.type == "ProcedureRequest"}
    return requests.get(targets.pop()) if len(targets) == 1 else None


def _request(reader: JsonReader, ref: ResourceRef) -> ReceivedRequest:
    based_on = reader.references("basedOn")
    notes = (each.text("text") for each in reader.children("note"))
    return ReceivedRequest(
        ref=ref,
        where=reader.where,
        status=reader.fhir_code("status"),
        identifiers=reader.identifiers("identifier"),
        requisition=reader.identifier("requisition"),
        supporting_info=reader.references("supportingInfo"),
        code=reader.codeable_concept("code"),
        subject=reader.reference("subject"),
        occurrence=reader.date_time("occurrenceDateTime"),
        specimens=reader.references("specimen"),
        notes=tuple(note for note in notes if note),
        old_orders=tuple(link.identifier for link in based_on if link.identifier),
        rights=reader.access_rights(),
    )


def _specimen(reader: JsonReader, ref: ResourceRef) -> ReceivedSpecimen:
    collection = reader.child("collection")
    return ReceivedSpecimen(
        ref=ref,
        where=reader.where,
        type=reader.codeable_concept("type"),
        subject=reader.reference("subject"),
        collected=collection.date_time("collectedDateTime"),
        collected_start=collection.child("collectedPeriod").date_time("start"),
        collected_end=collection.child("collectedPeriod").date_time("end"),
        method=collection.codeable_concept("method"),
        body_site=collection.codeable_concept("bodySite"),
        containers=tuple(_container(each) for each in reader.children("container")),
        extensions=tuple(
            Extension(url=each.text("url"), value=each.text("valueString")) for each in reader.children("extension")
        ),
        rights=reader.access_rights(),
    )


def _container(reader: JsonReader) -> ReceivedContainer:
    return ReceivedContainer(
        where=reader.where,
        identifiers=reader.identifiers("identifier"),
        type=reader.codeable_concept("type"),
        quantity=reader.child("specimenQuantity").decimal("value"),
    )


def _patient(reader: JsonReader, ref: ResourceRef) -> ReceivedPatient:
    return ReceivedPatient(
        ref=ref,
        where=reader.where,
        names=tuple(_human_name(each) for each in reader.children("name")),
        gender=reader.fhir_code("gender"),
        birth_date=reader.date("birthDate"),
        birth_date_text=reader.text("birthDate"),
        telecom=tuple(
            ReceivedTelecom(system=each.text("system"), value=each.text("value"), use=each.text("use"))
            for each in reader.children("telecom")
        ),
        identifiers=reader.identifiers("identifier"),
        rights=reader.access_rights(),
    )


def _human_name(reader: JsonReader) -> HumanName:
    period = reader.child("period")
    return HumanName(
        where=reader.where,
        use=reader.text("use"),
        family=reader.text("family"),
        given=tuple(each.strip() for each in reader.texts("given") if each.strip()),
        text=reader.text("text"),
        start=_date_prefix(period.text("start")),
        end=_date_prefix(period.text("end")),
    )


def _date_prefix(text: str | None) -> str | None:
    """Year, or year and month, or year, month and day of a FHIR dateTime."""
    found = _DATE_PREFIX.match(text or "")
    return found[0] if found else None


def parse_patients(identification: bytes) -> tuple[ReceivedPatient, ...]:
    """Read the Patients of the identification part of a stored graph. Raises `DataInvalidError`."""
    resources = read_patients(identification)
    return tuple(_patient(JsonReader(body, "Patient", "", []), ref) for ref, body in resources.items())


def _responses(graph: OrderGraph, malformed_fields: list[MalformedField]) -> tuple[ReceivedResponse, ...] | None:
    """The responses found by search and by reference, each once; None if there was no search and no reference to one."""
    referenced = [body for ref, body in graph.resources.items() if ref.type == "QuestionnaireResponse"]
    if graph.questionnaire_responses is None and not referenced:
        return None
    bodies = {str(body.get("id") or id(body)): body for body in (*referenced, *(graph.questionnaire_responses or ()))}
    readers = (
        _make_reader(graph, body, f"QuestionnaireResponse[{n}]", malformed_fields) for n, body in enumerate(bodies.values())
    )
    return tuple(parse_questionnaire_response(reader) for reader in readers)


def parse_questionnaire_response(reader: JsonReader) -> ReceivedResponse:
    """Read one QuestionnaireResponse (interface: QuestionnaireResponse)."""
    response_id = reader.text("id")
    return ReceivedResponse(
        ref=ResourceRef("QuestionnaireResponse", response_id) if response_id else None,
        where=reader.where,
        status=reader.fhir_code("status"),
        source=reader.reference("source"),
        subject=reader.reference("subject"),
        answers=tuple(_parse_items(reader, 0)),
        rights=reader.access_rights(),
    )


_Path = tuple[tuple[str, int | None], ...]


def _parse_items(reader: JsonReader, depth: int, path: _Path = ()) -> Iterator[ReceivedAnswer]:
    """The items, nested ones included: they are in other items or under the answers of a question (FHIR allows both)."""
    if depth > _MAX_DEPTH:
        return
    items = reader.children("item")
    for item, step in zip(items, _number_repeats([item.code("linkId") or "" for item in items]), strict=True):
        answers, here = item.children("answer"), (*path, step)
        given = [(value, _answer_unit(answer)) for answer in answers if (value := _answer_value(answer)) is not None]
        yield ReceivedAnswer(
            where=item.where,
            link_id=item.code("linkId"),
            path=here,
            text=item.text("text"),
            values=tuple(value for value, _ in given),
            units=tuple(unit for _, unit in given) if any(unit for _, unit in given) else (),
        )
        yield from _parse_items(item, depth + 1, here)
        for number, answer in enumerate(answers, 1):
            below = (*(path if step[1] is None else here), (step[0], number))
            yield from _parse_items(answer, depth + 1, here if len(answers) == 1 else below)


def _number_repeats(link_ids: Sequence[str]) -> Iterator[tuple[str, int | None]]:
    """Number the items of one linkId beside each other; one that is alone has no number."""
    seen: Counter[str] = Counter()
    for link_id, total in zip(link_ids, map(Counter(link_ids).__getitem__, link_ids), strict=True):
        seen[link_id] += 1
        yield link_id, seen[link_id] if total > 1 else None


def _answer_value(answer: JsonReader) -> AnswerValue | None:
    """The one value[x]; `false` and `0` are answers too."""
    for key, value in answer.body.items():
        if key == "valueCoding":
            return answer.child(key).coding() or answer.child(key).text("display")
        if key == "valueQuantity":
            return _quantity_value(answer.child(key))
        if key.startswith("value"):
            return _scalar_value(value)
    return None


def _quantity_value(quantity: JsonReader) -> AnswerValue | None:
    """The number; as text where a comparator belongs to it, for `<5` is not 5."""
    value, comparator = quantity.decimal("value"), quantity.text("comparator")
    return value if value is None or comparator is None else f"{comparator}{value:f}"


def _answer_unit(answer: JsonReader) -> str:
    quantity = answer.body.get("valueQuantity")
    found = answer.child("valueQuantity") if isinstance(quantity, Mapping) else None
    return (found.text("unit") or found.text("code") or "") if found else ""


def _scalar_value(value: object) -> AnswerValue | None:
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, Mapping):
        code = value.get("code")
        return Coding(code=code) if isinstance(code, str) else None
    return value if isinstance(value, bool | int | Decimal) else None
