"""References as we write them: each as the order spelled it, or all in one spelling (`exchange.references`).

The interface writes `patient/<id>`; a FHIR server knows types only in their case, and refuses the first. What the order says was
accepted by the service, so its own spelling is the safest one; what the order does not name follows the order's example.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lab_agent.fhir.received_order import ResourceRef
from lab_agent.fhir.references import parse_reference
from lab_agent.shared import exact_json
from lab_agent.shared.errors import DataInvalidError, ForeignOrigin

Json = Mapping[str, Any]
_EXAMPLES = ("ProcedureRequest", "Specimen", "Task", "Patient")
"""The first two are local to the partner's bundle, so that the service itself has spelled them."""


@dataclass(frozen=True, slots=True)
class ReferenceWriter:
    """Writes references. `as_read`: the order's own, without a version."""

    spelling: Literal["as_read", "lower", "fhir"] = "as_read"
    as_read: Mapping[ResourceRef, str] = field(default_factory=dict)

    def write(self, ref: ResourceRef) -> Json:
        """A Reference to this resource."""
        return {"reference": self._spell(ref)}

    def _spell(self, ref: ResourceRef) -> str:
        if self.spelling == "fhir":
            return f"{ref.type}/{ref.id}"
        if self.spelling == "lower":
            return str(ref)
        return self.as_read.get(ref) or self._spell_by_example(ref)

    def _spell_by_example(self, ref: ResourceRef) -> str:
        example = next((one for kind in _EXAMPLES for one in self.as_read if one.type == kind), None)
        if example is None:
            return str(ref)
        prefix, kind, _ = ("/" + self.as_read[example]).rsplit("/", 2)
        written = ref.type.lower() if kind == kind.lower() else ref.type
        return f"{prefix}/{written}/{ref.id}".removeprefix("/")


def read_spellings(received: bytes | None, base_url: str) -> Mapping[ResourceRef, str]:
    """How a stored order (`OrderRecord.received`) spells its references; nothing where it is not kept any more."""
    if received is None:
        return {}
    try:
        order = exact_json.loads(received)
    except DataInvalidError:
        return {}
    found: dict[ResourceRef, str] = {}
    for text in dict.fromkeys(_reference_texts(order)):
        try:
            ref = parse_reference(text, base_url)
        except ForeignOrigin:
            continue
        if ref is not None:
            found.setdefault(ref, _without_version(text))
    return found


def _reference_texts(order: Any) -> Iterator[str]:
    """The texts of all references in a tree of JSON, in its order."""
    waiting = [order]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(reversed(node))
        elif isinstance(node, dict):
            text = node.get("reference")
            if isinstance(text, str):
                yield text.strip()
            waiting.extend(each for each in reversed(node.values()) if isinstance(each, dict | list))


def _without_version(text: str) -> str:
    parts = text.rstrip("/").split("/")
    return "/".join(parts[:-2] if parts[-2].lower() == "_history" else parts)
