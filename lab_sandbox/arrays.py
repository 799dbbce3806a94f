"""Which elements are arrays of objects ("Resources": *Array of …*): a single object in their place is told, not guessed at."""

from collections.abc import Iterator
from typing import Any, Final

from lab_sandbox.outcome import Problems
from lab_sandbox.wire import Json

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
    """Notes every element that should be an array of objects and is something else."""
    own = _ARRAYS_BY_TYPE.get(kind, frozenset())
    for path, value in _iter_arrays(resource, own, element):
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            problems.add(path, "array", "an array of objects is expected")


def _iter_arrays(node: Json, own: frozenset[str], path: str, parent: str = "") -> Iterator[tuple[str, Any]]:
    """Every element that the tables call an array, at any depth, with its path."""
    for name, child in node.items():
        here = f"{path}.{name}"
        if child is not None and (name in own or name in _ARRAYS_EVERYWHERE or (parent, name) in _NESTED_ARRAYS):
            yield here, child
        if isinstance(child, dict):
            yield from _iter_arrays(child, frozenset(), here, name)
        for position, one in enumerate(child if isinstance(child, list) else ()):
            if isinstance(one, dict):
                yield from _iter_arrays(one, frozenset(), f"{here}[{position}]", name)
