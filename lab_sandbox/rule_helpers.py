"""What several rules share: forms of values, arrays of objects, contract links, and the targets of references.

Which elements are arrays, and the type that a reference leads to, are from the tables of "Resources".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final

from lab_sandbox.config import Contract, SandboxConfig
from lab_sandbox.errors import Problems
from lab_sandbox.exact_json import Json
from lab_sandbox.references import parse_reference
from lab_sandbox.rule_ids import Rule
from lab_sandbox.search_index import as_list, identifier_value

_ARRAYS_EVERYWHERE: Final = frozenset({"coding", "extension"})
_NESTED_ARRAYS: Final = frozenset({("container", "identifier"), ("item", "item"), ("item", "answer")})
"""Pairs of (array, element of each of its objects)."""
_ARRAYS_BY_TYPE: Final[dict[str, frozenset[str]]] = {
    "Patient": frozenset({"identifier", "name", "telecom"}),
    "ProcedureRequest": frozenset({"identifier", "supportingInfo", "specimen", "note", "basedOn"}),
    "Task": frozenset({"identifier", "input", "output", "basedOn", "partOf"}),
    "Specimen": frozenset({"identifier", "container"}),
    "QuestionnaireResponse": frozenset({"item"}),
    "DiagnosticReport": frozenset({"identifier", "basedOn", "result", "presentedForm"}),
    "Observation": frozenset({"identifier", "referenceRange"}),
}


def check_arrays(kind: str, resource: Json, element: str, problems: Problems) -> None:
    """Reports every element that must be an array of objects and is not; a single object is not accepted in its place."""
    own = _ARRAYS_BY_TYPE.get(kind, frozenset())
    for path, value in _iter_arrays(resource, own, element):
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            problems.add(path, "array", "must be an array of objects")


def _iter_arrays(node: Json, own: frozenset[str], path: str, parent: str = "") -> Iterator[tuple[str, Any]]:
    """Every element that the tables define as an array, at any depth, with its path."""
    for name, child in node.items():
        child_path = f"{path}.{name}"
        if child is not None and (name in own or name in _ARRAYS_EVERYWHERE or (parent, name) in _NESTED_ARRAYS):
            yield child_path, child
        if isinstance(child, dict):
            yield from _iter_arrays(child, frozenset(), child_path, name)
        for position, one in enumerate(child if isinstance(child, list) else ()):
            if isinstance(one, dict):
                yield from _iter_arrays(one, frozenset(), f"{child_path}[{position}]", name)


_DATE_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})", re.ASCII)


def is_text(value: Any) -> bool:
    """A string that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def is_date(value: Any) -> bool:
    """A FHIR date: a year, a month, or a calendar date `YYYY-MM-DD`."""
    if not isinstance(value, str) or not re.fullmatch(r"\d{4}(-\d{2}(-\d{2})?)?", value, re.ASCII):
        return False
    try:
        date.fromisoformat(value + "-01" * (2 - value.count("-")))
    except ValueError:
        return False
    return True


def is_instant(value: Any) -> bool:
    """A date-time with UTC offset."""
    if not isinstance(value, str) or not _DATE_TIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def is_date_time(value: Any) -> bool:
    """A FHIR dateTime: a FHIR date, or a date-time with UTC offset."""
    return is_instant(value) or is_date(value)


