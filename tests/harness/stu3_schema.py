"""Whether a resource that we send is valid FHIR STU3, but for the deviations that docs/conformance.md names.

The models of fhir.resources know elements, types and cardinalities. They take any text for an address and know no invariants of
STU3, so that references, systems and those invariants that a value can break are looked at here. Uploads are held against the
cardinality tables as the sandbox reads them, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from fhir.resources.STU3.binary import Binary
from fhir.resources.STU3.diagnosticreport import DiagnosticReport
from fhir.resources.STU3.observation import Observation
from fhir.resources.STU3.task import Task

from lab_agent.shared import exact_json
from lab_sandbox.errors import Problems
from lab_sandbox.partner.errors import decode
from lab_sandbox.upload_rules import check_observation, check_report

_MODELS: dict[str, Any] = {model.__name__: model for model in (Binary, DiagnosticReport, Observation, Task)}
_TYPE_NAMES = {
    name.lower(): name
    for name in ("Patient", "Contract", "Task", "ProcedureRequest", "Specimen", "QuestionnaireResponse", *_MODELS)
}
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:\S+")
_REFERENCE = re.compile(r"(\S*/)?(?P<type>[A-Za-z]+)/[A-Za-z0-9.-]{1,64}(/_history/[A-Za-z0-9.-]{1,64})?")


def _rename_meaning(body: Any) -> Any:
    ranges = [{("type" if name == "meaning" else name): part for name, part in each.items()} for each in body["referenceRange"]]
    return {**body, "referenceRange": ranges}


def _complete_ranges(body: Any) -> Any:
    ranges = [each if each.keys() & {"low", "high", "text"} else {**each, "text": "see above"} for each in body["referenceRange"]]
    return {**body, "referenceRange": ranges}


def _lengthen_rights(body: Any) -> Any:
    rights = [
        {**each, "system": each["system"] if _ABSOLUTE.fullmatch(each["system"]) else f"urn:right:{each['system']}"}
        for each in body["meta"]["security"]
    ]
    return {**body, "meta": {**body["meta"], "security": rights}}


def _capitalise_references(value: Any) -> Any:
    if isinstance(value, list):
        return [_capitalise_references(each) for each in value]
    if not isinstance(value, dict):
        return value
    changed = {name: _capitalise_references(each) for name, each in value.items()}
    found = _REFERENCE.fullmatch(str(changed.get("reference", "")))
    if found and found["type"] in _TYPE_NAMES:
        start, end = found.span("type")
        changed["reference"] = f"{found[0][:start]}{_TYPE_NAMES[found['type']]}{found[0][end:]}"
    return changed


DEVIATIONS: dict[str, Callable[[Any], Any]] = {
    "Observation.referenceRange.meaning": lambda body: _rename_meaning(body) if "referenceRange" in body else body,
    "Observation.referenceRange": lambda body: _complete_ranges(body) if "referenceRange" in body else body,
    "Resource.meta.security.system": lambda body: _lengthen_rights(body) if body.get("meta", {}).get("security") else body,
    "Reference.reference": _capitalise_references,
    "Task.intent": lambda body: {"intent": "order", **body} if body["resourceType"] == "Task" else body,
}
"""Where what we send deviates from FHIR STU3: element → how to undo it. docs/conformance.md gives the reasons, row by row."""


def find_stu3_violations(resource: Any, *, tolerated: tuple[str, ...] = tuple(DEVIATIONS)) -> list[str]:
    """What is not valid STU3 in a Binary, DiagnosticReport, Observation or Task, once the tolerated deviations are undone."""
    for name in tolerated:
        resource = DEVIATIONS[name](resource)
    found = list(_broken_rules(resource, resource["resourceType"]))
    try:
        _MODELS[resource["resourceType"]].model_validate(as_json(resource))
    except ValueError as exc:
        found.append(str(exc))
    return found


def find_violations(resource: Any, nomenclature: str) -> list[str]:
    """Violations of STU3 and of the interface's tables in an Observation or a DiagnosticReport."""
    problems, wire = Problems(), decode(exact_json.dumps(resource))
    if resource["resourceType"] == "Observation":
        check_observation(wire, problems)
    else:
        check_report(wire, nomenclature, problems)
    return find_stu3_violations(resource) + [str(problem) for problem in problems.found]


def is_checked(resource_type: object) -> bool:
    """Whether resources of this type can be checked: those that a laboratory writes."""
    return resource_type in _MODELS


def as_json(resource: Any) -> Any:
    return msgspec.json.decode(exact_json.dumps(resource))


def _broken_rules(value: Any, path: str) -> Iterator[str]:
    """What HAPI's validator would say beyond types and cardinalities, each with its place."""
    if isinstance(value, list):
        for number, each in enumerate(value):
            yield from _broken_rules(each, f"{path}[{number}]")
    elif isinstance(value, dict):
        yield from (f"{path}: {rule}" for rule, holds in _RULES.items() if not holds(path, value))
        for name, each in value.items():
            yield from _broken_rules(each, f"{path}.{name}")


def _is_reference(text: str) -> bool:
    found = _REFERENCE.fullmatch(text)
    return found is not None and found["type"] in _TYPE_NAMES.values()


_RULES: dict[str, Callable[[str, Any], bool]] = {
    "a reference names a type of STU3": lambda _, part: "reference" not in part or _is_reference(part["reference"]),
    "a system is an absolute address": lambda _, part: "system" not in part or bool(_ABSOLUTE.fullmatch(part["system"])),
    "qty-3: a unit's code has its system": lambda path, part: (
        not _is_quantity(path, part) or "code" not in part or "system" in part
    ),
    "obs-3: reference values have low, high or text": lambda path, part: (
        not re.search(r"referenceRange\[\d+\]$", path) or bool(part.keys() & {"low", "high", "text"})
    ),
    "att-1: data has its content type": lambda _, part: "data" not in part or "contentType" in part or "origin" in part,
}


def _is_quantity(path: str, part: Any) -> bool:
    return "value" in part and not path.endswith("]")
