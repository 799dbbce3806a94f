"""What the adapters that exchange the published JSON form share of reading a raw message: its id, its trace, and what to set.

The adapters use the same functions when they receive a message and when an operator looks at one (`parse_message`), so that both
read the same, and under the same id.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from datetime import UTC
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from lab_agent.lis.lab_messages import AccessionUpdate, LabMessage, LabRejection, LabReport, ReportedObservation
from lab_agent.lis.laboratory_system import MapSuggestion, ParsedMessage, ParsedPart, TraceLine
from lab_agent.lis.serialization import load_message
from lab_agent.shared import exact_json
from lab_agent.shared.errors import DataInvalidError
from lab_agent.shared.text import shorten
from lab_agent.shared.values import Quantity

_MAX_TRACE_TEXT = 300
_SHORTEST_NAME = 3
_MAX_NAMES = 40
_PATIENT = "patient"
_KINDS: Mapping[str, type[LabReport | LabRejection | AccessionUpdate]] = {
    "report": LabReport,
    "rejection": LabRejection,
    "accession_update": AccessionUpdate,
}


def message_id(name: str, data: bytes) -> str:
    """The id of a message that came as `name`: it ends in a digest of its bytes. An id that was made so stays as it is."""
    digest = hashlib.sha256(data).hexdigest()[:16]
    return name if name.endswith(f":{digest}") else f"{name}:{digest}"


def format_problems(error: DataInvalidError) -> str:
    """All that is wrong with a message, one problem a line."""
    return "\n".join(map(str, error.problems))


def parse_json_message(raw: bytes, name: str, *, zone: ZoneInfo | None, table: str) -> ParsedMessage:
    """Read a message of the published schema. `table` is the adapter's table of the settings."""
    try:
        content, problem = load_message(raw, time_zone=zone), None
    except DataInvalidError as exc:
        content, problem = None, format_problems(exc)
    part = ParsedPart(message_id=message_id(name, raw), content=content, problem=problem)
    tree = _load_object(raw)
    return ParsedMessage(
        parts=(part,),
        trace=tuple(_trace_members(tree, content)),
        suggestions=_suggest_time_zone(raw, part, zone, table),
        names=_names_in(tree),
    )


def name_words(texts: Iterable[str]) -> frozenset[str]:
    """The words of names by which other texts are searched; the empty one, which is in each, where there are too many."""
    words = (word.strip(".,;:").casefold() for text in texts for word in text.split())
    names = frozenset(islice((word for word in words if len(word) >= _SHORTEST_NAME), _MAX_NAMES + 1))
    return names if len(names) <= _MAX_NAMES else frozenset({""})


def names_somebody(text: str, names: frozenset[str]) -> bool:
    """Whether one of the names is in a text."""
    return any(name in text.casefold() for name in names)


def _load_object(raw: bytes) -> Mapping[str, Any]:
    """The JSON object; empty if it is none."""
    try:
        tree = exact_json.loads(exact_json.strip_byte_order_mark(raw))
    except DataInvalidError:
        return {}
    return tree if isinstance(tree, dict) else {}


def _names_in(tree: Mapping[str, Any]) -> frozenset[str]:
    patient = tree.get(_PATIENT)
    return name_words(_texts([patient.get(name) for name in ("family", "given")] if isinstance(patient, dict) else patient))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _trace_members(tree: Mapping[str, Any], content: LabMessage | None) -> Iterator[TraceLine]:
    """The members, and what was read of each; lists of objects entry by entry. One that nobody reads may name the patient."""
    known, names = _known_members(tree), _names_in(tree)
    for place, value in _members(tree):
        name, _, index = place.partition("[")
        meaning = ""
        if name == "observations" and isinstance(content, LabReport):
            meaning = describe_observation(content.observations[int(index[:-1])])
        text = _text(value)
        yield TraceLine(
            place=shorten(place),
            text=text,
            meaning=meaning,
            skipped=name not in known or value is None,
            personal=name == _PATIENT or (name not in known and value is not None) or names_somebody(text, names),
        )


def _known_members(tree: Mapping[str, Any]) -> frozenset[str]:
    kind = next((one for name, one in _KINDS.items() if tree.get("kind", "report") == name), LabReport)
    return frozenset({"kind", *(one.name for one in fields(kind))})


def _members(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            yield from ((f"{key}[{index}]", one) for index, one in enumerate(value))
        else:
            yield key, value


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else exact_json.dumps(value).decode("utf-8", "replace")
    return text if len(text) <= _MAX_TRACE_TEXT else f"{text[:_MAX_TRACE_TEXT]}…"


def describe_observation(observation: ReportedObservation) -> str:
    """A value in a line: the code that it was read under, and the value."""
    code = observation.code
    return f"{code.system or 'no system'}|{code.code} = {_describe_value(observation)}"


def _describe_value(observation: ReportedObservation) -> str:
    amount = observation.value_quantity
    if amount is not None:
        return f"quantity {format_quantity(amount)}"
    if observation.value_string is not None:
        return f"text {shorten(observation.value_string)}"
    if (concept := observation.value_codeable_concept) is not None:
        return f"code {', '.join(one.code or '' for one in concept.coding) or shorten(concept.text or '')}"
    names = (name for name in dir(observation) if name.startswith("value_") and getattr(observation, name) is not None)
    return next(names, "no value").removeprefix("value_").replace("_", " ")


def format_quantity(amount: Quantity) -> str:
    """A quantity with its digits as written, its comparator and its unit."""
    unit = amount.unit or "without a unit"
    return f"{amount.comparator or ''}{amount.value} {unit}"


def _suggest_time_zone(raw: bytes, part: ParsedPart, zone: ZoneInfo | None, table: str) -> tuple[MapSuggestion, ...]:
    """Whether times lack a zone: with one, there would be fewer problems."""
    if zone is not None or part.problem is None or _problem_count(raw, None) <= _problem_count(raw, UTC):
        return ()
    return (time_zone_suggestion(table),)


def time_zone_suggestion(table: str) -> MapSuggestion:
    """The setting that says which zone the LIS means by a time without one."""
    return MapSuggestion(table=table, key="time_zone", reason="times have no offset from UTC: name the zone that the LIS means")


def _problem_count(raw: bytes, zone: Any) -> int:
    try:
        load_message(raw, time_zone=zone)
    except DataInvalidError as exc:
        return len(exc.problems)
    return 0
