"""Rules that no single field can tell: exactly one value, exactly one source of a document, an order that is named.

They look at the JSON as it was read, so that they speak up together with what is wrong in shape, and stay silent where the shape
is so wrong that they have nothing to look at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import tzinfo
from typing import Any

from lab_agent.codec.problems import ValidationIssue
from lab_agent.codec.texts import text_issues
from lab_agent.codec.values import COMPARATORS, value_issues
from lab_agent.domain.order import SCHEMA_VERSION
from lab_agent.domain.results import AccessionUpdate, LabRejection, ReportedObservation

Location = tuple[str | int, ...]

VALUE_FIELDS = tuple(one.name for one in fields(ReportedObservation) if one.name.startswith("value_"))
"""The value forms of an observation (interface: Observation, value forms; one used)."""
SOURCE_FIELDS = ("content", "file", "url")
ACCESSION_FIELDS = ("line", "item", "barcode")
_MISSING_MESSAGES: Mapping[tuple[str, ...], str] = {VALUE_FIELDS: "has no value", SOURCE_FIELDS: "has no source"}
MAX_VERSION = 2**63 - 1
"""What every database keeps as a whole number."""
_QUANTITY_FIELDS = frozenset({"value_quantity", "low", "high", "numerator", "denominator", "origin"})


def order_issues(tree: Mapping[str, Any]) -> list[ValidationIssue]:
    """Say what is wrong with an order beyond its fields."""
    version = tree.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        mend = f"this program knows versions up to {SCHEMA_VERSION}; install a newer one"
        return [ValidationIssue(("schema_version",), "is a newer form of an order", mend)]
    return []


def message_issues(kind: type[Any], tree: Mapping[str, Any], time_zone: tzinfo | None = None) -> list[ValidationIssue]:
    """Say what is wrong with a report, a refusal or a receipt beyond its fields; `zone` is meant where a time has none."""
    rules = (
        _rejection_issues(tree)
        if kind is LabRejection
        else _accession_update_issues(tree)
        if kind is AccessionUpdate
        else _report_issues(tree, time_zone)
    )
    return [*rules, *_nested_issues(tree, ())]


def _rejection_issues(tree: Mapping[str, Any]) -> Iterator[ValidationIssue]:
    reasons = [entry for _, entry in _entries(tree, "not_performed")]
    if not any(tree.get(name) for name in ("order", "accession", "barcode")) and not any(one.get("line") for one in reasons):
        yield ValidationIssue((), "names no order", "give at least one of order, accession, barcode and not_performed[].line")
    if tree.get("not_performed") == []:
        yield ValidationIssue(("not_performed",), "is empty", "give at least one entry with the reason that the clinic will read")
    yield from _reason_issues(tree)


def _accession_update_issues(tree: Mapping[str, Any]) -> Iterator[ValidationIssue]:
    if not any(tree.get(name) for name in ("order", "barcode")):
        yield ValidationIssue((), "names no order", "give at least one of order and barcode")
    if not tree.get("accession") and not tree.get("accessions"):
        yield ValidationIssue((), "gives no number", "give accession, or at least one of accessions")
    for index, entry in _entries(tree, "accessions"):
        yield from _exactly_one_issues(entry, ACCESSION_FIELDS, ("accessions", index))
        if isinstance(entry.get("number"), str) and not entry["number"].strip():
            yield ValidationIssue(("accessions", index, "number"), "is empty", "give the laboratory's number")


def _report_issues(tree: Mapping[str, Any], time_zone: tzinfo | None) -> Iterator[ValidationIssue]:
    if not any(tree.get(name) for name in ("order", "lines", "accession", "barcode")):
        yield ValidationIssue((), "names no order", "give at least one of order, lines, accession and barcode")
    if tree.get("report_id") == "":
        yield ValidationIssue(("report_id",), "is empty", "give the laboratory's own name of the report")
    version = tree.get("version")
    if isinstance(version, int) and not 0 <= version <= MAX_VERSION:
        what = "is a number below nought" if version < 0 else "is a number out of all measure"
        yield ValidationIssue(("version",), what, f"write a whole number from 0 to {MAX_VERSION}")
    for index, observation in _entries(tree, "observations"):
        yield from _observation_issues(observation, ("observations", index))
        yield from value_issues(observation, ("observations", index), time_zone)
    for index, document in _entries(tree, "documents"):
        yield from _exactly_one_issues(document, SOURCE_FIELDS, ("documents", index))
    yield from _reason_issues(tree)


def _reason_issues(tree: Mapping[str, Any]) -> Iterator[ValidationIssue]:
    for index, entry in _entries(tree, "not_performed"):
        reason = entry.get("reason")
        if isinstance(reason, str) and not reason.strip():
            yield ValidationIssue(("not_performed", index, "reason"), "is empty", "write the reason that the clinic will read")


def _observation_issues(observation: Mapping[str, Any], location: Location) -> Iterator[ValidationIssue]:
    yield from _exactly_one_issues(observation, VALUE_FIELDS, location)
    attachment = observation.get("value_attachment")
    if isinstance(attachment, Mapping):
        yield from _exactly_one_issues(attachment, SOURCE_FIELDS, (*location, "value_attachment"))


def _exactly_one_issues(holder: Mapping[str, Any], names: tuple[str, ...], location: Location) -> Iterator[ValidationIssue]:
    given = [name for name in names if holder.get(name) not in (None, "", {})]
    if not given:
        yield ValidationIssue(location, _MISSING_MESSAGES.get(names, "names nothing"), f"give exactly one of {', '.join(names)}")
    elif len(given) > 1:
        yield ValidationIssue(location, f"has {len(given)} at once: {', '.join(given)}", "give exactly one of them")


def _nested_issues(tree: Any, location: Location) -> Iterator[ValidationIssue]:
    """Look at every quantity and every text."""
    if isinstance(tree, list):
        for index, item in enumerate(tree):
            yield from _nested_issues(item, (*location, index))
    elif isinstance(tree, Mapping):
        if location and location[-1] in _QUANTITY_FIELDS and tree.get("comparator") not in (None, *COMPARATORS):
            yield ValidationIssue(
                (*location, "comparator"), "is no comparator", f"write one of {' '.join(COMPARATORS)}, or leave it out"
            )
        for key, item in tree.items():
            yield from _nested_issues(item, (*location, key))
    elif isinstance(tree, str):
        yield from text_issues(tree, location)


def _entries(holder: Mapping[str, Any], name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    listed = holder.get(name)
    if isinstance(listed, list):
        yield from ((index, entry) for index, entry in enumerate(listed) if isinstance(entry, Mapping))
