"""The resources of an order while it is fetched: what was read, what cannot be read, and what is still missing.

The workflow reads what is missing, adds it to the graph, and stops when nothing is missing any more. Which resources belong to
an order is decided here and nowhere else (interface: Laboratory-side endpoints; References). A graph is stored in two parts, so
that names and birth dates are kept apart from medical data (law 7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from lab_agent.fhir.elements import objects_of, references_of, text_of
from lab_agent.fhir.received_order import ResourceRef, UnreadableResource
from lab_agent.fhir.references import parse_reference, resource_at_end
from lab_agent.shared import exact_json
from lab_agent.shared.errors import DataInvalidError, ForeignOrigin, Problem

Json = Mapping[str, Any]
_FORMAT_VERSION = 1
Shape = dict[str, Any]
"""The fields of an object that are stored, each with those of the object in it; None for a text, number or truth value."""
_IDENTIFIER: Shape = {"system": None, "value": None}
_CODING: Shape = {"system": None, "code": None, "display": None}
_CONCEPT: Shape = {"coding": _CODING, "text": None}
_CODES: Shape = {"coding": {"system": None, "code": None}}
_LINK: Shape = {"reference": None}
_NUMBERED_LINK: Shape = {**_LINK, "identifier": _IDENTIFIER}
_RESOURCE: Shape = {"resourceType": None, "id": None, "meta": {"security": {"system": None, "code": None}}}
_ANSWER: Shape = {
    **{f"value{name}": None for name in ("Boolean", "Decimal", "Integer", "Date", "DateTime", "Time", "String", "Uri")},
    "valueCoding": _CODING,
    "valueQuantity": {"value": None, "comparator": None, "unit": None, "code": None},
}
_ITEM: Shape = {"linkId": None, "text": None, "answer": _ANSWER}
_ITEM["item"] = _ANSWER["item"] = _ITEM
_TASK: Shape = {
    **_RESOURCE,
    "status": None,
    "code": _CODES,
    "basedOn": _LINK,
    "partOf": _LINK,
    "input": {"type": _CODES, "valueBoolean": None, "valueReference": _LINK},
}
_RESPONSE: Shape = {**_RESOURCE, "status": None, "source": _LINK, "subject": _LINK, "item": _ITEM}
_STORED: Mapping[str, Shape] = {
    "ProcedureRequest": {
        **_RESOURCE,
        "status": None,
        "identifier": _IDENTIFIER,
        "requisition": _IDENTIFIER,
        "supportingInfo": _NUMBERED_LINK,
        "code": _CONCEPT,
        "subject": _LINK,
        "occurrenceDateTime": None,
        "specimen": _LINK,
        "basedOn": _NUMBERED_LINK,
    },
    "Specimen": {
        **_RESOURCE,
        "type": _CODES,
        "subject": _LINK,
        "collection": {
            "collectedDateTime": None,
            "collectedPeriod": {"start": None, "end": None},
            "method": _CONCEPT,
            "bodySite": _CODES,
        },
        "container": {"identifier": _IDENTIFIER, "type": _CODES, "specimenQuantity": {"value": None}},
    },
    "QuestionnaireResponse": _RESPONSE,
}
"""What is read of an order (`order_parser`), and all that is stored in plain: any other field may name a person."""
_SEALED = {"ProcedureRequest": ("note", "subject"), "Specimen": ("extension", "subject"), "QuestionnaireResponse": ("source",)}
"""What is read, too, and stored with the Patients: texts of the clinic, and whoever is named by a number."""
PURGED = UnreadableResource("its identification data was purged here", 0)


@dataclass(frozen=True, slots=True)
class GraphJson:
    """A graph as bytes, in two parts that are stored apart (law 7)."""

    medical: bytes
    identification: bytes


@dataclass(frozen=True, slots=True)
class OrderGraph:
    """The resources of one order. `questionnaire_responses` is None where it is not known whether there are any.

    `answers_withheld`: the service said that it has more of them than it showed.
    """

    base_url: str
    order_task: Json
    line_tasks: tuple[Json, ...] = ()
    resources: Mapping[ResourceRef, Json] = field(default_factory=dict)
    unreadable: Mapping[ResourceRef, UnreadableResource] = field(default_factory=dict)
    questionnaire_responses: tuple[Json, ...] | None = None
    answers_withheld: bool = False

    def missing_references(self) -> frozenset[ResourceRef]:
        """References of this order that are neither read nor known to be unreadable."""
        return frozenset(self._refs_of(self.line_tasks)) - self.resources.keys() - self.unreadable.keys()

    def with_resource(self, ref: ResourceRef, body: Json) -> OrderGraph:
        """The graph with one more resource read; it is no longer unreadable."""
        others = {each: why for each, why in self.unreadable.items() if each != ref}
        return replace(self, resources={**self.resources, ref: body}, unreadable=others)

    def with_unreadable(self, ref: ResourceRef, reason: str, status: int = 0) -> OrderGraph:
        """The graph with one more resource that cannot be read."""
        return replace(self, unreadable={**self.unreadable, ref: UnreadableResource(reason, status)})

    def with_readings(
        self, resources: Mapping[ResourceRef, Json], unreadable: Mapping[ResourceRef, UnreadableResource]
    ) -> OrderGraph:
        """The graph with all that was read at once, and what could not be."""
        return replace(self, resources={**self.resources, **resources}, unreadable={**self.unreadable, **unreadable})

    def with_questionnaire_responses(self, responses: Iterable[Json] | None, *, withheld: bool = False) -> OrderGraph:
        """The graph with the responses found by search; None where the service offers no search."""
        found = None if responses is None else tuple(responses)
        return replace(self, questionnaire_responses=found, answers_withheld=withheld)

    def without_lines(self, task_ids: Collection[object]) -> OrderGraph:
        """The graph without these line Tasks, and without what cannot be read of them alone. Answers may be about any line."""
        left = tuple(task for task in self.line_tasks if task.get("id") not in task_ids)
        named = {*self._refs_of(left), *(ref for ref in self.unreadable if ref.type == "QuestionnaireResponse")}
        return replace(self, line_tasks=left, unreadable={ref: why for ref, why in self.unreadable.items() if ref in named})

    def procedure_request_ids(self) -> tuple[str, ...]:
        """Ids of the ProcedureRequests of the lines, each once, in the order of the lines.

        Those that were read say it themselves: the reference may have it percent-encoded.
        """
        own = ((self.resources.get(ref, {}).get("id"), ref.id) for ref in self._procedure_request_refs(self.line_tasks))
        return tuple(dict.fromkeys(named if isinstance(named, str) and named else given for named, given in own))

    def to_json(self) -> GraphJson:
        """Give the graph as bytes. The medical part holds what is read of an order, and nothing in which people write names."""
        patients = {ref: body for ref, body in self.resources.items() if ref.type == "Patient"}
        others = {ref: body for ref, body in self.resources.items() if ref.type != "Patient"}
        stored = {ref: keep_fields(body, _STORED.get(ref.type, _RESOURCE)) for ref, body in others.items()}
        responses = self.questionnaire_responses
        medical = {
            "format": _FORMAT_VERSION,
            "base_url": self.base_url,
            "order_task": keep_fields(self.order_task, _TASK),
            "line_tasks": [keep_fields(task, _TASK) for task in self.line_tasks],
            "resources": _resources_to_list(stored),
            "unreadable": [[ref.type, ref.id, why.reason, why.status] for ref, why in self.unreadable.items()],
            "patients": [ref.id for ref in patients],
            "questionnaire_responses": None if responses is None else [keep_fields(each, _RESPONSE) for each in responses],
            "answers_withheld": self.answers_withheld,
        }
        identification = {
            "format": _FORMAT_VERSION,
            "resources": _resources_to_list(patients),
            "sealed": _resources_to_list({ref: _sealed_fields(ref.type, body) for ref, body in others.items()}),
            "sealed_responses": [_sealed_fields("QuestionnaireResponse", each) for each in responses or ()],
        }
        return GraphJson(exact_json.dumps(medical), exact_json.dumps(identification))

    @classmethod
    def from_json(cls, medical: bytes, identification: bytes | None) -> OrderGraph:
        """Read a stored graph; a Patient whose identification part is gone is unreadable. Raises `DataInvalidError`."""
        stored = exact_json.loads(medical)
        patients = read_patients(identification) if identification else {}
        try:
            return cls._from_parts(stored, patients, exact_json.loads(identification) if identification else {})
        except (KeyError, TypeError, ValueError) as exc:
            raise DataInvalidError((Problem("order", "is not a stored order graph", "fetch the order again"),)) from exc

    @classmethod
    def _from_parts(cls, stored: Json, patients: Mapping[ResourceRef, Json], identification: Json) -> OrderGraph:
        others = _resources_from_list(stored["resources"])  # those of older graphs have all of their fields here
        sealed = _resources_from_list(identification.get("sealed", []))
        found = _resources_from_list(identification.get("notes", []))  # of older graphs
        notes = {ref: {"note": note} for ref, note in found.items()}
        unreadable = {
            ResourceRef(kind, each): UnreadableResource(reason, status) for kind, each, reason, status in stored["unreadable"]
        }
        purged = {ref: PURGED for each in stored["patients"] if (ref := ResourceRef("Patient", each)) not in patients}
        responses = stored["questionnaire_responses"]
        sources: list[Json] = identification.get("sealed_responses") or [{} for _ in responses or ()]
        return cls(
            base_url=stored["base_url"],
            order_task=stored["order_task"],
            line_tasks=tuple(stored["line_tasks"]),
            resources={
                **{ref: _merge(body, sealed.get(ref) or notes.get(ref, {})) for ref, body in others.items()},
                **patients,
            },
            unreadable={**unreadable, **purged},
            questionnaire_responses=None if responses is None else tuple(map(_merge, responses, sources)),
            answers_withheld=bool(stored.get("answers_withheld")),
        )

    def _procedure_request_refs(self, line_tasks: Iterable[Json]) -> Iterator[ResourceRef]:
        for task in line_tasks:
            yield from self._parse_references(references_of(task.get("basedOn")), {"ProcedureRequest"})

    def _refs_of(self, line_tasks: Collection[Json]) -> Iterator[ResourceRef]:
        for task in (self.order_task, *line_tasks):
            values = (references_of(each.get("valueReference")) for each in objects_of(task.get("input")))
            yield from self._parse_references(chain.from_iterable(values), {"QuestionnaireResponse"})
        for ref in self._procedure_request_refs(line_tasks):
            yield ref
            body = self.resources.get(ref, {})
            yield from self._parse_references(references_of(body.get("subject")), {"Patient"})
            yield from self._parse_references(references_of(body.get("specimen")), {"Specimen"})
            yield from self._parse_references(references_of(body.get("supportingInfo")), {"QuestionnaireResponse"})

    def _parse_references(self, references: Iterable[Json], types: set[str]) -> Iterator[ResourceRef]:
        for each in references:
            try:
                ref = parse_reference(text_of(each.get("reference")), self.base_url)
            except ForeignOrigin:
                continue
            if ref is not None and ref.type in types:
                yield ref


def read_patients(identification: bytes) -> dict[ResourceRef, Json]:
    """The Patients of the identification part of a stored graph. Raises `DataInvalidError`."""
    try:
        return _resources_from_list(exact_json.loads(identification)["resources"])
    except (KeyError, TypeError, ValueError) as exc:
        raise DataInvalidError((Problem("order", "is not a stored order graph", "fetch the order again"),)) from exc


def _merge(body: Json, sealed: Json) -> Json:
    return {**body, **sealed}


def _sealed_fields(resource_type: str, body: Json) -> Json:
    return {name: body[name] for name in _SEALED.get(resource_type, ()) if name in body}


def _resources_to_list(resources: Mapping[ResourceRef, Json]) -> list[Any]:
    return [[ref.type, ref.id, body] for ref, body in resources.items()]


def _resources_from_list(rows: list[Any]) -> dict[ResourceRef, Json]:
    return {ResourceRef(kind, resource_id): body for kind, resource_id, body in rows}


def keep_fields(value: Any, shape: Shape | None) -> Any:
    """Give a copy of JSON with the fields of a shape alone; what has another type than it should keeps that, without its text.

    A text in place of a Reference is its address (`elements`), if it can be one.
    """
    if isinstance(value, list | tuple):
        return [keep_fields(each, shape) for each in value]
    if isinstance(value, Mapping):
        return {key: keep_fields(each, shape[key]) for key, each in value.items() if key in shape} if shape else {}
    is_told = shape is None or not isinstance(value, str) or ("reference" in shape and resource_at_end(value))
    return value if is_told else ""