def is_number(value: Any) -> bool:
    """A JSON number; a boolean is not one."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


_TIME = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?")


def is_time(value: Any) -> bool:
    """A time `hh:mm:ss`."""
    return isinstance(value, str) and _TIME.fullmatch(value) is not None


def is_object(value: Any) -> bool:
    """A JSON object with content."""
    return isinstance(value, dict) and bool(value)


def is_quantity(value: Any) -> bool:
    """An object whose `value`, if there is one, is a number."""
    return is_object(value) and ("value" not in value or is_number(value["value"]))


def is_concept(value: Any) -> bool:
    """A CodeableConcept: an object with codings, each with a code, or a text."""
    codings = as_list(value.get("coding")) if isinstance(value, dict) else []
    return all(isinstance(one, dict) and is_text(one.get("code")) for one in codings) and (
        bool(codings) or is_text(value.get("text") if isinstance(value, dict) else None)
    )


def is_integer(value: Any) -> bool:
    """A whole JSON number; a boolean is not one."""
    return isinstance(value, int) and not isinstance(value, bool)


def has_system_and_value(identifier: Any) -> bool:
    """An Identifier with both."""
    return isinstance(identifier, dict) and is_text(identifier.get("system")) and is_text(identifier.get("value"))


def find_code(concept: Any, system: str) -> str | None:
    """The code of a CodeableConcept in the given system, or None."""
    for coding in as_list(concept.get("coding")) if isinstance(concept, dict) else []:
        if isinstance(coding, dict) and coding.get("system") == system and is_text(coding.get("code")):
            return str(coding["code"])
    return None


def find_identifier_value(identifiers: Any, system: str) -> str | None:
    """The value of the Identifier with the given system, or None."""
    for one in as_list(identifiers):
        if isinstance(one, dict) and one.get("system") == system and is_text(one.get("value")):
            return str(one["value"])
    return None


def reference_text(node: Any) -> str | None:
    """The `reference` of a Reference, or None."""
    text = node.get("reference") if isinstance(node, dict) else None
    return text if isinstance(text, str) else None


def reference_identifier(node: Any) -> Json:
    """The `identifier` of a Reference, or an empty object."""
    identifier = node.get("identifier") if isinstance(node, dict) else None
    return identifier if isinstance(identifier, dict) else {}


def patient_key(node: Any, config: SandboxConfig) -> str | None:
    """The patient that a reference leads to, in one form for all its spellings: a key, or a global identifier."""
    text = reference_text(node)
    if text is None:
        return identifier_value(reference_identifier(node))
    ref = parse_reference(text, config.own_addresses)
    return ref.key() if ref is not None else text


@dataclass(frozen=True)
class ContractLink:
    """One contract link of a ProcedureRequest."""

    link_type: str
    """`reference` or `identifier`."""
    contract_key: str
    """The contract id, or the contract code."""
    contract: Contract | None
    """The contract that it leads to; None if there is no such contract."""


def find_contract_links(line: Json, config: SandboxConfig) -> list[ContractLink]:
    """All contract links of a ProcedureRequest, two where one entry has both forms; other supporting information is ignored."""
    system = config.lab_system("contract")
    found = []
    for info in as_list(line.get("supportingInfo")):
        identifier = info.get("identifier") if isinstance(info, dict) else None
        ref = parse_reference(reference_text(info), config.own_addresses)
        if ref is not None and ref.type == "Contract":
            by_id = next((one for one in config.contracts if one.resource_id() == ref.id), None)
            found.append(ContractLink("reference", ref.id, by_id))
        if isinstance(identifier, dict) and identifier.get("system") == system:
            code = str(identifier.get("value"))
            found.append(ContractLink("identifier", code, config.contract(code)))
    return found


_REFERENCE_TARGETS: Final[dict[str, dict[str, str]]] = {
    "ProcedureRequest": {"subject": "Patient", "specimen": "Specimen"},
    "Task": {"basedOn": "ProcedureRequest", "partOf": "Task"},
    "Specimen": {"subject": "Patient"},
    "QuestionnaireResponse": {"source": "Patient", "subject": "ProcedureRequest"},
    "DiagnosticReport": {"subject": "Patient", "basedOn": "ProcedureRequest", "result": "Observation"},
    "Observation": {"subject": "Patient", "specimen": "Specimen"},
}

TypeResolver = Callable[[str], str | None]
"""Gives the type of the resource that a reference leads to; None if unknown."""


def check_reference_targets(kind: str, resource: Json, element: str, resolve_type: TypeResolver, problems: Problems) -> None:
    """Reports every reference that leads to a resource of the wrong type."""
    for name, expected in _REFERENCE_TARGETS.get(kind, {}).items():
        value = resource.get(name)
        for path, one in objects_in(resource, name):
            text = reference_text(one)
            found = resolve_type(text) if text is not None else None
            said = f"must be a reference to a {expected}, but {text} is a {found}"
            place = path if isinstance(value, list) else name
            Checker(element, problems).expect(found in {None, expected}, place, "reference-type", said)


ValueForms = Mapping[str, tuple[Callable[[Any], bool], str]]
"""The permitted value[x], each with its check and its form in words."""


@dataclass(frozen=True)
class Checker:
    """Reports what is wrong with one resource, or with a part of it."""

    element: str
    problems: Problems

    def at(self, path: str) -> Checker:
        """The same for a part of the resource."""
        return Checker(f"{self.element}.{path}", self.problems)

    def expect(self, ok: object, path: str, rule: Rule, text: str, code: str = "invalid") -> None:
        """Reports a problem at a path below the element unless it is `ok`."""
        if not ok:
            self.problems.add(f"{self.element}.{path}", rule, text, code)

    def require(self, ok: object, path: str, rule: Rule, text: str) -> None:
        """The same, for what is mandatory."""
        self.expect(ok, path, rule, f"required, {text}", "required")

    def expect_value(self, holder: Json, forms: ValueForms, path: str, rule: Rule) -> None:
        """Reports a holder that does not have exactly one value[x], in its form."""
        given = [name for name in holder if name.startswith("value")]
        if len(given) != 1 or given[0] not in forms:
            text = f"must be exactly one of {', '.join(forms)}, not {', '.join(given) or 'none'}"
            self.expect(False, f"{path}value[x]", rule, text)
            return
        is_valid, form = forms[given[0]]
        self.expect(is_valid(holder[given[0]]), f"{path}{given[0]}", rule, f"must be {form}")


def objects_in(holder: Json, name: str) -> Iterator[tuple[str, Json]]:
    """The entries of an array with their paths (`name[0]`); what is no object is as good as empty."""
    for position, one in enumerate(as_list(holder.get(name))):
        yield f"{name}[{position}]", one if isinstance(one, dict) else {}
