"""Rules that no single field can tell: exactly one value, exactly one source of a document, an order that is named.

They look at the JSON as it was read, so that they speak up together with what is wrong in shape, and stay silent where the shape
is so wrong that they have nothing to look at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import tzinfo
from typing import Any

from lab_agent.codec.problems import Found
from lab_agent.codec.texts import text_rules
from lab_agent.codec.values import COMPARATORS, value_rules
from lab_agent.domain.order import SCHEMA_VERSION
from lab_agent.domain.results import LabReceipt, LabRefusal, ReportedObservation

Place = tuple[str | int, ...]

VALUES = tuple(one.name for one in fields(ReportedObservation) if one.name.startswith("value_"))
"""The value forms of an observation (interface: Observation, value forms; one used)."""
SOURCES = ("content", "file", "url")
NUMBERED = ("line", "item", "barcode")
_MISSING: Mapping[tuple[str, ...], str] = {VALUES: "has no value", SOURCES: "has no source"}
HIGHEST_VERSION = 2**63 - 1
"""What every database keeps as a whole number."""
_QUANTITIES = frozenset({"value_quantity", "low", "high", "numerator", "denominator", "origin"})


def order_rules(tree: Mapping[str, Any]) -> list[Found]:
    """Say what is wrong with an order beyond its fields."""
    version = tree.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        mend = f"this program knows versions up to {SCHEMA_VERSION}; install a newer one"
        return [Found(("schema_version",), "is a newer form of an order", mend)]
    return []


def message_rules(kind: type[Any], tree: Mapping[str, Any], zone: tzinfo | None = None) -> list[Found]:
    """Say what is wrong with a report, a refusal or a receipt beyond its fields; `zone` is meant where a time has none."""
    rules = _refusal(tree) if kind is LabRefusal else _receipt(tree) if kind is LabReceipt else _report(tree, zone)
    return [*rules, *_everywhere(tree, ())]


def _refusal(tree: Mapping[str, Any]) -> Iterator[Found]:
    reasons = [entry for _, entry in _entries(tree, "not_performed")]
    if not any(tree.get(name) for name in ("order", "accession", "barcode")) and not any(one.get("line") for one in reasons):
        yield Found((), "names no order", "give at least one of order, accession, barcode and not_performed[].line")
    if tree.get("not_performed") == []:
        yield Found(("not_performed",), "is empty", "give at least one entry with the reason that the clinic will read")
    yield from _reasons(tree)


def _receipt(tree: Mapping[str, Any]) -> Iterator[Found]:
    if not any(tree.get(name) for name in ("order", "barcode")):
        yield Found((), "names no order", "give at least one of order and barcode")
    if not tree.get("accession") and not tree.get("accessions"):
        yield Found((), "gives no number", "give accession, or at least one of accessions")
    for index, entry in _entries(tree, "accessions"):
        yield from _one_of(entry, NUMBERED, ("accessions", index))
        if isinstance(entry.get("number"), str) and not entry["number"].strip():
            yield Found(("accessions", index, "number"), "is empty", "give the laboratory's number")


def _report(tree: Mapping[str, Any], zone: tzinfo | None) -> Iterator[Found]:
    if not any(tree.get(name) for name in ("order", "lines", "accession", "barcode")):
        yield Found((), "names no order", "give at least one of order, lines, accession and barcode")
    if tree.get("report_id") == "":
        yield Found(("report_id",), "is empty", "give the laboratory's own name of the report")
    version = tree.get("version")
    if isinstance(version, int) and not 0 <= version <= HIGHEST_VERSION:
        what = "is a number below nought" if version < 0 else "is a number out of all measure"
        yield Found(("version",), what, f"write a whole number from 0 to {HIGHEST_VERSION}")
    for index, observation in _entries(tree, "observations"):
        yield from _observation(observation, ("observations", index))
        yield from value_rules(observation, ("observations", index), zone)
    for index, document in _entries(tree, "documents"):
        yield from _one_of(document, SOURCES, ("documents", index))
    yield from _reasons(tree)


def _reasons(tree: Mapping[str, Any]) -> Iterator[Found]:
    for index, entry in _entries(tree, "not_performed"):
        reason = entry.get("reason")
        if isinstance(reason, str) and not reason.strip():
            yield Found(("not_performed", index, "reason"), "is empty", "write the reason that the clinic will read")


def _observation(observation: Mapping[str, Any], place: Place) -> Iterator[Found]:
    yield from _one_of(observation, VALUES, place)
    attachment = observation.get("value_attachment")
    if isinstance(attachment, Mapping):
        yield from _one_of(attachment, SOURCES, (*place, "value_attachment"))


def _one_of(holder: Mapping[str, Any], names: tuple[str, ...], place: Place) -> Iterator[Found]:
    given = [name for name in names if holder.get(name) not in (None, "", {})]
    if not given:
        yield Found(place, _MISSING.get(names, "names nothing"), f"give exactly one of {', '.join(names)}")
    elif len(given) > 1:
        yield Found(place, f"has {len(given)} at once: {', '.join(given)}", "give exactly one of them")


def _everywhere(tree: Any, place: Place) -> Iterator[Found]:
    """Look at every quantity and every text."""
    if isinstance(tree, list):
        for index, item in enumerate(tree):
            yield from _everywhere(item, (*place, index))
    elif isinstance(tree, Mapping):
        if place and place[-1] in _QUANTITIES and tree.get("comparator") not in (None, *COMPARATORS):
            yield Found((*place, "comparator"), "is no comparator", f"write one of {' '.join(COMPARATORS)}, or leave it out")
        for key, item in tree.items():
            yield from _everywhere(item, (*place, key))
    elif isinstance(tree, str):
        yield from text_rules(tree, place)


def _entries(holder: Mapping[str, Any], name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    listed = holder.get(name)
    if isinstance(listed, list):
        yield from ((index, entry) for index, entry in enumerate(listed) if isinstance(entry, Mapping))
