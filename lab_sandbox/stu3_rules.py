"""What an STU3 server refuses beyond the interface document; checked only with `strict`.

Type names in their case, elements with a minimum of one, and instants. Elements that STU3 requires but the tables of
"Resources" leave out are exempt: whoever follows the document cannot send them.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from lab_sandbox.errors import Problems
from lab_sandbox.exact_json import Json
from lab_sandbox.path_aliases import RESOURCE_TYPES
from lab_sandbox.references import is_local_reference, iter_references
from lab_sandbox.search_index import as_list

_REQUIRED: Final[dict[str, tuple[str, ...]]] = {
    "Patient": ("communication.language", "link.other", "link.type"),
    "ProcedureRequest": ("status", "intent", "code", "subject", "requester.agent"),
    "Task": ("status", "intent", "requester.agent", "input.type", "input.value[x]", "output.type", "output.value[x]"),
    "QuestionnaireResponse": ("status", "item.linkId"),
    "DiagnosticReport": ("status", "code", "image.link", "performer.actor"),
    "Observation": ("status", "code", "component.code", "related.target"),
    "Binary": ("contentType", "content"),
}
_REQUIRED_ANYWHERE: Final[dict[str, tuple[str, ...]]] = {
    "extension": ("url",),
    "note": ("text",),
    "valueSampledData": ("origin", "period", "dimensions", "data"),
}
"""Required parts of a data type, by the names of the elements that have it."""
EXEMPT: Final = frozenset({"ProcedureRequest.intent", "Task.intent"})
"""Required in STU3, and left out in the tables of the interface document."""
_INSTANTS: Final = {"Observation": "issued", "DiagnosticReport": "issued"}
_INSTANT: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})", re.ASCII)
_RELATIVE: Final = re.compile(rf"(?:{'|'.join(RESOURCE_TYPES)})/[A-Za-z0-9.-]{{1,64}}(?:/_history/[A-Za-z0-9.-]{{1,64}})?")


def check_stu3(kind: str, resource: Json, element: str, own_addresses: Iterable[str], problems: Problems) -> None:
    """Reports everything in one resource that an STU3 server refuses."""
    for path in _missing_elements(kind, resource):
        problems.add(f"{element}.{path}", "stu3-required", "required in STU3", "required")
    name = _INSTANTS.get(kind)
    if name in resource and not _INSTANT.fullmatch(str(resource[name])):
        problems.add(f"{element}.{name}", "stu3-instant", "must be an instant: date, time with seconds, and UTC offset")
    for path, text in iter_references(resource):
        if not is_exact_reference(text, own_addresses):
            said = f"{text} is not <Type>/<id> with a type name in its case: {', '.join(RESOURCE_TYPES)}"
            problems.add(f"{element}.{path}", "stu3-type-name", said)


def is_exact_reference(text: str, own_addresses: Iterable[str]) -> bool:
    """Whether a reference has STU3's spelling: `Task/<id>`, the same under `{base_url}fhir/`, contained, or local to a bundle."""
    if text.startswith("#") or is_local_reference(text):
        return True
    for address in own_addresses:
        base = f"{address.rstrip('/')}/fhir/"
        if text.startswith(base):
            return _RELATIVE.fullmatch(text.removeprefix(base)) is not None
    return _RELATIVE.fullmatch(text) is not None


def drop_empty(node: Any) -> Any:
    """A copy without nulls and empty objects, arrays and texts, none of which STU3 has."""
    if isinstance(node, dict):
        kept = {name: drop_empty(child) for name, child in node.items()}
        return {name: child for name, child in kept.items() if child not in (None, "", {}, [])}
    if isinstance(node, list):
        return [child for child in map(drop_empty, node) if child not in (None, "", {}, [])]
    return node


def _missing_elements(kind: str, resource: Json) -> Iterator[str]:
    for path in _REQUIRED.get(kind, ()):
        if f"{kind}.{path}" not in EXEMPT:
            yield from _missing_part(resource, path)
    yield from _missing_parts_anywhere(resource)


def _missing_part(resource: Json, path: str) -> Iterator[str]:
    """`output.type` for each object in `output` without `type`; a path of one step is missing in the resource itself."""
    holder, _, name = path.rpartition(".")
    for place, node in _objects(resource, holder) if holder else [("", resource)]:
        if not _has(node, name):
            yield f"{place}.{name}" if place else name


def _missing_parts_anywhere(node: Any, place: str = "") -> Iterator[str]:
    if not isinstance(node, dict):
        return
    for name in node:
        for child_place, child in _objects(node, name):
            path = f"{place}.{child_place}" if place else child_place
            yield from (f"{path}.{part}" for part in _REQUIRED_ANYWHERE.get(name, ()) if part not in child)
            yield from _missing_parts_anywhere(child, path)


def _objects(node: Json, name: str) -> Iterator[tuple[str, Json]]:
    value = node.get(name)
    for position, one in enumerate(as_list(value)):
        if isinstance(one, dict):
            yield f"{name}[{position}]" if isinstance(value, list) else name, one


def _has(node: Json, name: str) -> bool:
    if name.endswith("[x]"):
        return any(one.startswith(name.removesuffix("[x]")) for one in node)
    return node.get(name) not in (None, "", {}, [])
