"""Times of the values of one OBR (OBX-14) where they differ, as in a curve of glucose.

An Observation of the interface has no time of its own, and the report has one time for all of them. So the OBR is refused where
values of one code differ in nothing but their time, and where there is no other time of collection (OBR-7). Values of several
codes are told apart by these, and analysers write there when they measured. The map (`value_times`) can ask for each time in the
comment of its value.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from lab_agent.lis.hl7v2.parser import Segment
from lab_agent.lis.hl7v2.results.obx_values import LOINC, InvalidValueError, ObxValueReader
from lab_agent.lis.hl7v2.results.segment_groups import ObrGroup
from lab_agent.lis.hl7v2.timestamps import InvalidTimestampError, parse_date_or_time
from lab_agent.lis.value_reading import readable_text

_SEVERAL_TIMES = (
    "has values of one code and different times (OBX-14), and a report has one time: have the laboratory system send an OBR for "
    "each time, or set `value_times`"
)
_SEVERAL_COLLECTIONS = (
    "has values of different times (OBX-14) and no collection time (OBR-7): have the laboratory system send it, or an OBR for "
    "each time, or set `value_times`"
)


def times_of_values(group: ObrGroup, reader: ObxValueReader) -> Mapping[int, str]:
    """A comment with the time of each OBX, by its number; none where all of them have the same time, or none.

    Raises `InvalidValueError`.
    """
    texts = {entry.number: entry.obx.text(14) for entry in group.obx_entries if entry.obx.text(14)}
    if reader.field_map.results.value_times == "ignore" or len(set(texts.values())) < 2:
        return {}
    if reader.field_map.results.value_times == "note":
        return {number: f"time of this value: {_describe(text, reader)}" for number, text in texts.items()}
    if not group.find_first(reader.field_map.results.paths["collected"]):
        raise InvalidValueError(_SEVERAL_COLLECTIONS)
    first: dict[str, str] = {}
    for entry in group.obx_entries:
        text = texts.get(entry.number)
        if text and first.setdefault(_code(entry.obx, reader), text) != text:
            raise InvalidValueError(_SEVERAL_TIMES)
    return {}


def _code(obx: Segment, reader: ObxValueReader) -> str:
    """The code that the clinic gets."""
    codings = list(reader.read_codings(obx.first_repetition(3)))
    return next((one.code for one in (*(one for one in codings if one.system == LOINC), *codings)), "")


def _describe(text: str, reader: ObxValueReader) -> str:
    """The time as a person reads it; as it was sent where it is none, or where its zone is not known."""
    try:
        found = parse_date_or_time(text, reader.zone)
    except InvalidTimestampError:
        return readable_text(text)
    return found.isoformat(" ", "minutes") if isinstance(found, datetime) else str(found)
