"""What a resource means, whoever wrote it: two bodies that mean the same are equal here, however a server spells them.

A server may write references, times and empty fields in its own way, and add what FHIR allows anywhere (ids, extensions, displays
of references). Taken for a change, that would send every value once more, and call it amended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any

from lab_agent.fhir.references import parse_reference
from lab_agent.lis.susceptibility import SUSCEPTIBILITY_CODES
from lab_agent.shared.errors import ForeignOrigin

Json = Mapping[str, Any]
_INSTANTS = frozenset({"issued", "effectiveDateTime", "valueDateTime", "start", "end"})
_CODING_DECORATION = frozenset({"display", "userSelected", "version"})
_UNIT_CODE = frozenset({"system", "code"})
_TEXT = frozenset({"text"})
_NOTHING: frozenset[str] = frozenset()
_ATTACHMENT_MEANING = frozenset({"url", "contentType"})


def content_meaning(body: Json, base_url: str) -> Any:
    """All that a reader may see, with the digits of numbers as they are (law 4). Pure; None where nothing is left."""
    return _Reading(base_url).read(body)


def clinical_meaning(body: Json, base_url: str) -> Any:
    """What makes an Observation another statement: value with unit, reference range, code and susceptibility. Pure.

    Numbers are compared as numbers and codes by system and code: a server that writes `13.2` for `13.20`, or fills in the
    display of a code, has amended nothing. What a coded answer is called (`answer_displays`) is compared beside it.
    """
    code = body.get("code")
    fields = {key: value for key, value in body.items() if key.startswith("value") or key == "referenceRange"}
    if isinstance(code, Mapping):
        fields["code"] = {"coding": code["coding"]} if code.get("coding") else code
    if codes := _susceptibilities(body.get("interpretation")):
        fields["interpretation"] = codes
    return _Reading(base_url, clinical=True).read(fields)


def _susceptibilities(interpretation: Any) -> list[str]:
    """How susceptible an organism is: `R` for `S` is another statement, though the concentration is the same; `H` is none."""
    codings = interpretation.get("coding") if isinstance(interpretation, Mapping) else None
    listed = [each for each in codings if isinstance(each, Mapping)] if isinstance(codings, list | tuple) else []
    return [code for each in listed if (code := str(each.get("code", ""))) in SUSCEPTIBILITY_CODES]


def answer_displays(body: Json) -> tuple[tuple[tuple[str, str], str], ...]:
    """What a coded answer is called: of each of its codings the system and code, and the display (empty for none). Pure."""
    concept = body.get("valueCodeableConcept")
    codings = concept.get("coding") if isinstance(concept, Mapping) else None
    listed = [each for each in codings if isinstance(each, Mapping)] if isinstance(codings, list | tuple) else []
    return tuple(
        ((str(each.get("system", "")).rstrip("/"), str(each.get("code", ""))), str(each.get("display") or "")) for each in listed
    )


def is_same_statement(existing: Json, desired: Json, base_url: str) -> bool:
    """Whether the Observation on the service states just what we would write. Pure.

    A server may add to what it keeps: another coding, the code of a unit, the text of a range. What changes the statement itself
    (a comparator, a limit, a whole range) is no addition. A display differs only where both have one.
    """
    there, ours = (clinical_meaning(body, base_url) or {} for body in (existing, desired))
    called = dict(answer_displays(existing))
    if "interpretation" not in there:  # the interface has no such field: a service may leave it out
        ours.pop("interpretation", None)
    renamed = any(display and called.get(code) not in {None, "", display} for code, display in answer_displays(desired))
    return not renamed and _covers(there, ours)


def _covers(there: Any, ours: Any, key: str = "") -> bool:
    if isinstance(there, dict) and isinstance(ours, dict):
        known = ours.keys() | _possible_additions(ours, key)
        return there.keys() <= known and all(_covers(there.get(name), value, name) for name, value in ours.items())
    if isinstance(there, list) and isinstance(ours, list):
        if key == "coding":
            return all(any(_covers(one, each) for one in there) for each in ours)
        return len(there) == len(ours) and all(_covers(one, each, key) for one, each in zip(there, ours, strict=True))
    return bool(there == ours)


def _possible_additions(ours: Json, key: str) -> frozenset[str]:
    """Fields that a server may add to an element of ours without changing what it says."""
    if "value" in ours and "unit" in ours:
        return _UNIT_CODE
    says_limits = key == "referenceRange" and bool({"low", "high"} & ours.keys())
    return _TEXT if says_limits or key == "meaning" else _NOTHING


@dataclass(frozen=True, slots=True)
class _Reading:
    base_url: str
    clinical: bool = False

    def read(self, node: Any, key: str = "") -> Any:
        """The meaning of a field; None for one that is as good as absent."""
        if isinstance(node, Mapping):
            return self._read_object(node, key)
        if isinstance(node, list | tuple):
            return [read for each in node if (read := self.read(each, key)) is not None] or None
        if isinstance(node, str):
            return self._read_text(node, key)
        if self.clinical and isinstance(node, int | Decimal) and not isinstance(node, bool):
            return _plain_number(node)
        return node

    def _read_object(self, node: Json, key: str) -> Any:
        if isinstance(node.get("reference"), str):
            return {"reference": self._resource_name(node["reference"])}
        read = {name: self.read(value, name) for name, value in node.items() if self._is_meant(name, key)}
        return {name: value for name, value in read.items() if value is not None} or None

    def _is_meant(self, name: str, parent: str) -> bool:
        if name in {"id", "extension"} or name.startswith("_"):
            return False
        if not self.clinical:
            return True
        return not (parent == "coding" and name in _CODING_DECORATION) and (
            parent != "valueAttachment" or name in _ATTACHMENT_MEANING
        )

    def _read_text(self, text: str, key: str) -> str | None:
        if key == "url":
            return self._resource_name(text) or None
        if key in _INSTANTS:
            return _plain_instant(text)
        if self.clinical and key == "system":
            return text.rstrip("/") or None
        return (_plain_time(text) if key == "valueTime" else text) or None

    def _resource_name(self, text: str) -> str:
        try:
            found = parse_reference(text, self.base_url)
        except ForeignOrigin:
            return text
        return f"{found.type}/{found.id}" if found else text


def _plain_instant(text: str) -> str:
    """A time with an offset in UTC; anything else, such as a date alone, as it is."""
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC).isoformat() if found.tzinfo else text
    except (ValueError, OverflowError):
        return text


def _plain_time(text: str) -> str:
    try:
        return time.fromisoformat(text).isoformat()
    except ValueError:
        return text


def _plain_number(value: int | Decimal) -> str:
    """A number without the zeros at its end, and zero without a sign: equal texts for equal numbers of any size."""
    sign, digits, exponent = Decimal(value).as_tuple()
    if not isinstance(exponent, int):
        return str(value)
    shown = "".join(map(str, digits)).lstrip("0")
    kept = shown.rstrip("0")
    return f"{'-' if sign else ''}{kept}E{exponent + len(shown) - len(kept)}" if kept else "0"
