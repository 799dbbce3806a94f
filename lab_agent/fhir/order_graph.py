"""The resources of an order while it is fetched: what was read, what cannot be read, and what is still missing.

The workflow reads what is missing, adds it to the graph, and stops when nothing is missing any more. Which resources belong to
an order is decided here and nowhere else (interface: Laboratory-side endpoints; References). A graph is stored in two parts, so
that names and birth dates are kept apart from medical data (law 7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from typing import Any

from lab_agent import exact_json
from lab_agent.domain.received_order import ResourceRef, UnreadableResource
from lab_agent.errors import DataInvalidError, ForeignOrigin, Problem
from lab_agent.fhir.elements import objects_of, references_of, text_of
from lab_agent.fhir.references import parse_reference

Json = Mapping[str, Any]
_FORMAT_VERSION = 1
_MAY_IDENTIFY = frozenset({"display", "contained", "text"})
_FREE_TEXTS = frozenset(
    {"note", "reason", "reasonCode", "reasonReference", "statusReason", "description", "patientInstruction", "businessStatus"}
)
"""What people write, or choose, about a request; of these only the notes of a ProcedureRequest are used."""
_SCALARS = (str, int, float, Decimal)
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
        """Give the graph as bytes. The medical part holds no name, birth date, narrative, note, reason or reference's display."""
        patients = {ref: body for ref, body in self.resources.items() if ref.type == "Patient"}
        others_as_read = {ref: body for ref, body in self.resources.items() if ref.type != "Patient"}
        others = {ref: strip_identification(body) for ref, body in others_as_read.items()}
        responses = self.questionnaire_responses
        medical = {
            "format": _FORMAT_VERSION,
            "base_url": self.base_url,
            "order_task": strip_identification(self.order_task),
            "line_tasks": [strip_identification(task) for task in self.line_tasks],
            "resources": _resources_to_list(others),
            "unreadable": [[ref.type, ref.id, why.reason, why.status] for ref, why in self.unreadable.items()],
            "patients": [ref.id for ref in patients],
            "questionnaire_responses": None if responses is None else [strip_identification(each) for each in responses],
            "answers_withheld": self.answers_withheld,
        }
        notes = {ref: body["note"] for ref, body in others_as_read.items() if ref.type == "ProcedureRequest" and "note" in body}
        identification = {
            "format": _FORMAT_VERSION,
            "resources": _resources_to_list(patients),
            "notes": _resources_to_list(notes),
        }
        return GraphJson(exact_json.dumps(medical), exact_json.dumps(identification))

    @classmethod
    def from_json(cls, medical: bytes, identification: bytes | None) -> OrderGraph:
        """Read a stored graph; a Patient whose identification part is gone is unreadable. Raises `DataInvalidError`."""
        stored = exact_json.loads(medical)
        patients = read_patients(identification) if identification else {}
        try:
            notes = exact_json.loads(identification).get("notes", []) if identification else []
            return cls._from_parts(stored, patients, _resources_from_list(notes))
        except (KeyError, TypeError, ValueError) as exc:
            raise DataInvalidError((Problem("order", "is not a stored order graph", "fetch the order again"),)) from exc

    @classmethod
    def _from_parts(cls, stored: Json, patients: Mapping[ResourceRef, Json], notes: Mapping[ResourceRef, Any]) -> OrderGraph:
        others = _resources_from_list(stored["resources"])  # those of older graphs have their notes here
        unreadable = {
            ResourceRef(kind, each): UnreadableResource(reason, status) for kind, each, reason, status in stored["unreadable"]
        }
        purged = {ref: PURGED for each in stored["patients"] if (ref := ResourceRef("Patient", each)) not in patients}
        responses = stored["questionnaire_responses"]
        return cls(
            base_url=stored["base_url"],
            order_task=stored["order_task"],
            line_tasks=tuple(stored["line_tasks"]),
            resources={
                **{ref: {**body, "note": notes[ref]} if ref in notes else body for ref, body in others.items()},
                **patients,
            },
            unreadable={**unreadable, **purged},
            questionnaire_responses=None if responses is None else tuple(responses),
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


def _resources_to_list(resources: Mapping[ResourceRef, Json]) -> list[Any]:
    return [[ref.type, ref.id, body] for ref, body in resources.items()]


def _resources_from_list(rows: list[Any]) -> dict[ResourceRef, Json]:
    return {ResourceRef(kind, resource_id): body for kind, resource_id, body in rows}


def strip_identification(value: Any) -> Any:
    """Give a copy of JSON without what may name a person outside of Patient resources; the input is not changed.

    That is the `display` of a reference, the narrative `text.div`, `contained` resources, notes and reasons. Nothing here uses
    them but the notes of a ProcedureRequest, which are kept with the Patients; and a Task is always read again before it is
    written, so nothing that others wrote is lost.
    """
    if isinstance(value, Mapping):
        return {
            key: item if isinstance(item, _SCALARS) else strip_identification(item)
            for key, item in value.items()
            if key not in _FREE_TEXTS and (key not in _MAY_IDENTIFY or not _is_identifying(value, key, item))
        }
    if isinstance(value, list | tuple):
        return [strip_identification(item) for item in value]
    return value


def _is_identifying(owner: Mapping[str, Any], key: str, item: Any) -> bool:
    if key == "display":
        return "code" not in owner
    return key == "contained" or (key == "text" and isinstance(item, Mapping))
