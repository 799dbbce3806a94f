"""Resources into the order as received (interface: Resources and their fields).

Tolerant by design: a real partner's resource carries fields that we do not know and lacks some that we expect. Unknown fields
are ignored, whatever is of the wrong type is remembered, and judging is left to the rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab_agent.domain.received import (
    Extension,
    Flaw,
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
from lab_agent.fhir.answers import read_response
from lab_agent.fhir.graph import OrderGraph
from lab_agent.fhir.view import View

Json = Mapping[str, Any]


def receive(graph: OrderGraph) -> ReceivedOrder:
    """Read a graph. Never raises, whatever the partner sent."""
    flaws: list[Flaw] = []
    order = _task(_view(graph, graph.order_task, "Task[0]", flaws))
    tasks = [_task(_view(graph, body, f"Task[{n}]", flaws)) for n, body in enumerate(graph.line_tasks, 1)]
    requests = _requests(graph, tasks, flaws)
    patients = dict.fromkeys(each.subject.target for each in requests.values() if each.subject)
    specimens = dict.fromkeys(link.target for each in requests.values() for link in each.specimens)
    return ReceivedOrder(
        task=order,
        lines=tuple(ReceivedLine(task=task, request=_request_of(task, requests)) for task in tasks),
        patients=tuple(_patient(view, ref) for ref, view in _views(graph, patients, "Patient", flaws)),
        specimens=tuple(_specimen(view, ref) for ref, view in _views(graph, specimens, "Specimen", flaws)),
        responses=_responses(graph, flaws),
        unreadable=tuple(graph.unreadable.items()),
        unread=tuple(sorted(graph.wanted())),
        flaws=tuple(dict.fromkeys(flaws)),
    )


def _view(graph: OrderGraph, body: Any, where: str, flaws: list[Flaw]) -> View:
    return View(body if isinstance(body, Mapping) else {}, where, graph.base_url, flaws)


def _views(
    graph: OrderGraph, refs: Mapping[ResourceRef | None, None], kind: str, flaws: list[Flaw]
) -> list[tuple[ResourceRef, View]]:
    known = [ref for ref in refs if ref is not None and ref.type == kind]
    numbered = [(ref, kind if kind == "Patient" and len(known) == 1 else f"{kind}[{n}]") for n, ref in enumerate(known)]
    return [(ref, _view(graph, graph.resources[ref], where, flaws)) for ref, where in numbered if ref in graph.resources]


def _task(view: View) -> ReceivedTask:
    task_id = view.text("id")
    return ReceivedTask(
        ref=ResourceRef("Task", task_id) if task_id else None,
        where=view.where,
        status=view.text("status"),
        code=view.concept("code"),
        based_on=view.links("basedOn"),
        part_of=view.links("partOf"),
        inputs=tuple(
            TaskInput(where=each.where, type=each.concept("type"), value=each.flag("valueBoolean"))
            for each in view.children("input")
        ),
        rights=view.rights(),
    )


def _requests(graph: OrderGraph, tasks: list[ReceivedTask], flaws: list[Flaw]) -> dict[ResourceRef, ReceivedRequest]:
    refs = dict.fromkeys(link.target for task in tasks for link in task.based_on)
    return {ref: _request(view, ref) for ref, view in _views(graph, refs, "ProcedureRequest", flaws)}


def _request_of(task: ReceivedTask, requests: Mapping[ResourceRef, ReceivedRequest]) -> ReceivedRequest | None:
    targets = {link.target for link in task.based_on if link.target and link.target.type == "ProcedureRequest"}
    return requests.get(targets.pop()) if len(targets) == 1 else None


def _request(view: View, ref: ResourceRef) -> ReceivedRequest:
    based_on = view.links("basedOn")
    notes = (each.text("text") for each in view.children("note"))
    return ReceivedRequest(
        ref=ref,
        where=view.where,
        status=view.text("status"),
        identifiers=view.identifiers("identifier"),
        requisition=view.identifier("requisition"),
        supporting=view.links("supportingInfo"),
        code=view.concept("code"),
        subject=view.link("subject"),
        occurrence=view.moment("occurrenceDateTime"),
        specimens=view.links("specimen"),
        notes=tuple(note for note in notes if note),
        old_orders=tuple(link.identifier for link in based_on if link.identifier),
        rights=view.rights(),
    )


def _specimen(view: View, ref: ResourceRef) -> ReceivedSpecimen:
    collection = view.child("collection")
    return ReceivedSpecimen(
        ref=ref,
        where=view.where,
        type=view.concept("type"),
        subject=view.link("subject"),
        collected=collection.moment("collectedDateTime"),
        method=collection.concept("method"),
        body_site=collection.concept("bodySite"),
        containers=tuple(_container(each) for each in view.children("container")),
        extensions=tuple(Extension(url=each.text("url"), value=each.text("valueString")) for each in view.children("extension")),
        rights=view.rights(),
    )


def _container(view: View) -> ReceivedContainer:
    return ReceivedContainer(
        where=view.where,
        identifiers=view.identifiers("identifier"),
        type=view.concept("type"),
        quantity=view.child("specimenQuantity").number("value"),
    )


def _patient(view: View, ref: ResourceRef) -> ReceivedPatient:
    names = view.children("name")
    return ReceivedPatient(
        ref=ref,
        where=view.where,
        family=names[0].text("family") if names else None,
        given=names[0].texts("given") if names else (),
        gender=view.text("gender"),
        birth_date=view.date("birthDate"),
        birth_text=view.text("birthDate"),
        telecom=tuple(
            ReceivedTelecom(system=each.text("system"), value=each.text("value"), use=each.text("use"))
            for each in view.children("telecom")
        ),
        identifiers=view.identifiers("identifier"),
        rights=view.rights(),
    )


def _responses(graph: OrderGraph, flaws: list[Flaw]) -> tuple[ReceivedResponse, ...] | None:
    """The responses found by search and by reference, each once; None where no search told, and no reference led to one."""
    referenced = [body for ref, body in graph.resources.items() if ref.type == "QuestionnaireResponse"]
    if graph.questionnaire_responses is None and not referenced:
        return None
    bodies = {str(body.get("id") or id(body)): body for body in (*referenced, *(graph.questionnaire_responses or ()))}
    views = (_view(graph, body, f"QuestionnaireResponse[{n}]", flaws) for n, body in enumerate(bodies.values()))
    return tuple(read_response(view) for view in views)
