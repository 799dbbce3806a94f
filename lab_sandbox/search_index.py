"""The search parameters of each resource type, and the index terms of a resource."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from lab_sandbox.exact_json import Json
from lab_sandbox.references import parse_reference

OwnAddresses = Iterable[str]
"""The service's own addresses."""

TermReader = Callable[[Json, OwnAddresses], Iterator[str]]


class Term(NamedTuple):
    """One index entry: the search parameter's name and the value in its comparable form."""

    param: str
    value: str


STATUS_AND_CODE: Final = "status+code"
"""Clients poll orders by status and code; one term for the pair keeps the poll independent of the number of stored orders."""


def identifier_value(identifier: Any) -> str | None:
    """`system|value` of an Identifier; None without a value."""
    if not isinstance(identifier, dict):
        return None
    value, system = identifier.get("value"), identifier.get("system", "")
    return f"{system}|{value}" if isinstance(value, str) and isinstance(system, str) else None


def as_list(value: Any) -> list[Any]:
    """An array as it is, a single value as a list of one, None as an empty list."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _identifiers(name: str) -> TermReader:
    def read(resource: Json, _own: OwnAddresses) -> Iterator[str]:
        for one in as_list(resource.get(name)):
            value = identifier_value(one)
            if value is not None:
                yield value

    return read


def _references(*names: str) -> TermReader:
    def read(resource: Json, own_addresses: OwnAddresses) -> Iterator[str]:
        for name in names:
            for one in as_list(resource.get(name)):
                ref = parse_reference(one.get("reference"), own_addresses) if isinstance(one, dict) else None
                if ref is not None:
                    yield ref.key()

    return read


def concept_codes(concept: Any) -> Iterator[str]:
    """The codes of a CodeableConcept, each alone and with its system."""
    for coding in as_list(concept.get("coding")) if isinstance(concept, dict) else []:
        code = coding.get("code") if isinstance(coding, dict) else None
        if isinstance(code, str):
            yield code
            yield f"{coding.get('system', '')}|{code}"


def _code(resource: Json, _own: OwnAddresses = ()) -> Iterator[str]:
    yield from concept_codes(resource.get("code"))


def _status(resource: Json, _own: OwnAddresses = ()) -> Iterator[str]:
    if isinstance(resource.get("status"), str):
        yield resource["status"]


def _status_and_code(resource: Json, own_addresses: OwnAddresses = ()) -> Iterator[str]:
    yield from (f"{status}+{code}" for status in _status(resource, own_addresses) for code in _code(resource, own_addresses))


def _barcodes(resource: Json, own_addresses: OwnAddresses = ()) -> Iterator[str]:
    for container in as_list(resource.get("container")):
        if isinstance(container, dict):
            yield from _identifiers("identifier")(container, own_addresses)


ParameterReaders = dict[str, TermReader]

SEARCH_PARAMETERS: Final[dict[str, ParameterReaders]] = {
    "Patient": {"identifier": _identifiers("identifier")},
    "ProcedureRequest": {
        "identifier": _identifiers("identifier"),
        "requisition": _identifiers("requisition"),
        "subject": _references("subject"),
        "specimen": _references("specimen"),
    },
    "Task": {
        "identifier": _identifiers("identifier"),
        "status": _status,
        "code": _code,
        STATUS_AND_CODE: _status_and_code,
        "part-of": _references("partOf"),
        "based-on": _references("basedOn"),
    },
    "Specimen": {"identifier": _identifiers("identifier"), "container-id": _barcodes, "subject": _references("subject")},
    "QuestionnaireResponse": {
        "identifier": _identifiers("identifier"),
        "subject": _references("subject"),
        "source": _references("source"),
    },
    "DiagnosticReport": {
        "identifier": _identifiers("identifier"),
        "subject": _references("subject"),
        "based-on": _references("basedOn"),
        "result": _references("result"),
    },
    "Observation": {
        "identifier": _identifiers("identifier"),
        "subject": _references("subject"),
        "specimen": _references("specimen"),
    },
    "Binary": {"identifier": _identifiers("identifier")},
    "Contract": {"identifier": _identifiers("identifier")},
}

NOT_IN_STU3: Final = {"Binary": ("identifier",)}
"""Search parameters that an STU3 server does not have."""

PARAMETER_ALIASES: Final = {"patient": "subject", "basedon": "based-on", "partof": "part-of"}


def index_terms(kind: str, resource: Json, own_addresses: OwnAddresses = ()) -> frozenset[Term]:
    """All index terms of a resource; absolute references to this service equal relative ones."""
    return frozenset(
        Term(param, value) for param, read in SEARCH_PARAMETERS[kind].items() for value in read(resource, own_addresses)
    )
