"""Rules that go beyond the shape of a single field: exactly one value, exactly one source of a document, an order that is named.

They read the JSON as it came, so that what they find is reported together with what is wrong in shape, and are silent where a
part cannot be read: its reader reports that. What is rejected here has no legal form on the wire (FHIR STU3, Data Types) or no
place in a database; whatever a person might still want to send is held later instead.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import tzinfo
from decimal import Decimal
from typing import Any

from pydantic_core import PydanticCustomError

from lab_agent.lis.document_formats import is_document_in_base64
from lab_agent.lis.lab_messages import AccessionUpdate, LabRejection, ReportedObservation
from lab_agent.lis.lab_order import SCHEMA_VERSION
from lab_agent.lis.report_documents import MEDIA_TYPE_HINT, URL_HINT, is_media_type, is_openable_url
from lab_agent.lis.serialization.types import parse_date_or_time, parse_decimal
from lab_agent.shared.validation_errors import ValidationIssue
from lab_agent.shared.values import DateOrTime, is_certainly_after

Location = tuple[str | int, ...]
MAX_NAME_LENGTH = 200
"""The limit for a number that a laboratory system gives an order, too."""
NAME_FIELDS = frozenset({"report_id", "order", "accession", "barcode", "lines", "items", "completes", "line", "item", "number"})
"""Fields by which a message names what it is about."""
_CONTROL_CATEGORIES = frozenset({"Cc", "Zl", "Zp"})
COMPARATORS = ("<", "<=", ">=", ">")
GENDERS = ("male", "female", "other", "unknown")
_SAMPLE = r"(?:-?\d+(?:\.\d+)?|E|U|L)"
_SAMPLES = re.compile(rf"{_SAMPLE}(?: {_SAMPLE})*", re.ASCII)
VALUE_FIELDS = tuple(one.name for one in fields(ReportedObservation) if one.name.startswith("value_"))
"""The value forms of an observation (interface: Observation, value forms; one used)."""
_ENCODED_FIELD = "content"
SOURCE_FIELDS = (_ENCODED_FIELD, "file", "url")
ACCESSION_FIELDS = ("line", "item", "barcode")
_MISSING_MESSAGES: Mapping[tuple[str, ...], str] = {VALUE_FIELDS: "has no value", SOURCE_FIELDS: "has no source"}
MAX_VERSION = 2**63 - 1
"""The largest whole number that every database can store."""
_QUANTITY_FIELDS = frozenset({"value_quantity", "low", "high", "numerator", "denominator", "origin"})


def order_issues(tree: Mapping[str, Any]) -> list[ValidationIssue]:
    """Check an order beyond its fields."""
    version = tree.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        hint = f"install a newer program; this one knows versions up to {SCHEMA_VERSION}"
        return [ValidationIssue(("schema_version",), "is a newer version than this program knows", hint)]
    return []


def message_issues(kind: type[Any], tree: Mapping[str, Any], time_zone: tzinfo | None = None) -> list[ValidationIssue]:
    """Check a message beyond its fields; `time_zone` is that of the times without an offset."""
    rules = (
        _rejection_issues(tree)
        if kind is LabRejection
        else _accession_update_issues(tree)
        if kind is AccessionUpdate
        else _report_issues(tree, time_zone)
    )
    return [*rules, *_patient_issues(tree), *_nested_issues(tree, ())]


def _patient_issues(tree: Mapping[str, Any]) -> Iterator[ValidationIssue]:
    """Check whose it is: a sex that is not understood would be compared with nothing, in silence."""
    patient = tree.get("patient")
    gender = patient.get("gender") if isinstance(patient, Mapping) else None
    if isinstance(gender, str) and gender not in GENDERS:
        yield ValidationIssue(
            ("patient", "gender"), "is not a gender of FHIR", f"write one of {', '.join(GENDERS)}, or leave it out"
        )


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
        yield ValidationIssue(("report_id",), "is empty", "give the laboratory's own identifier of the report")
    version = tree.get("version")
    if isinstance(version, int) and not 0 <= version <= MAX_VERSION:
        what = "is negative" if version < 0 else "is too large"
        yield ValidationIssue(("version",), what, f"write a whole number from 0 to {MAX_VERSION}")
    for index, observation in _entries(tree, "observations"):
        yield from _observation_issues(observation, ("observations", index))
        yield from _value_issues(observation, ("observations", index), time_zone)
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
        yield ValidationIssue(location, f"has {len(given)} at once: {', '.join(given)}", "give only one of them")


def _nested_issues(tree: Any, location: Location) -> Iterator[ValidationIssue]:
    """Check every quantity and every text."""
    if isinstance(tree, list):
        for index, item in enumerate(tree):
            yield from _nested_issues(item, (*location, index))
    elif isinstance(tree, Mapping):
        if location and location[-1] in _QUANTITY_FIELDS and tree.get("comparator") not in (None, *COMPARATORS):
            yield ValidationIssue(
                (*location, "comparator"), "is not a comparator", f"write one of {' '.join(COMPARATORS)}, or remove it"
            )
        for key, item in tree.items():
            yield from _nested_issues(item, (*location, key))
    elif isinstance(tree, str):
        yield from _text_issues(tree, location)


def _entries(holder: Mapping[str, Any], name: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    listed = holder.get(name)
    if isinstance(listed, list):
        yield from ((index, entry) for index, entry in enumerate(listed) if isinstance(entry, Mapping))


def _value_issues(
    observation: Mapping[str, Any], location: tuple[str | int, ...], time_zone: tzinfo | None
) -> Iterator[ValidationIssue]:
    """Check the value forms that have an illegal content (FHIR STU3, Data Types: SampledData, Period, Range)."""
    series, period = observation.get("value_sampled_data"), observation.get("value_period")
    if isinstance(series, Mapping):
        yield from _sampled_data_issues(series, (*location, "value_sampled_data"))
        yield from _simple_quantity_issues(series, ("origin",), (*location, "value_sampled_data"))
    if isinstance(span := observation.get("value_range"), Mapping):
        yield from _simple_quantity_issues(span, ("low", "high"), (*location, "value_range"))
    if isinstance(period, Mapping):
        yield from _period_issues(period, (*location, "value_period"), time_zone)


def _sampled_data_issues(series: Mapping[str, Any], location: tuple[str | int, ...]) -> Iterator[ValidationIssue]:
    dimensions, period = _decimal_or_none(series.get("dimensions")), _decimal_or_none(series.get("period"))
    if dimensions is not None and dimensions < 1:
        yield ValidationIssue((*location, "dimensions"), "is less than 1", "give the number of values at each point in time")
    if period is not None and period <= 0:
        yield ValidationIssue((*location, "period"), "is not above 0", "give the milliseconds between two samples")
    data = series.get("data")
    if isinstance(data, str) and not _SAMPLES.fullmatch(data):
        hint = "write plain numbers, E, U and L, separated by single spaces"
        yield ValidationIssue((*location, "data"), "is not a series of samples", hint)


def _simple_quantity_issues(
    holder: Mapping[str, Any], names: tuple[str, ...], location: tuple[str | int, ...]
) -> Iterator[ValidationIssue]:
    """Check the amounts that are exact by their type: a comparator would be lost (FHIR STU3: SimpleQuantity)."""
    for name in names:
        amount = holder.get(name)
        if isinstance(amount, Mapping) and amount.get("comparator") in COMPARATORS:
            hint = "remove it, or give value_quantity with it, or the whole value as value_string"
            yield ValidationIssue((*location, name, "comparator"), "is not allowed in this form of value", hint)


def _period_issues(
    period: Mapping[str, Any], location: tuple[str | int, ...], time_zone: tzinfo | None
) -> Iterator[ValidationIssue]:
    start, end = (_date_or_time_or_none(period.get(name), time_zone) for name in ("start", "end"))
    if start is not None and end is not None and is_certainly_after(start, end):
        yield ValidationIssue(location, "ends before it starts", "give the earlier time as start")


def _decimal_or_none(value: Any) -> Decimal | None:
    try:
        return parse_decimal(value)
    except PydanticCustomError:
        return None


def _date_or_time_or_none(value: Any, time_zone: tzinfo | None) -> DateOrTime | None:
    try:
        return parse_date_or_time(value, time_zone)
    except PydanticCustomError:
        return None


def _text_issues(text: str, location: tuple[str | int, ...]) -> Iterator[ValidationIssue]:
    field = next((part for part in reversed(location) if isinstance(part, str)), "")
    if "\0" in text:
        yield ValidationIssue(
            location, "holds a NUL character", "remove it: neither a database nor the exchange service takes it"
        )
    elif field != _ENCODED_FIELD and is_document_in_base64(text):
        hint = "send it as a document: in documents or as value_attachment, in HL7 v2 as an OBX of type ED"
        yield ValidationIssue(location, "is a document in Base64", hint)
    elif field in NAME_FIELDS:
        yield from _name_issues(text, location)
    elif field == "url" and text and not is_openable_url(text):
        yield ValidationIssue(location, "is not an address that a clinic could open", URL_HINT)
    elif field == "content_type" and not is_media_type(text):
        yield ValidationIssue(location, "is not a media type", MEDIA_TYPE_HINT)
    elif field == "language" and text.strip() and text.split() != [text]:
        yield ValidationIssue(location, "is not a language code", "write it without white space, as in ru or en-US")
    elif field == "value_string" and text and not text.strip():
        yield ValidationIssue(location, "is blank", "write the value, or leave the observation out")


def _name_issues(text: str, location: tuple[str | int, ...]) -> Iterator[ValidationIssue]:
    if len(text) > MAX_NAME_LENGTH:
        yield ValidationIssue(location, f"is longer than {MAX_NAME_LENGTH} characters", "give the name only")
    elif any(unicodedata.category(char) in _CONTROL_CATEGORIES for char in text):
        yield ValidationIssue(location, "holds a control character", "give the name on one line, without tabs")
    elif text != text.strip():
        yield ValidationIssue(location, "begins or ends with white space", "remove it")
